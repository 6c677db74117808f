"""What pairs of runs amount to: which fault a break is, and on which side alone."""

import pytest

from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.search.known import KnownFault, Symptom
from cacheproof.differential.search.paired import Pair, Parted
from cacheproof.differential.search.weighing import BreakTally, parted_groups, tallies
from cacheproof.differential.traces.manager import ManagerConfig, ManagerHeader, Update
from cacheproof.differential.traces.trace import Trace

TRACE = Trace(ManagerHeader(1, "encoder_cache", ManagerConfig(4, 4)), (Update(),))
LANE = "encoder cache"
WRONG = ("EC-1", "")
KEPT = "kept"
"""In the place of the fault that breaks it on a side: the contract is kept there."""


def pair(
    *,
    base: str | None = KEPT,
    head: str | None = KEPT,
    lane: str | None = LANE,
    name: str = "seed 0",
    parted: Parted | None = None,
    refused: tuple[bool, bool] = (False, False),
) -> Pair:
    on_base, on_head = ({} if one is KEPT else {WRONG: Attributed(one)} for one in (base, head))
    return Pair(lane, name, TRACE, on_base, on_head, *refused, parted, 1)


def fault(name: str, releases: str) -> KnownFault:
    return KnownFault(name, "a title", "safety", symptom=(Symptom("EC-1", releases),))


def only(pairs: list[Pair], known: list[KnownFault]) -> BreakTally:
    (tally,) = tallies(pairs, known, "0.32.0", "0.33.0")
    return tally


def test_a_break_is_counted_on_each_side_and_on_each_alone() -> None:
    tally = only([pair(base=None), pair(head=None), pair(base=None, head=None)], [])
    assert (tally.base, tally.head, tally.base_alone, tally.head_alone) == (2, 2, 1, 1)
    assert tally.fault is None


@pytest.mark.parametrize(("refused", "alone"), [((True, False), 0), ((False, False), 1)])
def test_a_side_that_refuses_the_trace_has_not_kept_the_contract(
    refused: tuple[bool, bool], alone: int
) -> None:
    assert only([pair(head=None, refused=refused)], []).head_alone == alone


def test_a_break_of_each_side_is_counted_as_its_own_fault() -> None:
    known = [fault("old", "<0.33.0")]
    tallied = tallies([pair(base="old", head=None)] * 2, known, "0.32.0", "0.33.0")
    assert [(one.fault, one.base_alone, one.head_alone) for one in tallied] == [
        (None, 0, 2),
        ("old", 2, 0),
    ]
    assert [one.of_base for one in tallied] == [False, True]


def test_a_kept_trace_that_head_mends_is_named() -> None:
    tally = only([pair(base="named", lane=None, name="named-before")], [fault("named", "all")])
    assert (tally.fault, tally.names) == ("named", ["named-before"])


def test_a_fault_of_the_other_release_is_not_listed_for_this_one() -> None:
    tally = only([pair(base="old")], [fault("old", "<0.33.0")])
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
