"""What events come to, as the JSON of a record says it: the fields that are read here, by kind.

A field that is not required is left out by a release that lacks it, or where it is empty.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Required, TypedDict, TypeGuard

WalkOutcome = tuple[int, list[int]]
"""How many tokens a walk grants (less than 0: it is refused), and the inputs that it met twice."""
DecodedToken = tuple[int, float, float]
"""A token that an engine decoded: its id, its log probability, and the lead of its logit."""
Rest = tuple[list[str], list[str]]
"""What a connector at rest has pinned, and what it has not saved yet."""


class ServedRows(TypedDict):
    """What rows that a connector loaded say of themselves: the numbers of their item and model and
    the version of its weights, how many they are, and whether all are of one output."""

    item: int
    model: int
    weights: int
    count: int
    width: int
    dtype: str
    whole: bool


class _UnderOther(TypedDict, total=False):
    store: dict[str, int]
    encode: dict[str, list[int]]
    notices: list[str]
    outputs: dict[str, list[DecodedToken]]
    untaken: dict[str, list[int]]
    continued: list[tuple[str, int]]


_UnderFirst = TypedDict("_UnderFirst", {"under the first model runner": _UnderOther}, total=False)


class QueuesOutcome(TypedDict):
    """Who runs and who waits after an event, in order, how many KV blocks are free, and who has
    ended."""

    running: list[str]
    waiting: list[str]
    free_blocks: int
    finished: NotRequired[list[str]]


def has_queues(outcome: object) -> TypeGuard[QueuesOutcome]:
    """Whether an outcome says who runs and who waits."""
    return isinstance(outcome, dict) and "running" in outcome


class ContinuedOutcome(QueuesOutcome, _UnderFirst):
    """What a chunk comes to, and an update: the sessions that went on, each with the token at which
    its next chunk begins."""

    continued: NotRequired[list[tuple[str, int]]]


class StepMemory(TypedDict):
    """Memory of a worker's store, in bytes."""

    bytes_of_row: int
    bytes_held: int


class StepOrigins(TypedDict):
    """Where rows, or slots, should come from and do, and how many were read."""

    read: int
    expected: list[Any]
    found: list[Any]


class StepOutcome(QueuesOutcome, _UnderFirst):
    """What schedule() decides, and what it tells the workers."""

    scheduled: dict[str, int]
    computed: dict[str, int]
    drafts: dict[str, int]
    new: list[str]
    resumed: list[str]
    preempted: list[str]
    rejected: list[str]
    blocks: dict[str, list[list[int]]]
    encode: dict[str, list[int]]
    notices: list[str]
    told_new: list[str]
    total: int
    withheld: NotRequired[dict[str, list[int]]]
    sent_again: NotRequired[dict[str, list[int]]]
    dropped: NotRequired[dict[str, list[int]]]
    loads: NotRequired[dict[str, list[int]]]
    awaiting: NotRequired[list[str]]
    kv_asked: NotRequired[list[tuple[str, int]]]
    kv_loads: NotRequired[dict[str, tuple[int, bool, list[int]]]]
    kv_sends: NotRequired[list[tuple[str, list[int]]]]
    store: NotRequired[dict[str, int]]
    memory: NotRequired[StepMemory]
    origins: NotRequired[dict[str, StepOrigins]]


class UpdateOutcome(ContinuedOutcome):
    """What update_from_output() makes of the output of steps: tokens that it took, and who ended.
    Of each step with KV transfers a report: who has loaded, who was sent, which blocks failed."""

    sampled: dict[str, int]
    kv_reports: NotRequired[list[tuple[str | None, str | None, list[int]] | None]]
    outputs: NotRequired[dict[str, list[DecodedToken]]]
    untaken: NotRequired[dict[str, list[int]]]


class KVChange(TypedDict, total=False):
    """What an event changed in a KV cache manager; of blocks and names alone what is not as before,
    None where it is gone."""

    free: int
    queue: Sequence[int]
    refs: Mapping[str, int]
    hashes: Mapping[str, Sequence[Sequence[int | None]] | None]
    map: Mapping[str, Sequence[int] | None]
    tables: Mapping[str, Sequence[tuple[Sequence[int], int | None]] | None]


class KVOutcome(TypedDict):
    """What an event of a KV cache comes to: an answer of its kind, the calls behind it, and what it
    changed."""

    answer: Any
    calls: list[Any]
    changed: KVChange


LookupAnswer = tuple[Sequence[Sequence[int]], int, int | None]
"""The block ids of a hit by group, its tokens, and a boundary."""
ToldEvent = Sequence[Any]
"""A KV event: its name, the numbers of its hashes, and what else the event of that name says."""


class StoredFields(TypedDict):
    """What an event of stored blocks says beside their hashes."""

    token_ids: Sequence[int]
    block_size: int
    group_idx: NotRequired[int | None]
    extra_keys: NotRequired[Sequence[Sequence[Any] | None] | None]


class KVGroupConfig(TypedDict):
    """A group of layers, as the configuration of a KV cache has it."""

    kind: str
    block_size: int
    window: int
    has_drafter: bool


class KVConfig(TypedDict):
    """The configuration of a KV cache, as plain data."""

    num_blocks: int
    groups: list[KVGroupConfig]
    max_model_len: int
    max_in_flight_tokens: int
    enable_caching: bool
    use_eagle: bool
    kv_events: bool
    watermark: float
    async_scheduling: NotRequired[bool]


class KVItem(TypedDict):
    """A media item of a request, as plain data."""

    identifier: str
    offset: int
    length: int


class KVAdapter(TypedDict):
    """The adapter of a request, as plain data."""

    lora_name: str


class KVEvent(TypedDict, total=False):
    """An event of a KV cache, as plain data: of a trace's, or what a call stands for."""

    event: Required[str]
    request: str
    text: list[tuple[int, int]]
    items: list[KVItem]
    salt: str | None
    lora: KVAdapter | None
    skip_reading: bool
    accepted: int
    valid: int
    blocks: list[int]


class TableOutcome(TypedDict):
    """A store's table: its room and what of it is free or evictable, sizes and pins of entries, and
    how long each is idle; the ids of its blocks, and which are in use, where it has any."""

    capacity: int
    free: int
    evictable: int
    size: dict[str, int]
    pins: dict[str, int]
    idle: dict[str, int]
    blocks: list[int]
    in_use: bool | None


class BlockKeysOutcome(TypedDict):
    """The keys of a request's blocks: those made afresh, and those that grew with it."""

    fresh: list[str]
    grown: list[str]


class DigestOutcome(TypedDict, total=False):
    """The digest of a media value, or the exception that it raises; whether two differ."""

    digest: str
    raises: str
    unstable: bool


class ConnectorOutcome(TypedDict, total=False):
    """What an event of engines on one store comes to."""

    outside: Required[list[str]]
    bytes: Required[int | None]
    unfinished: list[str]
    aborted: int
    rest: dict[str, Rest | None]
    promised: dict[str, dict[str, bool]]
    landed: dict[str, list[tuple[str, ServedRows]]]


class PlanOutcome(TypedDict):
    """What a connector promises as a step is planned, and what the step encodes."""

    promised: dict[str, bool]
    encodes: list[str]
    pins: tuple[list[str], list[str]] | None


class ExecuteOutcome(TypedDict):
    """What the worker's side of a connector does in a step."""

    died: NotRequired[bool]
    missing: list[str]
    loaded: dict[str, ServedRows]
    landed: list[tuple[str, ServedRows]]
    copying: bool
    rest: Rest | None


class FrontEndOutcome(TypedDict):
    """What an event of a front end comes to: names that either half keeps, and each further API
    server, what was used longest ago first, and bytes that each counts; what is sent says, None
    without data; what is handed on says; which items are lacking, none where the release does not
    tell; why a request is refused."""

    sender: list[str]
    receiver: list[str]
    counted: list[int]
    others: NotRequired[list[list[str]]]
    sent: NotRequired[list[str | None]]
    handed: NotRequired[list[str]]
    lacking: NotRequired[list[str]]
    refused: NotRequired[str]


class IdentifierOutcome(TypedDict):
    """What a request's items are called, each digest by its number; or the type of what is
    raised."""

    identifiers: NotRequired[list[str]]
    raises: NotRequired[str]
