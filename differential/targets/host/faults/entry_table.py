"""Faults to plant in vLLM's table of entries, by name: canaries that an exploration must find.

A fault changes one table, as an instance; the class stays as it is.
"""

from collections import OrderedDict

from ..by_name import by_name
from ..vllm_objects.kv_cache import CacheEntry, EmbeddingCache


def leaks_a_block(table: EmbeddingCache) -> None:
    """An entry takes a block more than is counted to it, where there is one."""
    alloc = table.alloc

    def alloc_one_more(key: str, size: int) -> CacheEntry | None:
        entry = alloc(key, size)
        if entry is not None and table._free_blocks:
            table._free_blocks.pop()
        return entry

    table.alloc = alloc_one_more


def leaves_pinned_in_the_queue(table: EmbeddingCache) -> None:
    """What is pinned may still be evicted."""
    pin = table.pin

    def pin_alone(key: str) -> None:
        pin(key)
        table._entries_free_list[key] = None

    table.pin = pin_alone


def counts_one_pin(table: EmbeddingCache) -> None:
    """A second pin of an entry is not counted."""
    pin = table.pin

    def pin_once(key: str) -> None:
        if _evictable(table, key):
            pin(key)

    table.pin = pin_once


def refuses_after_evicting(table: EmbeddingCache) -> None:
    """The first idle entry goes, and then it is asked whether there is room."""
    alloc = table.alloc

    def evict_and_alloc(key: str, size: int) -> CacheEntry | None:
        if table._entries_free_list:
            table._evict_until(min(len(table._free_blocks) + 1, size))
        return alloc(key, size)

    table.alloc = evict_and_alloc


def evicts_newest_first(table: EmbeddingCache) -> None:
    """The entry that became idle last goes first."""
    alloc = table.alloc

    def alloc_in_reverse(key: str, size: int) -> CacheEntry | None:
        queue = table._entries_free_list
        table._entries_free_list = OrderedDict(reversed(queue.items()))
        entry = alloc(key, size)
        table._entries_free_list = OrderedDict(reversed(table._entries_free_list.items()))
        return entry

    table.alloc = alloc_in_reverse


def gives_a_block_to_two(table: EmbeddingCache) -> None:
    """An entry that is written beside another one gets a block of that."""
    alloc = table.alloc

    def alloc_anothers(key: str, size: int) -> CacheEntry | None:
        entry = alloc(key, size)
        others = [one for one in table._entries.values() if one is not entry]
        if entry is not None and others:
            entry.block_ids = (others[0].block_ids[0], *entry.block_ids[1:])
        return entry

    table.alloc = alloc_anothers


def says_that_nothing_is_in_use(table: EmbeddingCache) -> None:
    """The engine is told that it may rest."""
    table.has_held_entries = lambda: False


def raises_at_the_second_pin(table: EmbeddingCache) -> None:
    """A second pin of an entry fails."""
    pin = table.pin

    def pin_once(key: str) -> None:
        assert _evictable(table, key), "pinned already"
        pin(key)

    table.pin = pin_once


def _evictable(table: EmbeddingCache, key: str) -> bool:
    entry = table.get(key)
    assert entry is not None
    return entry.evictable


TABLE_FAULTS = by_name(
    leaks_a_block,
    leaves_pinned_in_the_queue,
    counts_one_pin,
    refuses_after_evicting,
    evicts_newest_first,
    gives_a_block_to_two,
    says_that_nothing_is_in_use,
    raises_at_the_second_pin,
)
