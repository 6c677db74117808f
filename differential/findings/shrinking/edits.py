"""What may be tried to make a trace smaller, and what makes one trace smaller than another.

Every function takes a trace and returns other traces, or None in the place of one that would not be
legal. None of them knows what a failure is.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import msgspec

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.shrinking.fields import extras_of, fields_of, measure
from cacheproof.differential.traces.base import Item, Rows, tag_of
from cacheproof.differential.traces.encoder_connector import EncoderConnectorConfig
from cacheproof.differential.traces.manager import (
    Add,
    Finish,
    ManagerConfig,
    Preempt,
    Stall,
    Update,
    Walk,
)
from cacheproof.differential.traces.scheduler import Schedule, SchedulerConfig, SchedulerHeader
from cacheproof.differential.traces.trace import AnyEvent, Arrival, Showing, Trace
from cacheproof.differential.traces.trace_file import parse

Lines = dict[str, Any]
Edit = Callable[[Lines], object]
Path = tuple[str | int, ...]
"""Names and numbers on the way to a value, in a trace as plain objects."""

Cost = tuple[int, int, int, int, int, int, tuple[int, ...]]
"""What shrinking lowers, in order of weight."""

# Up to w: x, y and z are the first names of identifiers.
REQUEST_NAMES = "abcdefghijklmnopqrstuvw"
IDENTIFIER_NAMES = "xyzuvw"
PLAIN_NAMES = "abcdefghi"
"""Names that a stored item is given when its own does not matter."""
_TOKENS_MAX = 16
_FACTORS = (2, 3, 4)
_CHANGES = (1, 2, 3, 4, 6)


def cost(trace: Trace) -> Cost:
    """How much there is in a trace."""
    holders = (trace.header.config, *trace.events)
    listed, extras, numbers = map(sum, zip(*map(measure, holders), strict=True))
    return (
        len(trace.events),
        sum(isinstance(event, Arrival) for event in trace.events),
        listed,
        extras,
        len(lengths(trace)) + len(engines(trace)),
        numbers + sum(len(name) + (name not in PLAIN_NAMES) for name in _stored(trace)),
        tuple(_rank(trace, event) for event in trace.events),
    )


def _stored(trace: Trace) -> list[str]:
    """The identifiers of a trace's stored items; a connector makes paths of them."""
    config = trace.header.config
    if isinstance(config, EncoderConnectorConfig):
        return [item.identifier for item in config.items]
    return []


def _rank(trace: Trace, event: AnyEvent) -> int:
    """The place where an event is expected: kinds come in the order in which its depth names
    them."""
    return DEPTHS[trace.depth].events.index(type(event))


def shape(trace: Trace) -> str:
    """A trace without its numbers: kinds of events, requests and identifiers, renamed in order."""
    requests = numbered(request_names(trace), REQUEST_NAMES)
    identifiers = numbered(list(lengths(trace)), IDENTIFIER_NAMES)
    words: list[str] = [trace.header.manager]
    for event in trace.events:
        word = kind(event)
        if (request := getattr(event, "request", None)) is not None:
            # An event may name a request that never arrives.
            word += f" {requests.get(request, '?')}"
        if isinstance(event, Showing):
            word += f"[{' '.join(identifiers[item.identifier] for item in event.items)}]"
        words.append(word)
    return "; ".join(words)


def without(trace: Trace, positions: frozenset[int]) -> Trace | None:
    """The trace without the events at these positions, and without all events of a request that
    they add; None if that is no event fewer, or all."""
    gone = {
        event.request
        for number, event in enumerate(trace.events)
        if number in positions and isinstance(event, Arrival)
    }
    kept = [
        event
        for number, event in enumerate(trace.events)
        if number not in positions and getattr(event, "request", None) not in gone
    ]
    return trace.with_events(kept) if 0 < len(kept) < len(trace.events) else None


def dropped_and_changed(trace: Trace) -> Iterator[Trace | None]:
    """Traces without one event, in which another event has another number or ends its request."""
    if not isinstance(trace.header.config, ManagerConfig | SchedulerConfig):
        return
    paths: list[Path] = [("header", "config", "capacity")]
    for position, event in enumerate(trace.events):
        if hasattr(event, "tokens"):
            paths.append(("events", position, "tokens"))
    paths += [("events", event, "items", number, "length") for event, number in item_sites(trace)]
    for position in range(len(trace.events)):
        for path in paths:
            for value in _CHANGES:
                rest = edited(trace, put(path, value))
                yield rest and without(rest, frozenset((position,)))
        for other, event in enumerate(trace.events):
            if trace.depth == "manager" and isinstance(event, Walk | Stall | Preempt):
                rest = trace.with_events(
                    (*trace.events[:other], Finish(event.request), *trace.events[other + 1 :])
                )
                yield without(rest, frozenset((position,)))


def fewer_steps(trace: Trace) -> Iterator[Trace | None]:
    """Traces of a scheduler with larger steps and fewer of them, or with less to do."""
    if not isinstance(trace.header, SchedulerHeader):
        return
    steps = [
        frozenset((number, number + 1))
        for number, (one, next_one) in enumerate(pairwise(trace.events))
        # Steps that overlap others cannot go without these.
        if isinstance(one, Schedule) and isinstance(next_one, Update)
    ]
    for factor in _FACTORS:
        for larger in _larger_steps(trace, factor):
            # The fault may need any one of each `factor` steps.
            for phase in range(factor):
                kept = range(phase, len(steps), factor)
                gone = [step for number, step in enumerate(steps) if number not in kept]
                yield larger and without(larger, frozenset().union(*gone))
    for position, event in enumerate(trace.events):
        for prompt in lower_values(event.prompt, 1) if isinstance(event, Add) else ():
            shorter = edited(trace, put(("events", position, "prompt"), prompt))
            for step in steps:
                yield shorter and without(shorter, step)


def _larger_steps(trace: Trace, factor: int) -> Iterator[Trace | None]:
    """Traces with a step's token budgets times `factor`, and with about as many KV blocks."""
    config = msgspec.structs.asdict(trace.header.config)
    budget, threshold = (
        put(("header", "config", name), factor * config[name])
        for name in ("max_num_batched_tokens", "long_prefill_token_threshold")
    )
    no_threshold = put(("header", "config", "long_prefill_token_threshold"), 0)
    for blocks in range(config["num_blocks"] + 1, config["num_blocks"] - 4, -1):
        memory = put(("header", "config", "num_blocks"), blocks)
        for edits in ((budget, threshold), (budget,), (threshold,), (budget, no_threshold)):
            yield edited(trace, memory, *edits)


def merged_walks(trace: Trace) -> Iterator[Trace | None]:
    """Traces with one walk of as many tokens in the place of two walks of a request."""
    walks = [number for number, event in enumerate(trace.events) if isinstance(event, Walk)]
    for first, second in combinations(walks, 2):
        one, two = trace.events[first], trace.events[second]
        assert isinstance(one, Walk)
        assert isinstance(two, Walk)
        if one.request == two.request:
            tokens = one.tokens + two.tokens
            for stays, goes in ((first, second), (second, first)):
                longer = put(("events", stays, "tokens"), tokens)
                yield edited(trace, longer, _remove_event(goes))


def merged_requests(trace: Trace) -> Iterator[Trace | None]:
    """Traces with one request in the place of two, with the items and events of both. A decoder
    with one item, as models have them, keeps to one."""
    items = {
        number: len(event.items)
        for number, event in enumerate(trace.events)
        if isinstance(event, Add)
    }
    keeps_one = trace.header.manager == "encoder_decoder" and max(items.values(), default=0) < 2
    for first, second in combinations(items, 2):
        if not (keeps_one and items[first] and items[second]):
            yield edited(trace, _merge_requests(first, second))


def _merge_requests(first: int, second: int) -> Edit:
    def edit(lines: Lines) -> None:
        events = lines["events"]
        one, two = events[first], events.pop(second)
        for item in two["items"]:
            item["offset"] += one["prompt"]
        one["items"] += two["items"]
        one["prompt"] += two["prompt"]
        for event in events:
            if event.get("request") == two["request"]:
                event["request"] = one["request"]

    return edit


def plainer_kinds(trace: Trace) -> Iterator[Trace | None]:
    """Traces with an event of a kind that needs less explaining, about the same request."""
    # Elsewhere no event preempts or stalls: the scheduler decides on that.
    if trace.depth != "manager":
        return
    for position, event in enumerate(trace.events):
        if isinstance(event, Preempt | Stall):
            finish = Finish(event.request)
            yield trace.with_events(
                (*trace.events[:position], finish, *trace.events[position + 1 :])
            )
        if isinstance(event, Stall):
            yield edited(trace, put(("events", position, "event"), "walk"))


def simpler_items(trace: Trace) -> Iterator[Trace | None]:
    for position, number in item_sites(trace):
        path = ("events", position, "items", number)
        item = at(as_lines(trace), path)
        if embeds := sum(item["is_embed"] or ()):
            # As long as its embeddings, so that it takes as much of the cache as before.
            dense = put((*path, "is_embed"), None)
            yield edited(trace, dense, put((*path, "length"), embeds))
    for one, two in combinations(lengths(trace), 2):
        yield edited(trace, rename("identifier", {two: one}))


def scaled(trace: Trace) -> Iterator[Trace | None]:
    """Every item at most `length` long, in a cache of `capacity`: their ratio often matters."""
    if not isinstance(trace.header.config, ManagerConfig | SchedulerConfig):
        return
    for length in (1, 2, 3):
        for capacity in range(length, min(12, trace.header.config.capacity) + 1):
            fit = (
                cap_length(length),
                put(("header", "config", "capacity"), capacity),
            )
            for also in ((), (close_gaps,)):
                yield edited(trace, *fit, *also)


def plainer(trace: Trace) -> Iterator[Trace | None]:
    """Traces with the default in the place of what has one: everywhere, in one field of all that
    have it, or in one place."""
    sites = [
        ((*path, name), (type(holder), name), plain)
        for path, holder in holders(trace)
        for name, plain in extras_of(holder).items()
    ]
    alike: dict[tuple[type, str], list[Edit]] = {}
    for path, field, plain in sites:
        alike.setdefault(field, []).append(put(path, plain))
    yield edited(trace, *(edit for edits in alike.values() for edit in edits))
    for edits in alike.values():
        yield edited(trace, *edits)
        if len(edits) > 1:
            yield from (edited(trace, edit) for edit in edits)


def holders(trace: Trace) -> Iterator[tuple[Path, msgspec.Struct]]:
    """The configuration and each event with its path, and what they hold that has fields."""
    yield from _held(("header", "config"), trace.header.config)
    for position, event in enumerate(trace.events):
        yield from _held(("events", position), event)


def _held(path: Path, holder: msgspec.Struct) -> Iterator[tuple[Path, msgspec.Struct]]:
    yield path, holder
    for field in fields_of(type(holder)):
        value = getattr(holder, field.name)
        if isinstance(value, msgspec.Struct):
            yield from _held((*path, field.name), value)
        elif field.holds == "structs":
            for number, part in enumerate(value or ()):
                yield from _held((*path, field.name, number), part)


def elements(trace: Trace) -> Iterator[Path]:
    """What can be taken out of a list: its path."""
    for path, holder in holders(trace):
        for field in fields_of(type(holder)):
            if field.holds in ("structs", "names", "numbers"):
                for number in range(len(getattr(holder, field.name) or ())):
                    yield (*path, field.name, number)


def lower(trace: Trace) -> Iterator[tuple[Path, Sequence[object]]]:
    """Each number that is not content, and each choice: its path, and lower ones in its place."""
    for path, holder in holders(trace):
        for field in fields_of(type(holder)):
            at_field, value = (*path, field.name), getattr(holder, field.name)
            if field.choices:
                yield at_field, field.choices[: field.choices.index(value)]
            elif field.lowest is not None and value is not None:
                yield at_field, lower_values(value, field.lowest)
            elif field.holds == "numbers":
                for number, part in enumerate(value):
                    yield (*at_field, number), lower_values(part, 0)


def closed(trace: Trace) -> Iterator[Trace | None]:
    """Traces without gaps between items, and with one walk shortened to fit."""
    for position, event in enumerate(trace.events):
        if isinstance(event, Walk | Stall):
            for tokens in range(1, min(event.tokens, _TOKENS_MAX) + 1):
                yield edited(trace, close_gaps, put(("events", position, "tokens"), tokens))


def edited(trace: Trace, *edits: Edit) -> Trace | None:
    """The trace after the edits; None when that is no trace."""
    lines = as_lines(trace)
    for edit in edits:
        edit(lines)
    try:
        return parse(map(msgspec.json.encode, [lines["header"], *lines["events"]]), "candidate")
    except InputError:
        return None


# edits of a trace as plain objects


def put(path: Path, value: object) -> Edit:
    return lambda lines: at(lines, path[:-1]).__setitem__(path[-1], value)


def remove(path: Path) -> Edit:
    return lambda lines: at(lines, path[:-1]).pop(path[-1])


def _remove_event(position: int) -> Edit:
    return lambda lines: lines["events"].pop(position)


def cap_length(length: int, identifier: str | None = None) -> Edit:
    def edit(lines: Lines) -> None:
        for event in lines["events"]:
            for item in _pieces(event):
                if identifier in (None, item["identifier"]):
                    item["length"] = min(item["length"], length)
                    if item.get("is_embed") is not None:
                        item["is_embed"] = item["is_embed"][:length]

    return edit


def close_gaps(lines: Lines) -> None:
    """Items follow each other from the first token on, and the prompt ends with the last."""
    for event in lines["events"]:
        end = 0
        for item in event.get("items", ()):
            item["offset"], end = end, end + item["length"]
        if end and "prompt" in event:
            event["prompt"] = min(event["prompt"], end)


def rename(field: str, names: dict[str, str]) -> Edit:
    def edit(lines: Lines) -> None:
        for event in lines["events"]:
            for holder in (event, *_pieces(event)):
                if field in holder:
                    holder[field] = names.get(holder[field], holder[field])

    return edit


def _pieces(event: Lines) -> list[Lines]:
    """What an event shows under an identifier: items, and rows that stand for tokens."""
    shown = (*event.get("items", ()), *(event.get("embeds") or ()))
    return [piece for piece in shown if isinstance(piece, dict)]


# looking at a trace


def as_lines(trace: Trace) -> Lines:
    """The trace as plain objects, free to be changed."""
    lines: Lines = msgspec.json.decode(msgspec.json.encode(trace))
    return lines


def kind(event: AnyEvent) -> str:
    return tag_of(type(event))


def request_names(trace: Trace) -> list[str]:
    return [event.request for event in trace.events if isinstance(event, Arrival)]


def lengths(trace: Trace) -> dict[str, int]:
    """The identifiers of what requests show, in order, and how long the longest of each is."""
    longest: dict[str, int] = {}
    for event in trace.events:
        rows: tuple[Rows, ...] = (event.embeds or ()) if isinstance(event, Add) else ()
        pieces: tuple[Item | Rows, ...] = (
            (*event.items, *rows) if isinstance(event, Showing) else ()
        )
        for piece in pieces:
            # An identifier may come back with another length, as a reused media id does.
            longest[piece.identifier] = max(piece.length, longest.get(piece.identifier, 0))
    return longest


def engines(trace: Trace) -> list[str]:
    """The engines that a trace for connectors names, in order."""
    named = (getattr(event, "engine", None) for event in trace.events)
    return list(dict.fromkeys(name for name in named if name is not None))


def item_sites(trace: Trace) -> list[tuple[int, int]]:
    """The places of all items: position of the event, and number of the item in it."""
    return [
        (position, number)
        for position, event in enumerate(trace.events)
        if isinstance(event, Showing)
        for number in range(len(event.items))
    ]


def numbered(names: Sequence[str], alphabet: str) -> dict[str, str]:
    """a, b, c, ... for names in order; after the alphabet a1, b1, ..."""
    rounds = [divmod(number, len(alphabet)) for number in range(len(names))]
    return {
        name: alphabet[letter] + (str(lap) if lap else "")
        for name, (lap, letter) in zip(names, rounds, strict=True)
    }


def at(lines: Any, path: Path) -> Any:
    for key in path:
        lines = lines[key]
    return lines


def lower_values(value: int, lowest: int) -> list[int]:
    """Values below `value`: the lowest, then upward in doubling steps, then one less."""
    lower = [lowest]
    step = 1
    while lowest + step < value:
        lower.append(lowest + step)
        # Doubling, so that a large range makes few candidates.
        step *= 2
    return list(dict.fromkeys(v for v in (*lower, value - 1) if lowest <= v < value))
