"""What runs of a way come to."""

import argparse
import math

import pytest


def outcome(script, way: str, fault: str, base: int, first: int | None, events: int):
    return script.Outcome(way, "scheduler", fault, base, 250, first, events)


def test_a_median_is_infinite_where_half_the_runs_found_nothing(script) -> None:
    found = [outcome(script, "today", "f", base, 3, 100 * base) for base in range(1, 4)]
    missed = [outcome(script, "today", "f", base, None, 9000) for base in range(4, 7)]
    assert script.median(found) == 200
    assert script.median([*found, missed[0]]) == 250
    assert script.median([*found, *missed]) == math.inf


def test_twice_the_events_for_a_break_are_a_ratio_of_a_half(script) -> None:
    today = [outcome(script, "today", "f", base, 1, 100) for base in range(4)]
    other = [outcome(script, "swarm", "f", base, 1, 200) for base in range(4)]
    assert script.ratio(today, other) == 0.5
    mean, low, high = script.mean_ratio([0.5, 0.5, 2.0, 2.0])
    assert (mean, low < 1 < high) == (1.0, True)


@pytest.mark.parametrize("text", ["x", "3", "4:4", "5:2", "-1:3", "1:2:3"])
def test_what_is_no_span_is_refused_and_says_what_is_one(script, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected A:B with A < B"):
        script.span(text)
    assert script.span("2:5") == range(2, 5)
