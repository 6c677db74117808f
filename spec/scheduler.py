"""The scheduler: what a step may hold, what a wait may hold, and that it goes on.

`w` is a step that schedule() has decided on, `s` who runs, waits and holds what between two events,
`c` what came of one event or of one stretch of steps. Contracts of the caches are judged at every
call of their managers; these are about what the scheduler makes of the answers.
"""

from cacheproof.spec.registry import Component
from cacheproof.spec.scheduler_records import (
    Answer,
    Arrival,
    Claims,
    Fills,
    Inputs,
    Overtaking,
    Presence,
    Reads,
    References,
    Room,
    Service,
    Spending,
    StepPlan,
    Stops,
    Stretch,
    Telling,
    Turn,
    Victims,
)
from cacheproof.spec.vocabulary import distinct, total

COMPONENT = "scheduler"
CLAIMS_ALL = ">=0.32.0"
"""Releases in which a request claims a later occurrence of an item in one walk."""


rules = Component(COMPONENT)


@rules.trace(
    "SC-1a",
    "safety",
    "A step schedules no more tokens than its budget",
    source="vLLM SchedulerConfig.max_num_batched_tokens: what the worker's buffers hold",
)
def tokens_within_budget(w: StepPlan) -> bool:
    return total(w.tokens) <= w.token_budget and all(w.tokens[r] > 0 for r in w.tokens)


@rules.trace(
    "SC-1b",
    "safety",
    "A step encodes no more embeddings than the encoder's compute budget",
    source="vLLM compute_mm_encoder_budget: what memory profiling ran the encoder with",
)
def encodes_within_budget(w: StepPlan) -> bool:
    return total(w.encodes) <= w.encoder_budget


@rules.trace(
    "SC-1c",
    "safety",
    "No more requests run than may",
    source="vLLM SchedulerConfig.max_num_seqs: what the worker's batch has rows for",
)
def running_within_limit(w: StepPlan) -> bool:
    return w.running <= w.running_max


@rules.trace(
    "SC-2",
    "safety",
    "What a step reads of an item is resident, encoded or loaded by it, for each request",
    source="vLLM GPUModelRunner._gather_mm_embeddings, for a drafter too: it reads one token "
    "ahead, and since 0.24.0 does without an item that begins there. WM-2 asks what is in the "
    "worker's store, of what the target model reads; this what was decided, of what either reads",
)
def reads_are_available(w: Reads) -> bool:
    return all(all(h in w.available for h in w.wanted[r]) for r in w.wanted)


@rules.trace(
    "SC-3",
    "liveness",
    "Tokens stop where an item starts that cannot be had: not behind, and not before",
    source="vLLM Scheduler._try_schedule_encoder_inputs: an item that cannot be had ends the chunk",
)
def stops_at_items(w: Stops) -> bool:
    return all(w.ends[r] <= w.refused[r] for r in w.refused) and all(
        w.ends[r] in w.allowed[r] for r in w.allowed
    )


@rules.trace(
    "SC-4",
    "safety",
    "Where items must be whole, no step that starts an item ends inside it",
    source="vLLM SchedulerConfig.disable_chunked_mm_input; PR #52412",
)
def items_are_whole(w: StepPlan) -> bool:
    return w.whole_items == 0 or all(
        all(
            i.start < w.windows[r].start or i.start >= w.windows[r].end or i.end <= w.windows[r].end
            for i in w.items[r]
        )
        for r in w.windows
    )


@rules.trace(
    "SC-5",
    "efficiency",
    "A step encodes or loads no entry that is there and stays, and none twice",
    source="one encode or load per residency is what the encoder cache is for; WM-2 says that it "
    "comes before the first read",
)
def fills_once(w: Fills) -> bool:
    return distinct(w.filled) and all(h not in w.kept for h in w.filled)


@rules.state(
    "SC-6",
    "liveness",
    "After a step's update, who does not run holds no entry of the encoder cache",
    source="vLLM PR #31857: a waiting request that holds entries starves the running ones",
)
def only_running_hold(s: References) -> bool:
    return all(s.holders[h] <= s.running for h in s.holders)


@rules.trace(
    "SC-7",
    "liveness",
    "A waiting request is overtaken in its queue only for a reason that is listed",
    source="vLLM SchedulingPolicy: fcfs is the order of arrival, and who was preempted goes first; "
    "priority the order of priority, then of arrival. Sessions have an order of their own, and so "
    "have requests beside KV loads",
)
def overtakes_for_a_reason(w: Overtaking) -> bool:
    return all(
        r in w.stale or r in w.adapter or r in w.transfer or r in w.item or r in w.prompt
        for r in w.overtaken
    )


@rules.trace(
    "SC-8",
    "safety",
    "No event is answered by an exception of the scheduler",
    source="an engine whose scheduler raises stops serving",
)
def scheduler_never_raises(c: Answer) -> bool:
    return c.raised == ""


@rules.trace(
    "SC-9",
    "safety",
    "What a step encodes, the workers have been given",
    source="vLLM NewRequestData.mm_features: a request's items reach the workers with the request. "
    "SchedulerOutput.encoder_input_updates: the second model runner drops the data of some, and is "
    "sent it again with the step that encodes them",
)
def inputs_were_sent(w: Inputs) -> bool:
    return all(all(i not in w.withheld[r] for i in w.encodes[r]) for r in w.withheld)


@rules.trace(
    "SC-10",
    "safety",
    "What the workers are told of a step is about the requests that it schedules",
    source="vLLM GPUModelRunner looks up each request with drafts, or with items to encode, among "
    "those of the step; a step has at least one token beside its drafts",
)
def tells_of_whom_it_schedules(w: Telling) -> bool:
    return (
        all(r in w.tokens and w.drafts[r] < w.tokens[r] for r in w.drafts)
        and all(r in w.tokens for r in w.encodes)
        and total(w.tokens) == w.total
    )


@rules.trace(
    "SC-11",
    "safety",
    "Each occurrence of an item that a step reads has been claimed by its request",
    source="vLLM PR #54284: an entry is given back once its request is past the last occurrence "
    "that it has claimed, so one that it has not is read from an entry that may be gone",
    versions=CLAIMS_ALL,
)
def reads_what_it_claimed(w: Claims) -> bool:
    return all(all(i in w.claimed[r] for i in w.reads[r]) for r in w.reads)


@rules.trace(
    "SC-12",
    "efficiency",
    "Admission is offered the encoder budget less what the step encodes so far",
    source="vLLM Scheduler.schedule: who is preempted in the step gives back what was to be "
    "encoded for it; where less is offered, an item waits that could be encoded",
    versions=">=0.10.2",
)
def offers_what_is_left(w: Spending) -> bool:
    return w.budget + w.pending + w.taken == w.budget_full


@rules.trace(
    "SC-13",
    "liveness",
    "Who is preempted is less urgent than who goes on",
    source="vLLM Scheduler.schedule: by priority the least urgent that runs, the latest arrival "
    "among equals; else who began to run last",
)
def preempts_the_least_urgent(w: Victims) -> bool:
    return all(all(w.stay[q] < w.preempted[r] for q in w.stay) for r in w.preempted)


@rules.trace(
    "SC-21",
    "safety",
    "The encoder cache has the configured size, or that of the largest item where it is larger",
    source="vLLM compute_mm_encoder_budget and Scheduler.__init__, which makes the manager of it: "
    "memory was measured with so much room, and an item that is larger could never be encoded",
)
def has_the_configured_room(w: Room) -> bool:
    return (w.slots == w.configured and w.largest <= w.slots) or (
        w.slots == w.largest and w.configured <= w.slots
    )


@rules.trace(
    "DF-1",
    "safety",
    "A notice that drops an entry follows the last step in which who claimed it reads it",
    source="vLLM SchedulerOutput.free_encoder_mm_hashes: workers apply it before the step, "
    "whatever is in flight. WM-2 says that a read misses, this that a notice is why",
)
def notices_follow_reads(w: Reads) -> bool:
    return all(all(h not in w.dropped for h in w.claimed[r]) for r in w.claimed)


@rules.progress(
    "LV-1",
    "liveness",
    "With nothing in flight and nothing to wait for, a step schedules something or changes what "
    "the next one decides from",
    source="a step that comes back empty and changes nothing comes back empty for ever",
)
def goes_on(c: Turn) -> bool:
    return c.tokens > 0 or c.requests == 0 or c.before != c.after


@rules.trace(
    "LV-2",
    "liveness",
    "What could never be scheduled, even alone, is not taken in",
    source="vLLM SchedulerConfig and InputProcessor validate it; for a release that is driven "
    "without them it is a condition on the traces",
)
def can_run_alone(c: Arrival) -> bool:
    return (
        c.tokens < c.tokens_max
        and c.embeddings <= c.slots
        and c.embeddings <= c.compute
        and c.blocks <= c.blocks_max
        and c.together <= c.together_max
    )


@rules.trace(
    "SC-18",
    "liveness",
    "What keeps the documented limits is served",
    source="vLLM SchedulerConfig.verify_max_model_len, compute_mm_encoder_budget, "
    "get_kv_cache_configs and InputProcessor say what they refuse; LV-2 says what they must",
    versions=">=0.14.0",
)
def serves_within_limits(c: Service) -> bool:
    return (
        c.refused == ""
        or c.least < 1
        or c.seqs > c.step
        or c.together > c.step
        or c.prompt >= c.prompt_max
        or c.chunk > c.prompt_max
        or c.blocks > c.blocks_max
    )


@rules.state(
    "SC-19",
    "liveness",
    "A request runs or waits from its arrival to its end, and no longer",
    source="conservation; vLLM Scheduler.finish_requests ends whom it is told to end, and a client "
    "whose request is nowhere waits for ever",
)
def nobody_is_forgotten(s: Presence) -> bool:
    return s.owed == s.there


@rules.trace(
    "SC-20",
    "safety",
    "A step computes no token before the first of a request",
    source="vLLM GPUModelRunner._prepare_inputs adds num_computed_tokens to the place of a row in "
    "its tables of tokens and of KV slots: one that is negative reads what is before that place",
)
def begins_at_a_token(w: StepPlan) -> bool:
    return all(w.windows[r].start >= 0 for r in w.windows)


@rules.progress(
    "LV-3",
    "liveness",
    "As many steps as all requests have tokens do not pass without a new one for anybody",
    source="a request of n tokens is computed in n steps; every token brings a request nearer to "
    "its end, and LV-1 speaks of steps that compute nothing",
)
def ends_in_time(c: Stretch) -> bool:
    return c.steps <= c.steps_max
