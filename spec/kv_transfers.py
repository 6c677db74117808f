"""KV that is loaded from elsewhere and sent there: who may touch its blocks, and when it counts.

`w` is what one step or one load does with KV blocks, by number; `c` what the output of a step
brought. Transfers are under way from the step that tells of them until the workers report their
end. What is right in a block is counted in tokens from its first: computed, or loaded and not
reported as failed.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple

from cacheproof.spec.registry import Component

COMPONENT = "kv_transfers"
_JUDGED_WITH = ("scheduler",)


class Writing(NamedTuple):
    """Blocks that are written, by request; and blocks that others must leave as they are: those of
    transfers under way and, where a load writes, of steps in flight."""

    writes: Mapping[str, Set[int]]
    busy: Mapping[str, Set[int]]


class BlockReads(NamedTuple):
    """A step: how many tokens of each block it reads, and how many of them are right by then."""

    reads: Mapping[int, int]
    right: Mapping[int, int]


class Sending(NamedTuple):
    """A request whose KV is sent elsewhere: the blocks that are told, as many of its own from the
    first, and how many hold its prompt."""

    told: tuple[int, ...]
    own: tuple[int, ...]
    prompt: int


class Delivery(NamedTuple):
    """The output of a step: tokens by request, and requests whose KV was wrong in that step."""

    tokens: Mapping[str, int]
    misread: Set[str]


rules = Component(COMPONENT, applies_to=_JUDGED_WITH)


@rules.trace(
    "KT-1",
    "safety",
    "Nobody writes a KV block that a transfer reads or writes, and no load one that a step writes",
    source="vLLM KVConnectorBase_V1.request_finished, Scheduler.defer_block_free",
)
def transfers_have_their_blocks(w: Writing) -> bool:
    return all(
        all(r == t or all(b not in w.busy[t] for b in w.writes[r]) for t in w.busy)
        for r in w.writes
    )


@rules.trace(
    "KT-2",
    "safety",
    "A step reads only KV that has been computed, or has arrived and not failed to",
    source="vLLM KVCacheManager.allocate_slots (delay_cache_blocks), invalid_block_ids",
)
def reads_what_is_right(w: BlockReads) -> bool:
    return all(w.reads[b] <= w.right[b] for b in w.reads)


@rules.trace(
    "KT-3",
    "safety",
    "No token is delivered that was sampled over KV whose load failed",
    source="vLLM KVConnectorOutput.invalid_block_ids: what a failed load means for its request",
    versions=">=0.11.1",
)
def delivers_nothing_misread(c: Delivery) -> bool:
    return all(r not in c.misread or c.tokens[r] == 0 for r in c.tokens)


@rules.trace(
    "KT-4",
    "safety",
    "The KV that is sent is the request's own, from its first token on, its prompt whole",
    source="vLLM Scheduler._connector_finished: whoever has that prompt reads what was sent for it",
)
def sends_its_own(w: Sending) -> bool:
    return w.told == w.own and len(w.told) >= w.prompt
