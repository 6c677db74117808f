"""Sizes on the axis of a chart are named as far as their labels do not touch."""

import random

import pytest

from cacheproof.simulation.axis import LEFT, NARROW, RIGHT, WIDE, Tick, axis, short, touching

DEFAULT = (2048, 6144, 8192, 32_768, 131_072, 524_288)
WIDTHS = pytest.mark.parametrize("width", [WIDE, NARROW])


@WIDTHS
def test_labels_never_touch_and_stay_in_the_chart(width: int) -> None:
    draw = random.Random(1)
    for _ in range(100):
        sizes = [draw.randrange(1, 1 << draw.randrange(2, 40)) for _ in range(draw.randint(1, 40))]
        ticks = axis(sizes, width)
        assert touching(ticks) == []
        assert [tick.size for tick in ticks] == sorted(set(sizes))
        assert all(LEFT <= tick.x <= width - RIGHT for tick in ticks)
        assert ticks[-1].label == short(max(sizes))


@WIDTHS
def test_labels_that_touch_are_noticed(width: int) -> None:
    ticks = [Tick(tick.size, tick.x, f"{tick.size:,}") for tick in axis(DEFAULT, width)]
    assert (6144, 8192) in touching(ticks)


def test_of_the_default_sizes_all_are_named_where_there_is_room() -> None:
    labels = [tick.label for tick in axis(DEFAULT, WIDE)]
    assert labels == ["2K", "6K", "8K", "32K", "128K", "512K"]


def test_of_two_that_touch_the_larger_is_named() -> None:
    labels = [tick.label for tick in axis((2048, 100_000, 101_376, 524_288), WIDE)]
    assert labels == ["2K", "", "99K", "512K"]


def test_one_size_alone_has_a_place() -> None:
    assert axis([8192], WIDE) == [Tick(8192, LEFT, "8K")]
    assert axis([], WIDE) == []
