"""What a simulation found: a point for each kind of traffic and size of the encoder cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cacheproof.simulation.figures import Figures


@dataclass(frozen=True)
class Point:
    """One run.

    Attributes:
        traffic: the kind's name.
        encoder_cache, encoder_budget: rows that were kept, and that a step might encode: as asked
            for, or raised to the largest item.
        figures: what was counted.
        hit_rate: hits of all items that the encoder cache was asked for.
        resident_mean, held_mean: mean rows in the cache after a step, and of those the ones that a
            request holds.
        cache_bytes, peak_bytes: bytes of as many rows as are kept, and as there were at most.
    """

    traffic: str
    encoder_cache: int
    encoder_budget: int
    figures: Figures
    hit_rate: float
    resident_mean: float
    held_mean: float
    cache_bytes: int
    peak_bytes: int


def point(
    traffic: str, encoder_cache: int, encoder_budget: int, figures: Figures, row_bytes: int
) -> Point:
    """The point of a run, for rows of that many bytes each."""
    return Point(
        traffic,
        encoder_cache,
        encoder_budget,
        figures,
        round(figures.hit_rate, 6),
        round(figures.resident_mean, 1),
        round(figures.held_mean, 1),
        encoder_cache * row_bytes,
        figures.resident_peak * row_bytes,
    )


@dataclass(frozen=True)
class Simulation:
    """Every run of a command.

    Attributes:
        release: whose decisions were taken.
        requests: of each run.
        seed: of the traffic.
        row_bytes: bytes of a row.
        kinds: name of each kind of traffic -> what it is like.
        points: the runs, by kind and then by size.
    """

    release: str
    requests: int
    seed: int
    row_bytes: int
    kinds: Mapping[str, str]
    points: Sequence[Point]
