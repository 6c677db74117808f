"""Attention over the KV store, as an attention function of transformers' own modules.

A step's tokens stand behind one another in one sequence, request after request. Every layer writes
the keys and values of all of them, and then each request attends over its own slots.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from cacheproof.gpu_runner.cross_attention import CrossStep
from cacheproof.gpu_runner.kv_store import PagedKVStore

NAME = "cacheproof_paged"


@dataclass(frozen=True)
class Window:
    """The tokens of one request in a step: [start, end) of the step's, behind `num_computed`.

    `slots` of [num_computed + end - start] are where all of its tokens so far are kept.
    """

    start: int
    end: int
    num_computed: int
    slots: torch.Tensor


@dataclass(frozen=True)
class PagedStep:
    """What the layers of a step share: the store, the slots that its tokens go to, of [tokens],
    and the windows of its requests; `cross` where the decoder attends to an encoder's rows."""

    store: PagedKVStore
    slots: torch.Tensor
    windows: tuple[Window, ...]
    cross: CrossStep | None = None


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    *,
    paged: PagedStep,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend from queries of [1, heads, tokens, head dim]; answers [1, tokens, heads, head dim]."""
    layer: int = module.layer_idx
    paged.store.write(layer, paged.slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    answers = []
    for window in paged.windows:
        keys, values = paged.store.read(layer, window.slots)
        answers.append(
            scaled_dot_product_attention(
                query[:, :, window.start : window.end],
                keys.transpose(0, 1)[None],
                values.transpose(0, 1)[None],
                attn_mask=_mask(window, query.device),
                scale=scaling,
                enable_gqa=True,
            )
        )
    return torch.cat(answers, dim=2).transpose(1, 2).contiguous(), None


def _mask(window: Window, device: torch.device) -> torch.Tensor | None:
    """Who sees whom, of [tokens, tokens so far]; None: each sees all."""
    tokens = window.end - window.start
    if tokens == 1:
        return None
    so_far = window.num_computed + tokens
    return torch.ones(tokens, so_far, dtype=torch.bool, device=device).tril(window.num_computed)


AttentionInterface.register(NAME, paged_attention)
