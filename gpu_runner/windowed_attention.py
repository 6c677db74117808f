"""Attention of a vision tower whose patches attend within windows, or within frames: Qwen2.5-VL's,
and Qwen3-VL's.

transformers calls attention once a window, thousands of times for a video, and has the windows'
lengths back from the device in every layer. Here windows of one length are attended in one call,
which their order makes possible: `window_order` stands windows of one length behind one another
within each frame, and all frames are cut alike.
"""

from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision

from cacheproof.gpu_runner.devices import upload
from cacheproof.gpu_runner.rotary import Grid


class WindowOrder(NamedTuple):
    """In which order a tower takes the merged patches of one frame, `[patches]`, and the lengths
    of the windows that they then stand in, in merged patches."""

    index: torch.Tensor
    lengths: tuple[int, ...]


def window_order(height: int, width: int, side: int) -> WindowOrder:
    """Windows of `side` x `side` of a frame's merged patches, those at its edges cut off."""
    patches = torch.arange(height * width).reshape(height, width)
    windows = [
        patches[top : top + side, left : left + side].flatten()
        for top in range(0, height, side)
        for left in range(0, width, side)
    ]
    windows.sort(key=len, reverse=True)
    return WindowOrder(torch.cat(windows), tuple(map(len, windows)))


class Arrangement(NamedTuple):
    """What a tower is told of its patches, under its own names: row and column of each,
    `[patches, 2]`; in which order it takes the merged ones; and how many patches attend together,
    in layers of full attention and of windows, for `WindowedAttention`."""

    position_ids: torch.Tensor
    window_index: torch.Tensor
    cu_seqlens: tuple[int, ...]
    cu_window_seqlens: tuple[int, ...]


def arrangement(grid: Grid, merge: int, side: int, device: torch.device) -> Arrangement:
    """The arrangement of patches, `merge` x `merge` to a row of the grid, in windows of `side` x
    `side` rows."""
    of_frame, of_row = grid.height * grid.width, merge**2
    order = window_order(grid.height, grid.width, side)
    starts = torch.arange(grid.frames)[:, None] * of_frame
    return Arrangement(
        upload(patch_places(grid, merge).repeat(grid.frames, 1), device),
        upload((starts + order.index).flatten(), device),
        (of_frame * of_row,),
        tuple(length * of_row for length in order.lengths),
    )


def patch_places(grid: Grid, merge: int) -> torch.Tensor:
    """Row and column of each patch of a frame; patches that are merged stand side by side."""
    rows, columns = torch.meshgrid(
        torch.arange(grid.height * merge), torch.arange(grid.width * merge), indexing="ij"
    )
    blocks = (grid.height, merge, grid.width, merge)
    together = [one.reshape(blocks).transpose(1, 2).flatten() for one in (rows, columns)]
    return torch.stack(together, dim=1)


class WindowedAttention(torch.nn.Module):
    """In place of a tower's own attention module, over its projections, which keep their names.

    `windows` are the lengths of the windows of one frame, in patches, equal ones behind one
    another: the whole frame is one window of a layer of full attention.
    """

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.qkv, self.proj = own.qkv, own.proj
        self._num_heads, self._scaling = own.num_heads, own.scaling

    def forward(
        self,
        hidden_states: torch.Tensor,
        *,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        cu_seqlens: tuple[int, ...],
        **_: object,
    ) -> torch.Tensor:
        """Hidden states of [patches, hidden size], frame after frame."""
        cos, sin = position_embeddings
        projected = self.qkv(hidden_states).unflatten(-1, (3, self._num_heads, -1))
        query, key, value = projected.unbind(1)
        query, key = apply_rotary_pos_emb_vision(query, key, cos, sin)
        frames = [one.unflatten(0, (-1, sum(cu_seqlens))) for one in (query, key, value)]
        answers, begin = [], 0
        for length, alike in groupby(cu_seqlens):
            end = begin + length * len(list(alike))
            windows = [
                one[:, begin:end].unflatten(1, (-1, length)).flatten(0, 1).transpose(1, 2)
                for one in frames
            ]
            answer = scaled_dot_product_attention(*windows, scale=self._scaling).transpose(1, 2)
            answers.append(answer.unflatten(0, (len(frames[0]), -1)).flatten(1, 2))
            begin = end
        attended: torch.Tensor = self.proj(torch.cat(answers, dim=1).flatten(0, 1).flatten(1))
        return attended
