"""The KV cache manager: what it may answer a scheduler.

`c` is one answer, with what the request and the pool say of it; `s` are all block tables.
"""

from collections.abc import Mapping
from typing import NamedTuple

from cacheproof.spec.registry import contract

COMPONENT = "kv_cache"


class Lookup(NamedTuple):
    """The answer to a lookup. Blocks are ids, 0 is the null block.

    tokens: the request's; hit: tokens that it need not compute.
    blocks: those of the hit, null blocks left out, of all groups: block -> the key that the request
    has for its place; hashes: block -> the keys that the block has.
    """

    tokens: int
    hit: int
    blocks: Mapping[int, str]
    hashes: Mapping[int, tuple[str, ...]]


class Grant(NamedTuple):
    """The answer to a request for slots.

    granted: whether there was one; new: the blocks handed out for new content.
    refs: block -> references, and hashes: block -> keys, both behind the answer.
    own: the keys of the request's prefix.
    """

    granted: bool
    new: tuple[int, ...]
    refs: Mapping[int, int]
    hashes: Mapping[int, tuple[str, ...]]
    own: frozenset[str]


class Tables(NamedTuple):
    """Where blocks stand: block -> every (group, position in the table) at which a request has it.

    Null blocks are left out.
    """

    places: Mapping[int, frozenset[tuple[int, int]]]


class Outcome(NamedTuple):
    """What an event ended in: the type of the exception, empty for none."""

    raised: str


@contract(
    "KV-1",
    "A hit consists of blocks that hold the request's own prefix, and leaves a token to compute",
    kind="answer",
    harm="safety",
    component=COMPONENT,
    source="vLLM KVCacheManager.get_computed_blocks",
)
def hit_is_own_prefix(c: Lookup) -> bool:
    return (
        c.hit >= 0
        and c.hit < c.tokens
        and all(b in c.hashes and c.blocks[b] in c.hashes[b] for b in c.blocks)
    )


@contract(
    "KV-2",
    "Blocks handed out for new content are the request's alone, and found by its prefix only",
    kind="answer",
    harm="safety",
    component=COMPONENT,
    source="vLLM KVCacheManager.allocate_slots",
)
def new_blocks_are_private(c: Grant) -> bool:
    return (c.granted or len(c.new) == 0) and all(
        b in c.refs and c.refs[b] == 1 and all(k in c.own for k in c.hashes[b]) for b in c.new
    )


@contract(
    "KV-3",
    "No call that a correct scheduler makes is answered by an exception",
    kind="answer",
    harm="safety",
    component=COMPONENT,
    source="an engine whose scheduler raises stops serving",
)
def kv_never_raises(c: Outcome) -> bool:
    return c.raised == ""


@contract(
    "KV-4",
    "Requests that share a block have it at the same place of the same group",
    kind="state",
    harm="safety",
    component=COMPONENT,
    source="vLLM #33775: a group took for a load what another group had hit",
)
def shared_blocks_agree(s: Tables) -> bool:
    return all(len(s.places[b]) == 1 for b in s.places)
