"""The encoder cache: what its ledger owes to the requests and to the worker.

`s` is a state, `pre` and `post` the states around one call `c`, `g` the ghost state at that moment,
`w` a whole step. An entry's life: needed and held, resident and idle, evicted, reported.
"""

from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, EncoderCacheState, Step
from cacheproof.spec.registry import (
    ADMISSION,
    ANY_CALL,
    HELD,
    LOOK_AT,
    LOOK_UP,
    RELEASE,
    WHOLE_EVENT,
    Component,
)
from cacheproof.spec.vocabulary import drops_prefix, last_dropped, total, total_unheld, within

COMPONENT = "encoder_cache"
KEYED_BY_IDENTIFIER = ">=0.10.2"
SHARED_CACHE = "vLLM #22711: one entry serves every request that shows the same item"


rules = Component(COMPONENT)


@rules.state(
    "EC-1",
    "safety",
    "Free slots and the sizes of the resident entries make up the capacity",
    source="conservation; vLLM EncoderCacheManager attributes",
)
def capacity_conserved(s: EncoderCacheState) -> bool:
    return s.free_slots + total(s.size) == s.capacity


@rules.state(
    "EC-2",
    "safety",
    "Freeable slots are the free slots and the sizes of the entries that nobody holds",
    source="conservation; vLLM EncoderCacheManager attributes",
    versions=KEYED_BY_IDENTIFIER,
)
def reclaimable_conserved(s: EncoderCacheState) -> bool:
    return s.freeable_slots == s.free_slots + total_unheld(s.size, s.holders)


@rules.state(
    "EC-3",
    "safety",
    "Free slots never exceed freeable slots, and both lie between zero and the capacity",
    source="bounds; vLLM #22711 made the lower one true",
)
def slots_in_bounds(s: EncoderCacheState) -> bool:
    return 0 <= s.free_slots <= s.freeable_slots <= s.capacity


@rules.state(
    "EC-4",
    "safety",
    "The eviction queue holds exactly the resident entries that nobody holds",
    source=SHARED_CACHE,
    versions=KEYED_BY_IDENTIFIER,
)
def queue_is_unheld(s: EncoderCacheState) -> bool:
    return all((h in s.queue) == (not s.holders[h]) for h in s.size) and all(
        h in s.size for h in s.queue
    )


@rules.state(
    "EC-5",
    "safety",
    "While resident an identifier has one size of at least 1, and is credited what it was debited",
    source="vLLM releases that remember sizes refuse an identifier whose size changed",
)
def one_size(s: EncoderCacheState, g: Ghost) -> bool:
    return (
        within(s.size, g.size) and all(s.size[h] >= 1 for h in s.size) and within(s.queue, s.size)
    )


@rules.transition(
    "EC-6",
    "safety",
    "No entry that a request still needs is evicted",
    source="vLLM PR #54284",
    calls=ANY_CALL - {"reset"},
    versions=KEYED_BY_IDENTIFIER,
)
def keeps_needed(pre: EncoderCacheState, post: EncoderCacheState, g: Ghost) -> bool:
    return all(h in post.size for h in g.needed if h in pre.size)


@rules.state(
    "EC-6a",
    "safety",
    "Who needs a resident entry holds it",
    source="vLLM PR #54284; without it EC-6 does not follow from the eviction rule",
    versions=KEYED_BY_IDENTIFIER,
)
def needed_is_held(s: EncoderCacheState, g: Ghost) -> bool:
    return all(g.needed[h] <= s.holders[h] for h in g.needed if h in s.holders)


@rules.transition(
    "EC-7",
    "safety",
    "Entries are evicted in the order in which they became idle",
    source="vLLM EncoderCacheManager: oldest unreferenced entry first",
    calls=ADMISSION,
    versions=KEYED_BY_IDENTIFIER,
    synchronous_only=True,
)
def evicts_oldest_first(pre: EncoderCacheState, post: EncoderCacheState, g: Ghost) -> bool:
    return all(
        all(g.idle_since[e] <= g.idle_since[k] for k in g.idle_since if k in post.size)
        for e in g.idle_since
        if e in pre.size and e not in post.size
    )


@rules.transition(
    "EC-8a",
    "safety",
    "One admission evicts the shortest prefix of the queue that makes room",
    source="vLLM EncoderCacheManager.can_allocate",
    calls=ADMISSION,
    versions=KEYED_BY_IDENTIFIER,
)
def evicts_shortest_prefix(pre: EncoderCacheState, post: EncoderCacheState, c: Call) -> bool:
    return drops_prefix(pre.queue, post.queue) and (
        len(post.queue) == len(pre.queue)
        or post.free_slots - last_dropped(pre.queue, post.queue) < c.need + c.pending
    )


@rules.trace(
    "EC-8b",
    "efficiency",
    "An eviction serves an allocation of the same step",
    source="vLLM Scheduler: admission evicts before the KV blocks are certain",
    versions=KEYED_BY_IDENTIFIER,
)
def eviction_is_used(w: Step) -> bool:
    return all(r in w.allocating for r in w.evicting)


@rules.trace(
    "EC-9",
    "safety",
    "Notices name what left, and all of it: nothing resident, nothing forgotten in the store",
    source="vLLM PR #52482",
)
def notices_are_exact(w: Step) -> bool:
    return all(h not in w.ledger for h in w.notices) and all(
        h in w.ledger or h in w.pending for h in w.store
    )


@rules.transition(
    "EC-10",
    "safety",
    "Releasing what the request does not hold changes nothing",
    source="vLLM Scheduler releases on every update and again at the end of a request",
    calls=RELEASE,
    versions=KEYED_BY_IDENTIFIER,
)
def release_is_idempotent(pre: EncoderCacheState, post: EncoderCacheState, c: Call) -> bool:
    return (c.identifier in pre.holders and c.request in pre.holders[c.identifier]) or post == pre


@rules.transition(
    "EC-11",
    "safety",
    "A refused admission adds no reference, and what it evicts is reported",
    source="vLLM PR #31857",
    calls=ADMISSION,
)
def refusal_is_clean(pre: EncoderCacheState, post: EncoderCacheState, c: Call) -> bool:
    return c.granted or (
        all(h in pre.holders and post.holders[h] == pre.holders[h] for h in post.holders)
        and all(h in post.holders or h in post.notices for h in pre.holders)
    )


@rules.transition(
    "EC-12",
    "safety",
    "An item is admitted exactly when it fits the compute budget and the freeable slots",
    source="vLLM EncoderCacheManager.can_allocate",
    calls=ADMISSION,
    versions=KEYED_BY_IDENTIFIER,
    also_unchanged=True,
)
def admits_what_fits(pre: EncoderCacheState, c: Call) -> bool:
    return c.granted == (c.need <= c.budget and c.need + c.pending <= pre.freeable_slots)


@rules.transition(
    "EC-13",
    "safety",
    "No call that a correct scheduler makes is answered by an exception",
    source="an engine whose scheduler raises stops serving",
    calls=WHOLE_EVENT,
    also_unchanged=True,
)
def never_raises(c: Call) -> bool:
    return c.raised == ""


@rules.transition(
    "EC-14",
    "safety",
    "After a request is freed no entry is held in its name",
    source="vLLM EncoderCacheManager.free: a request that ended, or was preempted, pins nothing",
    calls={"free"},
    versions=KEYED_BY_IDENTIFIER,
    also_unchanged=True,
)
def freed_holds_nothing(post: EncoderCacheState, c: Call) -> bool:
    return all(c.request not in post.holders[h] for h in post.holders)


@rules.transition(
    "EC-15",
    "safety",
    "An admission leaves room for its item and for what was granted before",
    source="what allocate demands: the worker's memory is not overdrawn",
    calls=ADMISSION,
    versions=KEYED_BY_IDENTIFIER,
    also_unchanged=True,
)
def admission_makes_room(post: EncoderCacheState, c: Call) -> bool:
    return not c.granted or c.need + c.pending <= post.free_slots


@rules.transition(
    "EC-16",
    "safety",
    "A look-up hits what is resident and nothing else",
    source="what a miss lets through is allocated: CP-1 asks that it be absent",
    calls=LOOK_UP,
    versions=KEYED_BY_IDENTIFIER,
    also_unchanged=True,
)
def hits_what_is_resident(pre: EncoderCacheState, c: Call) -> bool:
    return c.granted == (c.identifier in pre.size)


@rules.transition(
    "EC-17",
    "liveness",
    "Who asks for an entry's size is told it, and nothing of what is absent",
    source="vLLM Scheduler._try_schedule_encoder_inputs: an item of another size than its entry is "
    "said to have is refused, and its request with it",
    calls=LOOK_AT,
    versions=">=0.31.0",
    also_unchanged=True,
)
def tells_what_is_resident(pre: EncoderCacheState, c: Call) -> bool:
    return c.tells == (c.identifier in pre.size) and (
        not c.tells or c.answered == pre.size[c.identifier]
    )


@rules.transition(
    "EC-18",
    "liveness",
    "Who asks what a request may release is told what it holds, and nothing of what is absent",
    source="vLLM Scheduler._free_encoder_inputs: what is not named is held until the request ends",
    calls=HELD,
    versions=KEYED_BY_IDENTIFIER,
    also_unchanged=True,
)
def tells_what_is_held(pre: EncoderCacheState, c: Call) -> bool:
    return all(h in pre.size for h in c.told) and all(
        c.request not in pre.holders[h] or h in c.told for h in pre.holders
    )
