"""What pairs of runs amount to: which fault a break is, and on which side alone."""

import pytest

from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.paired import Pair, Parted
from cacheproof.differential.search.weighing import Tally, parted_groups, tallies
from cacheproof.differential.traces.manager import ManagerConfig, ManagerHeader, Update
from cacheproof.differential.traces.trace import Trace

TRACE = Trace(ManagerHeader(1, "encoder_cache", ManagerConfig(4, 4)), (Update(),))
LANE = "encoder cache"
WRONG = ("EC-1", "")


def pair(
    *,
    base: bool = False,
    head: bool = False,
    lane: str | None = LANE,
    name: str = "seed 0",
    parted: Parted | None = None,
    refused: tuple[bool, bool] = (False, False),
) -> Pair:
    on_base, on_head = (frozenset({WRONG} if one else ()) for one in (base, head))
    return Pair(lane, name, TRACE, on_base, on_head, *refused, parted, 1)


def fault(name: str, releases: str) -> KnownFault:
    return KnownFault("EC-1", releases, "safety", "a note", name=name)


def only(pairs: list[Pair], known: list[KnownFault]) -> Tally:
    (tally,) = tallies(pairs, known, "0.32.0", "0.33.0")
    return tally


def test_a_break_is_counted_on_each_side_and_on_each_alone() -> None:
    tally = only([pair(base=True), pair(head=True), pair(base=True, head=True)], [])
    assert (tally.base, tally.head, tally.base_alone, tally.head_alone) == (2, 2, 1, 1)
    assert tally.fault is None


@pytest.mark.parametrize(("refused", "alone"), [((True, False), 0), ((False, False), 1)])
def test_a_side_that_refuses_the_trace_has_not_kept_the_contract(
    refused: tuple[bool, bool], alone: int
) -> None:
    assert only([pair(head=True, refused=refused)], []).head_alone == alone


def test_of_faults_that_a_break_may_be_that_of_one_release_explains_what_one_side_breaks() -> None:
    known = [fault("in-both", "all"), fault("old", "<0.33.0"), fault("new", ">=0.33.0")]
    assert only([pair(base=True)], known).fault == "old"
    assert only([pair(head=True)], known).fault == "new"
    assert only([pair(base=True, head=True)], known).fault == "in-both"


def test_a_kept_trace_shows_the_fault_that_it_is_called_after() -> None:
    known = [fault("old", "<0.33.0"), fault("named", "all")]
    tally = only([pair(base=True, lane=None, name="named-before")], known)
    assert (tally.fault, tally.names) == ("named", ["named-before"])


def test_a_fault_of_the_other_release_is_not_listed_for_this_one() -> None:
    tally = only([pair(base=True)], [fault("old", "<0.33.0")])
    assert (tally.of_base, tally.of_head) == (True, False)


def test_partings_are_told_apart_by_what_parted_and_by_the_change_that_explains_them() -> None:
    first = Parted("free", "delta", frozenset())
    second = Parted("", "scheduled", frozenset({"a.change"}))
    later = Parted("free", "delta", None)
    groups = parted_groups([pair(parted=one) for one in (second, first, later, second)])
    assert [(one.parted.place, one.change, one.traces) for one in groups] == [
        (("free", "delta"), None, 2),
        (("", "scheduled"), "a.change", 2),
    ]
    assert [len(one.candidates) for one in groups] == [1, 2]
