"""What a search has not seen yet, estimated from how often it met what it has seen.

Sampling units are traces, or shards where traces were not counted; a species is a state or a pair
of states. The estimators are those that M. Böhme brought to fuzzing (STADS, TOSEM 2018): Good and
Turing's for what the next unit brings, and Chao's for incidence (Chao 1987, also called Chao2) for
how many species are left. Both assume that units are drawn independently from one distribution.
"""

import math
from collections.abc import Iterable

import msgspec

Z = 1.96
"""Quantile of a two-sided interval of 95 %."""
AT_MOST_95 = math.log(20.0)
"""A species that none of n units has met has a rate below this by n, at 95 %."""


class Estimate(msgspec.Struct, frozen=True):
    """What n `units` have left unseen.

    Attributes:
        once, twice: species met in exactly one, and in exactly two units.
        next: how many species the next unit meets for the first time, on average: at least the
            probability that it meets any. `next_low` and `next_high` bound it at 95 %.
        left: a lower bound, on average, of the species that are never met and could be; with
            bounds of 95 %.
    """

    units: int
    seen: int
    once: int
    twice: int
    next: float
    next_low: float
    next_high: float
    left: float
    left_low: float
    left_high: float


def estimate(met_in: Iterable[int], units: int) -> Estimate | None:
    """The estimate from how many units met each species; None where no unit was drawn."""
    if units < 1:
        return None
    counts = [one for one in met_in if one]
    once, twice = counts.count(1), counts.count(2)
    low, high = _bounds_of_next(once, twice)
    left = chao(once, twice, units)
    left_low, left_high = _bounds_of_left(left, once, twice, units)
    return Estimate(
        units,
        len(counts),
        once,
        twice,
        once / units,
        low / units,
        high / units,
        left,
        left_low,
        left_high,
    )


def chao(once: int, twice: int, units: int) -> float:
    """How many species are unseen at least: the form that corrects the bias of few."""
    return (units - 1) / units * once * (once - 1) / (2 * (twice + 1))


def _bounds_of_next(once: int, twice: int) -> tuple[float, float]:
    """Bounds of the estimate times the number of units: a score interval with Esty's variance
    (1983), which stays wide where nothing was met once or twice."""
    middle = once + Z * Z / 2
    half = Z * math.sqrt(once + 2 * twice + Z * Z / 4)
    return max(0.0, middle - half), middle + half


def _bounds_of_left(left: float, once: int, twice: int, units: int) -> tuple[float, float]:
    """Chao's interval (1987): the number of unseen species is taken to be log-normal."""
    if left <= 0:
        return 0.0, 0.0
    share, both = (units - 1) / units, twice + 1
    spread = (
        share * once * (once - 1) / (2 * both)
        + share**2 * once * (2 * once - 1) ** 2 / (4 * both**2)
        + share**2 * once**2 * twice * (once - 1) ** 2 / (4 * both**4)
    )
    factor = math.exp(Z * math.sqrt(math.log1p(spread / left**2)))
    return left / factor, left * factor
