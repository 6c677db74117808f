"""The state of a KV cache manager that somebody else drives: besides tables, those who call its
block pool hold blocks; and of a large pool only what a call moved is judged again."""

from collections import Counter
from collections.abc import Iterable, Mapping

from cacheproof.differential.judges.kv_cache_ghost import Place
from cacheproof.differential.judges.kv_cache_mirror import (
    KVCacheMirror,
    Tables,
    changed_hashes,
    filled,
)
from cacheproof.differential.traces.outcomes import KVChange, KVConfig
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.block_pool import PoolState


class LiveMirror(KVCacheMirror):
    """`taken` counts what callers of the pool hold, by block."""

    def __init__(self, config: KVConfig, semantics: Semantics) -> None:
        super().__init__(config, semantics)
        self.taken: Counter[int] = Counter()
        self._held: Counter[int] = Counter()
        self._moved: set[int] = set()
        self._moved_keys: set[str] = set()

    @property
    def held(self) -> Mapping[int, int]:
        """Block -> how often it stands in tables, or was taken."""
        return self._held

    @property
    def is_moved(self) -> bool:
        """Whether anything was moved since the pool was asked for last."""
        return bool(self._moved or self._moved_keys)

    def take(self, blocks: Iterable[int]) -> None:
        """A caller of the pool holds these from now on, each once more."""
        self._hold(self.taken, [block for block in blocks if block], 1)

    def give(self, blocks: Iterable[int]) -> None:
        """A caller of the pool gives these back."""
        self._hold(self.taken, [block for block in blocks if block], -1)

    def _hold(self, also: Counter[int], blocks: Iterable[int], by: int) -> None:
        for block in blocks:
            for counted in (also, self._held):
                counted[block] += by
                if not counted[block]:
                    del counted[block]
            self._moved.add(block)

    @property
    def pool(self) -> PoolState:
        """What was moved since it was asked for last. The rest of the pool stayed as it was, so a
        rule holds of the whole exactly when it holds of this part."""
        part, keys = self._closed()
        self._moved, self._moved_keys = set(), set()
        queue = tuple(block for block in self.queue if block in part)
        return PoolState(
            1 + len(part - {0}),
            self.free - (len(self.queue) - len(queue)),
            queue,
            {block: self.refs[block] for block in part if block in self.refs},
            {block: self._held[block] for block in part if block in self._held},
            {block: self.hashes[block] for block in part if block in self.hashes},
            {key: self.found[key] for key in keys if key in self.found},
        )

    def _closed(self) -> tuple[set[int], set[str]]:
        """The blocks and keys that were moved, and those that they lead to."""
        part, keys = set(self._moved), set(self._moved_keys)
        while True:
            keys |= {key for block in part for key in self.hashes.get(block, ())}
            further = {block for key in keys for block in self.found.get(key, ())} - part
            if not further:
                return part, keys
            part |= further

    @property
    def places(self) -> dict[int, frozenset[Place]]:
        """Where each block stands that stands in tables more than once."""
        places: dict[int, frozenset[Place]] = {}
        for tables in self.tables.values():
            for place, block in filled(tables).items():
                if self._held[block] > 1:
                    places[block] = places.get(block, frozenset()) | {place}
        return places

    def apply(self, changed: KVChange) -> None:
        """Take over what a call changed, and note what it moved."""
        queue = self.queue
        self._moved_keys |= changed.get("map", {}).keys()
        for key in changed.get("map", {}):
            self._moved |= set(self.found.get(key, ()))
        for name, tables in changed.get("tables", {}).items():
            self._stands(self.tables.get(name, []), -1)
            self._stands([table for table, _ in tables or ()], 1)
        super().apply(changed)
        self._moved |= {*map(int, changed.get("refs", ())), *changed_hashes(changed)}
        if "queue" in changed:
            now = set(self.queue)
            is_distinct = len(now) == len(self.queue)
            self._moved |= now ^ set(queue) if is_distinct else now.union(self.refs)

    def _stands(self, tables: Tables, by: int) -> None:
        self._hold(Counter(), filled(tables).values(), by)
