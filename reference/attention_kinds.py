"""The kinds of attention that a group can have.

They differ in three things: which tokens before the next one are no longer read, what counts as a
hit, and what of a request is worth caching.
"""

from collections.abc import Sequence
from typing import Any

from cacheproof.reference.block_pool import BlockPool, KVCacheBlock
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
from cacheproof.reference.semantics.kv_cache import KVCacheSemantics
from cacheproof.reference.single_type_kv_cache import (
    Hit,
    SingleTypeKVCacheManager,
    hashes_of,
    refuse_context_parallelism,
)


class FullAttentionManager(SingleTypeKVCacheManager):
    """Every token reads all before it: a hit is a run of cached blocks from the first."""

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Sequence[bytes],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        block_pool: BlockPool,
        kv_cache_spec: KVCacheSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> Hit:
        """The longest run of cached blocks from the first, of at most `max_length` tokens.

        The run is cut to a multiple of `alignment_tokens`, without its last block where
        `drop_eagle_block`. Blocks for each group, and the run's length in tokens.

        Raises:
            NotModelledCache: a hit could end inside a block, or more than one rank.
        """
        refuse_context_parallelism(dcp_world_size, pcp_world_size)
        size = kv_cache_spec.block_size
        if alignment_tokens < size:
            raise NotModelledCache("hits that end inside a block")
        found: list[list[KVCacheBlock]] = []
        hashes = hashes_of(block_hashes, block_pool, kv_cache_spec)
        for block_hash in hashes[: max_length // size]:
            blocks = block_pool.get_cached_block(block_hash, kv_cache_group_ids)
            if blocks is None:
                break
            found.append(blocks)
        if drop_eagle_block and found:
            found.pop()
        length = len(found) * size
        length -= length % alignment_tokens
        return by_group(found[: length // size], len(kv_cache_group_ids)), length

    def cache_blocks(
        self,
        request: ScheduledRequest,
        num_tokens: int,
        retention_interval: int | None = None,
        *,
        replay_boundaries: Sequence[int],
    ) -> None:
        """Beside full blocks, the one in which the prompt ends: by what of it the prompt fills.

        No hit that is modelled ends inside a block, so under `caches_findable_tails` there is none.
        """
        super().cache_blocks(
            request, num_tokens, retention_interval, replay_boundaries=replay_boundaries
        )
        caches_tail = self.semantics.caches_prompt_tail and not self.semantics.caches_findable_tails
        if self.hashes_of_block > 1 and caches_tail:
            self._cache_prompt_tail(request, num_tokens)

    def _cache_prompt_tail(self, request: ScheduledRequest, num_tokens: int) -> None:
        size = self.block_pool.hash_block_size
        last = request.num_prompt_tokens
        # from 0.32.0: a hit of the tail must leave the last prompt token to compute
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

    def __init__(self, kv_cache_spec: SlidingWindowSpec, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, **kwargs)
        self.sliding_window = kv_cache_spec.sliding_window

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Sequence[bytes],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        block_pool: BlockPool,
        kv_cache_spec: KVCacheSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> Hit:
        """The longest prefix of at most `max_length` tokens whose last window is cached.

        Null blocks stand before the window. The prefix is cut to a multiple of `alignment_tokens`,
        without its last block where `drop_eagle_block`. Blocks for each group, and the prefix's
        length in tokens.

        Raises:
            NotModelledCache: more than one rank.
        """
        refuse_context_parallelism(dcp_world_size, pcp_world_size)
        assert isinstance(kv_cache_spec, SlidingWindowSpec)
        size = kv_cache_spec.block_size
        hashes = hashes_of(block_hashes, block_pool, kv_cache_spec)
        need = cls._contiguous_blocks_for_hit(kv_cache_spec, drop_eagle_block)
        dropped = 1 if drop_eagle_block and block_pool.semantics.kv_cache.aligns_behind_drop else 0
        run: list[list[KVCacheBlock]] = []  # from right to left
        number = max_length // size
        end = 0
        # from the right: the first run that covers a window is the longest hit
        while number > 0 and (not run or len(run) < need):
            number -= 1
            blocks = block_pool.get_cached_block(hashes[number], kv_cache_group_ids)
            if blocks is None:
                run = []
            elif run or (number + 1 - dropped) * size % alignment_tokens == 0:
                end = end if run else number + 1
                run.append(blocks)
        covered = bool(run) and len(run) >= need
        if not covered:
            # what is left is a run from the first block: no token before it is read
            number, end = 0, len(run)
            # releases align before the drop as well, and lose a hit (faults/window-hit)
            if not (drop_eagle_block and block_pool.semantics.kv_cache.aligns_first_hit_once):
                end = _aligned(end, size, alignment_tokens)
        if drop_eagle_block and end:
            end = _aligned(end - 1, size, alignment_tokens)
        nulls = [[block_pool.null_block] * len(kv_cache_group_ids)] * number
        found = [*nulls, *reversed(run)][:end]
        return by_group(found, len(kv_cache_group_ids)), end * size

    @classmethod
    def reachable_block_mask(
        cls,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        kv_cache_spec: KVCacheSpec,
        use_eagle: bool,
        retention_interval: int | None = None,
        reachable_boundaries: Sequence[int] = (),
        dcp_world_size: int = 1,
        *,
        semantics: KVCacheSemantics | None = None,
    ) -> list[bool] | None:
        """Hits end at multiples of `alignment_tokens`; only the window before such an end is read.

        With a retention interval they end at its multiples, and at `reachable_boundaries`.
        """
        refuse_context_parallelism(dcp_world_size, 1)
        assert isinstance(kv_cache_spec, SlidingWindowSpec)
        size = kv_cache_spec.block_size
        if alignment_tokens is None or alignment_tokens % size:
            return None
        need = cls._contiguous_blocks_for_hit(kv_cache_spec, use_eagle)
        segment = (alignment_tokens if retention_interval is None else retention_interval) // size
        mask: list[bool] | None = [False] * (end_block - start_block)
        if segment:
            mask = _in_segments(
                range(start_block, end_block),
                segment,
                need,
                shift=1 if use_eagle else 0,
                semantics=semantics or KVCacheSemantics(),
            )
        if mask is None or retention_interval is None:
            return mask
        for boundary in reachable_boundaries:
            end = boundary // alignment_tokens * alignment_tokens // size
            for number in range(max(start_block, end - need), min(end, end_block)):
                mask[number - start_block] = True
        return mask

    def free(self, request_id: str) -> None:
        self._give_back(self.pop_blocks_for_free(request_id)[::-1])

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - self.sliding_window + 1)

    @classmethod
    def _contiguous_blocks_for_hit(
        cls, kv_cache_spec: SlidingWindowSpec, drop_eagle_block: bool
    ) -> int:
        """Blocks in a row that cover the window of the next token, and the one to be dropped."""
        blocks = ceil_div(kv_cache_spec.sliding_window - 1, kv_cache_spec.block_size)
        return blocks + drop_eagle_block


class ChunkedLocalAttentionManager(SingleTypeKVCacheManager):
    """A token reads its chunk: what lies in chunks before counts as computed."""

    skips = True

    def __init__(self, kv_cache_spec: ChunkedLocalAttentionSpec, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, **kwargs)
        self.attention_chunk_size = kv_cache_spec.attention_chunk_size

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Sequence[bytes],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        block_pool: BlockPool,
        kv_cache_spec: KVCacheSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> Hit:
        """Null blocks for the chunks before the next token's, and the run of cached blocks in it.

        Of at most `max_length` tokens. Blocks for each group, and the prefix's length in tokens.

        Raises:
            NotModelledCache: a drafter, groups of other block sizes, or more than one rank.
        """
        refuse_context_parallelism(dcp_world_size, pcp_world_size)
        assert isinstance(kv_cache_spec, ChunkedLocalAttentionSpec)
        size, chunk = kv_cache_spec.block_size, kv_cache_spec.attention_chunk_size
        if drop_eagle_block or alignment_tokens != size:
            raise NotModelledCache(
                "chunked local attention with a drafter, or beside groups of other block sizes"
            )
        hashes = hashes_of(block_hashes, block_pool, kv_cache_spec)
        first = max_length // chunk * chunk // size
        found = [[block_pool.null_block] * len(kv_cache_group_ids)] * first
        for number in range(first, max_length // size):
            blocks = block_pool.get_cached_block(hashes[number], kv_cache_group_ids)
            if blocks is None:
                break
            found.append(blocks)
        return by_group(found, len(kv_cache_group_ids)), len(found) * size

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
        self,
        request_id: str,
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        record_for_zeroing: bool = True,
    ) -> None:
        """Nothing: what is loaded is the decoder's."""


def _aligned(blocks: int, block_size: int, alignment_tokens: int) -> int:
    """The largest number of these blocks that ends where a hit can end."""
    while blocks * block_size % alignment_tokens:
        blocks -= 1
    return blocks


def _in_segments(
    numbers: range, segment: int, need: int, *, shift: int, semantics: KVCacheSemantics
) -> list[bool] | None:
    """For each block whether a hit that ends with a segment of `segment` blocks needs it.

    None: all are worth caching.
    """
    # a hit that needs a whole segment leaves no block out
    if not semantics.leaves_out_unreachable or need >= segment:
        return None
    if segment == 1 and not semantics.leaves_out_in_lone_windows:
        return None
    return [number >= shift and (number - shift) % segment >= segment - need for number in numbers]


def by_group(
    found: Sequence[Sequence[KVCacheBlock]], groups: int
) -> tuple[list[KVCacheBlock], ...]:
    """The blocks of each group, from those of each position."""
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
