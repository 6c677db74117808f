"""Faults to plant in the KV cache manager of any release, by name: what a search must find.

A fault patches one manager, or its pool, by replacing bound methods. It touches nothing but what
every release has, so the same fault is planted in the reference.
"""

from collections.abc import Callable
from typing import Any

Fault = Callable[[Any], None]


def nothing(manager: Any) -> None:
    """No fault: the canary that must be reported missed."""


def keeps_hits_queued(manager: Any) -> None:
    """A hit leaves free blocks in the free queue."""

    def touch(blocks: Any) -> None:
        for block in blocks:
            if not block.is_null:
                block.ref_cnt += 1

    manager.block_pool.touch = touch


def leaks_a_block(manager: Any) -> None:
    """Of the blocks given back together the last stays referenced for ever."""
    free_blocks = manager.block_pool.free_blocks
    manager.block_pool.free_blocks = lambda blocks: free_blocks(list(blocks)[:-1])


def frees_the_first_block_first(manager: Any) -> None:
    """Blocks are given back in the order of the text."""
    free_blocks = manager.block_pool.free_blocks
    manager.block_pool.free_blocks = lambda blocks: free_blocks(list(blocks)[::-1])


def loses_a_hash(manager: Any) -> None:
    """Now and then a hash no longer finds the block that has it."""
    cache_blocks = manager.cache_blocks

    def lose(request: Any, num_computed_tokens: int) -> None:
        cache_blocks(request, num_computed_tokens)
        entries = manager.block_pool.cached_block_hash_to_block
        entries = getattr(entries, "_cache", entries)
        if entries:
            entries.pop(next(iter(entries)))

    manager.cache_blocks = lose


def keeps_silent_about_evictions(manager: Any) -> None:
    """KV events do not tell that a block can no longer be found."""
    take_events = manager.take_events

    def take() -> list[Any]:
        return [event for event in take_events() if type(event).__name__ != "BlockRemoved"]

    manager.take_events = take


def tells_a_token_too_many(manager: Any) -> None:
    """A KV event carries a token beside those of its hashes."""
    take_events = manager.take_events

    def take() -> list[Any]:
        events: list[Any] = take_events()
        for event in events:
            if type(event).__name__ == "BlockStored":
                event.token_ids = [*event.token_ids, 0]
        return events

    manager.take_events = take


def hits_every_token(manager: Any) -> None:
    """A lookup that finds something claims that no token is left to compute."""
    get_computed_blocks = manager.get_computed_blocks

    def claim(request: Any) -> Any:
        blocks, hit, *rest = get_computed_blocks(request)
        return (blocks, request.num_tokens if hit else 0, *rest)

    manager.get_computed_blocks = claim


def hits_backwards(manager: Any) -> None:
    """The blocks of a hit come in the wrong order."""
    get_computed_blocks = manager.get_computed_blocks

    def swap(request: Any) -> Any:
        blocks, *rest = get_computed_blocks(request)
        turned = tuple(list(group)[::-1] for group in blocks.blocks)
        return (manager.create_kv_cache_blocks(turned), *rest)

    manager.get_computed_blocks = swap


def hands_out_a_shared_block(manager: Any) -> None:
    """A new block has a second reference that nobody holds."""
    allocate_slots = manager.allocate_slots

    def share(*args: Any, **kwargs: Any) -> Any:
        granted = allocate_slots(*args, **kwargs)
        for group in granted.blocks if granted is not None else ():
            for block in group[:1]:
                block.ref_cnt += 1
        return granted

    manager.allocate_slots = share


def refuses_to_be_reset(manager: Any) -> None:
    """Resetting the prefix cache raises."""

    def refuse() -> bool:
        raise RuntimeError("not now")

    manager.reset_prefix_cache = refuse


KV_CACHE_FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        nothing,
        keeps_hits_queued,
        leaks_a_block,
        frees_the_first_block_first,
        loses_a_hash,
        keeps_silent_about_evictions,
        tells_a_token_too_many,
        hits_every_token,
        hits_backwards,
        hands_out_a_shared_block,
        refuses_to_be_reset,
    )
}
