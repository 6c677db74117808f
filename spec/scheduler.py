"""The scheduler: what a step may hold, what a wait may hold, and that it goes on.

`w` is a step that schedule() has decided on, `s` who runs, waits and holds what between two events,
`c` what came of one event or of one stretch of steps. Contracts of the caches are judged at every
call of their managers; these are about what the scheduler makes of the answers.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple

from cacheproof.spec.registry import contract
from cacheproof.spec.vocabulary import total

COMPONENT = "scheduler"


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
