"""Pruned videos in a real engine: what it breaks, and where it answers as the runner does."""

from collections.abc import Callable

import msgspec
import pytest

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges import lockstep
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.trace import Trace

pytestmark = pytest.mark.full

TEXT_BEHIND = 12
SEEDS = (0, 1, 2, 3, 6, 8)
"""None of these has a chunk that ends right before an item."""


@pytest.mark.parametrize(
    ("name", "contract", "why"),
    [
        ("chunk", "SC-8", "c.raised == '' is false: 'IndexError' == ''"),
        ("two", "SC-8", "c.raised == '' is false: 'ValueError' == ''"),
        ("hit", "EQ-1", "p.one == p.other is false: (177,) == (416,)"),
        ("places", "EQ-1", "p.one == p.other is false: (5, 80) == (5, 687)"),
    ],
)
def test_the_release_loses_positions_and_the_runner_does_not(
    engine: HostTarget,
    runner: ReferenceTarget,
    finding: Callable[[str], Trace],
    name: str,
    contract: str,
    why: str,
) -> None:
    trace = finding(f"pruned-videos-{name}")
    examination = examine(trace, engine.run([trace])[0], engine, runner)
    assert examination.broken == {contract}
    assert examination.violations[contract].why == why
    assert examine(trace, runner.run([trace])[0], runner).broken == set()


def lone_items(seed: int) -> Trace:
    """A seed's trace without what the release goes wrong at: one item a prompt, text behind it,
    and no prefix cache."""
    trace = engine_trace(seed, "qwen2_5_vl", prunes=True)
    config = msgspec.structs.replace(
        trace.header.config,
        prefix_caching=False,
        max_model_len=192,
        num_blocks=trace.header.config.num_blocks + 4,
    )
    events = []
    for event in trace.events:
        if isinstance(event, Add):
            items = event.items[:1]
            longest = max((item.offset + item.length + TEXT_BEHIND for item in items), default=0)
            event = msgspec.structs.replace(event, items=items, prompt=max(event.prompt, longest))
        events.append(event)
    return Trace(msgspec.structs.replace(trace.header, config=config), tuple(events))


def test_answers_about_lone_pruned_videos_are_equal(
    engine: HostTarget, runner: ReferenceTarget
) -> None:
    for seed in SEEDS:
        trace = lone_items(seed)
        (theirs,), (ours,) = engine.run([trace]), runner.run([trace])
        assert theirs.illegal is None
        assert lockstep.compare(ours, theirs) is None, seed


def test_marks_must_have_room(engine: HostTarget, runner: ReferenceTarget) -> None:
    trace = engine_trace(3, "qwen2_5_vl", prunes=True)
    events = tuple(
        msgspec.structs.replace(
            event, items=tuple(msgspec.structs.replace(item, offset=0) for item in event.items[:1])
        )
        if isinstance(event, Add)
        else event
        for event in trace.events
    )
    moved = Trace(trace.header, events)
    for target in (engine, runner):
        illegal = target.run([moved])[0].illegal
        assert illegal is not None
        assert illegal.endswith("has no room for a mark before it and one behind")
