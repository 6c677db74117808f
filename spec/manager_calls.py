"""What a scheduler owes the encoder cache managers that it calls.

Proofs of managers take these for granted of each call; a search holds the schedulers to them. CP-5
they take where progress is made: by then what was got past before has been released.
`s` is the manager's state before the call `c`, `g` the ghost state, `w` the step in the making.
"""

from cacheproof.spec.encoder_cache import COMPONENT as ENCODER_CACHE
from cacheproof.spec.encoder_cache import KEYED_BY_IDENTIFIER
from cacheproof.spec.encoder_decoder_cache import COMPONENT as ENCODER_DECODER_CACHE
from cacheproof.spec.encoder_decoder_cache import SINCE
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, DecoderCacheState, EncoderCacheState, Making
from cacheproof.spec.registry import RELEASE, WITHDRAWAL, Component

COMPONENT = "manager_calls"


rules = Component(COMPONENT, versions=KEYED_BY_IDENTIFIER, applies_to=(ENCODER_CACHE,))


@rules.promise(
    "CP-1",
    "safety",
    "Only an item that is absent and fits the free slots is allocated",
    source="vLLM EncoderCacheManager.allocate: the scheduler checks and admits before",
    calls={"allocate"},
)
def allocates_what_was_admitted(s: EncoderCacheState, c: Call) -> bool:
    return c.identifier not in s.size and c.need <= s.free_slots


@rules.promise(
    "CP-2",
    "safety",
    "An item is released only when its request has got past it, or claims a later occurrence",
    source="vLLM Scheduler._free_encoder_inputs",
    calls=RELEASE,
)
def releases_what_is_behind(g: Ghost, c: Call) -> bool:
    return (
        c.request not in g.claimed_end
        or c.identifier not in g.claimed_end[c.request]
        or g.claimed_end[c.request][c.identifier] != c.end
    )


@rules.promise(
    "CP-3",
    "safety",
    "No request is freed that goes on running",
    source="vLLM Scheduler frees whom it preempts, and who ended",
    calls={"free"},
)
def frees_who_stopped(g: Ghost, c: Call) -> bool:
    return c.request not in g.claimed_end


@rules.promise(
    "CP-4",
    "safety",
    "Who stops running takes with it no entry that this step encodes, unless another needs it too",
    source="an entry that nobody needs may be evicted before it is encoded, or never be encoded",
    calls=WITHDRAWAL,
)
def withdraws_what_others_need(g: Ghost, w: Making, c: Call) -> bool:
    return all(h not in g.needed or not all(r == c.request for r in g.needed[h]) for h in w.encoded)


@rules.promise(
    "CP-5",
    "safety",
    "Entries lose their last holders in the order in which they became idle",
    source="without it EC-7 does not follow: a manager learns of idle entries as they are released",
    calls=RELEASE | {"free"},
    synchronous_only=True,
)
def gives_back_in_order(s: EncoderCacheState, g: Ghost, c: Call) -> bool:
    return all(
        (c.operation == "release" and h != c.identifier)
        or h not in g.idle_since
        or not s.holders[h]
        or not all(r == c.request for r in s.holders[h])
        or all(
            not s.holders[k] or k not in g.idle_since or g.idle_since[h] <= g.idle_since[k]
            for k in s.holders
        )
        for h in s.holders
    )


@rules.promise(
    "CP-6",
    "safety",
    "Only an item that is not debited and fits the free slots is allocated",
    applies_to=(ENCODER_DECODER_CACHE,),
    source="vLLM EncoderDecoderCacheManager.allocate: the scheduler admits before",
    calls={"allocate"},
    versions=SINCE,
)
def allocates_once_what_was_admitted(s: DecoderCacheState, c: Call) -> bool:
    return not c.debited and c.need <= s.free_slots
