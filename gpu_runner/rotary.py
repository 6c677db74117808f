"""Rotary positions on three axes: time, height and width.

Text counts up on all axes at once. A media item's rows stand in a grid that begins where the text
before it has come to, and the text behind it goes on behind the farthest of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from cacheproof.reference.request import PlaceholderRange

AXES = 3


class Grid(NamedTuple):
    """An item's rows: frames, rows of each, columns; a frame is `interval` positions after the one
    before, rounded down."""

    frames: int
    height: int
    width: int
    interval: float = 1.0

    @property
    def num_rows(self) -> int:
        """Number of rows in all frames."""
        return self.frames * self.height * self.width


class RotaryPositions(NamedTuple):
    """Positions of a prompt's tokens, [axes, tokens], and that of the first token behind it."""

    of_prompt: torch.Tensor
    behind: int


def in_grid(grid: Grid) -> torch.Tensor:
    """Positions of a grid's rows, [axes, rows], as if the item came first."""
    times = (torch.arange(grid.frames) * grid.interval).long()
    axes = torch.meshgrid(times, torch.arange(grid.height), torch.arange(grid.width), indexing="ij")
    return torch.stack(axes).reshape(AXES, -1)


def of_prompt(
    length: int, items: Sequence[tuple[PlaceholderRange, Grid]], *, pruned: bool = False
) -> RotaryPositions:
    """Positions of a prompt of `length` tokens.

    Where items are `pruned`, only their rows know where in the grid they stand: all tokens of an
    item get the position that it begins at, and the text behind it goes on after its width.
    Source: what vLLM computes for Qwen2.5-VL, with and without pruning of videos.
    """
    positions = torch.empty(AXES, length, dtype=torch.int64)
    at = following = 0
    for where, grid in sorted(items, key=lambda item: item[0].offset):
        text = where.offset - at
        positions[:, at : where.offset] = torch.arange(text) + following
        following += text
        if pruned:
            positions[:, where.offset : where.end] = following
            following += grid.width
        else:
            of_rows = in_grid(grid) + following
            positions[:, where.offset : where.end] = of_rows
            following = int(of_rows.max()) + 1
        at = where.end
    positions[:, at:] = torch.arange(length - at) + following
    return RotaryPositions(positions, following + length - at)
