"""Faults to plant in the KV cache manager of any release, by name: what a search must find.

A fault patches one manager, or its pool, by replacing bound methods. It touches nothing but what
every release has, so the same fault is planted in the reference.
"""

import itertools
from collections.abc import Callable, Sequence

from ..by_name import breaks, by_name
from ..vllm_objects.kv_cache import (
    BlockPool,
    Computed,
    KVCacheBlock,
    KVCacheBlocks,
    KVCacheEvent,
    KVCacheManager,
    entries_of,
)
from ..vllm_objects.requests import Request

Fault = Callable[[KVCacheManager], None]


def nothing(manager: KVCacheManager) -> None:
    """No fault: the canary that must be reported missed."""


@breaks("BP-1")
def keeps_hits_queued(manager: KVCacheManager) -> None:
    """A hit leaves free blocks in the free queue."""

    def touch(blocks: Sequence[KVCacheBlock]) -> None:
        for block in blocks:
            if not block.is_null:
                block.ref_cnt += 1

    manager.block_pool.touch = touch


@breaks("BP-3")
def leaks_a_block(manager: KVCacheManager) -> None:
    """Of the blocks given back together the last stays referenced for ever."""
    free_blocks = manager.block_pool.free_blocks
    manager.block_pool.free_blocks = lambda blocks: free_blocks(list(blocks)[:-1])


@breaks("BP-5")
def frees_the_first_block_first(manager: KVCacheManager) -> None:
    """Blocks are given back in the order of the text."""
    free_blocks = manager.block_pool.free_blocks
    manager.block_pool.free_blocks = lambda blocks: free_blocks(list(blocks)[::-1])


@breaks("BP-2")
def loses_a_hash(manager: KVCacheManager) -> None:
    """Now and then a hash no longer finds the block that has it."""
    cache_blocks = manager.cache_blocks

    def lose(request: Request, num_computed_tokens: int) -> None:
        cache_blocks(request, num_computed_tokens)
        entries = entries_of(manager.block_pool)
        if entries:
            entries.pop(next(iter(entries)))

    manager.cache_blocks = lose


@breaks("BP-4")
def keeps_silent_about_evictions(manager: KVCacheManager) -> None:
    """KV events do not tell that a block can no longer be found."""
    take_events = manager.take_events

    def take() -> list[KVCacheEvent]:
        return [event for event in take_events() if type(event).__name__ != "BlockRemoved"]

    manager.take_events = take


@breaks("BP-6")
def tells_a_token_too_many(manager: KVCacheManager) -> None:
    """A KV event carries a token beside those of its hashes."""

    def one_more(stored: KVCacheEvent) -> None:
        stored.token_ids = [*stored.token_ids, 0]

    _change_stored(manager, one_more)


@breaks("KV-13")
def counts_no_lookups(manager: KVCacheManager) -> None:
    """No lookup counts in the statistics of prefix caching."""
    manager.record_prefix_cache_stats = lambda *arguments: None


@breaks("BP-10")
def tells_no_parent(manager: KVCacheManager) -> None:
    """A KV event says of its blocks that nothing comes before them."""

    def orphaned(stored: KVCacheEvent) -> None:
        stored.parent_block_hash = None

    _change_stored(manager, orphaned)


@breaks("BP-11")
def names_no_items(manager: KVCacheManager) -> None:
    """A KV event says of its blocks that they hold nothing beside tokens."""

    def unnamed(stored: KVCacheEvent) -> None:
        if stored.extra_keys is not None:
            stored.extra_keys = [None for _ in stored.extra_keys]

    _change_stored(manager, unnamed)


@breaks("KV-15")
def measures_no_hit(manager: KVCacheManager) -> None:
    """Of how long contents stay in their blocks it is forgotten when they were hit."""
    manager.block_pool.metrics_collector.on_block_accessed = lambda block: None


@breaks("KV-1")
def hits_every_token(manager: KVCacheManager) -> None:
    """A lookup that finds something claims that no token is left to compute."""
    get_computed_blocks = manager.get_computed_blocks

    def claim(request: Request, *limit: int) -> Computed:
        blocks, hit, *rest = get_computed_blocks(request, *limit)
        return blocks, request.num_tokens if hit else 0, *rest

    manager.get_computed_blocks = claim


def hits_backwards(manager: KVCacheManager) -> None:
    """The blocks of a hit come in the wrong order."""
    get_computed_blocks = manager.get_computed_blocks

    def swap(request: Request, *limit: int) -> Computed:
        blocks, hit, *rest = get_computed_blocks(request, *limit)
        turned = tuple(list(group)[::-1] for group in blocks.blocks)
        return manager.create_kv_cache_blocks(turned), hit, *rest

    manager.get_computed_blocks = swap


@breaks("KV-2")
def hands_out_a_shared_block(manager: KVCacheManager) -> None:
    """A new block has a second reference that nobody holds."""
    allocate_slots = manager.allocate_slots

    def share(request: Request, num_new_tokens: int, **arguments: object) -> KVCacheBlocks | None:
        granted = allocate_slots(request, num_new_tokens, **arguments)
        for group in granted.blocks if granted is not None else ():
            for block in group[:1]:
                block.ref_cnt += 1
        return granted

    manager.allocate_slots = share


@breaks("KV-3")
def refuses_to_be_reset(manager: KVCacheManager) -> None:
    """Resetting the prefix cache raises."""

    def refuse() -> bool:
        raise RuntimeError("not now")

    manager.reset_prefix_cache = refuse


@breaks("BP-7")
def hands_out_what_was_used_last(manager: KVCacheManager) -> None:
    """New blocks are taken from the back of the free queue."""
    queue = manager.block_pool.free_block_queue

    def take(count: int) -> list[KVCacheBlock]:
        blocks = queue.get_all_free_blocks()
        blocks = blocks[len(blocks) - count :]
        for block in blocks:
            queue.remove(block)
        return blocks

    queue.popleft_n = take


@breaks("BP-8")
def says_that_it_was_reset(manager: KVCacheManager) -> None:
    """A reset is said to be done while blocks are held."""
    reset_prefix_cache = manager.reset_prefix_cache
    manager.reset_prefix_cache = lambda: reset_prefix_cache() or True


@breaks("BP-9")
def evicts_nothing_by_id(manager: KVCacheManager) -> None:
    """Blocks whose content is wrong can still be found."""
    manager.evict_blocks = lambda block_ids: None


@breaks("KV-4")
def hands_out_a_block_twice(manager: KVCacheManager) -> None:
    """The last of several new blocks is the first of them once more."""
    pool = manager.block_pool
    get_new_blocks = pool.get_new_blocks

    def repeat(count: int) -> list[KVCacheBlock]:
        blocks = get_new_blocks(count)
        if count > 1:
            pool.free_blocks(blocks[-1:])
            blocks[-1] = blocks[0]
            blocks[0].ref_cnt += 1
        return blocks

    pool.get_new_blocks = repeat


def _after_a_grant(
    manager: KVCacheManager, then: Callable[[list[KVCacheBlock], bool], None]
) -> None:
    """Do something to the table of the first group of each request that gets slots; `then` is also
    told whether its tokens are being loaded."""
    allocate_slots = manager.allocate_slots
    tables = manager.coordinator.single_type_managers[0].req_to_blocks

    def allocate(request: Request, count: int, **arguments: object) -> KVCacheBlocks | None:
        granted = allocate_slots(request, count, **arguments)
        if granted is not None:
            then(tables[request.request_id], bool(arguments.get("delay_cache_blocks")))
        return granted

    manager.allocate_slots = allocate


def _take_away(pool: BlockPool, table: list[KVCacheBlock]) -> None:
    if table and not table[-1].is_null:
        pool.free_blocks(table[-1:])
        table[-1] = pool.null_block


@breaks("KV-5")
def takes_a_block_away(manager: KVCacheManager) -> None:
    """The last block of a request that gets slots is a null block."""

    def take(table: list[KVCacheBlock], loads: bool) -> None:
        if not loads:
            _take_away(manager.block_pool, table)

    _after_a_grant(manager, take)


@breaks("KV-12")
def loads_to_nowhere(manager: KVCacheManager) -> None:
    """The last block of what is to be loaded is a null block."""

    def take(table: list[KVCacheBlock], loads: bool) -> None:
        if loads:
            _take_away(manager.block_pool, table)

    _after_a_grant(manager, take)


@breaks("KV-6")
def takes_a_block_too_many(manager: KVCacheManager) -> None:
    """A request that gets slots gets a block beside those for its tokens."""

    def take(table: list[KVCacheBlock], loads: bool) -> None:
        if manager.block_pool.get_num_free_blocks():
            table += manager.block_pool.get_new_blocks(1)

    _after_a_grant(manager, take)


@breaks("KV-7")
def refuses_every_third_time(manager: KVCacheManager) -> None:
    """Every third request for slots is refused."""
    allocate_slots = manager.allocate_slots
    turns = itertools.count(1)

    def refuse(request: Request, num_new_tokens: int, **arguments: object) -> KVCacheBlocks | None:
        if next(turns) % 3 == 0:
            return None
        return allocate_slots(request, num_new_tokens, **arguments)

    manager.allocate_slots = refuse


def _caches(manager: KVCacheManager, delay: bool) -> None:
    allocate_slots = manager.allocate_slots

    def allocate(
        request: Request, num_new_tokens: int, **arguments: object
    ) -> KVCacheBlocks | None:
        return allocate_slots(request, num_new_tokens, **{**arguments, "delay_cache_blocks": delay})

    manager.allocate_slots = allocate


@breaks("KV-8")
def caches_what_is_loading(manager: KVCacheManager) -> None:
    """Blocks can be found before their content has arrived."""
    _caches(manager, delay=False)


@breaks("KV-11")
def caches_nothing_computed(manager: KVCacheManager) -> None:
    """Blocks of computed tokens cannot be found."""
    _caches(manager, delay=True)


@breaks("KV-14")
def caches_what_nobody_reads(manager: KVCacheManager) -> None:
    """Of a window every full block can be found."""
    pool = manager.block_pool
    cache_full_blocks = pool.cache_full_blocks

    def cache_all(*args: object, **kwargs: object) -> None:
        cache_full_blocks(*args, **{**kwargs, "block_mask": None})

    pool.cache_full_blocks = cache_all


@breaks("KV-9")
def misses_every_third_hit(manager: KVCacheManager) -> None:
    """Every third lookup finds nothing."""
    get_computed_blocks = manager.get_computed_blocks
    turns = itertools.count(1)

    def miss(request: Request, *limit: int) -> Computed:
        blocks, hit, *rest = get_computed_blocks(request, *limit)
        if next(turns) % 3:
            return blocks, hit, *rest
        return manager.empty_kv_cache_blocks, 0, *(0 for _ in rest)

    manager.get_computed_blocks = miss


@breaks("KV-10")
def claims_whole_tables_as_common(manager: KVCacheManager) -> None:
    """All blocks of a request are said to be held by every request."""

    def claim(request_id: str) -> list[int]:
        managers = manager.coordinator.single_type_managers
        return [len(single.req_to_blocks[request_id]) for single in managers]

    manager.get_num_common_prefix_blocks = claim


def _change_stored(manager: KVCacheManager, change: Callable[[KVCacheEvent], None]) -> None:
    """Let `change(event)` alter each KV event that says what was stored."""
    take_events = manager.take_events

    def take() -> list[KVCacheEvent]:
        events = take_events()
        for event in events:
            if type(event).__name__ == "BlockStored":
                change(event)
        return events

    manager.take_events = take


KV_CACHE_FAULTS: dict[str, Fault] = by_name(
    nothing,
    keeps_hits_queued,
    leaks_a_block,
    frees_the_first_block_first,
    loses_a_hash,
    keeps_silent_about_evictions,
    tells_a_token_too_many,
    tells_no_parent,
    names_no_items,
    counts_no_lookups,
    measures_no_hit,
    hits_every_token,
    hits_backwards,
    hands_out_a_shared_block,
    refuses_to_be_reset,
    hands_out_what_was_used_last,
    says_that_it_was_reset,
    evicts_nothing_by_id,
    hands_out_a_block_twice,
    takes_a_block_away,
    loads_to_nowhere,
    takes_a_block_too_many,
    refuses_every_third_time,
    caches_what_is_loading,
    caches_nothing_computed,
    caches_what_nobody_reads,
    misses_every_third_hit,
    claims_whole_tables_as_common,
)
