"""Answers of two sides: equal token for token, near each other in numbers, and ties said to be."""

from typing import Any

import pytest

from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.judges.outputs import BOUND, NEARLY
from cacheproof.differential.traces.records import StepRecord, TraceResult

CLEAR = 10 * NEARLY
TIE = NEARLY / 2
REST = {"scheduled": {"a": 1}}


def update(*tokens: Any, request: str = "a", **rest: Any) -> StepRecord:
    outputs = {request: [list(token) for token in tokens]}
    return StepRecord({"outputs": outputs, **rest}, [], None, None)


def parted(ours: list[StepRecord], theirs: list[StepRecord]) -> str | None:
    """The field in which two traces part; None: they do not."""
    difference = compare(TraceResult(tuple(ours)), TraceResult(tuple(theirs)))
    return None if difference is None else difference.field


SAME = update((7, -1.0, CLEAR))


@pytest.mark.parametrize(
    ("theirs", "field"),
    [
        (SAME, None),
        (update((7, -1.0 - BOUND / 2, CLEAR + BOUND / 2)), None),
        (update((7, -1.0 - BOUND * 2, CLEAR)), "log probability of a"),
        (update((7, -1.0, CLEAR + BOUND * 2)), "log probability of a"),
        (update((8, -1.0, CLEAR)), "token of a"),
        (update((7, -1.0, CLEAR), (7, -1.0, CLEAR)), "tokens of a"),
        (update((7, -1.0, CLEAR), request="b"), "requests with output"),
        (update((7, -1.0, CLEAR), preempted=["a"]), "preempted"),
    ],
)
def test_what_is_answered_is_compared(theirs: StepRecord, field: str | None) -> None:
    assert parted([SAME], [theirs]) == field


def test_a_token_that_rounding_decides_ends_the_comparison() -> None:
    tie, other = update((7, -1.0, TIE)), update((8, -1.0, TIE))
    after = update((9, -1.0, CLEAR)), update((10, -3.0, CLEAR))
    assert parted([tie, after[0]], [other, after[1]]) is None
    assert parted([tie, after[0]], [tie, after[1]]) == "token of a"


def test_one_side_without_doubt_is_enough_for_a_tie_and_no_side_for_none() -> None:
    clear = update((8, -1.0, CLEAR))
    assert parted([update((7, -1.0, TIE))], [clear]) is None
    assert parted([update((7, -1.0, CLEAR))], [clear]) == "token of a"


def test_what_is_a_side_s_own_affair_is_not_compared() -> None:
    ours = update((7, -1.0, CLEAR), memory={"bytes_held": 1}, origins={"rows": {}}, **REST)
    assert parted([ours], [update((7, -1.0, CLEAR), memory={"bytes_held": 2}, **REST)]) is None
    assert parted([ours], [update((7, -1.0, CLEAR), scheduled={"a": 2})]) is not None
