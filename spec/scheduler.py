"""The scheduler: what a step may hold, what a wait may hold, and that it goes on.

`w` is a step that schedule() has decided on, `s` who runs, waits and holds what between two events,
`c` what came of one event or of one stretch of steps. Contracts of the caches are judged at every
call of their managers; these are about what the scheduler makes of the answers.
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from cacheproof.spec.registry import contract
from cacheproof.spec.vocabulary import distinct, total

COMPONENT = "scheduler"
CLAIMS_ALL = ">=0.32.0"
"""Releases in which a request claims a later occurrence of an item in one walk."""


class Span(NamedTuple):
    """Tokens [start, end) of a request's prompt, or of what a step computes of it."""

    start: int
    end: int


class Plan(NamedTuple):
    """A step, by request.

    tokens: how many are scheduled, of at most `token_budget`.
    encodes: embeddings of the items to encode, of at most `encoder_budget`.
    windows: what is computed; items: where the request's items stand.
    whole_items: whether an item must not be computed in several steps.
    running: how many requests run, of at most `running_max`.
    """

    token_budget: int
    tokens: Mapping[str, int]
    encoder_budget: int
    encodes: Mapping[str, int]
    whole_items: int
    windows: Mapping[str, Span]
    items: Mapping[str, tuple[Span, ...]]
    running_max: int
    running: int


class Reads(NamedTuple):
    """What a step reads of the encoder cache, by identifier.

    wanted: by request, the entries with an embedding in what the step computes of it, or in the
        token behind that if a drafter reads it and cannot do without.
    available: what the cache has once the step is decided: resident, or about to be filled.
    claimed: of these, the ones that the request has hit, or that were admitted for it, since it
        runs.
    dropped: of what the workers were told to drop, in this step too, all that the cache has not
        admitted again since.
    """

    wanted: Mapping[str, Set[str]]
    available: Set[str]
    claimed: Mapping[str, Set[str]]
    dropped: Set[str]


class Fills(NamedTuple):
    """What a step encodes and loads, in identifiers; and what the worker's store and the cache had
    before, of which the cache loses nothing in the step."""

    filled: tuple[str, ...]
    kept: Set[str]


class Stops(NamedTuple):
    """Where a step stops computing prompts, in tokens, by request.

    ends: where its windows end.
    refused: of requests of which the cache refused an item: where that must end them at the latest.
    allowed: of requests that nothing but an item can have stopped, where one may have: it starts
        there, less what a drafter reads ahead, and cannot be had, or not be computed whole.
    """

    ends: Mapping[str, int]
    refused: Mapping[str, int]
    allowed: Mapping[str, Set[int]]


class Overtaking(NamedTuple):
    """Waiting requests that a later one of the same queue has overtaken in a step, and those that
    had to wait for something of their own.

    stale: output of before it was preempted is outstanding.
    adapter: it needs one more adapter than a step may have.
    transfer: an encoder output is on its way to it.
    item: an item of it can not be admitted, or not be computed whole, and the release goes on.
    prompt: its prompt must be computed in one step, is too long, and the release goes on.
    """

    overtaken: Set[str]
    stale: Set[str]
    adapter: Set[str]
    transfer: Set[str]
    item: Set[str]
    prompt: Set[str]


class Inputs(NamedTuple):
    """What the workers lack of the requests for which a step encodes, in numbers of items.

    withheld: items without whose data they were last told of the request, or whose data they were
        told to drop, and that they have not been sent since.
    encodes: what the step encodes for these requests.
    """

    encodes: Mapping[str, Set[int]]
    withheld: Mapping[str, Set[int]]


class Telling(NamedTuple):
    """What the workers are told of a step, by request: how many tokens are scheduled, how many of
    them are drafts, and the items to encode. `total` is how many tokens they are told in all."""

    tokens: Mapping[str, int]
    drafts: Mapping[str, int]
    encodes: Mapping[str, Sequence[int]]
    total: int


class Claims(NamedTuple):
    """By request, in numbers of items: which occurrences a step reads, and which the request has
    hit, had encoded or claimed since it runs."""

    reads: Mapping[str, Set[int]]
    claimed: Mapping[str, Set[int]]


class Spending(NamedTuple):
    """An item is to be admitted, in embeddings: the step's whole compute budget, what admission is
    told is left of it, and what the request's own walk and the rest of the step take so far."""

    budget_full: int
    budget: int
    pending: int
    taken: int


class Victims(NamedTuple):
    """Who is preempted, and who goes on running: the place of each among those who ran, the most
    urgent (or, first come first served, who runs longest) at 0."""

    preempted: Mapping[str, int]
    stay: Mapping[str, int]


class References(NamedTuple):
    """Who runs, and who holds which entry of the encoder cache."""

    running: Set[str]
    holders: Mapping[str, Set[str]]


class Answer(NamedTuple):
    """Whether an event was answered by an exception that no manager raised, and by which."""

    raised: str


class Standing(NamedTuple):
    """What a step decides from. Requests in order, KV blocks and encoder cache slots by number."""

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    free_blocks: int
    free_slots: int
    freeable_slots: int


class Turn(NamedTuple):
    """A step in a row with nothing in flight and nothing to wait for.

    tokens: how many it schedules; requests: how many are there.
    before, after: the standing before the step ahead of it, and behind it.
    """

    tokens: int
    requests: int
    before: Standing
    after: Standing


class Arrival(NamedTuple):
    """A request that was taken in, and what it can have when it is alone.

    tokens: of its prompt, fewer than `tokens_max`, the model's.
    embeddings: of its largest item, of at most `slots` of the encoder cache and `compute` a step.
    blocks: of the KV cache for all that it may become, of at most `blocks_max`.
    together: tokens that one step must compute, of at most `together_max`.
    """

    tokens: int
    tokens_max: int
    embeddings: int
    slots: int
    compute: int
    blocks: int
    blocks_max: int
    together: int
    together_max: int


class Presence(NamedTuple):
    """Requests that were taken in and have not ended, and those that run or wait."""

    owed: Set[str]
    there: Set[str]


class Service(NamedTuple):
    """What a trace asks of a release, against the limits that releases document, in tokens.

    refused: how the release refused it, empty where it did not.
    seqs: how many requests may run, of at most `step`, which a step may compute; `least` is the
        smallest of the configuration's numbers that must not be 0.
    together: most tokens that one step must compute: the longest prompt where prompts, the largest
        item where items are not split.
    prompt: the longest prompt, shorter than `prompt_max`; chunk: the most that a step computes of
        one prompt, at most `prompt_max` too.
    blocks: KV blocks for the longest request, of at most `blocks_max`.
    """

    refused: str
    seqs: int
    step: int
    least: int
    together: int
    prompt: int
    chunk: int
    prompt_max: int
    blocks: int
    blocks_max: int


class Stretch(NamedTuple):
    """Steps in a row with tokens and without one for anybody, while nothing arrives or ends from
    outside, nobody is waited for, and nothing is in the way; of at most `steps_max`: as many as the
    requests that are there may have tokens, at their end and together."""

    steps: int
    steps_max: int


@contract(
    "SC-1a",
    "A step schedules no more tokens than its budget",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM SchedulerConfig.max_num_batched_tokens: what the worker's buffers hold",
)
def tokens_within_budget(w: Plan) -> bool:
    return total(w.tokens) <= w.token_budget and all(w.tokens[r] > 0 for r in w.tokens)


@contract(
    "SC-1b",
    "A step encodes no more embeddings than the encoder's compute budget",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM compute_mm_encoder_budget: what memory profiling ran the encoder with",
)
def encodes_within_budget(w: Plan) -> bool:
    return total(w.encodes) <= w.encoder_budget


@contract(
    "SC-1c",
    "No more requests run than may",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM SchedulerConfig.max_num_seqs: what the worker's batch has rows for",
)
def running_within_limit(w: Plan) -> bool:
    return w.running <= w.running_max


@contract(
    "SC-2",
    "What a step reads of an item is resident, encoded or loaded by it, for each request",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM GPUModelRunner._gather_mm_embeddings, for a drafter too: it reads one token "
    "ahead, and since 0.24.0 does without an item that begins there. WM-2 asks what is in the "
    "worker's store, of what the target model reads; this what was decided, of what either reads",
)
def reads_are_available(w: Reads) -> bool:
    return all(all(h in w.available for h in w.wanted[r]) for r in w.wanted)


@contract(
    "SC-3",
    "Tokens stop where an item starts that cannot be had: not behind, and not before",
    kind="trace",
    harm="liveness",
    component=COMPONENT,
    source="vLLM Scheduler._try_schedule_encoder_inputs: an item that cannot be had ends the chunk",
)
def stops_at_items(w: Stops) -> bool:
    return all(w.ends[r] <= w.refused[r] for r in w.refused) and all(
        w.ends[r] in w.allowed[r] for r in w.allowed
    )


@contract(
    "SC-4",
    "Where items must be whole, no step that starts an item ends inside it",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM SchedulerConfig.disable_chunked_mm_input; PR #52412",
)
def items_are_whole(w: Plan) -> bool:
    return w.whole_items == 0 or all(
        all(
            i.start < w.windows[r].start or i.start >= w.windows[r].end or i.end <= w.windows[r].end
            for i in w.items[r]
        )
        for r in w.windows
    )


@contract(
    "SC-5",
    "A step encodes or loads no entry that is there and stays, and none twice",
    kind="trace",
    harm="efficiency",
    component=COMPONENT,
    source="one encode or load per residency is what the encoder cache is for; WM-2 says that it "
    "comes before the first read",
)
def fills_once(w: Fills) -> bool:
    return distinct(w.filled) and all(h not in w.kept for h in w.filled)


@contract(
    "SC-6",
    "After a step's update, who does not run holds no entry of the encoder cache",
    kind="state",
    harm="liveness",
    component=COMPONENT,
    source="vLLM PR #31857: a waiting request that holds entries starves the running ones",
)
def only_running_hold(s: References) -> bool:
    return all(s.holders[h] <= s.running for h in s.holders)


@contract(
    "SC-7",
    "A waiting request is overtaken in its queue only for a reason that is listed",
    kind="trace",
    harm="liveness",
    component=COMPONENT,
    source="vLLM SchedulingPolicy: fcfs is the order of arrival, and who was preempted goes first; "
    "priority the order of priority, then of arrival. Sessions have an order of their own, and so "
    "have requests beside KV loads",
)
def overtakes_for_a_reason(w: Overtaking) -> bool:
    return all(
        r in w.stale or r in w.adapter or r in w.transfer or r in w.item or r in w.prompt
        for r in w.overtaken
    )


@contract(
    "SC-8",
    "No event is answered by an exception of the scheduler",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="an engine whose scheduler raises stops serving",
)
def scheduler_never_raises(c: Answer) -> bool:
    return c.raised == ""


@contract(
    "SC-9",
    "What a step encodes, the workers have been given",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM NewRequestData.mm_features: a request's items reach the workers with the request. "
    "SchedulerOutput.encoder_input_updates: the second model runner drops the data of some, and is "
    "sent it again with the step that encodes them",
)
def inputs_were_sent(w: Inputs) -> bool:
    return all(all(i not in w.withheld[r] for i in w.encodes[r]) for r in w.withheld)


@contract(
    "SC-10",
    "What the workers are told of a step is about the requests that it schedules",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM GPUModelRunner looks up each request with drafts, or with items to encode, among "
    "those of the step; a step has at least one token beside its drafts",
)
def tells_of_whom_it_schedules(w: Telling) -> bool:
    return (
        all(r in w.tokens and w.drafts[r] < w.tokens[r] for r in w.drafts)
        and all(r in w.tokens for r in w.encodes)
        and total(w.tokens) == w.total
    )


@contract(
    "SC-11",
    "Each occurrence of an item that a step reads has been claimed by its request",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM PR #54284: an entry is given back once its request is past the last occurrence "
    "that it has claimed, so one that it has not is read from an entry that may be gone",
    versions=CLAIMS_ALL,
)
def reads_what_it_claimed(w: Claims) -> bool:
    return all(all(i in w.claimed[r] for i in w.reads[r]) for r in w.reads)


@contract(
    "SC-12",
    "Admission is offered the encoder budget less what the step encodes so far",
    kind="trace",
    harm="efficiency",
    component=COMPONENT,
    source="vLLM Scheduler.schedule: who is preempted in the step gives back what was to be "
    "encoded for it; where less is offered, an item waits that could be encoded",
    versions=">=0.10.2",
)
def offers_what_is_left(w: Spending) -> bool:
    return w.budget + w.pending + w.taken == w.budget_full


@contract(
    "SC-13",
    "Who is preempted is less urgent than who goes on",
    kind="trace",
    harm="liveness",
    component=COMPONENT,
    source="vLLM Scheduler.schedule: by priority the least urgent that runs, the latest arrival "
    "among equals; else who began to run last",
)
def preempts_the_least_urgent(w: Victims) -> bool:
    return all(all(w.stay[q] < w.preempted[r] for q in w.stay) for r in w.preempted)


@contract(
    "DF-1",
    "A notice that drops an entry follows the last step in which who claimed it reads it",
    kind="trace",
    harm="safety",
    component=COMPONENT,
    source="vLLM SchedulerOutput.free_encoder_mm_hashes: workers apply it before the step, "
    "whatever is in flight. WM-2 says that a read misses, this that a notice is why",
)
def notices_follow_reads(w: Reads) -> bool:
    return all(all(h not in w.dropped for h in w.claimed[r]) for r in w.claimed)


@contract(
    "LV-1",
    "With nothing in flight and nothing to wait for, a step schedules something or changes what "
    "the next one decides from",
    kind="progress",
    harm="liveness",
    component=COMPONENT,
    source="a step that comes back empty and changes nothing comes back empty for ever",
)
def goes_on(c: Turn) -> bool:
    return c.tokens > 0 or c.requests == 0 or c.before != c.after


@contract(
    "LV-2",
    "What could never be scheduled, even alone, is not taken in",
    kind="trace",
    harm="liveness",
    component=COMPONENT,
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


@contract(
    "SC-18",
    "What keeps the documented limits is served",
    kind="trace",
    harm="liveness",
    component=COMPONENT,
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


@contract(
    "SC-19",
    "A request runs or waits from its arrival to its end, and no longer",
    kind="state",
    harm="liveness",
    component=COMPONENT,
    source="conservation; vLLM Scheduler.finish_requests ends whom it is told to end, and a client "
    "whose request is nowhere waits for ever",
)
def nobody_is_forgotten(s: Presence) -> bool:
    return s.owed == s.there


@contract(
    "LV-3",
    "As many steps as all requests have tokens do not pass without a new one for anybody",
    kind="progress",
    harm="liveness",
    component=COMPONENT,
    source="a request of n tokens is computed in n steps; every token brings a request nearer to "
    "its end, and LV-1 speaks of steps that compute nothing",
)
def ends_in_time(c: Stretch) -> bool:
    return c.steps <= c.steps_max
