"""The kinds of attention that a group can have.

They differ in three things: which tokens before the next one are no longer read, what counts as a
hit, and what of a request is worth caching.
"""

from collections.abc import Sequence
from typing import Any

from cacheproof.reference.block_pool import KVCacheBlock
from cacheproof.reference.kv_cache_specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    NotModelledCache,
    SlidingWindowSpec,
    ceil_div,
)
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.single_type_kv_cache import Hit, SingleTypeKVCacheManager


class FullAttentionManager(SingleTypeKVCacheManager):
    """Every token reads all before it: a hit is a run of cached blocks from the first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.caches_prompt_tail = self.hashes_of_block > 1 and self.semantics.caches_prompt_tail

    def find_longest_cache_hit(
        self,
        block_hashes: Sequence[bytes],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> Hit:
        found: list[list[KVCacheBlock]] = []
        for block_hash in self._hashes(block_hashes)[: max_length // self.block_size]:
            blocks = self.block_pool.get_cached_block(block_hash, kv_cache_group_ids)
            if blocks is None:
                break
            found.append(blocks)
        if drop_eagle_block and found:
            found.pop()
        length = len(found) * self.block_size
        length -= length % alignment_tokens
        return by_group(found[: length // self.block_size], len(kv_cache_group_ids)), length

    def _cache_prompt_tail(self, request: ScheduledRequest, num_tokens: int) -> None:
        size = self.block_pool.hash_block_size
        last = request.num_prompt_tokens
        if self.semantics.spares_last_prompt_token and not self.use_eagle:
            last -= 1
        end = min(last // size, len(request.block_hashes)) * size
        blocks = self.req_to_blocks[request.request_id]
        number = end // self.block_size
        if not 0 < end <= num_tokens or end % self.block_size == 0 or number >= len(blocks):
            return
        self.block_pool.cache_partial_block(
            request=request,
            block=blocks[number],
            num_tokens=end,
            kv_cache_group_id=self.kv_cache_group_id,
            block_size=self.block_size,
        )

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        common = 0
        for block in self.req_to_blocks[running_request_id]:
            if block.ref_cnt != len(self.req_to_blocks):
                break
            common += 1
        return common


class SlidingWindowManager(SingleTypeKVCacheManager):
    """A token reads a window: a hit is a run of cached blocks that covers the next one's."""

    skips = True

    def __init__(self, kv_cache_spec: SlidingWindowSpec, *args: object, **kwargs: object) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)  # type: ignore[arg-type]
        self.sliding_window = kv_cache_spec.sliding_window

    def find_longest_cache_hit(
        self,
        block_hashes: Sequence[bytes],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> Hit:
        hashes = self._hashes(block_hashes)
        need = self._blocks_for_hit(drop_eagle_block)
        aligned = alignment_tokens // self.block_size
        dropped = 1 if drop_eagle_block and self.semantics.aligns_behind_drop else 0
        run: list[list[KVCacheBlock]] = []  # from right to left
        number = max_length // self.block_size
        end = 0
        while number > 0 and (not run or len(run) < need):
            number -= 1
            blocks = self.block_pool.get_cached_block(hashes[number], kv_cache_group_ids)
            if blocks is None:
                run = []
            elif run or (number + 1 - dropped) % aligned == 0:
                end = end if run else number + 1
                run.append(blocks)
        covered = bool(run) and len(run) >= need
        if not covered:
            number, end = 0, len(run) // aligned * aligned
        if drop_eagle_block and end:
            end = (end - 1) // aligned * aligned
        nulls = [[self.block_pool.null_block] * len(kv_cache_group_ids)] * number
        found = [*nulls, *reversed(run)][:end]
        return by_group(found, len(kv_cache_group_ids)), end * self.block_size

    def reachable_block_mask(
        self, request: ScheduledRequest, start_block: int, end_block: int
    ) -> list[bool] | None:
        """Hits end where blocks of all groups end; only the window before such an end is read.

        With a retention interval they end at its multiples, where the prompt does, and where
        another group alone would have hit more.
        """
        if self.retention_interval is None:
            return self._in_segments(self.scheduler_block_size, start_block, end_block)
        need = self._blocks_for_hit(drop_eagle_block=False)
        mask: list[bool] | None = [False] * (end_block - start_block)
        if self.retention_interval:
            mask = self._in_segments(self.retention_interval, start_block, end_block)
        if mask is None:
            return None
        for boundary in (request.num_prompt_tokens - 1, request.shared_prefix_boundary):
            end = boundary // self.scheduler_block_size * self.scheduler_block_size
            last = min(end // self.block_size, end_block)
            for number in range(max(start_block, end // self.block_size - need), last):
                mask[number - start_block] = True
        return mask

    def _in_segments(self, num_tokens: int, start_block: int, end_block: int) -> list[bool] | None:
        """The blocks that a hit needs which ends at a multiple of so many tokens."""
        if not self.semantics.leaves_out_unreachable:
            return None
        need = self._blocks_for_hit(self.use_eagle)
        segment = num_tokens // self.block_size
        if need >= segment:
            return None
        if segment == 1 and not self.semantics.leaves_out_in_lone_windows:
            return None
        shift = 1 if self.use_eagle else 0
        return [
            number >= shift and (number - shift) % segment >= segment - need
            for number in range(start_block, end_block)
        ]

    def free(self, request_id: str) -> None:
        blocks = reversed(self.pop_blocks_for_free(request_id))
        self.block_pool.free_blocks(blocks, self.semantics.reuses_unfindable_in_windows)

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - self.sliding_window + 1)

    def _blocks_for_hit(self, drop_eagle_block: bool) -> int:
        """Blocks in a row that cover the window of the next token, and the one to be dropped."""
        return ceil_div(self.sliding_window - 1, self.block_size) + drop_eagle_block


class ChunkedLocalAttentionManager(SingleTypeKVCacheManager):
    """A token reads its chunk: what lies in chunks before counts as computed."""

    skips = True

    def __init__(
        self, kv_cache_spec: ChunkedLocalAttentionSpec, *args: object, **kwargs: object
    ) -> None:
        super().__init__(kv_cache_spec, *args, **kwargs)  # type: ignore[arg-type]
        self.attention_chunk_size = kv_cache_spec.attention_chunk_size

    def find_longest_cache_hit(
        self,
        block_hashes: Sequence[bytes],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> Hit:
        if drop_eagle_block or alignment_tokens != self.block_size:
            raise NotModelledCache(
                "chunked local attention with a drafter, or beside groups of other block sizes"
            )
        hashes = self._hashes(block_hashes)
        first = self.get_num_skipped_tokens(max_length) // self.block_size
        found = [[self.block_pool.null_block] * len(kv_cache_group_ids)] * first
        for number in range(first, max_length // self.block_size):
            blocks = self.block_pool.get_cached_block(hashes[number], kv_cache_group_ids)
            if blocks is None:
                break
            found.append(blocks)
        return by_group(found, len(kv_cache_group_ids)), len(found) * self.block_size

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens // self.attention_chunk_size * self.attention_chunk_size


class CrossAttentionManager(SingleTypeKVCacheManager):
    """Blocks for the encoder's tokens: allocated once, and never found by another request."""

    def add_local_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        """Nothing: no hit."""

    def allocate_external_computed_blocks(
        self, request_id: str, num_local_computed_tokens: int, num_external_computed_tokens: int
    ) -> None:
        """Nothing: what is loaded is the decoder's."""


def by_group(
    found: Sequence[Sequence[KVCacheBlock]], groups: int
) -> tuple[list[KVCacheBlock], ...]:
    """From the blocks of each position those of each group."""
    return tuple([blocks[group] for blocks in found] for group in range(groups))


def manager_for(spec: KVCacheSpec) -> type[SingleTypeKVCacheManager]:
    """The class for a kind of attention. Raises NotModelledCache for others."""
    classes: dict[type[KVCacheSpec], type[SingleTypeKVCacheManager]] = {
        FullAttentionSpec: FullAttentionManager,
        SlidingWindowSpec: SlidingWindowManager,
        ChunkedLocalAttentionSpec: ChunkedLocalAttentionManager,
        CrossAttentionSpec: CrossAttentionManager,
    }
    if type(spec) not in classes:
        raise NotModelledCache(f"{type(spec).__name__} groups")
    return classes[type(spec)]
