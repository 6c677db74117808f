"""Reads a KV cache manager: what every block, table and queue holds, and what an event changed.

Block hashes travel as numbers, in the order in which the trace's requests first show them: two
targets agree on the numbers exactly when they agree on which prefixes are the same. What the
digests are is compared elsewhere.
"""

from typing import Any

from ..protocol import Json
from ..vllm_objects.kv_cache import (
    BlockKey,
    BlocksUnderKey,
    KVCacheBlock,
    KVCacheEvent,
    KVCacheManager,
    entries_of,
)

Call = list[Any]
State = dict[str, Any]
Table = list[Any]
"""The blocks of a request in a group, and how many of them are cached."""
POOL_CHANGES = (
    "get_new_blocks",
    "touch",
    "free_blocks",
    "unpin_blocks",
    "cache_full_blocks",
    "cache_partial_block",
    "move_block_hashes",
    "evict_blocks",
    "reset_prefix_cache",
)
"""Methods of a block pool that change it."""
STATS = (
    "reset",
    "requests",
    "queries",
    "hits",
    "preempted_requests",
    "preempted_queries",
    "preempted_hits",
)
"""Names of the statistics of prefix caching, in the order of records."""

STORED_FIELDS = ("block_size", "lora_id", "medium")
FURTHER_STORED_FIELDS = (
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "lora_name",
    "session_id",
)
_LOW_64_BITS = (1 << 64) - 1
_HASH_BYTES = 32


class KVCacheRecorder:
    """Logs the calls on a manager; `drain` gives them with the change of the state behind them.

    A call is [operation, request or None, arguments, answer]. A state maps

    free: blocks that can be had; queue: free block ids, next to go first;
    refs: block id -> references, null block excepted;
    hashes: block id -> [group, hash number] for each hash of the block, the first with the tokens
        of its prefix where the release knows them;
    map: "group:hash" -> ids of the blocks under that hash, the one that a hit gets first;
    tables: request -> for each group the block ids and how many of them are cached.
    """

    def __init__(self, manager: KVCacheManager, takes: frozenset[str]) -> None:
        self.manager = manager
        self.calls: list[Call] = []
        self._pool = manager.block_pool
        self._takes = takes
        self._numbers: dict[bytes, int] = {}
        self._shortened: dict[int, int] = {}
        self._last: State = self.read()

    def show(self, block_hashes: list[bytes]) -> list[int]:
        """The numbers of a request's hashes; new ones for those that have none yet."""
        for block_hash in block_hashes:
            if block_hash not in self._numbers:
                number = len(self._numbers)
                self._numbers[block_hash] = number
                self._shortened[int.from_bytes(block_hash, "big") & _LOW_64_BITS] = number
        return [self._numbers[block_hash] for block_hash in block_hashes]

    def log(self, operation: str, request: str | None, arguments: object, answer: Json) -> None:
        """Add a call, its answer already plain data."""
        self.calls.append([operation, request, arguments, answer])

    def drain(self) -> tuple[list[Call], State]:
        """The calls since the last time, and what they changed: new values, and in maps None for
        keys that are gone."""
        calls, self.calls = self.calls, []
        now = self.read()
        delta = delta_of(self._last, now)
        self._last = now
        return calls, delta

    def take(self) -> list[Call]:
        """Nothing: an event's calls are part of its outcome."""
        return []

    def full_state(self) -> None:
        """Nothing: every change is part of an outcome."""

    def read(self) -> State:
        """The whole state, as plain data."""
        pool = self._pool
        used = [block for block in pool.blocks if not block.is_null]
        return {
            "free": pool.get_num_free_blocks(),
            "queue": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            "refs": {str(block.block_id): block.ref_cnt for block in used},
            "hashes": {
                str(block.block_id): self._hashes(block)
                for block in used
                if block.block_hash is not None
            },
            "map": self._map(),
            "tables": self._tables(),
        }

    def event(self, event: KVCacheEvent) -> list[Any]:
        """A KV event as plain data: its name, then its fields as far as the release has them."""
        kind = type(event).__name__
        if kind == "BlockStored":
            fields = {name: getattr(event, name) for name in STORED_FIELDS}
            further = [name for name in FURTHER_STORED_FIELDS if name in self._takes]
            fields.update({name: plain(getattr(event, name)) for name in further})
            fields["token_ids"] = list(event.token_ids)
            ahead = getattr(event, "lookahead_token_ids", None)
            if ahead is not None:  # the keys of these traces look at no token ahead
                fields["lookahead_token_ids"] = plain(ahead)
            parent = event.parent_block_hash
            return [
                "stored",
                [self._number(block_hash) for block_hash in event.block_hashes],
                None if parent is None else self._number(parent),
                fields,
            ]
        if kind == "BlockRemoved":
            hashes = [self._number(block_hash) for block_hash in event.block_hashes]
            return ["removed", hashes, event.medium, getattr(event, "group_idx", None)]
        return ["cleared"] if kind == "AllBlocksCleared" else [kind]

    def _number(self, block_hash: bytes | int) -> int | None:
        """The number of a hash, the last one of a joined hash; events may shorten it to 64 bits."""
        if not isinstance(block_hash, bytes):
            return self._shortened.get(block_hash)
        number = self._numbers.get(block_hash)
        return self._numbers.get(block_hash[-_HASH_BYTES:]) if number is None else number

    def _key(self, key: BlockKey) -> tuple[int, int | None]:
        """(group, hash number) of what the hash map is keyed by."""
        if isinstance(key, bytes):
            return int.from_bytes(key[-4:], "big"), self._number(key[:-4])
        return key[1], self._number(key[0])

    def _keys(self, block: KVCacheBlock) -> list[BlockKey]:
        """What the hash map has a block under."""
        if block.block_hash is None:
            return []
        extra = getattr(self._pool, "cached_block_hashes_by_block", {}).get(block.block_id, ())
        return getattr(block, "keys", None) or [block.block_hash, *extra]

    def _hashes(self, block: KVCacheBlock) -> list[list[int | None]]:
        named = [list(self._key(key)) for key in self._keys(block)]
        if "block_hash_num_tokens" in self._takes:
            named[0].append(block.block_hash_num_tokens)
        return named

    @property
    def _entries(self) -> dict[BlockKey, BlocksUnderKey]:
        """The hash map, by the pool's own keys."""
        return entries_of(self._pool)

    def _map(self) -> dict[str, list[int]]:
        found = {}
        for key, blocks in self._entries.items():
            group, number = self._key(key)
            found[f"{group}:{number}"] = ids_under(blocks)
        return found

    def _tables(self) -> dict[str, list[Table]]:
        return {request: self._table(request) for request in self._with_tables()}

    def _with_tables(self) -> dict[str, None]:
        """The requests that have blocks, or had some."""
        return {
            request: None
            for single in self.manager.coordinator.single_type_managers
            for request, blocks in single.req_to_blocks.items()
            if blocks or request in single.num_cached_block
        }

    def _table(self, request: str) -> list[Table]:
        return [
            [
                [block.block_id for block in single.req_to_blocks.get(request, ())],
                single.num_cached_block.get(request),
            ]
            for single in self.manager.coordinator.single_type_managers
        ]


def ids_under(blocks: BlocksUnderKey) -> list[int]:
    """The ids of the blocks under one key of a hash map, the one that a hit gets first."""
    return list(blocks) if isinstance(blocks, dict) else [blocks.block_id]


def plain(value: Any) -> Json:
    """Tuples as lists and bytes as hexadecimal, all the way down."""
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value.hex() if isinstance(value, bytes) else value


def delta_of(last: State, now: State) -> State:
    """What a state has that the last one had not, and None for keys that are gone."""
    delta: State = {}
    for name, value in now.items():
        before = last[name]
        if value is before or value == before:
            continue
        if isinstance(value, dict):
            changed = {key: part for key, part in value.items() if before.get(key) != part}
            changed.update((key, None) for key in before if key not in value)
            delta[name] = changed
        else:
            delta[name] = value
    return delta
