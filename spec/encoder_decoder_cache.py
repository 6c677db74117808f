"""The encoder-decoder cache: it counts slots, shares nothing and frees after one step."""

from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, DecoderCacheState, Step
from cacheproof.spec.registry import ADMISSION, HELD, RELEASE, WHOLE_EVENT, contract
from cacheproof.spec.vocabulary import total

COMPONENT = "encoder_decoder_cache"
SINCE = ">=0.12.0"


@contract(
    "ED-1",
    "Free slots lie between zero and the capacity",
    kind="state",
    harm="safety",
    component=COMPONENT,
    source="vLLM #55733",
    versions=SINCE,
)
def decoder_slots_in_bounds(s: DecoderCacheState) -> bool:
    return 0 <= s.free_slots <= s.capacity


@contract(
    "ED-2",
    "Releasing an item a second time credits nothing",
    kind="transition",
    harm="safety",
    component=COMPONENT,
    source="vLLM #55733",
    calls=RELEASE,
    versions=SINCE,
)
def decoder_release_is_idempotent(pre: DecoderCacheState, post: DecoderCacheState, c: Call) -> bool:
    return c.debited or post.free_slots == pre.free_slots


@contract(
    "ED-3",
    "What a step encodes is there for its reads and gone from the store within two steps",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM PR #32789",
    versions=SINCE,
)
def decoder_output_is_transient(w: Step) -> bool:
    return all(h in w.store for h in w.encoded) and all(
        w.steps_since_encode[h] <= 1 for h in w.store
    )


@contract(
    "ED-4",
    "No call that a correct scheduler makes is answered by an exception",
    kind="transition",
    harm="safety",
    component=COMPONENT,
    source="an engine whose scheduler raises stops serving",
    calls=WHOLE_EVENT,
    versions=SINCE,
    also_unchanged=True,
)
def decoder_never_raises(c: Call) -> bool:
    return c.raised == ""


@contract(
    "ED-5",
    "Free slots and what is debited make up the capacity",
    kind="state",
    harm="safety",
    component=COMPONENT,
    source="conservation; vLLM #55733",
    versions=SINCE,
)
def decoder_capacity_conserved(s: DecoderCacheState, g: Ghost) -> bool:
    return s.free_slots + total(g.debits) == s.capacity


@contract(
    "ED-6",
    "An item is admitted exactly when it fits the compute budget and the free slots",
    kind="transition",
    harm="safety",
    component=COMPONENT,
    source="vLLM EncoderDecoderCacheManager.can_allocate",
    calls=ADMISSION,
    versions=SINCE,
    also_unchanged=True,
)
def decoder_admits_what_fits(pre: DecoderCacheState, c: Call) -> bool:
    return c.granted == (c.need <= c.budget and c.need + c.pending <= pre.free_slots)


@contract(
    "ED-7",
    "Who asks what a request may release is told all that it was debited",
    kind="transition",
    harm="liveness",
    component=COMPONENT,
    source="vLLM Scheduler._free_encoder_inputs: what is not named is held until the request ends",
    calls=HELD,
    versions=SINCE,
    also_unchanged=True,
)
def decoder_tells_what_is_debited(pre: DecoderCacheState, c: Call) -> bool:
    return not c.leaves_out
