"""Where sizes of the encoder cache stand on the axis of a chart, and which of them are named."""

from collections.abc import Sequence
from itertools import pairwise
from math import log2

from msgspec import Struct

WIDE, NARROW = 560, 350
"""Pixels of a chart: where there is room, and on a telephone."""
LEFT, RIGHT = 52, 20
"""Pixels of a chart beside its axes."""
_CHARACTER = 6.6
"""Pixels of a character of a label, at most."""
_APART = 8


class Tick(Struct, frozen=True):
    """A size, in rows, its place in pixels from the left, and its label; empty where there is no
    room for one."""

    size: int
    x: float
    label: str


def axis(sizes: Sequence[int], width: int) -> list[Tick]:
    """The sizes on a scale of powers of two. Of labels that would touch, the larger size has one;
    the smallest and the largest always have theirs, where these two do not touch."""
    ordered = sorted(set(sizes))
    if not ordered:
        return []
    low, span = log2(ordered[0]), log2(ordered[-1]) - log2(ordered[0]) or 1.0
    places = [LEFT + (log2(size) - low) / span * (width - LEFT - RIGHT) for size in ordered]
    ticks = [Tick(size, x, "") for size, x in zip(ordered, places, strict=True)]
    named: list[Tick] = []
    for tick in [ticks[-1], ticks[0], *reversed(ticks[1:-1])]:
        labelled = Tick(tick.size, tick.x, short(tick.size))
        if tick.size not in {one.size for one in named} and not touching([labelled, *named]):
            named.append(labelled)
    by_size = {one.size: one for one in named}
    return [by_size.get(tick.size, tick) for tick in ticks]


def touching(ticks: Sequence[Tick]) -> list[tuple[int, int]]:
    """The sizes whose labels touch, two by two."""
    labelled = sorted((one for one in ticks if one.label), key=lambda one: one.x)
    return [
        (one.size, other.size)
        for one, other in pairwise(labelled)
        if one.x + _half(one) + _APART > other.x - _half(other)
    ]


def short(size: int) -> str:
    """A number of rows, in units of 1,024 where it is a multiple of that."""
    return f"{size // 1024:,}K" if size >= 1024 and size % 1024 == 0 else f"{size:,}"


def _half(tick: Tick) -> float:
    return len(tick.label) * _CHARACTER / 2
