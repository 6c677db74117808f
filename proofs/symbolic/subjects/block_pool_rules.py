"""What only proofs need to know of a block pool, beside the contracts of spec.

Each is read as its text stands, as a contract is; none is ever called. `m` is the pool by its
attributes, `q` its queue, `b` the blocks by theirs; `s` and `g` are the pool and who holds what.
`replays` is a word of proofs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from cacheproof.proofs.symbolic.rules.rules import auxiliary
from cacheproof.reference.kv_events import KVCacheEvent

FoundBlocks = Mapping[str, Mapping[int, int]]
"""Key -> the blocks that it finds, by their ids."""


class PoolAttributes(Protocol):
    """A pool by its attributes."""

    num_gpu_blocks: int
    hash_block_size: int
    enable_caching: bool
    enable_kv_cache_events: bool
    blocks: Collection[int]
    null_block: int
    kv_event_queue: Sequence[KVCacheEvent]


class QueueAttributes(Protocol):
    """A queue by its attributes."""

    blocks: Mapping[int, int]


class BlockAttributes(Protocol):
    """Blocks by their attributes."""

    is_null: Mapping[int, bool]
    keys: Mapping[int, Collection[str]]


class PoolTables(Protocol):
    """What contracts look at of a pool, as proofs have it."""

    held: Mapping[int, int]
    hashes: Mapping[int, Collection[str]]
    found: FoundBlocks


class FollowerCounts(Protocol):
    """How many blocks each key finds, as who follows the events knows."""

    replayed: Mapping[str, int]


def blocks_are_counted(m: PoolAttributes) -> bool:
    """The pool has as many blocks as it says, and one at least."""
    return len(m.blocks) == m.num_gpu_blocks and m.num_gpu_blocks >= 1 and m.hash_block_size >= 1


def one_block_is_null(m: PoolAttributes, b: BlockAttributes) -> bool:
    """One block is the null block, and no other says that it is."""
    return m.null_block in m.blocks and all(b.is_null[x] == (x == m.null_block) for x in m.blocks)


def null_block_has_no_keys(m: PoolAttributes, b: BlockAttributes) -> bool:
    """Nothing finds the null block."""
    return len(b.keys[m.null_block]) == 0


def queued_by_id(q: QueueAttributes) -> bool:
    """A block is queued under its own id."""
    return all(q.blocks[x] == x for x in q.blocks)


def found_by_id(s: PoolTables) -> bool:
    """A block is found under its own id."""
    return all(all(s.found[k][x] == x for x in s.found[k]) for k in s.found)


def held_by_somebody(s: PoolTables) -> bool:
    """Who is held is held once at least."""
    return all(s.held[x] >= 1 for x in s.held)


def nothing_found_without_caching(m: PoolAttributes, s: PoolTables) -> bool:
    """Where nothing is cached no block has a key."""
    return m.enable_caching or all(len(s.hashes[x]) == 0 for x in s.hashes)


def events_tell_what_is_found(
    m: PoolAttributes,
    s: PoolTables,
    g: FollowerCounts,
    replays: Callable[[Sequence[KVCacheEvent], Mapping[str, int], FoundBlocks], bool],
) -> bool:
    """Who replayed all events that were taken, and replays those that were not, knows how many
    blocks each hash finds."""
    return not m.enable_kv_cache_events or replays(m.kv_event_queue, g.replayed, s.found)


AUXILIARIES = [
    auxiliary(one)
    for one in (
        blocks_are_counted,
        one_block_is_null,
        null_block_has_no_keys,
        queued_by_id,
        found_by_id,
        held_by_somebody,
        nothing_found_without_caching,
        events_tell_what_is_found,
    )
]
