"""Faults in the block pool: references, the free queue, the hash map, resets and KV events.

Each is planted in one manager by replacing methods of its pool.
"""
# mypy: disable-error-code="method-assign"

from collections.abc import Callable, Iterable

from cacheproof.reference.block_pool import BlockPool, KVCacheBlock
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.kv_events import AllBlocksCleared, BlockRemoved


def hit_counts_the_first_holder_only(manager: KVCacheManager) -> None:
    """A block that is held already gets no reference by a hit."""
    pool = manager.block_pool
    touch = pool.touch
    pool.touch = lambda blocks: touch([block for block in blocks if block.ref_cnt == 0])


def hit_counts_twice(manager: KVCacheManager) -> None:
    """A hit of a block that is held already adds two references."""
    pool = manager.block_pool
    touch = pool.touch

    def touch_again(blocks: Iterable[KVCacheBlock]) -> None:
        blocks = list(blocks)
        touch(blocks)
        touch(block for block in blocks if block.ref_cnt > 1)

    pool.touch = touch_again


def hit_forgets_the_hash(manager: KVCacheManager) -> None:
    """A free block that is hit can no longer be found by others."""
    pool = manager.block_pool
    touch = pool.touch

    def touch_and_forget(blocks: Iterable[KVCacheBlock]) -> None:
        blocks = list(blocks)
        free = [block.block_id for block in blocks if block.ref_cnt == 0 and not block.is_null]
        touch(blocks)
        pool.evict_blocks(free)

    pool.touch = touch_and_forget


def _queue_also(manager: KVCacheManager, wrongly: Callable[[KVCacheBlock], bool]) -> None:
    """Of the blocks that are given back these are queued as well."""
    pool = manager.block_pool
    free_blocks = pool.free_blocks

    def free(ordered_blocks: Iterable[KVCacheBlock]) -> None:
        blocks = list(ordered_blocks)
        free_blocks(blocks)
        pool.free_block_queue.append_n(filter(wrongly, blocks))

    pool.free_blocks = free


def shared_block_is_queued(manager: KVCacheManager) -> None:
    """A block that is given back is queued while another request holds it."""
    _queue_also(manager, lambda block: block.ref_cnt > 0 and not block.is_null)


def null_block_is_queued(manager: KVCacheManager) -> None:
    """The null blocks of a table are given back with the others."""
    _queue_also(manager, lambda block: block.is_null)


def unfindable_blocks_are_stacked_backwards(manager: KVCacheManager) -> None:
    """Blocks without a hash go to the front of the queue in the wrong order."""
    queue = manager.block_pool.free_block_queue
    prepend_n = queue.prepend_n
    queue.prepend_n = lambda blocks: prepend_n(blocks[::-1])


def eviction_leaves_the_map(manager: KVCacheManager) -> None:
    """A block that is handed out loses its hash, and the hash still finds it."""
    pool = manager.block_pool

    def forget(block: KVCacheBlock) -> None:
        block.keys.clear()

    pool._forget = forget


def eviction_forgets_duplicates(manager: KVCacheManager) -> None:
    """With one block its whole prefix is forgotten, whichever other blocks hold it."""
    pool = manager.block_pool
    forget = pool._forget

    def forget_prefix(block: KVCacheBlock) -> None:
        keys = list(block.keys)
        forget(block)
        for key in keys:
            pool.cached_block_hash_to_block.pop(key, None)

    pool._forget = forget_prefix


def eviction_forgets_one_hash(manager: KVCacheManager) -> None:
    """Of the hashes of a block only the first is forgotten."""
    pool = manager.block_pool
    forget = pool._forget

    def forget_first(block: KVCacheBlock) -> None:
        further = dict(list(block.keys.items())[1:])
        forget(block)
        for key in further:
            pool.cached_block_hash_to_block.setdefault(key, {})[block.block_id] = block

    pool._forget = forget_first


def new_block_keeps_its_hash(manager: KVCacheManager) -> None:
    """A block that is handed out can still be found by what it held."""
    manager.block_pool._evict = lambda block: None


def one_block_more_is_evicted(manager: KVCacheManager) -> None:
    """With the blocks that are handed out the next in the queue loses its hash."""
    pool = manager.block_pool
    get_new_blocks = pool.get_new_blocks

    def get(num_blocks: int) -> list[KVCacheBlock]:
        blocks = get_new_blocks(num_blocks)
        pool.evict_blocks(
            block.block_id for block in pool.free_block_queue.get_all_free_blocks()[:1]
        )
        return blocks

    pool.get_new_blocks = get


def held_block_keeps_its_hash(manager: KVCacheManager) -> None:
    """A block whose content is wrong can be found as long as somebody holds it."""
    pool = manager.block_pool
    evict_blocks = pool.evict_blocks
    pool.evict_blocks = lambda block_ids: evict_blocks(
        [block_id for block_id in block_ids if pool.blocks[block_id].ref_cnt == 0]
    )


def _reset(pool: BlockPool, done: Callable[[], bool]) -> None:
    pool.reset_prefix_cache = done


def reset_leaves_the_blocks(manager: KVCacheManager) -> None:
    """A reset empties the hash map, and blocks keep their hashes."""
    pool = manager.block_pool
    reset_prefix_cache = pool.reset_prefix_cache

    def reset() -> bool:
        keys = [dict(block.keys) for block in pool.blocks]
        done = reset_prefix_cache()
        for block, had in zip(pool.blocks, keys, strict=True):
            block.keys.update(had)
        return done

    _reset(pool, reset)


def reset_of_held_blocks(manager: KVCacheManager) -> None:
    """A reset goes ahead while blocks are held."""
    pool = manager.block_pool

    def reset() -> bool:
        pool.cached_block_hash_to_block.clear()
        for block in pool.blocks:
            block.keys.clear()
        if pool.enable_kv_cache_events:
            pool.kv_event_queue.append(AllBlocksCleared())
        return True

    _reset(pool, reset)


def reset_counts_the_null_block(manager: KVCacheManager) -> None:
    """A reset waits until the null block is free as well."""
    pool = manager.block_pool
    _reset(pool, lambda: pool.get_num_free_blocks() == pool.num_gpu_blocks)


def reset_is_not_told(manager: KVCacheManager) -> None:
    """KV events do not tell of a reset."""
    pool = manager.block_pool
    take_events = pool.take_events
    pool.take_events = lambda: [
        event for event in take_events() if not isinstance(event, AllBlocksCleared)
    ]


def removal_is_told_for_the_last_duplicate(manager: KVCacheManager) -> None:
    """KV events tell that a hash is gone, and not that a block of several is."""
    pool = manager.block_pool
    forget = pool._forget

    def forget_and_tell(block: KVCacheBlock) -> None:
        left = [
            key.block_hash
            for key in block.keys
            if len(pool.cached_block_hash_to_block.get(key, ())) > 1
        ]
        told = len(pool.kv_event_queue)
        forget(block)
        pool.kv_event_queue[told:] = [
            event
            for event in pool.kv_event_queue[told:]
            if not (isinstance(event, BlockRemoved) and event.block_hashes[0] in left)
        ]

    pool._forget = forget_and_tell


def eviction_by_id_is_not_told(manager: KVCacheManager) -> None:
    """KV events do not tell of blocks that are evicted by their ids."""
    pool = manager.block_pool
    evict_blocks = pool.evict_blocks

    def evict(block_ids: Iterable[int]) -> None:
        told = len(pool.kv_event_queue)
        evict_blocks(block_ids)
        del pool.kv_event_queue[told:]

    pool.evict_blocks = evict
