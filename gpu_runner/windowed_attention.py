"""Attention of a Qwen2.5-VL vision tower, whose patches attend within windows.

transformers calls attention once a window, thousands of times for a video. Here windows of one
length are attended in one call, which their order makes possible: `window_order` stands windows
of one length behind one another within each frame, and every frame of a video is cut alike.
"""

from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision


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


class WindowedAttention(torch.nn.Module):
    """In place of a tower's own attention module, over its projections.

    `windows` are the lengths of the windows of one frame, in patches, equal ones behind one
    another: the whole frame is one window of a layer of full attention.
    """

    def __init__(self, own: torch.nn.Module) -> None:
        super().__init__()
        self.own = own

    def forward(
        self,
        hidden_states: torch.Tensor,
        *,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        cu_seqlens: tuple[int, ...],
        **_: Any,
    ) -> torch.Tensor:
        """Hidden states of [patches, hidden size], frame after frame."""
        own: Any = self.own
        cos, sin = position_embeddings
        query, key, value = own.qkv(hidden_states).unflatten(-1, (3, own.num_heads, -1)).unbind(1)
        query, key = apply_rotary_pos_emb_vision(query, key, cos, sin)
        frames = [one.unflatten(0, (-1, sum(cu_seqlens))) for one in (query, key, value)]
        answers, begin = [], 0
        for length, alike in groupby(cu_seqlens):
            end = begin + length * len(list(alike))
            windows = [
                one[:, begin:end].unflatten(1, (-1, length)).flatten(0, 1).transpose(1, 2)
                for one in frames
            ]
            answer = scaled_dot_product_attention(*windows, scale=own.scaling).transpose(1, 2)
            answers.append(answer.unflatten(0, (len(frames[0]), -1)).flatten(1, 2))
            begin = end
        attended: torch.Tensor = own.proj(torch.cat(answers, dim=1).flatten(0, 1).flatten(1))
        return attended
