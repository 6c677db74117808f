"""What the contracts of `scheduler` look at: a step, its requests, and what came of an event."""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple


class Span(NamedTuple):
    """Tokens [start, end) of a request's prompt, or of what a step computes of it."""

    start: int
    end: int


class StepPlan(NamedTuple):
    """A step, by request.

    tokens: how many are scheduled, of at most `token_budget`.
    encodes: embeddings of the items to encode, of at most `encoder_budget`.
    windows: what is computed of requests that were not past their items; items: where these stand.
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


class Room(NamedTuple):
    """How large an encoder cache is, beside what it is made for, in embeddings.

    configured: as large as the configuration says.
    largest: the largest item of the model.
    slots: as large as the scheduler's manager says that it is.
    """

    configured: int
    largest: int
    slots: int


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
