"""What only proofs need to know of a block pool, beside the contracts of spec.

Each is read as its text stands, as a contract is; none is ever called. `m` is the pool by its
attributes, `q` its queue, `b` the blocks by theirs; `s` and `g` are the pool and who holds what.
`replays` is a word of proofs.
"""

from typing import Any

from cacheproof.proofs.symbolic.rules.rules import auxiliary


def blocks_are_counted(m: Any) -> bool:
    """The pool has as many blocks as it says, and one at least."""
    return len(m.blocks) == m.num_gpu_blocks and m.num_gpu_blocks >= 1 and m.hash_block_size >= 1


def one_block_is_null(m: Any, b: Any) -> bool:
    """One block is the null block, and no other says that it is."""
    return m.null_block in m.blocks and all(b.is_null[x] == (x == m.null_block) for x in m.blocks)


def null_block_has_no_keys(m: Any, b: Any) -> bool:
    """Nothing finds the null block."""
    return len(b.keys[m.null_block]) == 0


def queued_by_id(q: Any) -> bool:
    """A block is queued under its own id."""
    return all(q.blocks[x] == x for x in q.blocks)


def found_by_id(s: Any) -> bool:
    """A block is found under its own id."""
    return all(all(s.found[k][x] == x for x in s.found[k]) for k in s.found)


def held_by_somebody(s: Any) -> bool:
    """Who is held is held once at least."""
    return all(s.held[x] >= 1 for x in s.held)


def nothing_found_without_caching(m: Any, s: Any) -> bool:
    """Where nothing is cached no block has a key."""
    return m.enable_caching or all(len(s.hashes[x]) == 0 for x in s.hashes)


def events_tell_what_is_found(m: Any, s: Any, g: Any, replays: Any) -> bool:
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
