"""What may be tried to make a trace smaller, and what makes one trace smaller than another.

Every function takes a trace and returns other traces, or None in the place of one that would not be
legal. None of them knows what a failure is.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import msgspec

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.shrinking.descriptions import weight
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.block_hash import (
    BlockHashEvent,
    Prompt,
)
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorConfig,
    Forget,
    Plan,
    StoredItem,
)
from cacheproof.differential.traces.kv_cache import Arrive
from cacheproof.differential.traces.manager import (
    Add,
    Finish,
    ManagerConfig,
    Preempt,
    Stall,
    Update,
    Walk,
)
from cacheproof.differential.traces.media_hash import Hash
from cacheproof.differential.traces.scheduler import Schedule, SchedulerConfig, SchedulerHeader
from cacheproof.differential.traces.trace import AnyEvent, Arrival, Showing, Trace
from cacheproof.differential.traces.trace_file import parse

Lines = dict[str, Any]
Edit = Callable[[Lines], Any]

REQUEST_NAMES = "abcdefghijklmnopqrstuvw"
IDENTIFIER_NAMES = "xyzuvw"
PLAIN_NAMES = "abcdefghi"
"""Of stored items."""
_TOKENS_MAX = 16
_FACTORS = (2, 3, 4)
_CHANGES = (1, 2, 3, 4, 6)
_KINDS = (
    "add", "chunk", "close", "walk", "stall", "schedule", "notices", "update",
    "finish", "abort", "preempt", "release", "reset", "reset_prefix", "pause", "transfer",
    "elsewhere", "received", "sent", "prompt",
    "decode", "continue",
    "arrive", "slots", "output", "loaded", "end", "settle", "skip", "evict_blocks",
    "common_prefix", "take_events", "take_stats", "take_residencies", "hash",
    "start", "plan", "execute", "forget", "ask", "stop", "spoil", "reach", "new_weights",
)  # fmt: skip
NUMBERS = (
    "tokens", "steps", "input", "max_tokens", "priority", "prompt",
    "drafts", "lookahead", "external", "encoder", "reserved", "accepted", "valid",
    "failed", "dies_at",
)  # fmt: skip
LOWEST = {
    "input": 0, "priority": 0, "offset": 0, "long_prefill_token_threshold": 0, "lookahead": 0,
    "drafts": 0, "external": 0, "encoder": 0, "reserved": 0, "accepted": 0, "valid": 0,
    "failed": 0, "dies_at": 0,
}  # fmt: skip
EXTRAS = {
    "lora": None, "salt": None, "embeds": None, "one_object": False, "algorithm": "sha256",
    "skip_reading": False, "resumable": False, "stop_after": None, "accepts": (), "running": False,
    "long_prefill_token_threshold_adaptive": False, "max_num_active_seqs": None,
    "scheduler_reserve_full_isl": True, "watermark": 0.0, "prefill_schedule_interval": 1,
    "max_loras": 0, "drafter": False, "num_speculative_tokens": 0, "v2_model_runner": False,
    "ec_connector": False, "prefix_cache_retention_interval": None,
    "kv_connector": None, "sends": False, "later": False, "one_text": False, "session": None,
    "late": 0,
}  # fmt: skip


def cost(trace: Trace) -> tuple[Any, ...]:
    """What shrinking lowers, in order of weight."""
    adds = [event for event in trace.events if isinstance(event, Arrival)]
    items = all_items(trace)
    stored = _stored(trace)
    extras = [
        name
        for holder in (trace.header.config, *trace.events)
        for name, plain in EXTRAS.items()
        if getattr(holder, name, plain) != plain
    ]
    return (
        len(trace.events),
        len(adds),
        len(items) + _mentions(trace),
        sum(item.is_embed is not None or item.mm_hash is not None for item in items) + len(extras),
        len({item.identifier for item in items}) + len(stored),
        sum(_numbers_of(trace)),
        tuple(_rank(kind(event)) for event in trace.events),
    )


def _stored(trace: Trace) -> tuple[StoredItem, ...]:
    """The items that there are for connectors."""
    config = trace.header.config
    return config.items if isinstance(config, EncoderConnectorConfig) else ()


def _mentions(trace: Trace) -> int:
    """How often steps of engines with connectors name an item."""
    return sum(
        len(getattr(event, name, ()))
        for event in trace.events
        if isinstance(event, Plan | Forget)
        for name in ("items", "refused", "preempted", "apart")
    )


def _rank(kind: str) -> int:
    """Where kinds of events are expected; those of which nothing is said come last."""
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def shape(trace: Trace) -> str:
    """A trace without its numbers: kinds of events, requests and identifiers, renamed in order."""
    requests = numbered(request_names(trace), REQUEST_NAMES)
    identifiers = numbered(identifier_names(trace), IDENTIFIER_NAMES)
    words: list[str] = [trace.header.manager]
    for event in trace.events:
        word = kind(event)
        if (request := getattr(event, "request", None)) is not None:
            word += f" {requests.get(request, '?')}"
        if isinstance(event, Showing):
            word += f"[{' '.join(identifiers[item.identifier] for item in event.items)}]"
        words.append(word)
    return "; ".join(words)


def without(trace: Trace, positions: frozenset[int]) -> Trace | None:
    """Without the events at these positions, nor any event of a request that they add."""
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
    """Without one event, and with another number or an end of the request in another event."""
    if not isinstance(trace.header.config, ManagerConfig | SchedulerConfig):
        return
    paths: list[tuple[Any, ...]] = [("header", "config", "capacity")]
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
    """A scheduler's trace with larger steps and fewer of them, or with less to do."""
    if not isinstance(trace.header, SchedulerHeader):
        return
    steps = [
        frozenset((number, number + 1))
        for number, (one, next_one) in enumerate(pairwise(trace.events))
        if isinstance(one, Schedule) and isinstance(next_one, Update)
    ]
    for factor in _FACTORS:
        for larger in _larger_steps(trace, factor):
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
    """The token budgets of a step times `factor`, with about as many KV blocks."""
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
    """One walk of as many tokens in the place of two walks of a request."""
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
    """One request with the items of two, and their events. A decoder with one item, as models have
    them, keeps to one."""
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
    """An event of a kind that needs less explaining, about the same request."""
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
        if item["mm_hash"] is not None:
            yield edited(trace, put((*path, "mm_hash"), None))
        if item["is_embed"] is not None:
            dense = put((*path, "is_embed"), None)
            yield edited(trace, dense)
            if embeds := sum(item["is_embed"]):
                yield edited(trace, dense, put((*path, "length"), embeds))
    for one, two in combinations(identifier_names(trace), 2):
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
    """Without what few configurations and few requests have."""
    holders: list[tuple[tuple[Any, ...], Any]] = [(("header", "config"), trace.header.config)]
    holders += [(("events", position), event) for position, event in enumerate(trace.events)]
    for path, holder in holders:
        for name, plain in EXTRAS.items():
            if getattr(holder, name, plain) != plain:
                yield edited(trace, put((*path, name), plain))


def rows(event: BlockHashEvent) -> tuple[str | None, ...]:
    return (event.embeds or ()) if isinstance(event, Prompt) else ()


def closed(trace: Trace) -> Iterator[Trace | None]:
    """Items without gaps between them, and one walk shorter by so much."""
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


def put(path: tuple[Any, ...], value: Any) -> Edit:
    return lambda lines: at(lines, path[:-1]).__setitem__(path[-1], value)


def remove(path: tuple[Any, ...], number: int) -> Edit:
    return lambda lines: at(lines, path).pop(number)


def _remove_event(position: int) -> Edit:
    return lambda lines: lines["events"].pop(position)


def remove_item(position: int, number: int) -> Edit:
    return lambda lines: lines["events"][position]["items"].pop(number)


def cap_length(length: int, identifier: str | None = None) -> Edit:
    def edit(lines: Lines) -> None:
        for event in lines["events"]:
            for item in event.get("items", ()):
                if identifier in (None, item["identifier"]):
                    item["length"] = min(item["length"], length)
                    if item["is_embed"] is not None:
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
            for holder in (event, *event.get("items", ())):
                if field in holder:
                    holder[field] = names.get(holder[field], holder[field])

    return edit


# looking at a trace


def as_lines(trace: Trace) -> Lines:
    """The trace as plain objects, free to be changed."""
    lines: Lines = msgspec.json.decode(msgspec.json.encode(trace))
    return lines


def kind(event: AnyEvent) -> str:
    return tag_of(type(event))


def request_names(trace: Trace) -> list[str]:
    return [event.request for event in trace.events if isinstance(event, Arrival)]


def all_items(trace: Trace) -> list[Any]:
    return [item for event in trace.events if isinstance(event, Showing) for item in event.items]


def identifier_names(trace: Trace) -> list[str]:
    return list(dict.fromkeys(item.identifier for item in all_items(trace)))


def item_sites(trace: Trace) -> list[tuple[int, int]]:
    """Position of the event and number of the item in it."""
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


def _numbers_of(trace: Trace) -> Iterator[int]:
    config = msgspec.structs.asdict(trace.header.config)
    yield from (int(value) for value in config.values() if isinstance(value, int))
    for event in trace.events:
        if isinstance(event, Arrive):
            yield from (count for _, count in event.text)
        if isinstance(event, Hash):
            yield weight(event.value)
        if isinstance(event, BlockHashEvent):
            yield from (1 + token for token in event.tokens)
            yield from (row is None or row.strip("0") != "" for row in rows(event))
        else:
            yield from (abs(getattr(event, name, 0) or 0) for name in NUMBERS)
    for item in all_items(trace):
        yield item.offset + item.length
    for stored in _stored(trace):
        yield stored.rows + stored.gaps
        yield len(stored.identifier) + (stored.identifier not in PLAIN_NAMES)
    if isinstance(trace.header.config, EncoderConnectorConfig):
        for model in trace.header.config.models:
            yield model.row_width + (model.dtype != "float32")


def at(lines: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        lines = lines[key]
    return lines


def lower_values(value: int, lowest: int) -> list[int]:
    """Values below `value`: the lowest, then upward in doubling steps, then one less."""
    lower = [lowest]
    step = 1
    while lowest + step < value:
        lower.append(lowest + step)
        step *= 2
    return list(dict.fromkeys(v for v in (*lower, value - 1) if lowest <= v < value))
