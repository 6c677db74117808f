"""The state of a KV cache manager, put together from the changes that its records tell."""

from collections import Counter
from collections.abc import Mapping, Sequence

from cacheproof.differential.judges.kv_cache_ghost import Place
from cacheproof.differential.traces.outcomes import KVChange, KVConfig
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.block_pool import PoolState

Tables = Sequence[Sequence[int]]
Queues = tuple[tuple[int, ...], tuple[int, ...]]


class KVCacheMirror:
    """One manager, null blocks being 0 in tables and nowhere else.

    Attributes:
        hashes: block -> its keys, "group:hash number"; found: key -> the blocks under it.
        tables: request -> block ids for each group.
        put_off: for each free that is put off, the blocks to be given back.
    """

    def __init__(self, config: KVConfig, semantics: Semantics) -> None:
        # Block 0 is the null block, which is never free and never held.
        blocks = range(1, config["num_blocks"])
        self.num_blocks: int = config["num_blocks"]
        self.free = len(blocks)
        self.queue = tuple(blocks)
        self.refs = dict.fromkeys(blocks, 0)
        self.hashes: dict[int, tuple[str, ...]] = dict.fromkeys(blocks, ())
        self.found: dict[str, tuple[int, ...]] = {}
        self.tables: dict[str, Tables] = {}
        self.put_off: list[list[int]] = []
        # Without caching no block has a hash: releases differ in whether that puts it first.
        self._splits = semantics.kv_cache.stacks_without_caching
        if config["enable_caching"]:
            self._splits = semantics.kv_cache.reuses_unfindable_first
        self._splits_in_windows = semantics.kv_cache.reuses_unfindable_in_windows
        self._windows = [group["kind"] == "sliding_window" for group in config["groups"]]

    @property
    def held(self) -> Mapping[int, int]:
        """Block -> how often it stands in tables and in frees put off."""
        return Counter(
            block
            for blocks in (
                *(table for tables in self.tables.values() for table in tables),
                *self.put_off,
            )
            for block in blocks
            if block
        )

    @property
    def pool(self) -> PoolState:
        """The pool, and who holds what of it."""
        return PoolState(
            self.num_blocks, self.free, self.queue, self.refs, self.held, self.hashes, self.found
        )

    @property
    def places(self) -> dict[int, frozenset[Place]]:
        """Where each block stands in tables."""
        places: dict[int, frozenset[Place]] = {}
        for tables in self.tables.values():
            for place, block in filled(tables).items():
                places[block] = places.get(block, frozenset()) | {place}
        return places

    def apply(self, changed: KVChange) -> None:
        """Take over what an event changed."""
        self.free = changed.get("free", self.free)
        self.queue = tuple(changed.get("queue", self.queue))
        for block, refs in changed.get("refs", {}).items():
            self.refs[int(block)] = refs
        self.hashes.update(changed_hashes(changed))
        for key, blocks in changed.get("map", {}).items():
            if blocks is None:
                del self.found[key]
            else:
                self.found[key] = tuple(blocks)
        for name, tables in changed.get("tables", {}).items():
            if tables is None:
                del self.tables[name]
            else:
                self.tables[name] = [table for table, _ in tables]

    def tables_behind(self, name: str, changed: KVChange) -> Tables:
        """The request's tables as an event leaves them."""
        tables = changed.get("tables", {})
        if name not in tables:
            return self.tables.get(name, [])
        return [table for table, _ in tables[name] or ()]

    def given_back(self, given: Sequence[Sequence[int]], *, goes_on: bool) -> Queues:
        """The blocks put before the free queue, and those put after it, when these are given back
        group by group, by a request that `goes_on` or not."""
        refs = dict(self.refs)
        first: list[int] = []
        last: list[int] = []
        for group, blocks in enumerate(given):
            splits = self._splits or (self._splits_in_windows and (goes_on or self._windows[group]))
            released = []
            for block in blocks:
                if block:
                    refs[block] -= 1
                    if refs[block] == 0:
                        released.append(block)
            if splits:
                # Groups are freed one by one, each put before what was freed before it.
                first = [block for block in released if not self.hashes[block]] + first
                released = [block for block in released if self.hashes[block]]
            last += released
        return tuple(first), tuple(last)


def filled(tables: Tables) -> dict[Place, int]:
    """The places of these tables that have a block, null blocks left out."""
    return {
        (group, position): block
        for group, table in enumerate(tables)
        for position, block in enumerate(table)
        if block
    }


def changed_hashes(changed: KVChange) -> dict[int, tuple[str, ...]]:
    """Block -> its keys, for the blocks whose keys an event changed."""
    return {
        int(block): tuple(f"{key[0]}:{key[1]}" for key in keys or ())
        for block, keys in changed.get("hashes", {}).items()
    }
