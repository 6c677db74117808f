"""The KV store: keys and values of every layer, in blocks that requests own by block tables.

Layers that attend alike are a group, and every group has a block table of its own. A block belongs
to one group at a time: one tensor holds the blocks of a layer of each group.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class KVGroup(NamedTuple):
    """Layers whose blocks one table lists. Under a `sliding_window` a token attends to that many
    tokens, itself the last; else to all."""

    layers: tuple[int, ...]
    sliding_window: int | None = None


class KVShape(NamedTuple):
    """What a layer keeps of a token, and how many layers there are; `sliding_windows` of each, in
    tokens, where some have one."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    sliding_windows: tuple[int | None, ...] = ()

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """The layers of each window, in the order of their first ones, as in vLLM's workers."""
        windows = self.sliding_windows or (None,) * self.num_layers
        return tuple(
            KVGroup(tuple(at for at, own in enumerate(windows) if own == window), window)
            for window in dict.fromkeys(windows)
        )


class PagedKVStore:
    """Tensors of [2, blocks, block size, KV heads, head dim], one for a layer of each group; keys
    first, then values."""

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
        self.groups = shape.groups
        self.group_of = {
            layer: number for number, group in enumerate(self.groups) for layer in group.layers
        }
        """Which group a layer is of, by its place in `groups`."""
        shared = [
            torch.zeros(of_layer, dtype=dtype, device=device)
            for _ in range(max(len(group.layers) for group in self.groups))
        ]
        self.layers = [
            shared[self.groups[self.group_of[layer]].layers.index(layer)]
            for layer in range(shape.num_layers)
        ]

    @property
    def num_bytes(self) -> int:
        """Memory of all layers, of which those share some that are of several groups."""
        shared = {id(layer): layer for layer in self.layers}
        return sum(layer.numel() * layer.element_size() for layer in shared.values())

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
