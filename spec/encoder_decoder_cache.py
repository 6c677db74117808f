"""The encoder-decoder cache: it counts slots, shares nothing and frees after one step."""

from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, DecoderCacheState, Step
from cacheproof.spec.registry import ADMISSION, HELD, RELEASE, WHOLE_EVENT, Component
from cacheproof.spec.vocabulary import total

COMPONENT = "encoder_decoder_cache"
SINCE = ">=0.12.0"


rules = Component(COMPONENT, versions=SINCE)


@rules.state("ED-1", "safety", "Free slots lie between zero and the capacity", source="vLLM #55733")
def decoder_slots_in_bounds(s: DecoderCacheState) -> bool:
    return 0 <= s.free_slots <= s.capacity


@rules.transition(
    "ED-2",
    "safety",
    "Releasing an item a second time credits nothing",
    source="vLLM #55733",
    calls=RELEASE,
)
def decoder_release_is_idempotent(pre: DecoderCacheState, post: DecoderCacheState, c: Call) -> bool:
    return c.debited or post.free_slots == pre.free_slots


@rules.trace(
    "ED-3",
    "safety",
    "What a step encodes is there for its reads and gone from the store within two steps",
    source="vLLM PR #32789",
)
def decoder_output_is_transient(w: Step) -> bool:
    return all(h in w.store for h in w.encoded) and all(
        w.steps_since_encode[h] <= 1 for h in w.store
    )


@rules.transition(
    "ED-4",
    "safety",
    "No call that a correct scheduler makes is answered by an exception",
    source="an engine whose scheduler raises stops serving",
    calls=WHOLE_EVENT,
    also_unchanged=True,
)
def decoder_never_raises(c: Call) -> bool:
    return c.raised == ""


@rules.state(
    "ED-5",
    "safety",
    "Free slots and what is debited make up the capacity",
    source="conservation; vLLM #55733",
)
def decoder_capacity_conserved(s: DecoderCacheState, g: Ghost) -> bool:
    return s.free_slots + total(g.debits) == s.capacity


@rules.transition(
    "ED-6",
    "safety",
    "An item is admitted exactly when it fits the compute budget and the free slots",
    source="vLLM EncoderDecoderCacheManager.can_allocate",
    calls=ADMISSION,
    also_unchanged=True,
)
def decoder_admits_what_fits(pre: DecoderCacheState, c: Call) -> bool:
    return c.granted == (c.need <= c.budget and c.need + c.pending <= pre.free_slots)


@rules.transition(
    "ED-7",
    "liveness",
    "Who asks what a request may release is told all that it was debited",
    source="vLLM Scheduler._free_encoder_inputs: what is not named is held until the request ends",
    calls=HELD,
    also_unchanged=True,
)
def decoder_tells_what_is_debited(pre: DecoderCacheState, c: Call) -> bool:
    return not c.leaves_out
