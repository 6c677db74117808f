"""Traces: a header and the events that follow it, as JSON Lines.

The first line is the header, each further line one event. A trace speaks of what the engine does,
never of what a target answered, so that any target can run it.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

import msgspec

from cacheproof.differential.errors import InputError
from cacheproof.differential.media.descriptions import Description, Malformed, check_call
from cacheproof.reference.hash_functions import Algorithm
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request

SCHEMA = 1
LARGEST = 2**31 - 1
MAX_LINE = 8 * 2**20
MAX_EVENTS = 1_000_000
MAX_BLOCKS = 2**20
EMBEDDED = 9
"""The token id that stands where an embedding was given; no text has it."""

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Size = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
RunLength = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
TransferState = Literal["pending", "ready", "gone", "failed"]
MediaAlgorithm = Literal["blake3", "sha256", "sha512"]
Row = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{8})+$", max_length=1024)]


class Item(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One media item: its keys and where its placeholder stands, in tokens of the prompt."""

    identifier: Name
    offset: Count
    length: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    mm_hash: Name | None = None
    is_embed: tuple[bool, ...] | None = None


class Event(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="event"):
    """What the engine does next."""


class Adapter(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The LoRA adapter of a request."""

    lora_name: Name
    lora_int_id: Size
    lora_path: Name


class Add(Event, tag="add", frozen=True):
    """A request arrives, with `prompt` tokens and its items in prompt order. Output number
    `stop_after` is a token that ends it; `skip_reading` keeps it from hitting the prefix cache. A
    `resumable` request waits for more prompt where another would end. The KV of one that `sends` is
    sent elsewhere when it has come to its end."""

    request: Name
    prompt: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    items: tuple[Item, ...] = ()
    max_tokens: Size = 1
    priority: int = 0
    lora: Adapter | None = None
    salt: Name | None = None
    skip_reading: bool = False
    stop_after: Size | None = None
    resumable: bool = False
    sends: bool = False


class Chunk(Event, tag="chunk", frozen=True):
    """More prompt for a resumable request: so many tokens, with `items` at offsets in them. They
    follow what the turn before has decoded, except its last token, which was never computed; the
    turn that they begin has `max_tokens` and `stop_after` of its own."""

    request: Name
    prompt: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    items: tuple[Item, ...] = ()
    max_tokens: Size = 1
    stop_after: Size | None = None


class Close(Event, tag="close", frozen=True):
    """No more prompt will come for a resumable request: its last turn is its end."""

    request: Name


class Walk(Event, tag="walk", frozen=True):
    """Up to `tokens` of the request's prompt are scheduled in the current step."""

    request: Name
    tokens: Size


class Stall(Event, tag="stall", frozen=True):
    """A waiting request is walked, and then there are no KV blocks for it."""

    request: Name
    tokens: Size


class Notices(Event, tag="notices", frozen=True):
    """schedule() returns: the worker is told of evictions and executes the step."""


class Update(Event, tag="update", frozen=True):
    """The output of the `steps` oldest steps in flight arrives. Its requests with drafts accept so
    many of them, in turn; none where nothing is said."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    accepts: tuple[Count, ...] = ()


class Preempt(Event, tag="preempt", frozen=True):
    """A running request is put back to wait and starts over."""

    request: Name


class Finish(Event, tag="finish", frozen=True):
    """A request ends or is aborted."""

    request: Name


class Release(Event, tag="release", frozen=True):
    """An item that the request has got past is released once more."""

    request: Name
    input: Count


class Reset(Event, tag="reset", frozen=True):
    """The encoder cache is reset on both sides, between two steps."""


class Schedule(Event, tag="schedule", frozen=True):
    """The real scheduler makes a step."""


class Abort(Event, tag="abort", frozen=True):
    """A request is aborted, at any moment."""

    request: Name


class ResetPrefix(Event, tag="reset_prefix", frozen=True):
    """The prefix cache is reset; with `running`, running requests start over."""

    running: bool = False


class Pause(Event, tag="pause", frozen=True):
    """From now on only running requests are scheduled, or none, or all again."""

    mode: Literal["new", "all", "none"]


class Transfer(Event, tag="transfer", frozen=True):
    """From now on an encoder output is, elsewhere, `ready` to be loaded; `pending`, and who needs
    it waits; `gone`; or `failed` to come, and those that waited for it end."""

    identifier: Name
    state: TransferState


class Elsewhere(Event, tag="elsewhere", frozen=True):
    """From now on the KV of the request's first `tokens` tokens can be had elsewhere, or null:
    nobody knows yet. `later`: it is loaded between steps and not within one."""

    request: Name
    tokens: Count | None
    later: bool = False


class Received(Event, tag="received", frozen=True):
    """The load of a request's KV ends. From its block number `failed` on it has failed, where that
    is given; a load within a step ends with it, and only its failure is said."""

    request: Name
    failed: Count | None = None


class Sent(Event, tag="sent", frozen=True):
    """The sending of a request's KV ends."""

    request: Name


class Prompt(Event, tag="prompt", frozen=True):
    """A request arrives whose block keys are asked for.

    `embeds` has the embedding of every prompt position as hex of float32, None where the token
    counts. With `one_object` equal identifiers of its items are one Python object.
    """

    request: Name
    tokens: Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1)]
    items: tuple[Item, ...] = ()
    lora: Adapter | None = None
    salt: Name | None = None
    embeds: tuple[Row | None, ...] | None = None
    one_object: bool = False


class Decode(Event, tag="decode", frozen=True):
    """The request decodes tokens, one after the other."""

    request: Name
    tokens: tuple[TokenId, ...]


class Continue(Event, tag="continue", frozen=True):
    """The request, which has stopped, gets more prompt: `tokens`, with `items` at offsets in them.

    What it decoded becomes prompt, except the last token, which was never computed.
    """

    request: Name
    tokens: Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1)]
    items: tuple[Item, ...] = ()


class Arrive(Event, tag="arrive", frozen=True):
    """A request arrives whose KV blocks are managed. `text` is runs of consecutive token ids, the
    first id and how many; `skip_reading` keeps it from hitting the prefix cache; `session` is what
    it is part of, to those who follow KV events."""

    request: Name
    text: Annotated[tuple[tuple[TokenId, RunLength], ...], msgspec.Meta(min_length=1)]
    items: tuple[Item, ...] = ()
    salt: Name | None = None
    lora: Adapter | None = None
    skip_reading: bool = False
    session: Name | None = None


class Slots(Event, tag="slots", frozen=True):
    """Up to `tokens` of the request are scheduled, `drafts` of them not decoded yet.

    Beside them slots for `lookahead` tokens, `external` tokens that are loaded from elsewhere
    (later, with `delay`), and `encoder` tokens of cross-attention. `must_fit`, `reserved` blocks
    and whether there are `others` are conditions of admission.
    """

    request: Name
    tokens: Size
    drafts: Count = 0
    lookahead: Count = 0
    external: Count = 0
    delay: bool = False
    encoder: Count = 0
    must_fit: bool = False
    reserved: Count = 0
    others: bool = False


class Output(Event, tag="output", frozen=True):
    """The output of the request's oldest step arrives, with so many of its drafts accepted; its
    text goes on with token `first`, or as it goes on for others."""

    request: Name
    accepted: Count = 0
    first: TokenId | None = None


class Loaded(Event, tag="loaded", frozen=True):
    """A delayed load ends, and so many of its tokens are right."""

    request: Name
    valid: Count


class End(Event, tag="end", frozen=True):
    """A request ends; with `defer` its blocks are given back by the next `settle`."""

    request: Name
    defer: bool = False


class Settle(Event, tag="settle", frozen=True):
    """Blocks that were kept back are given back."""


class Skip(Event, tag="skip", frozen=True):
    """Blocks that the request no longer reads are given back."""

    request: Name


class EvictBlocks(Event, tag="evict_blocks", frozen=True):
    """These blocks are taken out of the prefix cache."""

    blocks: tuple[Count, ...]


class CommonPrefix(Event, tag="common_prefix", frozen=True):
    """How many blocks all running requests share is asked for."""

    request: Name


class TakeEvents(Event, tag="take_events", frozen=True):
    """KV events are taken."""


class TakeStats(Event, tag="take_stats", frozen=True):
    """Statistics of the prefix cache are taken."""


class TakeResidencies(Event, tag="take_residencies", frozen=True):
    """How long blocks have been held is taken."""


class Hash(Event, tag="hash", frozen=True):
    """A call of the media hasher; `value` describes it, see `media_hash_description`."""

    value: Description


ManagerEvent = Add | Walk | Stall | Notices | Update | Preempt | Finish | Release | Reset
SchedulerEvent = (
    Add
    | Chunk
    | Close
    | Schedule
    | Update
    | Abort
    | Reset
    | ResetPrefix
    | Pause
    | Transfer
    | Elsewhere
    | Received
    | Sent
)
EngineEvent = Add | Schedule | Update | Abort | Reset | ResetPrefix
BlockHashEvent = Prompt | Decode | Continue
MediaHashEvent = Hash
KVCacheEvent = (
    Arrive
    | Slots
    | Output
    | Loaded
    | Preempt
    | End
    | Settle
    | Skip
    | EvictBlocks
    | ResetPrefix
    | CommonPrefix
    | TakeEvents
    | TakeStats
    | TakeResidencies
)
AnyEvent = ManagerEvent | SchedulerEvent | BlockHashEvent | MediaHashEvent | KVCacheEvent
Arrival = Add | Prompt | Arrive
Showing = Arrival | Chunk | Continue
EVENTS_OF_DEPTH = {
    "manager": get_args(ManagerEvent),
    "scheduler": get_args(SchedulerEvent),
    "engine": get_args(EngineEvent),
    "block_hash": get_args(BlockHashEvent),
    "media_hash": (MediaHashEvent,),
    "kv_cache": get_args(KVCacheEvent),
}


SCHEDULER_DEPTHS = ("scheduler", "engine")


class ManagerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a manager alone is made with, in embeddings."""

    capacity: Size
    compute_budget: Size


class Group(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A KV cache group: layers of one kind. `window` is that of a window, or a chunk, in tokens."""

    kind: Literal["full", "sliding_window", "chunked_local", "cross"]
    block_size: Size
    window: Count = 0


class KVCacheGroup(Group, forbid_unknown_fields=True, frozen=True):
    """The same, and whether layers of a drafter are among them."""

    has_drafter: bool = False


class SchedulerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a scheduler is made with. Budgets of the encoder in embeddings, the others in tokens.
    Without `groups` there is one of full attention. Every so many tokens a window's blocks are
    cached, 0 for the end of the prompt alone, None for everywhere
    (`prefix_cache_retention_interval`). With `one_text` every request decodes what prompts of text
    have at that place, and none has a text of its own."""

    capacity: Size
    compute_budget: Size
    max_num_batched_tokens: Size
    max_num_seqs: Size
    max_model_len: Size
    block_size: Size
    num_blocks: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCKS)]
    prefix_caching: bool = True
    chunked_prefill: bool = True
    disable_chunked_mm_input: bool = False
    policy: Literal["fcfs", "priority"] = "fcfs"
    long_prefill_token_threshold: Count = 0
    async_scheduling: bool = False
    long_prefill_token_threshold_adaptive: bool = False
    max_num_active_seqs: Size | None = None
    scheduler_reserve_full_isl: bool = True
    watermark: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    prefill_schedule_interval: Size = 1
    max_loras: Count = 0
    num_speculative_tokens: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    drafter: bool = False
    v2_model_runner: bool = False
    ec_connector: bool = False
    groups: tuple[Group, ...] = ()
    prefix_cache_retention_interval: Count | None = None
    kv_connector: Literal["recompute", "fail"] | None = None
    one_text: bool = False


class ManagerHeader(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth", tag="manager"
):
    """The first line of a trace for a manager alone."""

    schema: int
    manager: Literal["encoder_cache", "encoder_decoder"]
    config: ManagerConfig
    seed: int | None = None
    generator: Name | None = None


class SchedulerHeader(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth", tag="scheduler"
):
    """The first line of a trace for a real scheduler."""

    schema: int
    manager: Literal["encoder_cache", "encoder_decoder"]
    config: SchedulerConfig
    seed: int | None = None
    generator: Name | None = None


EngineModel = Literal["llava", "qwen2_5_vl", "whisper"]


class EngineConfig(SchedulerConfig, frozen=True):
    """What an engine is made with: its scheduler's configuration, which of
    `gpu_runner.tiny_models` it executes, and the share of a video's rows that is not kept."""

    model: EngineModel = "llava"
    video_pruning_rate: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0


class EngineHeader(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth", tag="engine"
):
    """The first line of a trace for an engine, which executes what its scheduler decides."""

    schema: int
    manager: Literal["encoder_cache", "encoder_decoder"]
    config: EngineConfig
    seed: int | None = None
    generator: Name | None = None


class BlockHashConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How keys are made: tokens a block, tokens after it that its key covers, and the function."""

    block_size: Size
    lookahead: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    algorithm: Algorithm = "sha256"


class BlockHashHeader(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth", tag="block_hash"
):
    """The first line of a trace for block keys."""

    schema: int
    config: BlockHashConfig
    manager: Literal["block_hash"] = "block_hash"
    seed: int | None = None
    generator: Name | None = None


class MediaHashConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the hasher digests with."""

    algorithm: MediaAlgorithm = "blake3"


class MediaHashHeader(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth", tag="media_hash"
):
    """The first line of a trace for the media hash."""

    schema: int
    config: MediaHashConfig
    manager: Literal["media_hash"] = "media_hash"
    seed: int | None = None
    generator: Name | None = None


class KVCacheConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a KV cache manager is made with, the null block among `num_blocks`. Where no group has
    a drafter's layers, a drafter (`use_eagle`) reads all of them."""

    num_blocks: Annotated[int, msgspec.Meta(ge=2, le=MAX_BLOCKS)]
    groups: Annotated[tuple[KVCacheGroup, ...], msgspec.Meta(min_length=1)]
    max_model_len: Size
    max_in_flight_tokens: Size
    enable_caching: bool = True
    use_eagle: bool = False
    kv_events: bool = False
    watermark: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    async_scheduling: bool = False


class KVCacheHeader(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth", tag="kv_cache"
):
    """The first line of a trace for a KV cache manager."""

    schema: int
    config: KVCacheConfig
    manager: Literal["kv_cache"] = "kv_cache"
    seed: int | None = None
    generator: Name | None = None


Header = (
    ManagerHeader
    | SchedulerHeader
    | EngineHeader
    | BlockHashHeader
    | MediaHashHeader
    | KVCacheHeader
)


ModelRunner = Literal["first", "second"]
"""What executes steps on a GPU: vLLM has had two since 0.12.0."""


class Trace(msgspec.Struct, frozen=True):
    """One configuration and the events to run under it."""

    header: Header
    events: tuple[AnyEvent, ...]

    @property
    def depth(self) -> str:
        """How the target is driven: one of `EVENTS_OF_DEPTH`."""
        return depth_of(self.header)

    @property
    def has_scheduler(self) -> bool:
        """Whether a scheduler takes the decisions; an engine executes them as well."""
        return self.depth in SCHEDULER_DEPTHS

    @property
    def runner(self) -> ModelRunner | None:
        """The model runner of a scheduler's workers; None without a scheduler."""
        if not isinstance(self.header.config, SchedulerConfig):
            return None
        return "second" if self.header.config.v2_model_runner else "first"

    def under_runner(self, runner: ModelRunner) -> "Trace":
        """The same events for a scheduler whose workers have that model runner."""
        config = msgspec.structs.replace(self.header.config, v2_model_runner=runner == "second")
        return Trace(msgspec.structs.replace(self.header, config=config), self.events)

    def with_events(self, events: Iterable[AnyEvent]) -> "Trace":
        """The same configuration with other events."""
        return Trace(self.header, tuple(events))


def depth_of(header: Header) -> str:
    """The tag of a header."""
    return str(type(header).__struct_config__.tag)


class _Schema(msgspec.Struct):
    """The one field that every version of the header has."""

    schema: int


_SCHEMA = msgspec.json.Decoder(_Schema)
_HEADER = msgspec.json.Decoder(Header)
_EVENT = msgspec.json.Decoder(AnyEvent)
_ENCODER = msgspec.json.Encoder()


def dump(trace: Trace) -> str:
    """The trace as JSON Lines."""
    lines = [_ENCODER.encode(trace.header), *(_ENCODER.encode(event) for event in trace.events)]
    return b"\n".join(lines).decode() + "\n"


def parse(lines: Iterable[bytes], source: str) -> Trace:
    """Read a trace from its lines.

    Raises:
        InputError: no trace; names the source, the line, what was found there and what was
            expected.
    """
    header: Header | None = None
    events: list[AnyEvent] = []
    requests: set[str] = set()
    for number, line in enumerate(lines, start=1):
        where = f"{source} line {number}"
        if len(line) > MAX_LINE:
            raise InputError(f"{where}: {len(line)} bytes; expected at most {MAX_LINE} a line")
        if not line.strip():
            continue
        if header is None:
            header = _header(line, where)
            continue
        event = _decode(_EVENT, line, f"{where}: not an event")
        _check(event, header, requests, where)
        events.append(event)
        if len(events) > MAX_EVENTS:
            raise InputError(f"{where}: more than {MAX_EVENTS} events; expected fewer: split it")
    if header is None:
        raise InputError(
            f"{source} line 1: empty; expected a header line and then one event a line"
        )
    return Trace(header, tuple(events))


def _header(line: bytes, where: str) -> Header:
    """The header, its version first: what else stands in another version's is not its fault."""
    what = f"{where}: not a trace header"
    schema: int = _decode(_SCHEMA, line, what).schema
    if schema != SCHEMA:
        raise InputError(
            f"{where}: schema version {schema}; expected {SCHEMA}, which this cacheproof reads"
        )
    header: Header = _decode(_HEADER, line, what)
    _check_names([header.generator], where)
    return header


def _decode(decoder: Any, line: bytes, what: str) -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{what}: {reason}; expected schema {SCHEMA}, see docs/traces.md"
        ) from None


def _check(event: AnyEvent, header: Header, requests: set[str], where: str) -> None:
    depth = depth_of(header)
    kind = type(event).__struct_config__.tag
    if not isinstance(event, EVENTS_OF_DEPTH[depth]):
        kinds = ", ".join(one.__struct_config__.tag for one in EVENTS_OF_DEPTH[depth])
        raise InputError(f"{where}: event {kind!r} at {depth} depth; expected one of {kinds}")
    if isinstance(event, Hash):
        _check_value(event, where)
    _check_names([getattr(event, name, None) for name in ("request", "identifier")], where)
    if not isinstance(event, Showing):
        return
    _check_names([name for item in event.items for name in (item.identifier, item.mm_hash)], where)
    if isinstance(event, Arrival):
        if event.request in requests:
            raise InputError(
                f"{where}: request {event.request!r} is added twice; expected an id of its own"
            )
        requests.add(event.request)
    if isinstance(event, Prompt):
        _check_embeds(event, where)
    if isinstance(event, Prompt | Continue):
        prompt = len(event.tokens)
    elif isinstance(event, Arrive):
        prompt = sum(count for _, count in event.text)
    else:
        prompt = event.prompt
    if header.manager == "encoder_decoder":
        if len(event.items) != 1 or event.items[0].offset != 0:
            raise InputError(
                f"{where}: {len(event.items)} items or one that starts late; expected exactly one "
                f"item at offset 0 in an encoder-decoder request"
            )
        prompt = max(prompt, event.items[0].length)
    try:
        Request(event.request, prompt, [feature(item) for item in event.items])
    except ValueError as error:
        raise InputError(
            f"{where}: {error}; expected items in prompt order, apart from each other and within "
            f"the prompt, and a mask as long as its item"
        ) from None


def _check_value(event: Hash, where: str) -> None:
    try:
        check_call(event.value)
    except Malformed as error:
        raise InputError(f"{where}: {error}, see docs/media-hash.md") from None


def _check_embeds(event: Prompt, where: str) -> None:
    rows = event.embeds
    if rows is None:
        return
    widths = {len(row) for row in rows if row is not None}
    if len(rows) != len(event.tokens) or len(widths) != 1:
        raise InputError(
            f"{where}: {len(rows)} embeddings of {len(widths)} widths for {len(event.tokens)} "
            f"tokens; expected one row or null for each token, at least one row, all of one width"
        )
    for token, row in zip(event.tokens, rows, strict=True):
        if (token == EMBEDDED) != (row is not None):
            raise InputError(
                f"{where}: token {token} and embedding {row}; expected token {EMBEDDED} exactly "
                f"where an embedding is given"
            )


def _check_names(names: Iterable[str | None], where: str) -> None:
    """Names go into sentences of one line."""
    for name in names:
        if name is not None and not name.isprintable():
            raise InputError(f"{where}: name {name!r}; expected printable characters alone")


def feature(item: Item) -> MultiModalFeature:
    """The reference's record of an item. Raises ValueError as PlaceholderRange does."""
    position = PlaceholderRange(item.offset, item.length, item.is_embed)
    return MultiModalFeature(item.identifier, position, item.mm_hash or item.identifier)
