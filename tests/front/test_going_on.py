"""A search by turns of seeds goes on in lanes alone in which a listed fault is yet to be met."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.known import KnownFault, Symptom
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.reference.semantics import Semantics
from cacheproof.search.search_run import SearchRun
from cacheproof.work.plan import SearchPlan

MET = KnownFault(
    "repeated-item", "Released too early", "safety",
    symptom=(Symptom("EC-6a", ">=0.10.2"),), again=("encoder cache", "reused media ids"),
)  # fmt: skip
NEVER_MET = KnownFault(
    "unheard-of", "A wrong ledger", "safety",
    symptom=(Symptom("EC-3", ">=0.10.2", ("reused media ids",)),), again=("reused media ids",),
)  # fmt: skip
LANE_NAMES = "encoder cache", "reused media ids"


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """The reference in the place of 0.28.0."""
    release = "0.28.0"
    with closing(ReferenceTarget(Semantics.of_vllm(release), name="it", release=release)) as target:
        yield target


def begun(target: Target, known: list[KnownFault], seeds_at_once: int | None) -> SearchRun:
    """A search of two lanes that has run the first two seeds of each."""
    lanes = tuple(LANES[name] for name in LANE_NAMES)
    plan = SearchPlan(lanes, range(5), None, with_reference=False, seeds_at_once=seeds_at_once)
    run = SearchRun(target, lanes, plan, known, Path("unused"))
    assert [seeds for _, seeds in run._turns(lanes)]
    told_apart = Attribution.of_target(known, target, reference_for(target))
    run.outcome = search(
        target,
        lanes,
        against=None,
        seeds=range(2),
        kept_per_break=1,
        attribution=told_apart,
    )
    return run


def test_where_all_that_is_listed_was_met_no_lane_goes_on(target: Target) -> None:
    run = begun(target, [MET], 2)
    assert any(one.contract == "EC-6a" for one in run.outcome.breaks)
    assert run._lanes_to_go_on() == []


def test_the_lane_of_a_fault_that_was_not_met_goes_on_until_its_seeds_are_up(
    target: Target,
) -> None:
    run = begun(target, [MET, NEVER_MET], 2)
    for seeds in ((2, 3), (4,)):
        lanes = run._lanes_to_go_on()
        assert [lane.name for lane in lanes] == ["reused media ids"]
        assert [part for _, part in run._turns(lanes)] == [seeds]
    assert run._lanes_to_go_on() == []


SHOWN = replace(NEVER_MET, seeds={"reused media ids": (3, 7)})


def test_a_seed_that_shows_a_fault_is_run_with_the_first_ones_and_once(target: Target) -> None:
    lanes = tuple(LANES[name] for name in LANE_NAMES)
    known = [MET, SHOWN]
    plan = SearchPlan(
        lanes, range(5), None, with_reference=False, seeds_at_once=2, shows_listed=True
    )
    run = SearchRun(target, lanes, plan, known, Path("unused"))
    first = list(run._seeds())
    assert first[-1] == (LANES["reused media ids"], (3, 7))
    assert [(lane.name, part) for lane, part in first[:-1]] == [(one, (0, 1)) for one in LANE_NAMES]
    later = [list(run._turns(lanes)) for _ in range(2)]
    assert [(lane.name, part) for lane, part in later[0]] == [
        ("encoder cache", (2, 3)),
        ("reused media ids", (2,)),
    ]
    assert [part for _, part in later[1]] == [(4,), (4,)]


def test_without_turns_no_lane_goes_on(target: Target) -> None:
    assert begun(target, [MET, NEVER_MET], None)._lanes_to_go_on() == []
