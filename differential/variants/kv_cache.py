"""Faults in the KV cache manager: hits, windows, admission, caching, loads and frees.

Each is planted in one manager by replacing methods of it, or of what it is made of.
"""
# mypy: disable-error-code="method-assign"

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from cacheproof.reference.attention_kinds import (
    ChunkedLocalAttentionManager,
    CrossAttentionManager,
    SlidingWindowManager,
)
from cacheproof.reference.block_pool import KVCacheBlock
from cacheproof.reference.kv_cache_coordinator import CacheHit
from cacheproof.reference.kv_cache_manager import KVCacheBlocks, KVCacheManager
from cacheproof.reference.kv_cache_specs import SlidingWindowSpec, ceil_div
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.single_type_kv_cache import SingleTypeKVCacheManager

Named = dict[str, Any]
"""Arguments of `allocate_slots` by their names."""
GroupT = TypeVar("GroupT", bound=SingleTypeKVCacheManager)


def _groups(manager: KVCacheManager, kind: type[GroupT]) -> list[GroupT]:
    return [one for one in manager.coordinator.single_type_managers if isinstance(one, kind)]


def _asks_for_slots(manager: KVCacheManager, change: Callable[[Named], object]) -> None:
    """Change the arguments of each request for slots."""
    allocate_slots = manager.allocate_slots

    def allocate(*given: Any, **named: Any) -> KVCacheBlocks | None:
        change(named)
        return allocate_slots(*given, **named)

    manager.allocate_slots = allocate


def hit_leaves_no_token(manager: KVCacheManager) -> None:
    """A request all of whose tokens are cached has none left to compute."""
    find = manager.coordinator.find_longest_cache_hit

    def find_all(block_hashes: Sequence[bytes], max_cache_hit_length: int) -> CacheHit:
        return find(block_hashes, max_cache_hit_length + 1)

    manager.coordinator.find_longest_cache_hit = find_all


def hit_of_the_first_group_counts(manager: KVCacheManager) -> None:
    """A hit is as long as the longest of a single group."""
    find = manager.coordinator.find_longest_cache_hit

    def find_longest(block_hashes: Sequence[bytes], max_cache_hit_length: int) -> CacheHit:
        hit = find(block_hashes, max_cache_hit_length)
        return hit._replace(num_tokens=hit.num_tokens + hit.num_uncached_common_prefix_tokens)

    manager.coordinator.find_longest_cache_hit = find_longest


def _windows_need(manager: KVCacheManager, change: Callable[[int], int]) -> None:
    """Change how many cached blocks in a row a window's hit takes: managers of a class of their
    own, since a class method counts them."""
    count = SlidingWindowManager._contiguous_blocks_for_hit

    class Changed(SlidingWindowManager):
        @classmethod
        def _contiguous_blocks_for_hit(
            cls, kv_cache_spec: SlidingWindowSpec, drop_eagle_block: bool
        ) -> int:
            return change(count(kv_cache_spec, drop_eagle_block))

    for group in _groups(manager, SlidingWindowManager):
        group.__class__ = Changed


def window_hit_of_one_block(manager: KVCacheManager) -> None:
    """A window's hit needs a single cached block, however many the window spans."""
    _windows_need(manager, lambda need: 1)


def window_hit_of_a_block_more(manager: KVCacheManager) -> None:
    """A window's hit needs a cached block more than the window spans."""
    _windows_need(manager, lambda need: need + 1)


def window_is_a_token_short(manager: KVCacheManager) -> None:
    """A window loses its first token too early."""
    for group in _groups(manager, SlidingWindowManager):
        group.sliding_window -= 1


def block_leaves_with_its_first_token(manager: KVCacheManager) -> None:
    """A block is given back when its first token is no longer read."""
    for group in _groups(manager, SlidingWindowManager):
        skipped = group.get_num_skipped_tokens

        def round_up(
            num_computed_tokens: int,
            skipped: Callable[[int], int] = skipped,
            size: int = group.block_size,
        ) -> int:
            return ceil_div(skipped(num_computed_tokens), size) * size

        group.get_num_skipped_tokens = round_up


def chunk_ends_a_token_early(manager: KVCacheManager) -> None:
    """The last token of a chunk no longer reads the chunk."""
    for group in _groups(manager, ChunkedLocalAttentionManager):
        group.get_num_skipped_tokens = partial(_a_token_further, group.get_num_skipped_tokens)


def _a_token_further(skipped: Callable[[int], int], num_computed_tokens: int) -> int:
    return skipped(num_computed_tokens + 1)


def window_keeps_everything(manager: KVCacheManager) -> None:
    """Behind a window nothing is given back, and blocks are taken for what is not read."""
    for group in manager.coordinator.single_type_managers:
        group.get_num_skipped_tokens = lambda num_computed_tokens: 0


def resumed_request_counts_as_begun(manager: KVCacheManager) -> None:
    """A request that lost its blocks is still taken for one that has its hit."""
    for group in manager.coordinator.single_type_managers:
        group.pop_blocks_for_free = partial(_pop_table, group.req_to_blocks)


def _pop_table(req_to_blocks: dict[str, list[KVCacheBlock]], request_id: str) -> list[KVCacheBlock]:
    return req_to_blocks.pop(request_id, [])


def hit_is_not_counted(manager: KVCacheManager) -> None:
    """Free blocks of a hit are not among those that a request takes from the free ones."""
    for group in manager.coordinator.single_type_managers:
        need = group.get_num_blocks_to_allocate

        def count(*given: Any, need: Callable[..., int] = need, **named: Any) -> int:
            hit: Sequence[KVCacheBlock] = given[2]
            free = sum(block.ref_cnt == 0 and not block.is_null for block in hit)
            return max(0, need(*given, **named) - free)

        group.get_num_blocks_to_allocate = count


def refusal_keeps_the_hit(manager: KVCacheManager) -> None:
    """A request that gets no slots holds its hit all the same."""
    allocate_slots = manager.allocate_slots

    def allocate(*given: Any, **named: Any) -> KVCacheBlocks | None:
        granted = allocate_slots(*given, **named)
        hit: KVCacheBlocks | None = named.get("new_computed_blocks")
        if granted is None and hit is not None:
            for blocks in hit.blocks:
                manager.block_pool.touch(blocks)
        return granted

    manager.allocate_slots = allocate


def look_ahead_has_no_slots(manager: KVCacheManager) -> None:
    """Drafts get no slots."""
    _asks_for_slots(manager, lambda arguments: arguments.update(num_lookahead_tokens=0))


def look_ahead_gets_a_block(manager: KVCacheManager) -> None:
    """Drafts get a block of their own, even if the last one has room."""
    size = manager.coordinator.scheduler_block_size

    def round_up(arguments: Named) -> None:
        ahead = arguments["num_lookahead_tokens"]
        arguments["num_lookahead_tokens"] = ceil_div(ahead, size) * size

    _asks_for_slots(manager, round_up)


def slots_end_behind_the_model(manager: KVCacheManager) -> None:
    """Slots for drafts go on where the model's longest sequence ends."""
    manager.max_model_len += manager.coordinator.scheduler_block_size


def answer_names_the_first_block(manager: KVCacheManager) -> None:
    """Of several new blocks of a group the answer names the first alone."""
    create = manager.create_kv_cache_blocks
    manager.create_kv_cache_blocks = lambda blocks: create(tuple(group[:1] for group in blocks))


def encoder_grows_with_the_text(manager: KVCacheManager) -> None:
    """Cross-attention groups get blocks for the decoder's tokens."""
    for group in _groups(manager, CrossAttentionManager):
        allocate_new_blocks = group.allocate_new_blocks

        def allocate(
            request_id: str,
            num_tokens: int,
            num_tokens_main_model: int,
            allocate_new_blocks: Callable[..., list[KVCacheBlock]] = allocate_new_blocks,
        ) -> list[KVCacheBlock]:
            text = manager.coordinator.single_type_managers[0].req_to_blocks[request_id]
            tokens = max(num_tokens, len(text) * manager.coordinator.hash_block_size)
            return allocate_new_blocks(request_id, tokens, num_tokens_main_model)

        group.allocate_new_blocks = allocate


def encoder_is_not_counted(manager: KVCacheManager) -> None:
    """Admission forgets the blocks of cross-attention groups."""
    for group in _groups(manager, CrossAttentionManager):
        group.get_num_blocks_to_allocate = lambda *_: 0


def encoder_has_no_blocks(manager: KVCacheManager) -> None:
    """The encoder's tokens get no blocks."""
    _asks_for_slots(manager, lambda arguments: arguments.update(num_encoder_tokens=0))


def reserved_blocks_are_taken(manager: KVCacheManager) -> None:
    """Admission takes blocks that are reserved."""
    _asks_for_slots(manager, lambda arguments: arguments.update(reserved_blocks=0))


def watermark_is_ignored(manager: KVCacheManager) -> None:
    """Admission beside other requests leaves no blocks free."""
    manager.watermark_blocks = 0


def watermark_stops_the_running(manager: KVCacheManager) -> None:
    """Requests that run already must leave the watermark free as well."""
    manager._watermark = lambda request, has_scheduled_reqs: (
        manager.watermark_blocks if has_scheduled_reqs else 0
    )


def sequence_need_not_fit(manager: KVCacheManager) -> None:
    """Admission looks at the next step where the whole sequence must fit."""
    _asks_for_slots(manager, lambda arguments: arguments.update(full_sequence_must_fit=False))


def window_must_fit_as_a_whole(manager: KVCacheManager) -> None:
    """The whole sequence must fit, blocks that a window will have given back included."""
    for group in manager.coordinator.single_type_managers:
        group.max_admission_blocks_per_request = None


def whole_prompt_is_cached(manager: KVCacheManager) -> None:
    """With its first chunk all of a prompt can be found."""
    coordinator = manager.coordinator
    cache_blocks = coordinator.cache_blocks

    def cache(request: ScheduledRequest, num_computed_tokens: int) -> None:
        has = min(
            len(group.req_to_blocks.get(request.request_id, ())) * group.block_size
            for group in coordinator.single_type_managers
        )
        cache_blocks(request, max(num_computed_tokens, min(request.num_tokens, has)))

    coordinator.cache_blocks = cache


def decoded_blocks_are_not_cached(manager: KVCacheManager) -> None:
    """Blocks that fill while decoding cannot be found."""
    coordinator = manager.coordinator
    cache_blocks = coordinator.cache_blocks
    coordinator.cache_blocks = lambda request, num_computed_tokens: cache_blocks(
        request, min(num_computed_tokens, request.num_prompt_tokens)
    )


def failed_load_is_cached(manager: KVCacheManager) -> None:
    """Blocks whose content did not arrive can be found."""
    cache_blocks = manager.cache_blocks
    manager.cache_blocks = lambda request, num_computed_tokens: cache_blocks(
        request, request.num_tokens
    )


def load_takes_no_blocks(manager: KVCacheManager) -> None:
    """Blocks for tokens that are loaded later are taken only when they are computed with."""
    allocate_new_blocks = manager.coordinator.allocate_new_blocks
    loads = False

    def grow(
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        num_encoder_tokens: int = 0,
    ) -> tuple[list[KVCacheBlock], ...]:
        tokens = 0 if loads else num_tokens
        return allocate_new_blocks(request_id, tokens, num_tokens_main_model, num_encoder_tokens)

    def look(arguments: Named) -> None:
        nonlocal loads
        loads = arguments.get("delay_cache_blocks", False)

    for group in manager.coordinator.single_type_managers:
        group.allocate_external_computed_blocks = lambda *_: None
    manager.coordinator.allocate_new_blocks = grow
    _asks_for_slots(manager, look)


def put_off_free_forgets_a_group(manager: KVCacheManager) -> None:
    """Of blocks that are given back later those of the last group are forgotten."""
    coordinator = manager.coordinator
    pop = coordinator.pop_blocks_for_free

    def pop_some(request_id: str) -> list[KVCacheBlock]:
        last = len(coordinator.single_type_managers[-1].req_to_blocks.get(request_id, ()))
        blocks = pop(request_id)
        return blocks[: len(blocks) - last]

    coordinator.pop_blocks_for_free = pop_some


def put_off_free_is_carried_out(manager: KVCacheManager) -> None:
    """Blocks to be given back later are queued at once."""
    coordinator = manager.coordinator
    pop = coordinator.pop_blocks_for_free

    def pop_and_queue(request_id: str) -> list[KVCacheBlock]:
        blocks = pop(request_id)
        manager.block_pool.free_block_queue.append_n(
            block for block in blocks if block.ref_cnt == 1 and not block.is_null
        )
        return blocks

    coordinator.pop_blocks_for_free = pop_and_queue


def free_forgets_a_group(manager: KVCacheManager) -> None:
    """A request that ends gives back the blocks of its first group alone."""
    coordinator = manager.coordinator

    def free(request_id: str) -> None:
        first, *others = coordinator.single_type_managers
        first.free(request_id)
        for group in others:
            group.pop_blocks_for_free(request_id)

    coordinator.free = free
