"""Real engines that load other weights: what old ones made is reset, and what happens if not."""

import msgspec
import pytest

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.engine import Reload
from cacheproof.differential.traces.manager import Add, Reset, Update
from cacheproof.differential.traces.scheduler import ResetPrefix, Schedule
from cacheproof.differential.traces.trace import AnyEvent, Trace

pytestmark = pytest.mark.full

STEP = (Schedule(), Update())
PICTURE = (Item("picture 1", 4, 16),)
ASKED = (Add("a", 40, PICTURE, max_tokens=4), *STEP * 5)
BEGUN = (Add("a", 40, PICTURE, max_tokens=4), *STEP * 2)
AGAIN = (Add("b", 40, PICTURE, max_tokens=4), *STEP * 4)


def wide(*events: AnyEvent) -> Trace:
    """These events for an engine without pressure."""
    header = engine_trace(0, asked="weights").header
    config = msgspec.structs.replace(
        header.config,
        capacity=64,
        compute_budget=64,
        max_num_batched_tokens=160,
        max_num_seqs=4,
        max_model_len=160,
        num_blocks=64,
        prefix_caching=True,
        policy="fcfs",
        long_prefill_token_threshold=0,
    )
    return Trace(msgspec.structs.replace(header, config=config), events)


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        ((*ASKED, Reload(1), ResetPrefix(), Reset(), *AGAIN), set()),
        ((*ASKED, Reload(1), Reset(), *AGAIN), {"SC-15"}),
        ((*ASKED, Reload(1), ResetPrefix(), *AGAIN), {"SC-8"}),
        ((*BEGUN, ResetPrefix(running=True), Reload(1), Reset(), *STEP * 4), set()),
        ((*BEGUN, Reload(1), Reset(), *STEP * 4), {"SC-15"}),
        ((*BEGUN, Reload(1), ResetPrefix(), Reset(), *STEP * 2), {"SC-15"}),
    ],
    ids=[
        "all resets",
        "prefixes not reset: old KV is hit",
        "encoder cache not reset: the engine ends",
        "who is in flight starts over",
        "who is in flight goes on over its old KV",
        "who is in flight and holds its blocks: prefixes are not reset",
    ],
)
def test_what_is_not_reset_stays(
    engine: HostTarget, runner: ReferenceTarget, events: tuple[AnyEvent, ...], broken: set[str]
) -> None:
    trace = wide(*events)
    (result,) = engine.run([trace])
    (ours,) = runner.run([trace])
    assert examine(trace, result, engine).broken == broken
    if "SC-8" not in broken:
        assert compare(ours, result) is None
        return
    raised = result.records[-1].raised
    assert raised is not None
    assert (raised.type, raised.message) == ("RuntimeError", "Encoder cache miss for picture 1.")


def test_who_has_hit_an_item_and_starts_over_ends_an_engine(engine: HostTarget) -> None:
    """See faults/stripped-item: its data was not sent."""
    first = Add("a", 40, PICTURE, max_tokens=4)
    begun = (first, *STEP * 5, Add("b", 40, PICTURE, max_tokens=9), *STEP)
    trace = wide(*begun, ResetPrefix(running=True), Reload(1), Reset(), *STEP)
    (result,) = engine.run([trace])
    raised = result.records[-1].raised
    assert raised is not None
    assert raised.message == "Encoder cache miss for picture 1."
    assert {"SC-8"} <= examine(trace, result, engine).broken
