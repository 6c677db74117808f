"""Ways to make the traces of a lane: from seeds as a search does, and by what went before.

A generator draws from named streams of random numbers. Here each draw is written down, so that a
later trace can make the same choices but for some: such a trace is legal, as all are that the
generator makes (the way of Zest, https://doi.org/10.1145/3293882.3330576).
"""

import itertools
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType, SimpleNamespace

from cacheproof.differential.generators import encoder_decoder, kv_cache, manager, scheduler
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace

SEEDS_OF_A_BASE = 100_000
FRESH = 0.5
"""The share of traces that are made without a parent."""
CANDIDATES = 8
BENT = (1 / 3, 1 / 2, 2, 3)
Draw = tuple[str, float | None]
"""The stream and what it gave; None: to be drawn anew."""
Way = Callable[[str, int], Iterator[Trace]]
"""Makes the traces of a lane, those of one base."""


class Choices(random.Random):
    """A stream that gives what it is given, then what its key makes, and writes all down."""

    def __new__(cls, *_: object) -> "Choices":
        return super().__new__(cls)

    def __init__(self, making: "Making", name: str) -> None:
        self._making = making
        self._name = name
        self._given = iter(making.given.get(name, ()))
        self._fresh = random.Random(f"{making.key}/{name}").random

    def _draw(self) -> float:
        given = next(self._given, None)
        drawn = self._fresh() if given is None else given
        self._making.made.append((self._name, drawn))
        return drawn

    def random(self) -> float:
        return self._making.bent(self._draw(), sys._getframe(1))

    def _randbelow(self, n: int) -> int:
        drawn = self._draw()
        frame = sys._getframe(1)
        while frame.f_code.co_filename == random.__file__ and frame.f_back is not None:
            frame = frame.f_back
        return int(self._making.bent(drawn, frame) * n)


class Making:
    """One trace in the making: `given` are choices by stream, `made` all that were made. A swarm
    bends some places of the generator: what is drawn there is rather small, or rather large."""

    def __init__(
        self, key: str, given: Mapping[str, Sequence[float | None]], *, swarm: bool = False
    ) -> None:
        self.key = key
        self.given = given
        self.made: list[Draw] = []
        self._swarm = swarm
        self._bends: dict[tuple[str, int, int], float] = {}
        self._streams: Counter[str] = Counter()

    def stream(self, key: object) -> Choices:
        """The stream of a key, which ends in a seed that does not matter here."""
        name = str(key).rpartition("/")[0] or str(key).rpartition(":")[0]
        self._streams[name] += 1
        return Choices(self, f"{name}#{self._streams[name]}")

    def bent(self, drawn: float, frame: FrameType) -> float:
        """What a place of the generator gets for a number."""
        if not self._swarm:
            return drawn
        place = frame.f_code.co_name, frame.f_lasti, frame.f_code.co_firstlineno
        if place not in self._bends:
            chance = random.Random(f"{self.key}/{place}")
            self._bends[place] = 1.0 if chance.random() > 0.4 else chance.choice(BENT)
        return float(drawn ** self._bends[place])

    def trace(self, lane: str) -> Trace:
        """The trace that these choices make."""
        with _streams_from(self):
            return LANES[lane].trace(0, None)


@contextmanager
def _streams_from(making: Making) -> Iterator[None]:
    """Generators draw from the streams of this making."""
    places = [(module, "Random") for module in (encoder_decoder, manager, scheduler)]
    before = [(module, name, getattr(module, name)) for module, name in places]
    before.append((kv_cache, "random", kv_cache.random))
    try:
        for module, name in places:
            setattr(module, name, making.stream)
        kv_cache.random = SimpleNamespace(Random=making.stream)  # type: ignore[assignment]
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def as_today(lane: str, base: int) -> Iterator[Trace]:
    """Traces of seeds, each by itself, as a search has them."""
    first = base * SEEDS_OF_A_BASE
    for seed in range(first, first + SEEDS_OF_A_BASE):
        yield LANES[lane].trace(seed, None)


def of_a_swarm(lane: str, base: int) -> Iterator[Trace]:
    """Each trace with its own places of the generator bent."""
    for number in range(SEEDS_OF_A_BASE):
        yield Making(f"{lane}/{base}/{number}", {}, swarm=True).trace(lane)


def by_feedback(lane: str, base: int) -> Iterator[Trace]:
    """One trace in two is a child of the shortest that met something rare, the rarer the likelier;
    a child keeps its parent's choices but for some."""
    chance = random.Random(f"guide2/{lane}/{base}")
    seen: Counter[str] = Counter()
    shortest: dict[str, tuple[int, list[Draw]]] = {}
    for number in range(SEEDS_OF_A_BASE):
        given: Mapping[str, Sequence[float | None]] = {}
        if shortest and chance.random() >= FRESH:
            names = sorted(shortest)
            rare = chance.choices(names, [1 / seen[name] for name in names])[0]
            given = child_of(shortest[rare][1], chance)
        making = Making(f"{lane}/{base}/{number}", given)
        trace = making.trace(lane)
        yield trace
        length = len(trace.events)
        for name in met_by(trace):
            seen[name] += 1
            if name not in shortest or length < shortest[name][0]:
                shortest[name] = length, making.made


def child_of(parent: Sequence[Draw], chance: random.Random) -> Mapping[str, list[float | None]]:
    """A parent's choices by stream, some of them to be drawn anew: single ones, those in a row, or
    a whole stream."""
    draws = list(parent)
    match chance.choice(("single", "row", "stream", "stream")):
        case "single":
            for _ in range(chance.choice((1, 2, 4, 8, 16))):
                place = chance.randrange(len(draws))
                draws[place] = draws[place][0], None
        case "row":
            first = chance.randrange(len(draws))
            row = slice(first, first + chance.choice((4, 16, 64, 128)))
            draws[row] = [(name, None) for name, _ in draws[row]]
        case "stream":
            dropped = chance.choice(sorted({name for name, _ in draws}))
            draws = [draw for draw in draws if draw[0] != dropped]
    given: dict[str, list[float | None]] = defaultdict(list)
    for name, drawn in draws:
        given[name].append(drawn)
    return given


_REFERENCE = ReferenceTarget()


def met_by(trace: Trace) -> list[str]:
    """What a trace meets on the reference: its `pairs_met`, and each rare state with each setting
    of the configuration."""
    reach = Reachability()
    examine(trace, _REFERENCE.run([trace])[0], _REFERENCE, None, reach)
    settings = list(_settings(trace))
    with_settings = {f"{state}&{setting}" for state in reach.met for setting in settings}
    return sorted(pairs_met(reach) | with_settings)


def pairs_met(reach: Reachability) -> set[str]:
    """Rare states, how often by powers of two, and pairs of them."""
    met = sorted(reach.met)
    return {
        *(f"{state}:{reach.met[state].bit_length()}" for state in met),
        *(f"{one}&{other}" for place, one in enumerate(met) for other in met[:place]),
    }


def _settings(trace: Trace) -> Iterator[str]:
    """What the configuration switches on or off, and names; numbers that are 0 or not."""
    config = trace.header.config
    for name in config.__struct_fields__:
        match getattr(config, name):
            case bool() | None | str() as value:
                yield f"{name}={value}"
            case int() as value if name not in ("capacity", "num_blocks"):
                yield f"{name}={'+' if value else 0}"
            case tuple() as groups if name == "groups":
                yield f"{name}={[group.kind for group in groups]}"


def by_novelty(lane: str, base: int) -> Iterator[Trace]:
    """Of some seeds the one whose trace has the least usual pairs of settings and kinds of events;
    it is chosen before anything is run."""
    seen: Counter[tuple[str, str]] = Counter()
    seeds = itertools.count(base * SEEDS_OF_A_BASE)
    while True:
        offered = [LANES[lane].trace(seed, None) for seed in itertools.islice(seeds, CANDIDATES)]
        pairs = [[*itertools.combinations(_looks_of(trace), 2)] for trace in offered]
        novelty = [
            sum(1 / (1 + seen[pair]) for pair in some) / len(trace.events)
            for some, trace in zip(pairs, offered, strict=True)
        ]
        chosen = novelty.index(max(novelty))
        seen.update(pairs[chosen])
        yield offered[chosen]


def _looks_of(trace: Trace) -> list[str]:
    """Settings, and kinds of events with how often by powers of four."""
    kinds = Counter(type(event).__name__ for event in trace.events)
    return sorted(
        {*_settings(trace), *(f"{kind}*{kinds[kind].bit_length() // 2}" for kind in kinds)}
    )


WAYS: Mapping[str, Way] = {
    "today": as_today,
    "swarm": of_a_swarm,
    "novelty": by_novelty,
    "feedback": by_feedback,
}
