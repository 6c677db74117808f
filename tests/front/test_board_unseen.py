"""The estimators of what is unseen, against searches of which the truth is known."""

import random
from collections.abc import Callable, Sequence
from statistics import mean

import pytest

from cacheproof.board.unseen import Estimate, chao, estimate

TRIALS = 200
UNITS = 150
GEOMETRIC = [0.8 * 0.85**n for n in range(50)]
EVEN = [0.01] * 80
ZIPF = [0.5 / n for n in range(1, 120)]
COMMON_AND_RARE = [0.9] * 10 + [0.004] * 30
Rates = Sequence[float]
Draw = Callable[[random.Random, Rates, int], list[int]]


def independent(chance: random.Random, rates: Rates, units: int) -> list[int]:
    """How many units met each species, where nothing hangs on anything."""
    return [sum(chance.random() < rate for _ in range(units)) for rate in rates]


def copied(chance: random.Random, rates: Rates, units: int) -> list[int]:
    """The same where every unit is run ten times: a search that repeats itself."""
    return [10 * one for one in independent(chance, rates, units // 10)]


def in_groups(chance: random.Random, rates: Rates, units: int) -> list[int]:
    """The same where ten species come together or not at all, as pairs do."""
    return [one for one in independent(chance, rates[::10], units) for _ in range(10)]


def trials(draw: Draw, rates: Rates, units: int = UNITS) -> list[tuple[Estimate, float, int]]:
    """Estimates, each with the truth: what the next unit brings on average, and what is unseen."""
    chance = random.Random(7)
    found = []
    for _ in range(TRIALS):
        counts = draw(chance, rates, units)
        one = estimate(counts, units)
        assert one is not None
        unmet = [rate for rate, count in zip(rates, counts, strict=True) if not count]
        found.append((one, sum(unmet), len(unmet)))
    return found


def covered(some: Sequence[tuple[Estimate, float, int]]) -> float:
    """How often the bounds of what the next unit brings hold the truth."""
    return mean(one.next_low <= truth <= one.next_high for one, truth, _ in some)


@pytest.mark.parametrize(
    "rates",
    [GEOMETRIC, EVEN, ZIPF, COMMON_AND_RARE],
    ids=["geometric", "even", "zipf", "common and rare"],
)
def test_bounds_of_what_is_next_hold_the_truth_nine_times_in_ten(rates: Rates) -> None:
    some = trials(independent, rates)
    assert covered(some) >= 0.9
    told, truth = mean(one.next for one, _, _ in some), mean(truth for _, truth, _ in some)
    assert told == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize(
    "rates", [GEOMETRIC, EVEN, ZIPF, COMMON_AND_RARE], ids=["geometric", "even", "zipf", "rare"]
)
def test_what_is_unseen_is_no_less_than_told_on_average(rates: Rates) -> None:
    some = trials(independent, rates)
    told, truth = mean(one.left for one, _, _ in some), mean(left for *_, left in some)
    assert 0.2 * truth < told < 1.15 * truth


def test_bounds_are_wide_even_where_nothing_was_met_once() -> None:
    found = estimate([150, 80, 20], 150)
    assert found is not None
    assert (found.once, found.next, found.left) == (0, 0.0, 0.0)
    assert 3 / 150 < found.next_high < 4 / 150


def test_a_search_that_repeats_itself_is_told_to_be_complete_and_is_not() -> None:
    some = trials(copied, EVEN)
    assert covered(some) < 0.5
    assert all(one.next == 0 for one, _, _ in some)
    assert mean(truth for _, truth, _ in some) > 0.3


def test_species_that_come_in_groups_have_bounds_that_are_too_narrow() -> None:
    alone, grouped = trials(independent, EVEN), trials(in_groups, EVEN)
    assert covered(grouped) < 0.8 < covered(alone)


def test_chao_is_the_formula_that_corrects_for_bias() -> None:
    assert chao(10, 5, 100) == pytest.approx(0.99 * 10 * 9 / (2 * 6))
    assert chao(4, 0, 100) == pytest.approx(0.99 * 4 * 3 / 2)


def test_without_units_there_is_no_estimate() -> None:
    assert estimate([], 0) is None
