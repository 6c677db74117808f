"""From a seed to a trace of KV cache events, biased to what is rare.

That is a pool nearly empty, a hit of a free block, one hash on two blocks, a look-ahead that is
rejected, a load that fails.

The same seed gives the same trace. The generator follows the requests only roughly; what turns out
not to be possible is a no-op of the session.
"""

import random
from typing import Any

import msgspec

from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.kv_cache import KVCacheConfig, KVCacheHeader
from cacheproof.differential.traces.outcomes import KVGroupConfig
from cacheproof.differential.traces.trace import AnyEvent, Trace

GENERATOR = "kv-cache-4"
_STREAM = "kv-cache-3"
"""Source of what is drawn first of a seed: traces stay those of that generator, but for what was
added since."""
EVENTS_PER_TRACE = 250
EVENTS_OF_A_LANE = 100
LIVE_MAX = 6
# More tokens than any text has.
WHOLE = 10_000
# Longer than any text, so that texts of two families, and ends of their own, share no token.
_FAMILY_TOKENS = 1_000
_TAIL_FIRST = 50_000

_DRAFTERS = "kv-cache-drafters-1"
_SHAPES_OF_DRAFTERS = (
    "full",
    "window",
    "coarse full and window",
    "full and coarse window",
    "two windows",
    "full and two windows",
    "two full and window",
)

Event = dict[str, Any]
Groups = list[KVGroupConfig]

_WEIGHTS = {
    "slots": 40,
    "output": 26,
    "arrive": 8,
    "end": 5,
    "preempt": 4,
    "loaded": 3,
    "settle": 3,
    "skip": 3,
    "take_events": 3,
    "evict_blocks": 2,
    "common_prefix": 2,
    "take_stats": 1,
    "take_residencies": 1,
    "drain": 1,
    "reset_prefix": 1,
}


def generate(
    seed: int, events: int = EVENTS_PER_TRACE, shape: str | None = None
) -> tuple[Event, list[Event]]:
    """The configuration and the events of that seed; `shape` names the groups, any by default."""
    rng = random.Random(f"{_STREAM}:{seed}")
    config = _config(rng, shape)
    written = _Writer(rng, config).write(events)
    # From another stream, so that older traces stay as they were.
    _mark(random.Random(f"{GENERATOR}:{seed}"), config, written)
    return config, written


def kv_cache_trace(seed: int, shape: str | None = None) -> Trace:
    """The trace of a seed, shorter than by default: a search has many."""
    config, events = generate(seed, EVENTS_OF_A_LANE, shape)
    header = KVCacheHeader(
        SCHEMA, msgspec.convert(config, KVCacheConfig), seed=seed, generator=GENERATOR
    )
    return Trace(header, tuple(msgspec.convert(events, list[AnyEvent])))


def drafted_kv_cache_trace(seed: int) -> Trace:
    """The trace of a seed beside a drafter, which reads all groups or some of them alone; blocks
    are mostly of two sizes, and prompts long enough for several of the larger."""
    rng = random.Random(f"{_DRAFTERS}:{seed}")
    config = _config(rng, rng.choice(_SHAPES_OF_DRAFTERS))
    config |= {"enable_caching": True, "use_eagle": True, "max_model_len": rng.choice((48, 96))}
    groups = config["groups"]
    if len(groups) > 1 and rng.random() < 0.5:
        for group in rng.sample(groups, rng.randint(1, len(groups) - 1)):
            group["has_drafter"] = True
    events = _Writer(rng, config).write(EVENTS_OF_A_LANE)
    header = KVCacheHeader(
        SCHEMA, msgspec.convert(config, KVCacheConfig), seed=seed, generator=_DRAFTERS
    )
    return Trace(header, tuple(msgspec.convert(events, list[AnyEvent])))


def _config(rng: random.Random, shape: str | None) -> Event:
    enable_caching = rng.random() < 0.85 and shape != "cross"
    groups = _groups(rng, enable_caching, shape)
    # No release has a drafter beside chunks.
    use_eagle = rng.random() < 0.15 and all(group["kind"] != "chunked_local" for group in groups)
    return {
        "num_blocks": rng.choice((4, 6, 8, 12, 16, 24, 40, 64)) * max(1, len(groups) - 1),
        "groups": groups,
        "max_model_len": rng.choice((24, 48, 96)),
        "max_in_flight_tokens": rng.choice((4, 16, 96)),
        "enable_caching": enable_caching,
        "use_eagle": use_eagle,
        "kv_events": rng.random() < 0.8,
        "watermark": rng.choice((0.0, 0.0, 0.0, 0.1, 0.3)),
        "async_scheduling": rng.random() < 0.4,
    }


def _mark(rng: random.Random, config: Event, events: list[Event]) -> None:
    """Give some traces a drafter that reads some groups alone, and some requests a session."""
    groups = config["groups"]
    if config["use_eagle"] and len(groups) > 1 and rng.random() < 0.6:
        for group in rng.sample(groups, rng.randint(1, len(groups) - 1)):
            group["has_drafter"] = True
    for event in events:
        if event["event"] == "arrive" and rng.random() < 0.1:
            event["session"] = rng.choice(("u1", "u2"))


def _groups(rng: random.Random, enable_caching: bool, shape: str | None) -> Groups:
    size = rng.choice((1, 2, 3, 4))
    coarse = size * rng.choice((2, 2, 3, 4))

    def group(kind: str, block_size: int) -> KVGroupConfig:
        window = 0
        if kind == "sliding_window":
            window = rng.choice((1, 2, 3, size + 1, 2 * size, 4 * size + 1))
        elif kind == "chunked_local":
            window = rng.choice((size, 2 * size, 3 * size))
        return {"kind": kind, "block_size": block_size, "window": window, "has_drafter": False}

    shapes = {
        "full": [("full", size)],
        "window": [("sliding_window", size)],
        "chunked": [("chunked_local", size)],
        "full and window": [("full", size), ("sliding_window", size)],
        "coarse full and window": [("full", coarse), ("sliding_window", size)],
        "full and coarse window": [("full", size), ("sliding_window", coarse)],
        "two windows": [("sliding_window", size), ("sliding_window", coarse)],
        "full and two windows": [
            ("full", coarse),
            ("sliding_window", size),
            ("sliding_window", coarse),
        ],
        "two full and window": [("full", size), ("sliding_window", size), ("full", size)],
        "full and chunked": [("full", size), ("chunked_local", size)],
        "equal": [("full", size), ("full", size)],
    }
    # No release caches prefixes beside cross-attention.
    if not enable_caching:
        shapes["cross"] = [("full", size), ("cross", coarse)]
    weights = [4 if name == "full" else 1 if name == "equal" else 2 for name in shapes]
    drawn = rng.choices(list(shapes), weights)[0]
    return [group(kind, block_size) for kind, block_size in shapes[shape or drawn]]


class _Writer:
    """Writes one trace; `_live` has the requests that it believes to be there."""

    def __init__(self, rng: random.Random, config: Event) -> None:
        self._rng = rng
        self._config = config
        self._sizes = [group["block_size"] for group in config["groups"]]
        self._uses_drafts = rng.random() < 0.4
        self._loads = rng.random() < 0.4
        self._cross = any(group["kind"] == "cross" for group in config["groups"])
        self._live: list[str] = []
        self._count = 0
        self._events: list[Event] = []

    def write(self, count: int) -> list[Event]:
        kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
        while len(self._events) < count:
            kind = self._rng.choices(kinds, weights)[0]
            if not self._live or (kind == "arrive" and len(self._live) >= LIVE_MAX):
                kind = "slots" if self._live else "arrive"
            getattr(self, f"_{kind}")()
        # The last draw may have written more events than one.
        return self._events[:count]

    def _add(self, kind: str, **fields: Any) -> None:
        self._events.append({"event": kind, **fields})

    def _pick(self) -> str:
        return self._rng.choice(self._live)

    def _arrive(self) -> None:
        rng = self._rng
        self._count += 1
        name = f"r{self._count}"
        text, length = self._text()
        self._live.append(name)
        self._add(
            "arrive",
            request=name,
            text=text,
            items=self._items(length),
            salt=rng.choice(("s1", "s2")) if rng.random() < 0.05 else None,
            lora=_adapter(rng.choice("xy")) if rng.random() < 0.05 else None,
            skip_reading=rng.random() < 0.04,
            session=None,
        )
        if rng.random() < 0.8:
            self._slots(name)

    def _text(self) -> tuple[list[list[int]], int]:
        """Runs of the start of one of a few texts, at times with an end of its own; and its
        length."""
        rng = self._rng
        # A prompt is shorter than what the model takes.
        most = self._config["max_model_len"] - 1
        shared = min(most, rng.choice((1, *self._sizes)) * rng.randint(0, 8) + rng.randint(0, 2))
        tail = rng.randint(0, 6) if rng.random() < 0.4 else 0
        tail = min(max(tail, 0 if shared else 1), most - shared) if shared < most else 0
        runs = []
        if shared:
            runs.append([rng.choice((0, 0, 0, 1, 2)) * _FAMILY_TOKENS, shared])
        if tail:
            runs.append([_TAIL_FIRST + rng.randint(0, 2) * 100, tail])
        return runs, shared + tail

    def _items(self, length: int) -> list[Event]:
        """At times media, at offsets and with identifiers that repeat between requests."""
        rng = self._rng
        items: list[Event] = []
        offset = rng.randint(0, 3)
        while rng.random() < 0.15 and offset < length:
            size = rng.randint(1, min(5, length - offset))
            items.append({"identifier": rng.choice("mnp"), "offset": offset, "length": size})
            offset += size + rng.randint(0, 2)
        return items

    def _slots(self, name: str | None = None) -> None:
        rng = self._rng
        name = name or self._pick()
        size = rng.choice(self._sizes)
        external = 0
        if self._loads and rng.random() < 0.6:
            external = rng.choice((1, 1, 2, 3, 6)) * size
        delay = rng.random() < 0.5
        self._add(
            "slots",
            request=name,
            tokens=rng.choice((WHOLE, WHOLE, 1, size, 2 * size + 1, rng.randint(1, 12))),
            drafts=rng.randint(0, 4) if self._uses_drafts else 0,
            lookahead=rng.randint(0, 4) if self._uses_drafts else 0,
            external=external,
            delay=delay,
            encoder=rng.randint(1, 3 * size) if self._cross else 0,
            must_fit=rng.random() < 0.2,
            reserved=rng.randint(1, 3) if rng.random() < 0.1 else 0,
            others=rng.random() < 0.7,
        )
        if external and delay and rng.random() < 0.5:
            self._loaded(name)

    def _output(self) -> None:
        """A step's output, mostly with the text that others decode too, so that decoded blocks are
        shared."""
        rng = self._rng
        first = None if rng.random() < 0.7 else _TAIL_FIRST + rng.randint(0, 2) * 100
        name = self._pick()
        self._add("output", request=name, accepted=rng.randint(0, 3), first=first)
        if rng.random() < 0.7:
            self._slots(name)

    def _loaded(self, name: str | None = None) -> None:
        valid = WHOLE if self._rng.random() < 0.6 else self._rng.randint(0, 12)
        self._add("loaded", request=name or self._pick(), valid=valid)

    def _preempt(self) -> None:
        name = self._pick()
        self._add("preempt", request=name)
        if self._rng.random() < 0.5:
            self._slots(name)

    def _end(self, name: str | None = None) -> None:
        name = name or self._pick()
        self._live.remove(name)
        self._add("end", request=name, defer=self._rng.random() < 0.3)

    def _settle(self) -> None:
        self._add("settle")

    def _skip(self) -> None:
        self._add("skip", request=self._pick())

    def _evict_blocks(self) -> None:
        count = self._rng.randint(1, 4)
        blocks = {self._rng.randrange(1, self._config["num_blocks"]) for _ in range(count)}
        self._add("evict_blocks", blocks=sorted(blocks))

    def _common_prefix(self) -> None:
        self._add("common_prefix", request=self._pick())

    def _take_events(self) -> None:
        self._add("take_events")

    def _take_stats(self) -> None:
        self._add("take_stats")

    def _take_residencies(self) -> None:
        self._add("take_residencies")

    def _reset_prefix(self) -> None:
        self._add("reset_prefix")

    def _drain(self) -> None:
        """End everything; then reset the prefix cache, or leave it for the next request to hit."""
        for name in list(self._live):
            self._end(name)
        # As many frees as these ends may have put off.
        for _ in range(LIVE_MAX):
            self._settle()
        if self._rng.random() < 0.5:
            self._reset_prefix()


def _adapter(name: str) -> Event:
    return {"lora_name": name, "lora_int_id": ord(name), "lora_path": "/none"}
