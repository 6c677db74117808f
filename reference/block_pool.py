"""The blocks of a KV cache: who references them, which hash finds them, which goes next.

A block's life: free, held by requests, free again and, as long as it keeps its hashes, still to be
found; it loses them when it is handed out for other content. Block 0 is the null block, a place
holder in tables that is never handed out and never found.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cacheproof.reference.kv_cache_metrics import KVCacheMetricsCollector
from cacheproof.reference.kv_events import (
    AllBlocksCleared,
    KVCacheEvent,
    Stored,
    removed_event,
    stored_event,
)
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics


class BlockKey(NamedTuple):
    """The key that finds a block: the hash of its prefix, and the group whose KV it holds."""

    block_hash: bytes
    group_id: int


@dataclass(slots=True, eq=False)
class KVCacheBlock:
    """One block.

    Attributes:
        ref_cnt: requests that hold it; not maintained for the null block.
        keys: what it is found by -> tokens of the prefix that the hash covers. The first key is the
            one of its whole content, or of the part that it was first cached with.
    """

    block_id: int
    ref_cnt: int = 0
    is_null: bool = False
    keys: dict[BlockKey, int] = field(default_factory=dict)

    @property
    def block_hash(self) -> BlockKey | None:
        """The first key; None for a block that cannot be found."""
        return next(iter(self.keys), None)

    @property
    def block_hash_num_tokens(self) -> int | None:
        """Tokens of the prefix that the first key covers."""
        return next(iter(self.keys.values()), None)


class FreeKVCacheBlockQueue:
    """Blocks without references, the next to be handed out in front."""

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        self._blocks: OrderedDict[int, KVCacheBlock] = OrderedDict()
        self.append_n(blocks)

    @property
    def num_free_blocks(self) -> int:
        return len(self._blocks)

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take the first `n`, in order."""
        blocks = []
        for _ in range(n):
            blocks.append(self._blocks.popitem(last=False)[1])
        return blocks

    def remove(self, block: KVCacheBlock) -> None:
        """Take a block out from where it stands."""
        del self._blocks[block.block_id]

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put blocks in front, the first of them first."""
        for block in reversed(blocks):
            self._blocks[block.block_id] = block
            self._blocks.move_to_end(block.block_id, last=False)

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Put blocks after all others."""
        for block in blocks:
            self._blocks[block.block_id] = block

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All of them, in order."""
        return list(self._blocks.values())


class BlockPool:
    """Stands in for vLLM's class of the same name.

    Attributes:
        blocks: all blocks by id; `blocks[0]` is `null_block`.
        free_block_queue: the blocks without references.
        cached_block_hash_to_block: key -> blocks that hold its content, by id; the one that was
            cached first is the one that is hit.
        kv_event_queue: events that were not taken yet.

    Raises:
        ValueError: not even a null block.
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        enable_caching: bool,
        hash_block_size: int,
        enable_kv_cache_events: bool = False,
        metrics_collector: KVCacheMetricsCollector | None = None,
        *,
        semantics: Semantics | None = None,
    ) -> None:
        if num_gpu_blocks < 1:
            raise ValueError(f"a pool of {num_gpu_blocks} blocks; the null block alone takes one")
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.hash_block_size = hash_block_size
        self.enable_kv_cache_events = enable_kv_cache_events
        self.metrics_collector = metrics_collector
        self.semantics = semantics or Semantics.ideal()
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_gpu_blocks)]
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        self.cached_block_hash_to_block: dict[BlockKey, dict[int, KVCacheBlock]] = {}
        self.kv_event_queue: list[KVCacheEvent] = []

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[KVCacheBlock] | None:
        """The block that a hit gets in each of the groups; None when a group has none."""
        found = []
        for group_id in kv_cache_group_ids:
            blocks = self.cached_block_hash_to_block.get(BlockKey(block_hash, group_id))
            if not blocks:
                return None
            found.append(next(iter(blocks.values())))
        return found

    def cache_full_blocks(
        self,
        request: ScheduledRequest,
        blocks: Sequence[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        """Let `blocks[num_cached_blocks:num_full_blocks]` of the request be found.

        Null blocks are left out, and so are blocks for which `block_mask`, aligned with that slice,
        is False. A block that was found by a shorter prefix is from now on found by all of it.
        """
        if num_cached_blocks >= num_full_blocks:
            return
        hashes = hashes_at(request.block_hashes, block_size // self.hash_block_size)
        cached = [
            number
            for number in range(num_cached_blocks, num_full_blocks)
            if not blocks[number].is_null
        ]
        if block_mask is not None:
            cached = [number for number in cached if block_mask[number - num_cached_blocks]]
        for number in cached:
            if blocks[number].keys:
                self._forget(blocks[number])
            key = BlockKey(hashes[number], kv_cache_group_id)
            self._remember(blocks[number], key, (number + 1) * block_size)
        self._tell_stored(
            request,
            Stored(
                hashes=[hashes[number] for number in cached],
                parent=hashes[num_cached_blocks - 1] if num_cached_blocks else None,
                start=num_cached_blocks * block_size,
                end=num_full_blocks * block_size,
                block_starts=[number * block_size for number in cached],
                block_size=block_size,
                group_id=kv_cache_group_id,
            ),
        )

    def cache_partial_block(
        self,
        request: ScheduledRequest,
        block: KVCacheBlock,
        num_tokens: int,
        kv_cache_group_id: int,
        block_size: int,
    ) -> BlockKey | None:
        """Let the block also be found by a prefix of `num_tokens` that ends inside it.

        `num_tokens` is a multiple of the hash block size. A block that was found by a shorter
        prefix only is no longer found by that one.
        """
        if block.is_null:
            return None
        number = num_tokens // self.hash_block_size
        key = BlockKey(request.block_hashes[number - 1], kv_cache_group_id)
        if key in block.keys:
            return key
        covered = block.block_hash_num_tokens
        if covered is not None and covered < num_tokens:
            self._forget(block)
        self._remember(block, key, num_tokens)
        start = num_tokens - self.hash_block_size
        self._tell_stored(
            request,
            Stored(
                hashes=[key.block_hash],
                parent=request.block_hashes[number - 2] if number > 1 else None,
                start=start,
                end=num_tokens,
                block_starts=[start],
                block_size=self.hash_block_size,
                group_id=kv_cache_group_id,
                is_tail=True,
            ),
        )
        return key

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Hand out blocks for new content; what they held can no longer be found.

        Raises:
            ValueError: fewer blocks are free.
        """
        if num_blocks > self.get_num_free_blocks():
            raise ValueError(f"{num_blocks} blocks of {self.get_num_free_blocks()} free ones")
        blocks = self.free_block_queue.popleft_n(num_blocks)
        for block in blocks:
            if self.enable_caching:
                self._evict(block)
            block.ref_cnt = 1
            if self.metrics_collector is not None:
                self.metrics_collector.on_block_allocated(block)
        return blocks

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Let one more request hold these blocks, found by their hash."""
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1
            if self.metrics_collector is not None:
                self.metrics_collector.on_block_accessed(block)

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """Let one request less hold each of these blocks; the first of them is to go first.

        Blocks that cannot be found are handed out before all others, the rest after them.
        """
        released = []
        for block in ordered_blocks:
            if block.is_null:
                continue
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                released.append(block)
        # a block without keys holds nothing that a hit could use, so nothing is lost with it
        first = self.semantics.kv_cache.stacks_without_caching
        if self.enable_caching:
            first = self.semantics.kv_cache.reuses_unfindable_first
        if first:
            self.free_block_queue.prepend_n([block for block in released if not block.keys])
            released = [block for block in released if block.keys]
        self.free_block_queue.append_n(released)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Let these blocks not be found any more; requests that hold them keep them.

        Raises:
            IndexError: no such block.
        """
        for block_id in block_ids:
            self._evict(self.blocks[block_id])

    def reset_prefix_cache(self) -> bool:
        """Let no block be found any more. False, and nothing done, while a block is held."""
        # the null block is never free
        if self.get_num_free_blocks() != self.num_gpu_blocks - 1:
            return False
        self.cached_block_hash_to_block.clear()
        for block in self.blocks:
            block.keys.clear()
        if self.metrics_collector is not None:
            self.metrics_collector.reset()
        if self.enable_kv_cache_events:
            self.kv_event_queue.append(AllBlocksCleared())
        return True

    def get_num_free_blocks(self) -> int:
        """Blocks without references."""
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        """The share of blocks that is held, from 0.0 to 1.0."""
        total = self.num_gpu_blocks - 1
        return 1.0 - self.get_num_free_blocks() / total if total else 0.0

    def take_events(self) -> list[KVCacheEvent]:
        """The events since the last take."""
        events, self.kv_event_queue = self.kv_event_queue, []
        return events

    def _remember(self, block: KVCacheBlock, key: BlockKey, num_tokens: int) -> None:
        block.keys[key] = num_tokens
        self.cached_block_hash_to_block.setdefault(key, {})[block.block_id] = block

    def _evict(self, block: KVCacheBlock) -> None:
        if self.metrics_collector is not None:
            self.metrics_collector.on_block_evicted(block)
        self._forget(block)

    def _forget(self, block: KVCacheBlock) -> None:
        for key in block.keys:
            blocks = self.cached_block_hash_to_block[key]
            del blocks[block.block_id]
            if not blocks:
                del self.cached_block_hash_to_block[key]
            if self.enable_kv_cache_events:
                group = key.group_id if self.semantics.kv_cache.events_name_groups else None
                self.kv_event_queue.append(removed_event(key.block_hash, group))
        block.keys.clear()

    def _tell_stored(self, request: ScheduledRequest, what: Stored) -> None:
        # an event without hashes tells followers nothing that can be hit (faults/kv-event-tokens)
        tells = bool(what.hashes) or not self.semantics.kv_cache.tells_tokens_of_hashes
        if self.enable_kv_cache_events and tells:
            self.kv_event_queue.append(stored_event(request, what, self.semantics))


def hashes_at(block_hashes: Sequence[bytes], scale: int) -> Sequence[bytes]:
    """The hashes of blocks `scale` times as large as those that were hashed.

    A hash covers its whole prefix, so the last one in the larger block tells that block from all
    others of its group.
    """
    return block_hashes if scale == 1 else block_hashes[scale - 1 :: scale]
