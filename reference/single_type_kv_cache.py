"""The blocks of one group of layers: tables that grow, shrink behind a window, and are found again.

What the kinds of attention do differently is in `attention_kinds`.
"""

from collections.abc import Sequence
from typing import ClassVar

from cacheproof.reference.block_pool import BlockPool, KVCacheBlock, hashes_at
from cacheproof.reference.kv_cache_specs import KVCacheSpec, NotModelledCache, ceil_div
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics.kv_cache import KVCacheSemantics

Hit = tuple[tuple[list[KVCacheBlock], ...], int]


class SingleTypeKVCacheManager:
    """Stands in for vLLM's class of the same name, which keeps every block until the request ends.

    Arguments that only other kinds of groups read (`num_local_computed_tokens`,
    `num_tokens_main_model`, `prefill_end`, `record_for_zeroing`, `num_prompt_tokens`) are taken, so
    that calls are the same, and change nothing.

    Attributes:
        req_to_blocks: request -> its blocks in order, null blocks where it needs none.
        num_cached_block: running request -> how many of its blocks, from the first, were offered
            to the cache.
        use_eagle: a drafter reads this group and recomputes the last block of every hit.
        skips: whether there are tokens that later ones do not read.

    Raises:
        NotModelledCache: context parallelism, or blocks that workers write zeros into.
    """

    skips: ClassVar[bool] = False

    def __init__(
        self,
        kv_cache_spec: KVCacheSpec,
        block_pool: BlockPool,
        enable_caching: bool,
        kv_cache_group_id: int,
        scheduler_block_size: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
        needs_kv_cache_zeroing: bool = False,
        max_admission_blocks_per_request: int | None = None,
    ) -> None:
        refuse_context_parallelism(dcp_world_size, pcp_world_size)
        if needs_kv_cache_zeroing:
            raise NotModelledCache("blocks that workers write zeros into")
        self.kv_cache_spec = kv_cache_spec
        self.block_pool = block_pool
        self.semantics = block_pool.semantics.kv_cache
        # from 0.11.1 until 0.14.0 a refused request has an empty table, and counts as a holder
        self._keeps_refused = self.semantics.counts_tables and not self.semantics.forgets_refused
        pool_reorders = self.semantics.stacks_without_caching
        if enable_caching:
            pool_reorders = self.semantics.reuses_unfindable_first
        self._reorders = self.semantics.reuses_unfindable_in_windows and not pool_reorders
        self.enable_caching = enable_caching
        self.kv_cache_group_id = kv_cache_group_id
        self.scheduler_block_size = scheduler_block_size
        self.max_admission_blocks_per_request = max_admission_blocks_per_request
        self.block_size = kv_cache_spec.block_size
        self.hashes_of_block = self.block_size // block_pool.hash_block_size
        self.use_eagle = False
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}
        self.num_cached_block: dict[str, int] = {}

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[KVCacheBlock],
        total_computed_tokens: int,
        num_local_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
        prefill_end: int = 0,
    ) -> int:
        """Blocks that leave the free queue when the request gets `num_tokens` slots.

        Those of its hit count that nobody holds: they are free until the request touches them.

        Raises:
            AssertionError: a request that has blocks is hit once more.
        """
        required = ceil_div(num_tokens, self.block_size)
        # faults/window-slots: a cap on a step's own slots hides blocks that are missing
        caps = apply_admission_cap or not self.semantics.caps_admission_alone
        if caps and self.max_admission_blocks_per_request is not None:
            required = min(required, self.max_admission_blocks_per_request)
        if self._keeps_refused:
            self.req_to_blocks.setdefault(request_id, [])
        held = len(self.req_to_blocks.get(request_id, ()))
        if request_id in self.num_cached_block:
            assert not new_computed_blocks
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
        self,
        request_id: str,
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        record_for_zeroing: bool = True,
    ) -> None:
        """Take blocks for tokens whose KV is loaded, where tokens of the load are still read."""
        total = num_local_computed_tokens + num_external_computed_tokens
        skipped = self.get_num_skipped_tokens(total)
        # before 0.24.0 only whole blocks that are no longer read count
        if not self.semantics.loads_by_token and skipped < self.block_size:
            skipped = 0
        if min(total - skipped, num_external_computed_tokens) > 0:
            self._grow(request_id, total)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list[KVCacheBlock]:
        """Grow the request's table to `num_tokens` slots; the blocks that are new."""
        return self._grow(request_id, num_tokens)

    def cache_blocks(
        self,
        request: ScheduledRequest,
        num_tokens: int,
        retention_interval: int | None = None,
        *,
        replay_boundaries: Sequence[int],
    ) -> None:
        """Let the full blocks of the request's first `num_tokens` tokens be found.

        Windows are cached as `retention_interval` says, and where another request that begins like
        this one can go on: at `replay_boundaries`, in tokens.
        """
        cached = self.num_cached_block.get(request.request_id, 0)
        full = min(num_tokens // self.block_size, len(request.block_hashes) // self.hashes_of_block)
        if cached >= full:
            return
        boundaries = [*replay_boundaries]
        if request.shared_prefix_boundary:
            boundaries.append(request.shared_prefix_boundary)
        self.block_pool.cache_full_blocks(
            request=request,
            blocks=self.req_to_blocks[request.request_id],
            num_cached_blocks=cached,
            num_full_blocks=full,
            block_size=self.block_size,
            kv_cache_group_id=self.kv_cache_group_id,
            block_mask=self.reachable_block_mask(
                cached,
                full,
                self.scheduler_block_size,
                self.kv_cache_spec,
                self.use_eagle,
                retention_interval,
                boundaries,
                semantics=self.semantics,
            ),
        )
        self.num_cached_block[request.request_id] = full

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
        """For each block of the range whether it is worth caching; None when all are."""
        return None

    def pop_blocks_for_free(self, request_id: str) -> list[KVCacheBlock]:
        """End the request's table; the caller gives the blocks back, the last of them first.

        Under `trims_null_heads` without the null blocks that the table begins with.
        """
        self.num_cached_block.pop(request_id, None)
        blocks = self.req_to_blocks.pop(request_id, [])
        if not self.semantics.trims_null_heads:
            return blocks
        held = (number for number, block in enumerate(blocks) if not block.is_null)
        first = next(held, len(blocks))
        return blocks[first:] if first else blocks

    def free(self, request_id: str) -> None:
        """Give the request's blocks back, the last of them first."""
        self.block_pool.free_blocks(reversed(self.pop_blocks_for_free(request_id)))

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Give back what the request no longer reads, and put null blocks in its place."""
        skipped = self.get_num_skipped_tokens(processed_computed_tokens) // self.block_size
        if skipped == 0:
            return
        blocks = self.req_to_blocks.get(request_id, [])
        released = []
        for number in reversed(range(min(skipped, len(blocks)))):
            # what stands before a null block was given back by an earlier call
            if blocks[number].is_null:
                break
            released.append(blocks[number])
            blocks[number] = self.block_pool.null_block
        self._give_back(released)

    def _give_back(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Give a window's blocks back, the first of them first; those that cannot be found go
        before all others where the pool does not see to it."""
        self.block_pool.free_blocks(blocks)
        if self._reorders:
            queue = self.block_pool.free_block_queue
            unfindable = [
                block
                for block in blocks
                if block.ref_cnt == 0 and not (block.keys or block.is_null)
            ]
            for block in unfindable:
                queue.remove(block)
            queue.prepend_n(unfindable)

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens that are no longer read once `num_computed_tokens` are computed."""
        return 0

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Blocks at the start of this request's table that every request holds."""
        return 0

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
        """The longest prefix of at most `max_length` tokens that all these groups have cached.

        The groups are of this manager's kind. For each of them the blocks, null blocks where the
        next token reads nothing; and the prefix's length, a multiple of `alignment_tokens`. With
        `drop_eagle_block` the prefix goes on for one more block, which is then left out.
        """
        raise NotImplementedError

    def _grow(self, request_id: str, num_tokens: int) -> list[KVCacheBlock]:
        blocks = self.req_to_blocks.setdefault(request_id, [])
        missing = ceil_div(num_tokens, self.block_size) - len(blocks)
        new = self.block_pool.get_new_blocks(max(missing, 0))
        blocks += new
        return new


def hashes_of(
    block_hashes: Sequence[bytes], block_pool: BlockPool, kv_cache_spec: KVCacheSpec
) -> Sequence[bytes]:
    """The hashes of whole blocks of a group."""
    return hashes_at(block_hashes, kv_cache_spec.block_size // block_pool.hash_block_size)


def refuse_context_parallelism(dcp_world_size: int, pcp_world_size: int) -> None:
    """Raises NotModelledCache for more than one rank."""
    if dcp_world_size > 1 or pcp_world_size > 1:
        raise NotModelledCache("context parallelism")
