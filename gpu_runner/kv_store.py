"""The KV store: keys and values of every layer, in blocks that requests own by block tables."""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class KVShape(NamedTuple):
    """What a layer keeps of a token, and how many layers there are."""

    num_layers: int
    num_kv_heads: int
    head_dim: int


class PagedKVStore:
    """A tensor of [2, blocks, block size, KV heads, head dim] a layer; keys first, then values."""

    def __init__(
        self,
        shape: KVShape,
        num_blocks: int,
        block_size: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        of_layer = (2, num_blocks, block_size, shape.num_kv_heads, shape.head_dim)
        self.layers = [
            torch.zeros(of_layer, dtype=dtype, device=device) for _ in range(shape.num_layers)
        ]

    @property
    def num_bytes(self) -> int:
        """Memory of all layers."""
        return sum(layer.numel() * layer.element_size() for layer in self.layers)

    def slots(self, block_ids: Sequence[int], start: int, end: int) -> torch.Tensor:
        """Where tokens [start, end) of a request are kept that owns those blocks; on the host.

        Raises:
            IndexError: it owns too few.
        """
        size = self.block_size
        if end > len(block_ids) * size:
            raise IndexError(f"token {end - 1} is behind {len(block_ids)} blocks of {size}")
        first = start // size
        blocks = torch.tensor(block_ids[first : -(-end // size)], dtype=torch.int64)
        slots = (blocks[:, None] * size + torch.arange(size)).flatten()
        return slots[start - first * size : end - first * size]

    def write(
        self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Keep keys and values of [tokens, KV heads, head dim] in those slots of a layer."""
        keys, values = self.layers[layer].flatten(1, 2)
        keys.index_copy_(0, slots, key)
        values.index_copy_(0, slots, value)

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of [tokens, KV heads, head dim] of those slots of a layer."""
        keys, values = self.layers[layer].flatten(1, 2)
        return keys.index_select(0, slots), values.index_select(0, slots)
