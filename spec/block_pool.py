"""The block pool of the KV cache: who holds a block, what finds it, and when it may go.

`s` is a pool's state, `w` a pool's event: what it was told to release, or what it told others.
A block's life: free and unknown, held, cached (a hash finds it), free and still found, handed out
for other content.
"""

from collections.abc import Mapping
from typing import NamedTuple

from cacheproof.spec.registry import Component
from cacheproof.spec.vocabulary import distinct

COMPONENT = "block_pool"
MANAGERS = ("kv_cache",)


class PoolState(NamedTuple):
    """A pool between two events. Blocks are ids; the null block is none of them.

    num_blocks: all blocks, the null block included; num_free: as the pool counts.
    queue: the free queue, next to go first.
    refs: block -> references as the pool counts.
    held: block -> how often it stands in the tables of requests and in frees put off.
    hashes: block -> the keys that it has; found: key -> the blocks under it.
    """

    num_blocks: int
    num_free: int
    queue: tuple[int, ...]
    refs: Mapping[int, int]
    held: Mapping[int, int]
    hashes: Mapping[int, tuple[str, ...]]
    found: Mapping[str, tuple[int, ...]]


class PoolEvents(NamedTuple):
    """KV events taken: what their replay says can be found, and what can be, in blocks per hash."""

    replayed: Mapping[str, int]
    found: Mapping[str, int]


class StoredBlocks(NamedTuple):
    """A KV event that tells of cached blocks: its token ids, and a block of tokens per hash."""

    num_tokens: int
    num_tokens_of_hashes: int


class StoredChain(NamedTuple):
    """A KV event that tells of cached blocks, by number of hash, -1 for none: what it says to come
    before each of its hashes, its parent before the first; and what does in the requests whose
    blocks they are. Hashes that end no block of the event's size are left out."""

    told: tuple[int, ...]
    before: tuple[int, ...]


class PoolRelease(NamedTuple):
    """An event that hands out no block: the queue around it, and what is due to it.

    `first` and `last` are the blocks nobody holds any more, as they are to stand in the queue: a
    request's last block goes first, and what cannot be found before what can be.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]


class PoolTake(NamedTuple):
    """A request for slots: the queue that it met, hit blocks left out, and what it left of it.

    `taken` are the blocks handed out, in the order in which the queue had them.
    """

    waiting: tuple[int, ...]
    taken: tuple[int, ...]
    after: tuple[int, ...]


class PoolReset(NamedTuple):
    """The answer to a reset of the prefix cache, and the blocks held at that moment."""

    done: bool
    held: Mapping[int, int]


class PoolForgets(NamedTuple):
    """What an event did to hashes.

    lost: the blocks that lost one and got none in its place; may: those that were handed out or
    named, all of them in a reset; must: those named, all of them in a reset.
    hashes: block -> the keys that it has behind the event.
    """

    lost: frozenset[int]
    may: frozenset[int]
    must: frozenset[int]
    hashes: Mapping[int, tuple[str, ...]]


class StoredNames(NamedTuple):
    """What an event says that the blocks of its hashes hold beside tokens, block by block: the
    identifiers of items, the adapter, and the salt of the first block. told: as it says; held: as
    in the requests."""

    told: tuple[frozenset[str], ...]
    held: tuple[frozenset[str], ...]


rules = Component(COMPONENT, applies_to=MANAGERS)


@rules.state(
    "BP-1",
    "safety",
    "A block is in the free queue, once, exactly when nobody references it",
    source="vLLM BlockPool.touch, free_blocks, get_new_blocks",
)
def queue_is_unreferenced(s: PoolState) -> bool:
    return (
        len(s.queue) == s.num_free
        and distinct(s.queue)
        and all(b in s.refs for b in s.queue)
        and all((b in s.queue) == (s.refs[b] == 0) for b in s.refs)
    )


@rules.state(
    "BP-2",
    "safety",
    "A hash finds exactly the blocks that have it",
    source="vLLM BlockPool.cache_full_blocks and eviction",
)
def hashes_and_blocks_agree(s: PoolState) -> bool:
    return all(
        len(s.found[k]) > 0 and all(b in s.hashes and k in s.hashes[b] for b in s.found[k])
        for k in s.found
    ) and all(all(k in s.found and b in s.found[k] for k in s.hashes[b]) for b in s.hashes)


@rules.state(
    "BP-3",
    "safety",
    "Free blocks, held blocks and the null block are all blocks; references are those who hold",
    source="conservation; block tables of all groups, frees put off included",
)
def blocks_conserved(s: PoolState) -> bool:
    return (
        s.num_free + len(s.held) + 1 == s.num_blocks
        and all(b in s.refs and s.refs[b] == s.held[b] for b in s.held)
        and all(b in s.held or s.refs[b] == 0 for b in s.refs)
    )


@rules.trace(
    "BP-4",
    "safety",
    "Whoever replays the KV events knows which hashes find a block, and how many",
    source="vLLM KVCacheManager.take_events: routers and external caches follow them",
)
def events_tell_the_pool(w: PoolEvents) -> bool:
    return w.replayed == w.found


@rules.trace(
    "BP-5",
    "efficiency",
    "Blocks given back are queued the last of a request first, unfindable ones before all others",
    source="vLLM BlockPool.free_blocks and SingleTypeKVCacheManager.free",
)
def released_in_order(w: PoolRelease) -> bool:
    return w.after == w.first + w.before + w.last


@rules.trace(
    "BP-6",
    "efficiency",
    "A KV event that tells of cached blocks carries the tokens of its hashes and no others",
    source="vLLM BlockStored: a follower cuts the tokens into blocks, one for each hash",
)
def events_carry_own_tokens(w: StoredBlocks) -> bool:
    return w.num_tokens == w.num_tokens_of_hashes


@rules.trace(
    "BP-7",
    "efficiency",
    "Blocks are handed out from the front of the free queue",
    source="vLLM BlockPool.get_new_blocks: what was used longest ago goes first",
)
def handed_out_in_order(w: PoolTake) -> bool:
    return w.taken + w.after == w.waiting


@rules.trace(
    "BP-8",
    "safety",
    "The prefix cache is reset exactly when no block is held",
    source="vLLM BlockPool.reset_prefix_cache: new weights must not meet old blocks",
)
def reset_when_unheld(w: PoolReset) -> bool:
    return w.done == (len(w.held) == 0)


@rules.trace(
    "BP-9",
    "safety",
    "A block that is handed out, named or reset loses its hashes, and no other block does",
    source="vLLM BlockPool.get_new_blocks, evict_blocks and reset_prefix_cache",
)
def forgets_what_is_told(w: PoolForgets) -> bool:
    return all(b in w.may for b in w.lost) and all(len(w.hashes[b]) == 0 for b in w.must)


@rules.trace(
    "BP-10",
    "safety",
    "A KV event that tells of cached blocks names the block before them as their parent",
    source="vLLM BlockStored.parent_block_hash: a follower finds the place of the blocks by it",
)
def events_chain_blocks(w: StoredChain) -> bool:
    return w.told == w.before


@rules.trace(
    "BP-11",
    "safety",
    "A KV event that tells of cached blocks says what else each of them holds beside its tokens",
    source="vLLM BlockStored.extra_keys: a follower tells by it two prompts apart that show "
    "different items",
    versions=">=0.17.0",
)
def events_name_what_blocks_hold(w: StoredNames) -> bool:
    return w.told == w.held
