"""Where two targets part, and which change between two releases explains it."""

import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.diff import Partings, find_partings
from cacheproof.differential.targets.reference import ReferenceTarget
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
