"""What a record of an engine is made of: one struct a kind of record, written as an array.

Requests are numbers in order of arrival, as `Added` gives them out. Times are microseconds since
the record before. An identifier is hashed with the record's salt unless the record is plain. A
field that says the same as the record before it is None; `Scheduled` says how its steps follow from
the step before.
"""

from typing import Any, TypedDict

import msgspec

SCHEMA = 1
OPERATIONS = (
    "check",
    "can",
    "allocate",
    "release",
    "free",
    "inputs",
    "embeds",
    "notices",
    "reset",
)
"""Calls of an encoder cache manager, by their number in a record."""
KV_OPERATIONS = (
    "get_computed_blocks",
    "get_computed_blocks_for_connector",
    "allocate_slots",
    "cache_blocks",
    "free",
    "pop_blocks_for_free",
    "remove_skipped_blocks",
    "evict_blocks",
    "reset_prefix_cache",
    "get_num_common_prefix_blocks",
    "take_events",
    "make_prefix_cache_stats",
    "free_blocks",
    "pool",
    "read",
)
"""Calls of a KV cache manager, by their number in a record. "free_blocks" and "pool" are calls of
its block pool by others: blocks freed, and anything else. "read" is none: what had changed by no
call when all was read."""

HOW = ("name", "data", "address")
"""How an item of a request is sent, by its number in a record: its name alone, what was processed,
or where that lies in shared memory."""

Names = list[int]
Entries = dict[str, tuple[Names, int | None] | None]
Queue = tuple[list[str], list[tuple[str, int]]]
LedgerDelta = tuple[int, int, Entries, Queue | None, list[str] | None]
ManagerCall = tuple[int, int | None, int | None, int | None, int | None, Any, LedgerDelta | None]
Item = tuple[str, int, int, list[int] | None]
"""Identifier, offset, length, and the mask of its embeddings as the lengths of runs, the first of
places without one; None where all have one."""

KVFacts = tuple[str, int, int, bool, int, int, list[int]]
"""What a request is as a KV cache manager is asked about it: status, tokens, computed tokens,
whether it reads the prefix cache, preemptions; then from which on its block keys are told, and
those keys."""
KVCall = tuple[
    int, int | None, KVFacts | None, dict[str, Any], Any, dict[str, Any] | None, str | None
]
"""Operation, request, what the request is, arguments, answer, the change of the state as
`host.managers.kv_cache_recorder` tells it, and the exception that was raised. Of the free queue a
change has the blocks that left it (None: all), those before the rest and those behind it; of each
block table how many blocks stay, those behind them, and how many are cached."""


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A record."""


class Text(Message, frozen=True):
    """How what the reference models reads in the vLLM that runs.

    nearest: the modelled release from which the fewest of its `modelled` definitions differ.
    differing: what differs from that release, by name: "changed", "new" or "gone"; "replaced" where
    other code stands in the definition's place as the engine runs; "its own" for a class of a
    scheduler or of its managers that is no modelled one.
    """

    nearest: str
    modelled: int
    differing: dict[str, str]


class Opened(Message, tag="o", frozen=True):
    """The first record of a file.

    role: "scheduler" or "worker", or "sender" or "receiver" of processed media, whose settings say
    which `store` they share: "lru", or "shm" for shared memory; or "answers", of a front end.
    plain: whether identifiers are as they were. started: when the file was begun, in seconds since
    1970. settings: of the scheduler, as a trace's configuration has them. protocol: the flags of
    `host.protocol.Protocol`. unjudged: what the engine uses that no contract follows. text: of a
    scheduler, how its vLLM reads; None where that is not known.
    """

    schema: int
    role: str
    recorder: str
    vllm: str
    process: int
    parent: int
    started: float
    plain: bool
    manager: str = ""
    manager_class: str = ""
    settings: dict[str, Any] = {}
    protocol: list[bool] = []
    unjudged: list[str] = []
    text: Text | None = None


class Arrived(TypedDict):
    """The fields of a request as it arrives: those of `Added` and of `KnownRequest`."""

    request: int
    prompt: int
    items: list[Item]
    max_tokens: int
    priority: int
    arrival: float
    lora: int
    skip_reading: bool
    flags: list[str]
    prefix: list[bytes]
    name: str | None


class Added(Message, tag="a", frozen=True):
    """A request arrives. `arrival` is when, by the clock of who sent it, in seconds since 1970;
    `flags` names what it asks for that no contract follows; `prefix` has a salted hash of its
    prompt's first KV block, if that is full."""

    time: int
    request: int
    prompt: int
    items: list[Item]
    max_tokens: int
    priority: int
    arrival: float
    lora: int
    skip_reading: bool
    flags: list[str]
    prefix: list[bytes]
    calls: list[ManagerCall]
    running: Names | None
    waiting: Names | None
    free_blocks: int
    name: str | None = None


class Scheduled(Message, tag="s", frozen=True):
    """A step is decided.

    A request of the step before is in this one too, with one token after those, unless it is in
    `gone` or `tokens`. tokens: request, tokens, tokens computed before. order: of all, where it is
    not that of the step before with the others of `tokens` behind it. encode: items to encode.
    blocks: what the workers are told of KV blocks, a list a group. rest: whatever else a step says,
    by name.
    """

    time: int
    tokens: list[tuple[int, int, int | None]]
    gone: Names
    order: Names | None
    encode: dict[int, list[int]]
    notices: list[str]
    calls: list[ManagerCall]
    blocks: dict[int, list[list[int]]]
    finished: Names
    running: Names | None
    waiting: Names | None
    free_blocks: int
    rest: dict[str, Any]


class Updated(Message, tag="u", frozen=True):
    """The output of the oldest step in flight arrives. Each of its requests got one token, unless
    it is in `sampled`."""

    time: int
    sampled: dict[int, int]
    ended: Names
    calls: list[ManagerCall]
    running: Names | None
    waiting: Names | None
    free_blocks: int


class Aborted(Message, tag="f", frozen=True):
    """Requests are ended from outside."""

    time: int
    requests: Names
    calls: list[ManagerCall]
    running: Names | None
    waiting: Names | None
    free_blocks: int


class Cleared(Message, tag="r", frozen=True):
    """A cache is reset ("encoder", "prefix", "running": running requests start over, too), or
    scheduling is paused ("pause", with its mode)."""

    time: int
    what: str
    answer: Any
    calls: list[ManagerCall]
    running: Names | None
    waiting: Names | None
    free_blocks: int


class Raised(Message, tag="x", frozen=True):
    """An exception of the engine, out of what is named.

    text: its words as `raising.words_of` keeps them; of a recorder's own exception all of them.
    place: file, line and function of vLLM that raised it. step: that of a worker, 0 where unknown.
    """

    time: int
    operation: str
    error: str
    text: str
    calls: list[ManagerCall]
    place: str = ""
    step: int = 0


class KnownRequest(Message, frozen=True):
    """A request in the middle of its way: as it arrived, and how far it has been scheduled."""

    request: int
    prompt: int
    items: list[Item]
    max_tokens: int
    priority: int
    arrival: float
    lora: int
    skip_reading: bool
    flags: list[str]
    prefix: list[bytes]
    computed: int
    preempted: bool
    name: str | None = None


class Keyframe(Message, tag="k", frozen=True):
    """All that is there: at the head of a file, after a loss, and now and then. `lost` counts the
    records that were lost so far; `steps` those that were decided."""

    time: int
    lost: int
    steps: int
    requests: list[KnownRequest]
    running: Names
    waiting: Names
    free_blocks: int
    free_slots: int
    freeable_slots: int
    entries: dict[str, tuple[Names, int | None]]
    queue: list[tuple[str, int]]
    notices: list[str]
    in_flight: list[Names]
    last_step: dict[int, int]


class Stored(Message, tag="w", frozen=True):
    """A worker has executed step number `step`, of `tokens` tokens: what changed in its store, in
    rows, and None for what is gone."""

    time: int
    step: int
    tokens: int
    changed: dict[str, int | None]


class KVState(Message, tag="v", frozen=True):
    """All that a KV cache manager has, as a change of an empty one; after a keyframe, where the KV
    cache is recorded. unjudged: what of it no contract follows. put_off: blocks that requests have
    given up and that are not freed yet, for each free. counts: those of lookups that were not taken
    yet, and pending: such KV events. A large state is several records: each but the last says that
    `more` comes."""

    config: dict[str, Any]
    unjudged: list[str]
    changed: dict[str, Any]
    put_off: list[list[int]]
    counts: list[int]
    pending: list[Any]
    more: bool


class KVCalls(Message, tag="c", frozen=True):
    """What the KV cache manager was asked and answered in what the next record tells."""

    calls: list[KVCall]


class ItemSent(Message, tag="p", frozen=True):
    """A front end has looked an item up for a request. how: what of it goes in the message, by its
    number in `HOW`. error: the exception's type where the request ends there."""

    time: int
    item: str
    how: int
    error: str = ""


class ItemsReceived(Message, tag="g", frozen=True):
    """The items of a request have come to an engine core or, in shared memory, to a worker. items:
    each, and how it came, by its number in `HOW`. lacking: those that are not there. error: the
    exception's type where the request ends there."""

    time: int
    items: list[tuple[str, int]]
    lacking: list[str]
    error: str = ""


class MediaForgotten(Message, tag="e", frozen=True):
    """A cache of processed media forgets an item, or all of them (None)."""

    time: int
    item: str | None


class AnswersFailed(Message, tag="n", frozen=True):
    """A front end could not go on with what an engine said. ended: of the requests for which no
    tokens are made, and which the engine has ended without their result, why, in vLLM's word."""

    time: int
    ended: list[str]


class Closed(Message, tag="z", frozen=True):
    """The engine has ended in an orderly way."""

    time: int
    lost: int


AnyMessage = (
    Opened
    | Added
    | Scheduled
    | Updated
    | Aborted
    | Cleared
    | Raised
    | Keyframe
    | Stored
    | KVState
    | KVCalls
    | ItemSent
    | ItemsReceived
    | MediaForgotten
    | AnswersFailed
    | Closed
)
