"""Reads what a call changed in a KV cache manager, in time that does not grow with the pool.

Every change of a block goes through the pool, whose calls say which blocks they touch. These are
read again, and the two ends of the free queue. Where the counts of blocks or keys, or the length of
a table, say otherwise, all is read.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.targets.host.managers.kv_cache_recorder import (
    KVCacheRecorder,
    State,
    ids_under,
)
from cacheproof.differential.targets.host.vllm_objects.kv_cache import (
    BlockKey,
    KVCacheBlock,
    SingleTypeKVCacheManager,
    entries_of,
)

QueueChange = tuple[Sequence[int] | None, Sequence[int], Sequence[int]]
"""Blocks that left a free queue (None: all), those before the rest, and those after it."""
TableChange = list[list[Any]]
"""Per group how many blocks stay, those after them, and how many are cached."""
NAMES_MAX = 200_000
_BLOCK_VALUES = 16
"""Values that a change has for a block or for a key, at most."""
_NO_BLOCKS: list[Any] = []
_NO_KEYS: list[Any] = []
_LOW_64_BITS = (1 << 64) - 1


class ManagerReader(KVCacheRecorder):
    """A manager's state as it was read last, in `state`; of the free queue only which blocks it
    has. Tables are by the number of the request; keys are numbers that a salted hash gives them."""

    def __init__(
        self,
        manager: Any,
        takes: frozenset[str],
        hasher: Hasher,
        number_of: Callable[[str], int],
    ) -> None:
        self._hasher = hasher
        self._number_of = number_of
        self._names: dict[Hashable, int] = {}
        self._touched: dict[int, KVCacheBlock] = {}
        self._reads_all = False
        self._words: dict[BlockKey, str] = {}
        self._no_tables: list[list[KVCacheBlock]] = []
        self._blocks_of: dict[str, list[list[KVCacheBlock]]] = {}
        super().__init__(manager, takes)
        self._blocks = {block.block_id for block in self._pool.blocks}
        self._is_linked = hasattr(self._pool.null_block, "next_free_block")
        self._note_whole()

    @property
    def state(self) -> State:
        """All that there was when all was read last."""
        return self._last

    def touched(
        self, name: str, given: Mapping[str, Any], answer: Iterable[KVCacheBlock] | None
    ) -> None:
        """A method of the pool was called."""
        blocks: Iterable[KVCacheBlock] = ()
        if name == "get_new_blocks":
            blocks = answer or ()
        elif name in ("touch", "free_blocks"):
            (blocks,) = given.values()
        elif name == "cache_full_blocks":
            blocks = given["blocks"][given["num_cached_blocks"] : given["num_full_blocks"]]
        elif name == "cache_partial_block":
            blocks = (given["block"],)
        elif name == "evict_blocks":
            blocks = [self._pool.blocks[number] for number in given["block_ids"]]
        else:
            self._reads_all = True
        self._touched.update((block.block_id, block) for block in blocks if not block.is_null)

    def changes(self, request: str | None) -> State | None:
        """What a call about that request changed; `values_max` says how many values that has at
        most, None where nobody knows."""
        self.values_max: int | None = 0
        touched = self._touched
        if not touched:
            if not self._reads_all and self._is_linked and self._is_as_before(request):
                return None
        else:
            self._touched = {}
            if touched.keys() - self._blocks:  # a queue that is broken hands out its own ends
                self._reads_all = True
        if not self._reads_all and self._is_linked:
            changed = self._change_of(touched, request)
            if changed is not None:
                return changed or None
        return self.all_changes()

    def all_changes(self) -> State | None:
        """What changed since the last time, all being read."""
        self.values_max = None
        self._reads_all = False
        self._touched.clear()
        tables = self._last["tables"]
        self._last["queue"] = list(self._queue)
        _, changed = self.drain()
        if "queue" in changed:
            changed["queue"] = [None, changed["queue"], []]
        if "tables" in changed:
            changed["tables"] = tables_change(tables, changed["tables"])
        self._note_whole()
        return changed or None

    def _note_whole(self) -> None:
        self._queue = OrderedDict.fromkeys(self._last["queue"])
        self._keys_of = {
            block.block_id: self._keys(block)
            for block in self._pool.blocks
            if not block.is_null and block.block_hash is not None
        }

    def _is_as_before(self, request: str | None) -> bool:
        if not self._is_counted(len(self._queue), len(self._last["map"])):
            return False
        if request is not None:
            then = self._blocks_of.get(request, self._no_tables)
            # Both have one for each group.
            for single, blocks in zip(self._singles, then, strict=True):
                if len(single.req_to_blocks.get(request, _NO_BLOCKS)) != len(blocks):
                    return False
        return True

    def _is_counted(self, free: int, keys: int) -> bool:
        """Whether the pool has that many free blocks and keys."""
        pool = self._pool
        return bool(pool.get_num_free_blocks() == free and len(entries_of(pool)) == keys)

    def _change_of(self, touched: Mapping[int, KVCacheBlock], request: str | None) -> State | None:
        """What changed of these blocks and of that request; None: more than that changed."""
        last = self._last
        queue = self._queue_change(touched)
        if queue is None:
            return None
        gone, first, behind = queue
        refs = {
            word: block.ref_cnt
            for number, block in touched.items()
            if last["refs"][word := str(number)] != block.ref_cnt
        }
        hashes, entries, keys_of = self._changed_keys(touched)
        has_table, table = (False, None) if request is None else self._changed_table(request)
        free = len(self._queue) - len(gone) + len(first) + len(behind)
        keys = len(last["map"]) + sum(
            (ids is not None) - (key in last["map"]) for key, ids in entries.items()
        )
        if not self._is_counted(free, keys):
            return None
        changed: State = {"free": free} if free != last["free"] else {}
        if gone or first or behind:
            changed["queue"] = queue
            self._move(gone, first, behind)
        if request is not None and has_table:
            changed["tables"] = {str(self._number_of(request)): table}
            self._put_table(request, table)
        for name, values in (("refs", refs), ("hashes", hashes), ("map", entries)):
            if values:
                changed[name] = values
                _put(last[name], values)
        self.values_max = (
            _BLOCK_VALUES * (1 + len(touched) + len(entries))
            + sum(len(ids) for ids in entries.values() if ids)
            + sum(len(numbers) for _, numbers, _ in table or ())
        )
        last["free"] = free
        self._keys_of.update(keys_of)
        return changed

    def _queue_change(self, touched: Mapping[int, KVCacheBlock]) -> list[list[int]] | None:
        """Which blocks left the queue, and what its ends are now, if all others stayed as they
        were."""
        left = [number for number in touched if number in self._queue]
        queued = {number for number, one in touched.items() if one.next_free_block is not None}
        if not queued:
            return [left, [], []]
        queue = self._pool.free_block_queue
        first: list[int] = []
        last: list[int] = []
        block = queue.fake_free_list_head.next_free_block
        while block.block_id in queued:
            first.append(block.block_id)
            block = block.next_free_block
        block = queue.fake_free_list_tail.prev_free_block
        while len(first) + len(last) < len(queued) and block.block_id in queued:
            last.append(block.block_id)
            block = block.prev_free_block
        if len(first) + len(last) != len(queued):
            return None
        return [left, first, last[::-1]]

    def _move(self, gone: list[int], first: list[int], last: list[int]) -> None:
        for number in gone:
            del self._queue[number]
        for number in first[::-1]:
            self._queue[number] = None
            self._queue.move_to_end(number, last=False)
        self._queue.update(dict.fromkeys(last))

    def _changed_keys(
        self, touched: Mapping[int, KVCacheBlock]
    ) -> tuple[State, State, dict[int, list[BlockKey]]]:
        """The keys of blocks, and what is under these keys in the hash map, where they changed; and
        these keys as the pool has them."""
        hashes: State = {}
        keys_of: dict[int, list[BlockKey]] = {}
        entries: State = {}
        under, last = self._entries, self._last["map"]
        for number, block in touched.items():
            before = self._keys_of.get(number, _NO_KEYS)
            if not before and block.block_hash is None:
                continue
            after = self._keys(block)
            keys_of[number] = after
            if before != after:
                hashes[str(number)] = self._hashes(block) or None
            for key in (*before, *after):
                found = under.get(key)
                ids = None if found is None else ids_under(found)
                word = self._word(key)
                if last.get(word) != ids:
                    entries[word] = ids
        return hashes, entries, keys_of

    def _word(self, key: BlockKey) -> str:
        """What a state calls a key of the hash map."""
        word = self._words.get(key)
        if word is None:
            if len(self._words) > NAMES_MAX:
                self._words.clear()
            group, name = self._key(key)
            word = self._words[key] = f"{group}:{name}"
        return word

    def _changed_table(self, request: str) -> tuple[bool, TableChange | None]:
        """Whether the table of a request changed, and to what. Blocks are compared as objects: most
        are the same ones, and a number is read only of those that are not."""
        was = self._last["tables"].get(str(self._number_of(request)))
        then = self._blocks_of.get(request, self._no_tables)
        change: TableChange = []
        is_there, has_changed = False, was is None
        for place, single in enumerate(self._singles):
            had, has = then[place], single.req_to_blocks.get(request, _NO_BLOCKS)
            cached = single.num_cached_block.get(request)
            kept = _alike(had, has)
            change.append([kept, [block.block_id for block in has[kept:]], cached])
            is_there = is_there or bool(has) or cached is not None
            if was is not None and not (kept == len(had) == len(has) and was[place][1] == cached):
                has_changed = True
        return (has_changed, change) if is_there else (was is not None, None)

    def _put_table(self, request: str, change: TableChange | None) -> None:
        tables, number = self._last["tables"], str(self._number_of(request))
        if change is None:
            self._blocks_of.pop(request, None)
            tables.pop(number, None)
            return
        if number not in tables:
            tables[number] = [[[], None] for _ in change]
            self._blocks_of[request] = [[] for _ in change]
        now = [single.req_to_blocks.get(request, _NO_BLOCKS) for single in self._singles]
        for table, blocks, has, (kept, numbers, cached) in zip(
            tables[number], self._blocks_of[request], now, change, strict=True
        ):
            table[0][kept:] = numbers
            table[1] = cached
            blocks[kept:] = has[kept:]

    @property
    def _singles(self) -> Sequence[SingleTypeKVCacheManager]:
        singles: Sequence[SingleTypeKVCacheManager]
        singles = self.manager.coordinator.single_type_managers
        return singles

    def _tables(self) -> dict[str, list[list[Any]]]:
        tables = super()._tables()
        self._no_tables = [[] for _ in self._singles]
        self._blocks_of = {
            name: [list(single.req_to_blocks.get(name, ())) for single in self._singles]
            for name in tables
        }
        return {str(self._number_of(name)): one for name, one in tables.items()}

    def _number(self, block_hash: Any) -> Any:
        """The number that stands for a hash: of its last 64 bits, which events may have alone,
        under the salt."""
        name = self._names.get(block_hash)
        if name is None:
            number = block_hash
            if isinstance(block_hash, bytes):
                number = int.from_bytes(block_hash, "big")
            if len(self._names) > NAMES_MAX:
                self._names.clear()
            data = (number & _LOW_64_BITS).to_bytes(8, "big")
            name = self._names[block_hash] = int.from_bytes(self._hasher.digest(data), "big")
        return name


def _put(values: State, changed: State) -> None:
    for key, value in changed.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


def tables_change(before: State, after: State) -> State:
    """Block tables as changes of those before: per group how many blocks stay, those after them,
    and how many are cached."""
    return {
        name: None
        if tables is None
        else [
            [_alike(had, has), has[_alike(had, has) :], cached]
            for (had, _), (has, cached) in zip(
                before.get(name) or [((), None)] * len(tables), tables, strict=True
            )
        ]
        for name, tables in after.items()
    }


def tables_after(
    before: Mapping[str, Sequence[Sequence[int]]], change: State
) -> dict[str, list[Any] | None]:
    """The block tables that changed, as a manager's recorder tells them.

    Raises:
        ValueError: blocks stay that were not there.
    """
    after: dict[str, list[Any] | None] = {}
    for name, groups in change.items():
        if groups is None:
            after[name] = None
            continue
        had = before.get(name) or [()] * len(groups)
        if any(kept > len(one) for one, (kept, _, _) in zip(had, groups, strict=True)):
            raise ValueError(f"blocks of {name} stay that it did not have")
        after[name] = [
            [[*one[:kept], *blocks], cached]
            for one, (kept, blocks, cached) in zip(had, groups, strict=True)
        ]
    return after


def queue_after(before: Sequence[int], change: QueueChange) -> list[int]:
    """The free queue after a change.

    Raises:
        ValueError: blocks leave that are not there.
    """
    gone, first, last = change
    leaving = set(before) if gone is None else set(gone)
    if not leaving.issubset(before):
        raise ValueError(f"blocks {sorted(leaving.difference(before))} leave a queue without them")
    return [*first, *(block for block in before if block not in leaving), *last]


def _alike(one: Sequence[object], other: Sequence[object]) -> int:
    """How many entries both begin with."""
    shorter = min(len(one), len(other))
    if shorter == 0 or list(one[:shorter]) == list(other[:shorter]):
        return shorter
    return next(place for place in range(shorter) if one[place] != other[place])
