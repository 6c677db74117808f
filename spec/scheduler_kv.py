"""The scheduler, and what a step does with tokens and KV blocks.

`w` is a step that schedule() has decided on. Where KV comes from elsewhere the contracts of
`kv_transfers` speak.
"""

from collections.abc import Mapping
from typing import NamedTuple

from cacheproof.spec.registry import Component
from cacheproof.spec.scheduler import COMPONENT


class Progress(NamedTuple):
    """Requests that a step goes on with, neither new nor resumed: the token at which it begins, and
    the tokens that are computed, those of drafts that were rejected left out."""

    starts: Mapping[str, int]
    computed: Mapping[str, int]


class KVReads(NamedTuple):
    """By request and block: how many tokens of the block a step reads for the request, from the
    block's first, and how many of them were computed over the request's own prefix, by earlier
    steps or by this one; those of drafts once they are accepted."""

    reads: Mapping[str, Mapping[int, int]]
    right: Mapping[str, Mapping[int, int]]


class Holding(NamedTuple):
    """A step, in KV blocks: those that are free behind it, those that requests hold, all but the
    null block. In tokens by request: where the step ends, and how many the request's blocks hold.
    """

    free: int
    held: int
    blocks: int
    ends: Mapping[str, int]
    slots: Mapping[str, int]


rules = Component(COMPONENT)


@rules.trace(
    "SC-14",
    "safety",
    "A request goes on with the first token that is not computed",
    source="vLLM Request.num_computed_tokens: a token that is left out has no KV, and the tokens "
    "of rejected drafts have that of others",
)
def goes_on_where_it_was(w: Progress) -> bool:
    return all(r in w.computed and w.starts[r] == w.computed[r] for r in w.starts)


@rules.trace(
    "SC-15",
    "safety",
    "A step reads of a KV block only what was computed over the request's own prefix",
    source="BK-2 of what is in the blocks; vLLM KVCacheManager.cache_blocks: what can be found is "
    "computed by then, and drafts are verified",
)
def reads_own_prefix(w: KVReads) -> bool:
    return all(all(w.reads[r][b] <= w.right[r][b] for b in w.reads[r]) for r in w.reads)


@rules.trace(
    "SC-16",
    "liveness",
    "KV blocks that no request holds are free",
    source="conservation; vLLM BlockPool.get_num_free_blocks: a block that is lost is missed by "
    "every request to come",
)
def blocks_are_free_or_held(w: Holding) -> bool:
    return w.free + w.held == w.blocks


@rules.trace(
    "SC-17",
    "safety",
    "Each token that a step computes has a KV slot",
    source="vLLM GPUModelRunner looks the slot of a token up in the block table of its request",
)
def tokens_have_slots(w: Holding) -> bool:
    return all(w.ends[r] <= w.slots[r] for r in w.ends)
