"""A trace's records are judged whole, whatever the release did in their midst."""

import pytest
from msgspec.structs import replace

from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.provision import releases
from cacheproof.differential.targets.host.protocol import _shifts
from cacheproof.differential.targets.reference import ReferenceTarget, protocol_of
from cacheproof.differential.traces.base import SCHEMA, Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import (
    CallRecord,
    Delta,
    Entry,
    FullState,
    Raised,
    StepRecord,
    TraceResult,
)
from cacheproof.differential.traces.scheduler import (
    Schedule,
    SchedulerConfig,
    SchedulerHeader,
    Transfer,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.semantics import Semantics
from tests.differential import scheduler_traces

CONFIG = replace(scheduler_traces.CONFIG, capacity=4, compute_budget=4)
TRACE = Trace(
    SchedulerHeader(SCHEMA, "encoder_cache", CONFIG),
    (Add("a", 4, (Item("x", 0, 2),), 1, 0), Schedule()),
)
ARRIVED = StepRecord({"running": [], "waiting": ["a"]}, [], None, None)


def test_what_a_release_does_between_its_notices_and_its_exception_is_judged() -> None:
    """Releases up to 0.19.1 free consumed items inside schedule(), after the notices."""
    held = Delta(2, 2, {"x": Entry(["a"], 2)}, None, None)
    given_back = Delta(2, 4, {"x": Entry([], 2)}, [("x", 2)], None)
    broken_off = StepRecord(
        None,
        [
            CallRecord("can", "a", 0, 4, 0, True, None),
            CallRecord("allocate", "a", 0, None, None, None, held),
            CallRecord("notices", None, None, None, None, [], None),
            CallRecord("release", "a", 0, None, None, {"raises": "RuntimeError"}, given_back),
        ],
        Raised("RuntimeError", "planted"),
        FullState(2, 4, {"x": Entry([], 2)}, [("x", 2)], []),
    )
    release = ReferenceTarget(Semantics.of_vllm("0.18.1"), release="0.18.1")
    seen = examine(TRACE, TraceResult([ARRIVED, broken_off]), release)
    assert seen.calls == 7
    assert seen.violations["EC-13"].operation == "release"


DRAFTER = SchedulerConfig(
    capacity=3,
    compute_budget=3,
    max_num_batched_tokens=55,
    max_num_seqs=2,
    max_model_len=54,
    block_size=9,
    num_blocks=7,
    prefix_caching=False,
    policy="priority",
    long_prefill_token_threshold=32,
    num_speculative_tokens=1,
    drafter=True,
)


@pytest.mark.parametrize("holds", [True, False])
def test_an_item_is_held_until_a_drafters_reading_is_past_it_where_the_release_does(
    holds: bool,
) -> None:
    trace = Trace(
        SchedulerHeader(schema=SCHEMA, manager="encoder_cache", config=DRAFTER),
        (
            Add("a", prompt=33, items=(Item("x", offset=30, length=2),)),
            Add("b", prompt=4, items=(Item("y", 0, length=1), Item("z", 3, length=1))),
            Schedule(),
            Update(),
            Schedule(),
        ),
    )
    semantics = Semantics.of_vllm("0.32.0")
    protocol = protocol_of(semantics)
    assert protocol.holds_for_drafter
    target = ReferenceTarget(
        semantics, protocol._replace(holds_for_drafter=holds), release="0.32.0"
    )
    examined = examine(trace, target.run([trace])[0], target)
    assert ("EC-7" in examined.violations) is not holds


@pytest.mark.parametrize("is_mended", [True, False])
@pytest.mark.parametrize(
    ("kept", "release", "flag", "stop"),
    [
        ("whole-item-rolled-back", "0.33.0", "scheduler.ends_at_whole_items", "rolls_back"),
        ("drafter-standstill", "0.32.0", "scheduler.reads_ahead_without", "clamps"),
    ],
)
def test_a_chunk_ends_before_a_drafters_reading_where_the_target_does_so(
    kept: str, release: str, flag: str, stop: str, is_mended: bool
) -> None:
    """Said of the release alone, a target in which that is mended would stop too late."""
    trace = load(kept_traces()[kept])
    assert isinstance(trace, Trace)
    mended = Semantics.of_vllm(release).changed({flag: True})
    protocol = protocol_of(mended)
    assert getattr(protocol_of(Semantics.of_vllm(release)), stop)
    assert not getattr(protocol, stop)
    target = ReferenceTarget(mended, protocol._replace(**{stop: not is_mended}), release=release)
    broken = examine(trace, target.run([trace])[0], target).broken
    assert ("SC-3" in broken) is not is_mended


@pytest.mark.parametrize("release", ["0.11.1", "0.16.0", "0.32.0", "0.33.0"])
def test_where_a_chunk_ends_before_a_drafters_reading_is_read_off_the_text(release: str) -> None:
    installed = releases.find(release)
    if installed is None:
        pytest.skip(f"vLLM {release} is not installed")
    text = (installed.tree / "vllm/v1/core/sched/scheduler.py").read_text()
    walk = text.partition("def _try_schedule_encoder_inputs")[2].partition("\n    def ")[0]
    protocol = protocol_of(Semantics.of_vllm(release))
    assert _shifts(walk) == (protocol.rolls_back, protocol.clamps)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_worker_that_is_not_told_of_a_load_misses_it(is_told: bool) -> None:
    config = replace(CONFIG, ec_connector=True)
    trace = Trace(
        SchedulerHeader(SCHEMA, "encoder_cache", config),
        (Transfer("x", "ready"), Add("a", 4, (Item("x", 0, 2),)), Schedule()),
    )
    target = ReferenceTarget()
    result = target.run([trace])[0]
    outcome = result.records[-1].outcome
    assert outcome["loads"] == {"a": [0]}
    if not is_told:
        outcome["loads"] = {}
    broken = examine(trace, result, target).broken
    assert broken == (set() if is_told else {"WM-1", "WM-2"})
