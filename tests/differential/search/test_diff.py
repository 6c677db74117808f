"""Where two targets part, and which change between two releases explains it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import msgspec
import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.diff import Partings, find_partings
from cacheproof.differential.search.paired import telling_apart
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import StepRecord, TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics

IDEAL = Semantics.ideal()


def compare(right: Semantics, lane: str = "scheduler", seeds: int = 100) -> Partings:
    """The ideal against `right`."""
    return find_partings(ReferenceTarget(), ReferenceTarget(right), [LANES[lane]], seeds=seeds)


def lacking(*flags: str) -> Semantics:
    return IDEAL.without(*flags)


def test_targets_that_decide_alike_do_not_part() -> None:
    found = compare(IDEAL)
    assert found.traces == 100
    assert found.apart == 0
    assert found.partings == []


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("lane", "flag"),
    [
        ("encoder cache", "encoder_cache.drops_stale_notices"),
        ("scheduler", "scheduler.reads_ahead_without"),
        ("scheduler", "scheduler.keeps_items_whole"),
    ],
)
def test_a_change_is_shown_by_a_small_trace_and_named(lane: str, flag: str) -> None:
    found = compare(lacking(flag), lane)
    (parting,) = (one for one in found.partings if one.flags)
    assert parting.flags == {flag}
    assert parting.lane == lane
    assert len(parting.trace.events) <= 12
    assert found.unseen == []


@pytest.mark.full
def test_of_two_changes_each_is_shown() -> None:
    found = compare(
        lacking("scheduler.keeps_items_whole", "scheduler.reads_ahead_without"), seeds=200
    )
    shown = [parting.flags for parting in found.partings]
    assert {"scheduler.keeps_items_whole"} in shown
    assert {"scheduler.reads_ahead_without"} in shown


@pytest.mark.full
def test_a_change_that_nothing_shows_is_named() -> None:
    found = compare(
        lacking("block_keys.keys_adapter_paths", "encoder_cache.drops_stale_notices"),
        "encoder cache",
    )
    assert found.unseen == ["block_keys.keys_adapter_paths"]


@pytest.mark.full
def test_a_parting_that_takes_two_changes_at_once_is_explained_by_none() -> None:
    with_both = lacking("scheduler.takes_after_blocks", "encoder_cache.frees_stalled")
    found = compare(with_both, seeds=200)
    assert frozenset() in [parting.flags for parting in found.partings]


class Another:
    """A target that is no reference: decides as one does, and then says something else."""

    def __init__(self, says: Callable[[StepRecord], StepRecord]) -> None:
        self._reference, self._says = ReferenceTarget(), says
        self.protocol, self.release, self.model = self._reference.protocol, None, None

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return [
            msgspec.structs.replace(result, records=[self._says(one) for one in result.records])
            for result in self._reference.run(traces, fault)
        ]

    def close(self) -> None:
        self._reference.close()


def saying(field: str) -> Another:
    """Connectors that say something else in a field of their outcomes."""

    def says(record: StepRecord) -> StepRecord:
        if not isinstance(record.outcome, dict) or field not in record.outcome:
            return record
        return record._replace(outcome={**record.outcome, field: "something else"})

    return Another(says)


def parts(left: Any, right: Any, lane: str) -> Partings:
    with closing(left), closing(right):
        return find_partings(left, right, [LANES[lane]], seeds=20)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("field", "is_its_own"), [("pins", True), ("missing", False)])
def test_what_a_target_keeps_as_its_own_is_no_difference_from_the_reference(
    field: str, *, is_its_own: bool
) -> None:
    found = parts(saying(field), ReferenceTarget(), "connectors on a disk")
    assert found.traces > 0
    assert (found.apart == 0) is is_its_own


@pytest.mark.full
def test_between_other_targets_it_is_a_difference() -> None:
    assert parts(saying("pins"), saying("bytes"), "connectors on a disk").apart > 0


@pytest.mark.full
def test_what_the_reference_does_not_model_is_not_compared_with_it() -> None:
    lane = "connectors in memory"
    assert parts(saying("missing"), ReferenceTarget(), lane).traces == 0
    assert parts(saying("missing"), saying("pins"), lane).apart > 0
    assert telling_apart(LANES[lane], saying("missing"), ReferenceTarget()) == []  # type: ignore[arg-type]


def test_an_interruption_leaves_what_was_compared_until_then() -> None:
    def interrupt(found: Partings) -> None:
        if found.traces >= 10:
            raise KeyboardInterrupt

    lanes = [LANES["encoder cache"]]
    found = find_partings(ReferenceTarget(), ReferenceTarget(), lanes, tell=interrupt, seeds=100)
    assert (found.traces, found.is_interrupted) == (10, True)
    assert not compare(IDEAL, "encoder cache", seeds=10).is_interrupted
