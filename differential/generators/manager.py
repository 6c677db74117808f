"""From a seed to a trace: a pure function of generator version, settings and seed.

The shapes are biased toward what is rare in service and common in bug reports: caches that hold one
or two items, items of exactly the capacity, the same item twice in a request and across requests,
sparse items, steps in which entries are evicted and come back, ends and preemptions in the middle
of an item. `differential/judges/rare_states.py` counts how often each was met.
"""

from dataclasses import dataclass
from random import Random

from cacheproof.differential.traces.base import SCHEMA, Item
from cacheproof.differential.traces.manager import (
    Add,
    Finish,
    ManagerConfig,
    ManagerHeader,
    Notices,
    Preempt,
    Release,
    Reset,
    Stall,
    Update,
    Walk,
)
from cacheproof.differential.traces.trace import AnyEvent, Trace

VERSION = "encoder-cache/1"
ITEMS_MAX = 5


@dataclass(frozen=True)
class TraceShape:
    """Ranges from which one trace's configuration is drawn. Sizes in embeddings."""

    name: str
    capacity: tuple[int, int]
    identifiers: tuple[int, int]
    size_max: int
    running: tuple[int, int]
    steps: tuple[int, int]


SHAPES = (
    TraceShape("one or two items", (1, 4), (2, 4), 4, (1, 3), (6, 16)),
    TraceShape("tight", (4, 10), (3, 7), 5, (2, 4), (10, 40)),
    TraceShape("roomy", (14, 40), (10, 16), 4, (3, 6), (30, 90)),
)


def manager_trace(
    seed: int,
    manager: str = "encoder_cache",
    shape: TraceShape | None = None,
    resized: bool = False,
    several: bool = False,
) -> Trace:
    """The manager-depth trace of a seed.

    `resized` lets an identifier come back with another size, as a reused media id does; `several`
    gives requests of an encoder-decoder several items, where they have one.
    """
    return _ManagerTrace(seed, manager, shape, resized, several).build()


class _ManagerTrace:
    def __init__(
        self, seed: int, manager: str, shape: TraceShape | None, resized: bool, several: bool
    ) -> None:
        self._random = Random(f"{VERSION}/{manager}/{resized}/{seed}")
        # A stream of its own leaves the traces without it as they were.
        self._several = Random(f"{VERSION}/several/{seed}") if several else None
        self._seed = seed
        self._manager = manager
        self._decoder = manager == "encoder_decoder"
        self._resized = resized
        random = self._random
        self._shape = shape or SHAPES[random.randrange(len(SHAPES))]
        self._capacity = random.randint(*self._shape.capacity)
        largest = min(self._capacity, self._shape.size_max)
        # Items that fill a cache: rare in service, and common in bug reports.
        if random.random() < 0.15:
            largest = self._capacity
        count = random.randint(*self._shape.identifiers)
        self._items = [self._template(f"h{number}", largest) for number in range(count)]
        if random.random() < 0.3:
            self._items[0] = self._template("h0", self._capacity, self._capacity)
        self._budget = max(
            # A budget below the largest item could never encode it.
            max(sum(mask) for _, mask in self._items),
            random.choice((largest, self._capacity, 2 * self._capacity)),
            1,
        )
        self._running_max = random.randint(*self._shape.running)
        self._events: list[AnyEvent] = []
        self._live: dict[str, Add] = {}
        self._tokens: dict[str, int] = {}
        self._arrived = 0

    def _template(
        self, identifier: str, largest: int, exact: int | None = None
    ) -> tuple[str, tuple[bool, ...]]:
        """An identifier and its mask; an identifier fixes both."""
        random = self._random
        size = exact or random.randint(1, largest)
        if self._decoder or random.random() < 0.7:
            return identifier, (True,) * size
        blanks = random.randint(0, 3) if random.random() < 0.9 else 6
        mask = [True] * size + [False] * blanks
        random.shuffle(mask)
        if random.random() < 0.05:
            mask = [False] * len(mask)
        return identifier, tuple(mask)

    def build(self) -> Trace:
        random = self._random
        steps = random.randint(*self._shape.steps)
        for _ in range(steps):
            self._step()
        header = ManagerHeader(
            schema=SCHEMA,
            manager=self._manager,  # type: ignore[arg-type]
            config=ManagerConfig(self._capacity, self._budget),
            seed=self._seed,
            generator=VERSION,
        )
        return Trace(header, tuple(self._events))

    def _step(self) -> None:
        random, events = self._random, self._events
        while len(self._live) < self._running_max and random.random() < 0.6:
            self._add()
        for request in list(self._live):
            chance = random.random()
            # Only who has run can be preempted, and only who has not can stall.
            if chance < 0.04 and self._tokens[request]:
                events.append(Preempt(request))
                self._tokens[request] = 0
            elif chance < 0.08 and not self._tokens[request]:
                events.append(Stall(request, self._stride(request)))
            elif chance < 0.93:
                tokens = self._stride(request)
                events.append(Walk(request, tokens))
                self._tokens[request] += tokens
        events.append(Notices())
        if random.random() < 0.08:
            self._finish_one()
        if random.random() < 0.9:
            events.append(Update())
            self._after_update()
        if random.random() < 0.01:
            events.append(Reset())

    def _stride(self, request: str) -> int:
        """Tokens to schedule: often to an item's edge, where the rules change."""
        random = self._random
        prompt = self._live[request].prompt
        if random.random() < 0.3:
            item = random.choice(self._live[request].items)
            edge = random.choice((item.offset, item.offset + 1, item.offset + item.length))
            if edge > self._tokens[request]:
                return edge - self._tokens[request]
        return random.randint(1, max(2, prompt // 2))

    def _after_update(self) -> None:
        random = self._random
        for request, add in list(self._live.items()):
            if self._tokens[request] >= add.prompt:
                if random.random() < 0.7:
                    self._end(request)
            elif random.random() < 0.05:
                self._events.append(Release(request, random.randrange(len(add.items))))

    def _finish_one(self) -> None:
        if self._live:
            self._end(self._random.choice(list(self._live)))

    def _end(self, request: str) -> None:
        self._events.append(Finish(request))
        del self._live[request], self._tokens[request]

    def _add(self) -> None:
        random = self._random
        request = f"r{self._arrived}"
        self._arrived += 1
        count = 1 if self._decoder else random.choice((1, 1, 2, 2, 3, ITEMS_MAX))
        if self._several is not None:
            count = self._several.choice((1, 2, 2, 3))
        position = 0 if self._decoder else random.randrange(4)
        items: list[Item] = []
        repeated = random.choice(self._items) if random.random() < 0.25 else None
        for _ in range(count):
            identifier, mask = repeated or random.choice(self._items)
            if self._resized and random.random() < 0.1:
                mask = (True,) * random.randint(1, min(self._capacity, self._budget))
            dense = all(mask)
            items.append(Item(identifier, position, len(mask), is_embed=None if dense else mask))
            position += len(mask) + random.choice((0, 0, 1, 3))
        prompt = random.randint(1, 8) if self._decoder else position + random.choice((0, 1, 4))
        add = Add(request, max(prompt, items[-1].offset + items[-1].length), tuple(items))
        if self._decoder:
            # Its items are no part of its prompt, which need not hold them.
            add = Add(request, prompt, tuple(items))
        self._events.append(add)
        self._live[request] = add
        self._tokens[request] = 0
