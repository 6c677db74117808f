"""Attention of a decoder over what an encoder made of its request's item, kept in the KV store.

Keys and values of the encoder's rows have blocks of their own. They are written in the step that
begins the request, and read in every one; a request that starts over writes them anew.
"""

from dataclasses import dataclass

import torch
from transformers import AttentionInterface

from cacheproof.gpu_runner.attention import attend
from cacheproof.gpu_runner.kv_store import PagedKVStore

NAME = "cacheproof_cross"


@dataclass(frozen=True)
class CrossWindow:
    """Tokens [start, end) of a step are of one request, and the rows that it reads in `slots`."""

    start: int
    end: int
    slots: torch.Tensor


@dataclass(frozen=True)
class CrossStep:
    """What the layers of a step share: the store, the encoder's rows of [rows, hidden size] that
    are new, the slots that they go to, of [rows], and the windows of the step's requests."""

    store: PagedKVStore
    rows: torch.Tensor
    slots: torch.Tensor
    windows: tuple[CrossWindow, ...]


def cross_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    *,
    cross: CrossStep,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attend from queries of [1, heads, tokens, head dim]; answers [1, tokens, heads, head dim].

    Keys and values are those of the step's new rows, of [1, heads, rows, head dim].
    """
    layer: int = module.layer_idx
    cross.store.write(layer, cross.slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    answers = [
        attend(cross.store, layer, one.slots, query[:, :, one.start : one.end], scaling)
        for one in cross.windows
    ]
    return torch.cat(answers, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, cross_attention)
