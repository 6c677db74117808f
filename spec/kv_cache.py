"""The KV cache manager: what it may answer a scheduler.

`c` is one answer, with what the request and the pool say of it; `s` are all block tables. A place
is (group, position in a block table). Blocks are ids; null blocks, 0, are left out everywhere.
"""

from collections.abc import Mapping
from typing import NamedTuple

from cacheproof.spec.registry import Component

COMPONENT = "kv_cache"
Place = tuple[int, int]


class Lookup(NamedTuple):
    """The answer to a lookup.

    tokens: the request's; hit: tokens that it need not compute.
    blocks: those of the hit: block -> the key that the request has for its place; hashes: block ->
    the keys that the block has.
    table: the places of the hit that have a block; read: those that the next token reads.
    longest: the longest prefix of which everything is cached that the next token reads, in tokens,
    and the block behind it where a drafter drops one of every hit; 0, which says nothing, where a
    window is one token wide.
    """

    tokens: int
    hit: int
    blocks: Mapping[int, str]
    hashes: Mapping[int, tuple[str, ...]]
    table: frozenset[Place]
    read: frozenset[Place]
    longest: int


class Grant(NamedTuple):
    """The answer to a request for slots.

    granted: whether there was one; new: the blocks handed out for new content.
    refs: block -> references, and hashes: block -> keys, both behind the answer.
    own: the keys of the request's prefix.
    held: the blocks in the request's tables; owed: those of them that the answer must name, since
    the worker learns of them from it alone.
    """

    granted: bool
    new: tuple[int, ...]
    refs: Mapping[int, int]
    hashes: Mapping[int, tuple[str, ...]]
    own: frozenset[str]
    held: frozenset[int]
    owed: frozenset[int]


class SlotTables(NamedTuple):
    """The tables of a request that got slots.

    needed: the places that its tokens read and are written to, those looked ahead included;
    table: the places that have a block; filled: those that had none before.
    What a load left out is not needed again: KV-12 speaks of it.
    """

    needed: frozenset[Place]
    table: frozenset[Place]
    filled: frozenset[Place]


class Load(NamedTuple):
    """The tables of a request whose tokens are being loaded.

    read: the places that the first token behind the load reads; table: those that have a block.
    """

    read: frozenset[Place]
    table: frozenset[Place]


class Admission(NamedTuple):
    """What decides over a request for slots, in blocks.

    need: those that leave the free queue for its slots; free: free ones.
    must_fit: whether the whole sequence must fit; whole: the blocks that this takes; free_before:
    free ones before anything was given back.
    kept: those that stay free when it is admitted beside others; reserved: that stay free anyway.
    """

    granted: bool
    need: int
    free: int
    must_fit: bool
    whole: int
    free_before: int
    kept: int
    reserved: int


class Cached(NamedTuple):
    """What of a request can be found behind an event.

    new: keys that blocks got in it -> tokens that each covers; certain: tokens of the request that
    are known and computed, or being computed.
    due: the keys of its full blocks that a hit reads which ends within them, or that it drops for a
    drafter; found: keys that find a block.
    """

    new: Mapping[str, int]
    certain: int
    due: frozenset[str]
    found: Mapping[str, tuple[int, ...]]


class Retained(NamedTuple):
    """Keys that blocks got in an event, and how many of these blocks no hit can ever read: a window
    reads what is just before a place where blocks of all groups end, and a drafter the block
    behind."""

    new: frozenset[str]
    unread: int


class PrefixClaim(NamedTuple):
    """Blocks that all running requests are said to hold, and those that each of them holds; how
    many groups there are, and for how many it is said."""

    groups: int
    answers: int
    blocks: tuple[int, ...]
    tables: Mapping[str, frozenset[int]]


class Tables(NamedTuple):
    """Where blocks stand: block -> every place at which a request has it."""

    places: Mapping[int, frozenset[Place]]


class Statistics(NamedTuple):
    """What a manager says of itself, in blocks and tokens.

    used: the blocks that its usage comes to; held: those that are not free.
    told, of the time since it was asked last: whether it was reset, 1 or 0; requests admitted,
    their tokens and the tokens hit, of new ones and of preempted ones. counted: what was.
    """

    used: int
    held: int
    told: tuple[int, ...]
    counted: tuple[int, ...]


class Residencies(NamedTuple):
    """The contents that have left their blocks since it was asked last: how long each was there,
    how long at its end nobody hit it, and the gaps between the last four hits, in the clock's
    seconds and sorted. told: as it is said; lived: as it was."""

    told: tuple[tuple[float, float, tuple[float, ...]], ...]
    lived: tuple[tuple[float, float, tuple[float, ...]], ...]


class EventOutcome(NamedTuple):
    """What an event ended in: the type of the exception, empty for none."""

    raised: str


rules = Component(COMPONENT)


@rules.answer(
    "KV-1",
    "safety",
    "A hit is the request's own prefix, all of it that is read, and leaves a token to compute",
    source="vLLM KVCacheManager.get_computed_blocks",
)
def hit_is_own_prefix(c: Lookup) -> bool:
    return (
        c.hit >= 0
        and c.hit < c.tokens
        and all(b in c.hashes and c.blocks[b] in c.hashes[b] for b in c.blocks)
        and all(place in c.table for place in c.read)
    )


@rules.answer(
    "KV-2",
    "safety",
    "Blocks handed out for new content are the request's alone, found by its prefix only, and told",
    source="vLLM KVCacheManager.allocate_slots",
)
def new_blocks_are_private(c: Grant) -> bool:
    return (
        (c.granted or len(c.new) == 0)
        and all(
            b in c.held
            and b in c.refs
            and c.refs[b] == 1
            and all(key in c.own for key in c.hashes[b])
            for b in c.new
        )
        and all(b in c.new for b in c.owed)
    )


@rules.answer(
    "KV-3",
    "safety",
    "No call that a correct scheduler makes is answered by an exception",
    source="an engine whose scheduler raises stops serving",
)
def kv_never_raises(c: EventOutcome) -> bool:
    return c.raised == ""


@rules.state(
    "KV-4",
    "safety",
    "Requests that share a block have it at the same place of the same group",
    source="vLLM #33775: a group took for a load what another group had hit",
)
def shared_blocks_agree(s: Tables) -> bool:
    return all(len(s.places[b]) == 1 for b in s.places)


@rules.answer(
    "KV-5",
    "safety",
    "What a scheduled token reads, and where it is written, has a block",
    source="vLLM KVCacheManager.allocate_slots and remove_skipped_blocks",
)
def slots_have_blocks(c: SlotTables) -> bool:
    return all(place in c.table for place in c.needed)


@rules.answer(
    "KV-6",
    "efficiency",
    "No block is taken that no token reads or is written to",
    source="vLLM SingleTypeKVCacheManager.allocate_new_blocks",
)
def blocks_have_slots(c: SlotTables) -> bool:
    return all(place in c.needed for place in c.filled)


@rules.answer(
    "KV-7",
    "liveness",
    "A request gets slots exactly when there are blocks for them",
    source="vLLM KVCacheManager.allocate_slots: admission, reserved blocks and watermark",
)
def admitted_exactly(c: Admission) -> bool:
    return c.granted == (
        (not c.must_fit or c.whole + c.kept <= c.free_before)
        and c.need + c.kept <= c.free - c.reserved
    )


@rules.answer(
    "KV-8",
    "safety",
    "What can be found is computed, or being computed",
    source="vLLM KVCacheManager.cache_blocks: loads under way, failed loads, drafts",
)
def found_is_certain(c: Cached) -> bool:
    return all(c.new[key] <= c.certain for key in c.new)


@rules.answer(
    "KV-9",
    "efficiency",
    "A lookup misses nothing that is cached",
    source="vLLM KVCacheCoordinator.find_longest_cache_hit",
)
def lookup_misses_nothing(c: Lookup) -> bool:
    return c.hit >= c.longest


@rules.answer(
    "KV-10",
    "safety",
    "A common prefix is held by every running request",
    source="vLLM KVCacheManager.get_num_common_prefix_blocks, for cascade attention",
)
def common_prefix_is_common(c: PrefixClaim) -> bool:
    return c.groups == c.answers and all(
        all(b in c.tables[name] for b in c.blocks) for name in c.tables
    )


@rules.answer(
    "KV-11",
    "efficiency",
    "Full blocks of computed tokens can be found",
    source="vLLM KVCacheManager.cache_blocks; full attention and windows, as far as a hit can end "
    "there",
)
def certain_is_found(c: Cached) -> bool:
    return all(key in c.found for key in c.due)


@rules.answer(
    "KV-12",
    "safety",
    "A load leaves nothing out that the first token behind it reads",
    source="vLLM Scheduler._update_waiting_for_remote_kv computes the last token of a load again",
)
def load_is_readable(c: Load) -> bool:
    return all(place in c.table for place in c.read)


@rules.answer(
    "KV-13",
    "efficiency",
    "Usage and counts of lookups are those of what was answered",
    source="vLLM KVCacheManager.usage and make_prefix_cache_stats, by which operators go",
    versions=">=0.27.0",
)
def says_what_it_did(c: Statistics) -> bool:
    return c.used == c.held and c.told == c.counted


@rules.answer(
    "KV-14",
    "efficiency",
    "Only what a hit can read is cached",
    source="vLLM SlidingWindowManager.reachable_block_mask: a freed block without a key is reused "
    "first, and one with a key that nobody can use takes the place of one that somebody can",
    versions=">=0.23.0",
)
def caches_what_is_read(c: Retained) -> bool:
    return c.unread == 0


@rules.answer(
    "KV-15",
    "efficiency",
    "What is said of contents that have left their blocks is what happened to them",
    source="vLLM KVCacheMetricsCollector, by which operators size a cache: reset, evicted and "
    "handed out again, a block begins a new life",
    versions=">=0.14.0",
)
def says_how_long_contents_lived(c: Residencies) -> bool:
    return c.told == c.lived
