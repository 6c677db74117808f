"""KV cache managers and block pools, and what they tell."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from .requests import Request, VllmDataclass

BlockIds = tuple[list[int], ...]
"""Blocks of a request, for each group."""


class KVCacheBlock(Protocol):
    """`vllm.v1.core.kv_cache_utils.KVCacheBlock`.

    block_hash: what the hash map has it under: bytes, or (hash, group) of older releases.
    block_hash_num_tokens: tokens of its prefix, from 0.24.0 on.
    next_free_block, prev_free_block: of a block in the queue.
    """

    block_id: int
    ref_cnt: int
    is_null: bool
    block_hash_num_tokens: int | None
    next_free_block: "KVCacheBlock"
    prev_free_block: "KVCacheBlock"

    @property
    def block_hash(self) -> "BlockKey | None": ...


BlockKey = bytes | tuple[bytes | int, int]
BlocksUnderKey = KVCacheBlock | dict[int, KVCacheBlock]
"""What the hash map has under a key: one block, or several by their ids."""


class FreeKVCacheBlockQueue(Protocol):
    """`vllm.v1.core.kv_cache_utils.FreeKVCacheBlockQueue`.

    fake_free_list_head, fake_free_list_tail: before its first block, and after its last.
    """

    fake_free_list_head: KVCacheBlock
    fake_free_list_tail: KVCacheBlock

    def get_all_free_blocks(self) -> list[KVCacheBlock]: ...
    def popleft_n(self, n: int, /) -> list[KVCacheBlock]: ...
    def remove(self, block: KVCacheBlock, /) -> None: ...


class BlockMetrics(Protocol):
    """What a pool tells its `kv_cache_metrics.KVCacheMetricsCollector`."""

    def on_block_accessed(self, block: KVCacheBlock, /) -> None: ...


class BlockPool(Protocol):
    """`vllm.v1.core.block_pool.BlockPool`.

    cached_block_hash_to_block: key -> blocks; from 0.11.0 on a `BlockHashToBlockMap` around such a
        dict, which is its `_cache`.
    cached_block_hashes_by_block: further keys of a block, from 0.26.0 on.
    metrics_collector: in 0.13.0, not yet in 0.11.0.
    """

    num_gpu_blocks: int
    enable_kv_cache_events: bool
    blocks: list[KVCacheBlock]
    null_block: KVCacheBlock
    free_block_queue: FreeKVCacheBlockQueue
    cached_block_hash_to_block: dict[BlockKey, BlocksUnderKey]
    cached_block_hashes_by_block: Mapping[int, Iterable[BlockKey]]
    metrics_collector: BlockMetrics
    kv_event_queue: "list[KVCacheEvent]"

    def get_num_free_blocks(self) -> int: ...
    def get_new_blocks(self, num_blocks: int, /) -> list[KVCacheBlock]: ...
    def touch(self, blocks: Sequence[KVCacheBlock], /) -> None: ...
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock], /) -> None: ...

    cache_full_blocks: Callable[..., None]


def entries_of(pool: BlockPool, /) -> dict[BlockKey, BlocksUnderKey]:
    """The hash map of a pool, by the pool's own keys."""
    entries = pool.cached_block_hash_to_block
    found: dict[BlockKey, BlocksUnderKey] = getattr(entries, "_cache", entries)
    return found


class SingleTypeKVCacheManager(Protocol):
    """`vllm.v1.core.single_type_kv_cache_manager.SingleTypeKVCacheManager`: a group's tables."""

    req_to_blocks: dict[str, list[KVCacheBlock]]
    num_cached_block: dict[str, int]


class KVCacheCoordinator(Protocol):
    """`vllm.v1.core.kv_cache_coordinator.KVCacheCoordinator`."""

    single_type_managers: Sequence[SingleTypeKVCacheManager]


class KVCacheBlocks(Protocol):
    """`vllm.v1.core.kv_cache_manager.KVCacheBlocks`: blocks for each group."""

    blocks: tuple[Sequence[KVCacheBlock], ...]

    def get_block_ids(self) -> BlockIds: ...


Computed = tuple[KVCacheBlocks, int, *tuple[int, ...]]
"""What a look-up finds: blocks, their tokens, and in later releases the tokens that another group
would have hit."""


class PrefixCacheStats(Protocol):
    """`vllm.v1.metrics.stats.PrefixCacheStats`; its fields are read by name."""


class KVCacheEvent(Protocol):
    """An event of `vllm.distributed.kv_events`: BlockStored, BlockRemoved, AllBlocksCleared.

    block_hashes, medium: not of AllBlocksCleared.
    parent_block_hash, token_ids, extra_keys: of BlockStored, the last from 0.17.0 on. What later
        releases tell besides is read by name.
    """

    block_hashes: list[bytes | int]
    medium: str | None
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    extra_keys: list[object] | None


class KVCacheManager(Protocol):
    """`vllm.v1.core.kv_cache_manager.KVCacheManager`. Where it is driven alone, from 0.14.0 on.

    allocate_slots: its keyword arguments differ between releases.
    evict_blocks: in 0.13.0, not yet in 0.11.0.
    remove_skipped_blocks: in 0.15.1, not yet in 0.13.0.
    pop_blocks_for_free: from 0.24.0 on.
    record_prefix_cache_stats: from 0.27.0 on.
    create_empty_block_list: up to 0.11.0; in 0.13.0 and since `empty_kv_cache_blocks`.
    """

    max_model_len: int
    enable_caching: bool
    use_eagle: bool
    block_pool: BlockPool
    coordinator: KVCacheCoordinator
    empty_kv_cache_blocks: KVCacheBlocks
    allocate_slots: Callable[..., KVCacheBlocks | None]

    @property
    def usage(self) -> float: ...
    def get_computed_blocks(self, request: Request, /, *limit: int) -> Computed: ...
    def cache_blocks(self, request: Request, num_computed_tokens: int, /) -> None: ...
    def free(self, request: Request, /) -> None: ...
    def pop_blocks_for_free(self, request: Request, /) -> list[KVCacheBlock]: ...
    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int, /) -> None: ...
    def evict_blocks(self, block_ids: set[int], /) -> None: ...
    def reset_prefix_cache(self) -> bool: ...
    def get_num_common_prefix_blocks(self, running_request_id: str, /) -> Sequence[int]: ...
    def take_events(self) -> list[KVCacheEvent]: ...
    def make_prefix_cache_stats(self) -> PrefixCacheStats | None: ...
    def record_prefix_cache_stats(self, request: Request, num_hits: int, /) -> None: ...
    def create_kv_cache_blocks(
        self, blocks: tuple[list[KVCacheBlock], ...], /
    ) -> KVCacheBlocks: ...
    def create_empty_block_list(self) -> KVCacheBlocks: ...


class KVCacheEvictionEvent(Protocol):
    """`vllm.v1.metrics.stats.KVCacheEvictionEvent`: how long a content stayed in a block."""

    @property
    def lifetime_seconds(self) -> float: ...
    @property
    def idle_seconds(self) -> float: ...
    @property
    def reuse_gaps_seconds(self) -> Sequence[float]: ...


class KVCacheMetricsCollector(Protocol):
    """`vllm.v1.core.kv_cache_metrics.KVCacheMetricsCollector`."""

    def drain_events(self) -> Sequence[KVCacheEvictionEvent]: ...


class KVCacheSpec(Protocol):
    """An attention spec of `vllm.v1.kv_cache_interface`; its window is read by name."""

    block_size: int

    @property
    def page_size_bytes(self) -> int: ...


class KVCacheGroupSpec(Protocol):
    """`vllm.v1.kv_cache_interface.KVCacheGroupSpec`.

    is_eagle_group: in 0.28.0, not yet in 0.15.1.
    """

    kv_cache_spec: KVCacheSpec
    is_eagle_group: bool


class KVCacheConfig(VllmDataclass, Protocol):
    """`vllm.v1.kv_cache_interface.KVCacheConfig`.

    prefix_cache_retention_interval: from 0.29.0 on.
    """

    num_blocks: int
    kv_cache_groups: list[KVCacheGroupSpec]
    prefix_cache_retention_interval: int | None


class CacheEntry(Protocol):
    """An entry of `EmbeddingCache`, in blocks of the region."""

    block_ids: Sequence[int]
    _pin_count: int

    @property
    def ready(self) -> bool: ...
    @property
    def evictable(self) -> bool: ...


class EmbeddingCache(Protocol):
    """`vllm.distributed.ec_transfer.ec_connector.cpu.scheduler.embedding_cache.EmbeddingCache`, in
    0.28.0 and since.

    pin_if_ready, discard, has_held_entries: from 0.30.0 on.
    """

    _num_blocks: int
    _free_blocks: list[int]
    _evictable_block_count: int
    _entries: dict[str, CacheEntry]
    _entries_free_list: OrderedDict[str, None]

    def get(self, key: str, /) -> CacheEntry | None: ...
    def alloc(self, key: str, num_blocks: int, /) -> CacheEntry | None: ...
    def mark_ready(self, key: str, /) -> None: ...
    def pin(self, key: str, /) -> None: ...
    def pin_if_ready(self, key: str, /) -> CacheEntry | None: ...
    def unpin(self, key: str, /) -> None: ...
    def discard(self, key: str, /) -> None: ...
    def has_held_entries(self) -> bool: ...
    def _evict_until(self, num_free_blocks: int, /) -> object: ...
