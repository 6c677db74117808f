"""Traces as JSON Lines: the first line is the header, each further line one event."""

from collections.abc import Iterable
from functools import lru_cache, reduce
from operator import or_
from typing import TypeVar

import msgspec

from cacheproof.differential.depths import DEPTHS, Depth
from cacheproof.differential.errors import InputError
from cacheproof.differential.media.descriptions import Malformed, check_call
from cacheproof.differential.traces.base import SCHEMA, WITH_WINDOW, Item, tag_of
from cacheproof.differential.traces.block_hash import EMBEDDED, Continue, Prompt
from cacheproof.differential.traces.engine import EngineConfig
from cacheproof.differential.traces.front_end import FrontEndConfig, Process
from cacheproof.differential.traces.kv_cache import Arrive
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.media_hash import Hash
from cacheproof.differential.traces.trace import (
    AnyEvent,
    Arrival,
    Header,
    Showing,
    Trace,
    depth_of,
)
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request

MAX_LINE = 8 * 2**20
"""Most bytes of a line."""
MAX_EVENTS = 1_000_000


class _Schema(msgspec.Struct):
    """The one field that every version of the header has."""

    schema: int


DecodedT = TypeVar("DecodedT")
_SCHEMA = msgspec.json.Decoder(_Schema)
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
    _, events_of = _decoders(*DEPTHS.values())
    for number, line in enumerate(lines, start=1):
        where = f"{source} line {number}"
        if len(line) > MAX_LINE:
            raise InputError(f"{where}: {len(line)} bytes; expected at most {MAX_LINE} a line")
        if not line.strip():
            continue
        if header is None:
            header = _header(line, where)
            continue
        event = _decode(events_of, line, f"{where}: not an event")
        _check(event, header, requests, where)
        events.append(event)
        if len(events) > MAX_EVENTS:
            raise InputError(f"{where}: more than {MAX_EVENTS} events; expected fewer: split it")
    if header is None:
        raise InputError(
            f"{source} line 1: empty; expected a header line and then one event a line"
        )
    return Trace(header, tuple(events))


@lru_cache
def _decoders(
    *depths: Depth,
) -> tuple[msgspec.json.Decoder[Header], msgspec.json.Decoder[AnyEvent]]:
    """The decoders of headers, and of events, of these depths."""
    events = {event: None for depth in depths for event in depth.events}
    return (
        msgspec.json.Decoder(reduce(or_, (depth.header for depth in depths))),
        msgspec.json.Decoder(reduce(or_, events)),
    )


def _header(line: bytes, where: str) -> Header:
    """The header, its version first: what else stands in another version's is not its fault."""
    what = f"{where}: not a trace header"
    schema: int = _decode(_SCHEMA, line, what).schema
    if schema != SCHEMA:
        raise InputError(
            f"{where}: schema version {schema}; expected {SCHEMA}, which this cacheproof reads"
        )
    header: Header = _decode(_decoders(*DEPTHS.values())[0], line, what)
    _check_names([header.generator], where)
    for number, group in enumerate(getattr(header.config, "groups", ())):
        if group.kind in WITH_WINDOW and group.window == 0:
            raise InputError(
                f"{where}: group {number} is {group.kind} with a window of 0 tokens; expected at "
                f"least 1"
            )
    return header


def _decode(decoder: msgspec.json.Decoder[DecodedT], line: bytes, what: str) -> DecodedT:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{what}: {reason}; expected schema {SCHEMA}, see docs/reference/traces.md"
        ) from None


def _check(event: AnyEvent, header: Header, requests: set[str], where: str) -> None:
    depth = depth_of(header)
    kind = tag_of(type(event))
    if not isinstance(event, DEPTHS[depth].events):
        kinds = ", ".join(map(tag_of, DEPTHS[depth].events))
        raise InputError(f"{where}: event {kind!r} at {depth} depth; expected one of {kinds}")
    if isinstance(event, Hash):
        _check_value(event, where)
    if isinstance(event, Process):
        _check_given(event, header, where)
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
    if isinstance(event, Add) and event.embeds is not None:
        _check_rows(event, header, where)
    if isinstance(event, Prompt | Continue):
        prompt = len(event.tokens)
    elif isinstance(event, Arrive):
        prompt = sum(count for _, count in event.text)
    else:
        prompt = event.prompt
    if header.manager == "encoder_decoder":
        count = len(event.items)
        is_one = count == 1 or (count > 1 and not DEPTHS[depth].has_scheduler)
        if not is_one or event.items[0].offset != 0:
            raise InputError(
                f"{where}: {count} items or one that starts late; expected exactly one item at "
                f"offset 0 in an encoder-decoder request, at manager depth at least one"
            )
        prompt = max(prompt, event.items[-1].offset + event.items[-1].length)
    try:
        Request(event.request, prompt, [feature(item) for item in event.items])
    except ValueError as error:
        raise InputError(
            f"{where}: {error}; expected items in prompt order, apart from each other and within "
            f"the prompt, and a mask as long as its item"
        ) from None


def _check_given(event: Process, header: Header, where: str) -> None:
    assert isinstance(header.config, FrontEndConfig)
    contents = {item.name: len(item.sizes) for item in header.config.items}
    for item in event.items:
        if item.content >= contents.get(item.name, 0):
            raise InputError(
                f"{where}: item {item.name!r} with content {item.content}; expected an item of the "
                f"header, and as many contents as it has sizes there"
            )


def _check_value(event: Hash, where: str) -> None:
    try:
        check_call(event.value)
    except Malformed as error:
        raise InputError(f"{where}: {error}, see docs/explain/media-hash.md") from None


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


def _check_rows(event: Add, header: Header, where: str) -> None:
    rows = event.embeds or ()
    config = header.config
    takes = isinstance(config, EngineConfig) and config.prompt_embeds
    if not takes or header.manager == "encoder_decoder" or event.items or not rows:
        raise InputError(
            f"{where}: {len(rows)} embeds beside {len(event.items)} items; expected some and no "
            f"items, at engine depth, of a decoder-only engine that takes prompt_embeds"
        )
    _check_names([one.identifier for one in rows], where)
    ends = (0, *(one.offset + one.length for one in rows))
    starts = (*(one.offset for one in rows), event.prompt)
    if any(end > start for end, start in zip(ends, starts, strict=True)):
        raise InputError(
            f"{where}: embeds at {list(starts[:-1])} that end at {list(ends[1:])}; expected them "
            f"in prompt order, apart from each other and within the prompt of {event.prompt} tokens"
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
