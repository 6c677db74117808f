"""Attention of a request's tokens over its own slots of the KV store."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from cacheproof.gpu_runner.kv_store import PagedKVStore


def attend(
    store: PagedKVStore,
    layer: int,
    slots: torch.Tensor,
    query: torch.Tensor,
    scaling: float,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Answers to queries, both of [1, heads, tokens, head dim], over the slots of a layer."""
    keys, values = store.read(layer, slots)
    return scaled_dot_product_attention(
        query,
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=mask,
        scale=scaling,
        enable_gqa=True,
    )
