"""Which rows of a video are kept: those that differ most from the frame before (EVS).

Source: efficient video sampling, as vLLM does it for Qwen2.5-VL.
"""

import torch
from torch.nn.functional import cosine_similarity

from cacheproof.gpu_runner.rotary import Grid


def num_retained(grid: Grid, rate: float) -> int:
    """How many rows stay at a pruning rate: the first frame's at least."""
    of_frame = grid.height * grid.width
    return max(of_frame, int(grid.frames * of_frame * (1 - rate)))


def retained(rows: torch.Tensor, grid: Grid, rate: float) -> torch.Tensor:
    """The places of the rows of [rows, hidden] that are kept, in order; of equals the first ones.

    All of the first frame are.
    """
    of_frame = grid.height * grid.width
    frames = rows.view(grid.frames, of_frame, -1)
    news = 1 - cosine_similarity(frames[1:], frames[:-1], dim=-1).flatten()
    first = torch.full((of_frame,), torch.inf, dtype=news.dtype, device=news.device)
    order = torch.cat([first, news]).argsort(descending=True, stable=True)
    return order[: num_retained(grid, rate)].sort().values
