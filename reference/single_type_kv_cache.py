"""The blocks of one group of layers: tables that grow, shrink behind a window, and are found again.

Each kind of attention differs in three things: which tokens before the next one it no longer
reads, what counts as a hit, and what of it is worth caching.
"""

from collections.abc import Sequence
from typing import TypeVar

from cacheproof.reference.block_pool import BlockPool, KVCacheBlock, hashes_at
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

Hit = tuple[tuple[list[KVCacheBlock], ...], int]
Spec = TypeVar("Spec", bound=KVCacheSpec)


class SingleTypeKVCacheManager:
    """Block tables of one group; this class keeps every block until the request is freed.

    Attributes:
        req_to_blocks: request -> its blocks in order, null blocks where it needs none.
        num_cached_block: running request -> how many of its blocks, from the first, were offered
            to the cache.
        use_eagle: a drafter reads this group and recomputes the last block of every hit.
    """

    def __init__(
        self,
        kv_cache_spec: KVCacheSpec,
        block_pool: BlockPool,
        enable_caching: bool,
        kv_cache_group_id: int,
        scheduler_block_size: int,
        max_admission_blocks_per_request: int | None = None,
    ) -> None:
        self.kv_cache_spec = kv_cache_spec
        self.block_pool = block_pool
        self.semantics = block_pool.semantics
        self.enable_caching = enable_caching
        self.kv_cache_group_id = kv_cache_group_id
        self.scheduler_block_size = scheduler_block_size
        self.max_admission_blocks_per_request = max_admission_blocks_per_request
        self.block_size = kv_cache_spec.block_size
        self.use_eagle = False
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}
        self.num_cached_block: dict[str, int] = {}

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[KVCacheBlock],
        total_computed_tokens: int,
        apply_admission_cap: bool = False,
    ) -> int:
        """Blocks that leave the free queue when the request gets `num_tokens` slots.

        Those of its hit count that nobody holds: they are free until the request touches them.
        """
        required = ceil_div(num_tokens, self.block_size)
        if apply_admission_cap and self.max_admission_blocks_per_request is not None:
            required = min(required, self.max_admission_blocks_per_request)
        held = len(self.req_to_blocks.get(request_id, ()))
        if request_id in self.num_cached_block:
            return max(required - held, 0)
        skipped = self.get_num_skipped_tokens(total_computed_tokens) // self.block_size
        new = required - max(skipped, len(new_computed_blocks) + held)
        hit = new_computed_blocks[max(0, skipped - held) :]
        return max(new, 0) + sum(block.ref_cnt == 0 and not block.is_null for block in hit)

    def add_local_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        """Begin a request's table with its hit: null blocks for what it no longer reads."""
        blocks = self.req_to_blocks.setdefault(request_id, [])
        total = num_local_computed_tokens + num_external_computed_tokens
        skipped = self.get_num_skipped_tokens(total) // self.block_size
        hit = new_computed_blocks[skipped:]
        self.block_pool.touch(hit)
        blocks += [self.block_pool.null_block] * skipped
        blocks += hit
        self.num_cached_block[request_id] = len(blocks)

    def allocate_external_computed_blocks(
        self, request_id: str, num_local_computed_tokens: int, num_external_computed_tokens: int
    ) -> None:
        """Blocks for tokens whose KV comes from elsewhere, as far as it is still read."""
        total = num_local_computed_tokens + num_external_computed_tokens
        skipped = self.get_num_skipped_tokens(total)
        if not self.semantics.loads_by_token and skipped < self.block_size:
            skipped = 0
        if min(total - skipped, num_external_computed_tokens) > 0:
            self._grow(request_id, total)

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> list[KVCacheBlock]:
        """Grow the request's table to `num_tokens` slots; the blocks that are new."""
        return self._grow(request_id, num_tokens)

    def cache_blocks(self, request: ScheduledRequest, num_tokens: int) -> None:
        """Let the full blocks of the request's first `num_tokens` tokens be found."""
        cached = self.num_cached_block.get(request.request_id, 0)
        hashed = len(request.block_hashes) * self.block_pool.hash_block_size
        full = min(num_tokens, hashed) // self.block_size
        if cached >= full:
            return
        self.block_pool.cache_full_blocks(
            request=request,
            blocks=self.req_to_blocks[request.request_id],
            num_cached_blocks=cached,
            num_full_blocks=full,
            block_size=self.block_size,
            kv_cache_group_id=self.kv_cache_group_id,
            block_mask=self.reachable_block_mask(cached, full),
        )
        self.num_cached_block[request.request_id] = full

    def reachable_block_mask(self, start_block: int, end_block: int) -> list[bool] | None:
        """For each block of the range whether a hit can ever need it; None when all can be."""
        return None

    def pop_blocks_for_free(self, request_id: str) -> list[KVCacheBlock]:
        """End the request's table; the caller gives the blocks back, the last of them first."""
        self.num_cached_block.pop(request_id, None)
        return self.req_to_blocks.pop(request_id, [])

    def free(self, request_id: str) -> None:
        """Give the request's blocks back, the last of them first."""
        self.block_pool.free_blocks(reversed(self.pop_blocks_for_free(request_id)))

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int) -> None:
        """Give back what the request no longer reads, and put null blocks in its place."""
        blocks = self.req_to_blocks.get(request_id, [])
        skipped = self.get_num_skipped_tokens(processed_computed_tokens) // self.block_size
        released = []
        for number in reversed(range(min(skipped, len(blocks)))):
            if blocks[number].is_null:
                break
            released.append(blocks[number])
            blocks[number] = self.block_pool.null_block
        self.block_pool.free_blocks(released)

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens that are no longer read when so many are computed."""
        return 0

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Blocks at the start of this request's table that every request holds."""
        return 0

    def find_longest_cache_hit(
        self,
        block_hashes: Sequence[bytes],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> Hit:
        """The longest prefix of at most `max_length` tokens that all these groups have cached.

        The groups are of this manager's kind. For each of them the blocks, null blocks where the
        next token reads nothing; and the prefix's length, a multiple of `alignment_tokens`. With
        `drop_eagle_block` the prefix goes on for one more block, which is then left out.
        """
        raise NotImplementedError

    def _hashes(self, block_hashes: Sequence[bytes]) -> Sequence[bytes]:
        return hashes_at(block_hashes, self.block_size // self.block_pool.hash_block_size)

    def _grow(self, request_id: str, num_tokens: int) -> list[KVCacheBlock]:
        blocks = self.req_to_blocks.setdefault(request_id, [])
        missing = ceil_div(num_tokens, self.block_size) - len(blocks)
        new = self.block_pool.get_new_blocks(max(missing, 0))
        blocks += new
        return new


class FullAttentionManager(SingleTypeKVCacheManager):
    """Every token reads all before it: a hit is a run of cached blocks from the first."""

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

    def cache_blocks(self, request: ScheduledRequest, num_tokens: int) -> None:
        super().cache_blocks(request, num_tokens)
        if self.block_size != self.block_pool.hash_block_size and self.semantics.caches_prompt_tail:
            self._cache_prompt_tail(request, num_tokens)

    def _cache_prompt_tail(self, request: ScheduledRequest, num_tokens: int) -> None:
        """Let the block in which the prompt ends also be found by what of it the prompt fills."""
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

    def reachable_block_mask(self, start_block: int, end_block: int) -> list[bool] | None:
        """Hits end where blocks of all groups end; only the window before such an end is read."""
        if not self.semantics.leaves_out_unreachable:
            return None
        need = self._blocks_for_hit(self.use_eagle)
        segment = self.scheduler_block_size // self.block_size
        if need >= segment:
            return None
        if segment == 1 and not self.semantics.leaves_out_in_lone_windows:
            return None
        shift = 1 if self.use_eagle else 0
        return [
            number >= shift and (number - shift) % segment >= segment - need
            for number in range(start_block, end_block)
        ]

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - self.sliding_window + 1)

    def _blocks_for_hit(self, drop_eagle_block: bool) -> int:
        """Blocks in a row that cover the window of the next token, and the one to be dropped."""
        return ceil_div(self.sliding_window - 1, self.block_size) + drop_eagle_block


class ChunkedLocalAttentionManager(SingleTypeKVCacheManager):
    """A token reads its chunk: what lies in chunks before counts as computed."""

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
