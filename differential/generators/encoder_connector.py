"""Seeded engines on one store: a pure function of `GENERATOR`, settings and seed.

What is rare in service is common here: a promise beside an encode in one step, a promise that
nobody takes, several requests in a step, steps planned ahead of the worker, copies that end late
and on one rank later than on another, engines that are killed as they write, files that somebody
else has spoiled, a store that cannot be reached for a while.
"""

from dataclasses import dataclass, field
from os import pardir
from random import Random
from typing import get_args

import msgspec

from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.encoder_connector import (
    SERVERS,
    AbortPlanned,
    Ask,
    EncoderConnectorConfig,
    EncoderConnectorEvent,
    EncoderConnectorHeader,
    Execute,
    Forget,
    How,
    NewWeights,
    Plan,
    Reach,
    Spoil,
    Start,
    Stop,
    Store,
    StoredItem,
    StoringModel,
)
from cacheproof.differential.traces.trace import Trace

GENERATOR = "encoder-connector/3"
_ABOVE = "/".join((pardir, "up"))
"""An identifier that, read as a path, lies beside the store and within the trace's own folder."""
NAMES = ("a", "b", "c", "d", "e", _ABOVE, "a/b", "\N{SNOWMAN}", "n" * 300)
STEPS = (6, 24)
PLANNED_MAX = 3
LATE_MAX = 4
GAPS_MAX = 20
HEADER_BYTES = 1024
"""Bytes of an entry beside its rows, for a store that writes what they are."""
WAYS = get_args(How)
HANGS_IN = 20
RELOADS_IN, RELOADS = 0.3, 0.1
"""Share of the traces of a bounded memory with new weights, and how often there are some in one."""
DIES_WITHIN = 700
"""Bytes of a write within which an engine is killed: more than a small entry has."""


@dataclass
class Playing:
    """A trace in the making: how many steps each engine that runs has planned."""

    draw: Random
    config: EncoderConnectorConfig
    events: list[EncoderConnectorEvent] = field(default_factory=list)
    planned: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    is_there: bool = True
    hangs: bool = False

    def start(self, engine: str) -> None:
        """An engine starts; mostly the ones of a trace have one model."""
        last = len(self.config.models) - 1
        model = self.models.setdefault(engine, last if self.draw.random() < 0.3 else 0)
        self.events.append(Start(engine, model))
        self.planned[engine] = 0

    def plan(self, engine: str, most: int = 3, *, is_disturbed: bool = True) -> None:
        """A step that reads a few items; of some of them nothing comes where it `is_disturbed`."""
        names = [item.identifier for item in self.config.items]
        items = self.draw.sample(names, self.draw.randint(1, min(most, len(names))))
        refused = [item for item in items if self.draw.random() < 0.2 and is_disturbed]
        preempted = [item for item in items if self.draw.random() < 0.1 and is_disturbed]
        apart = [place for place in range(1, len(items)) if self.draw.random() < 0.3]
        given = tuple(items), tuple(refused), tuple(preempted), tuple(apart)
        self.events.append(Plan(engine, *given))
        self.planned[engine] += 1

    def execute(self, engine: str) -> None:
        is_late = self.config.store == "cpu" and self.draw.random() < 0.4
        self.events.append(Execute(engine, late=self.draw.randint(1, LATE_MAX) if is_late else 0))
        self.planned[engine] -= 1

    def die(self, engine: str) -> None:
        """Kill an engine as it writes, if it writes that much."""
        while self.planned[engine]:
            self.execute(engine)
        self.plan(engine, most=1, is_disturbed=False)
        self.events.append(Execute(engine, dies_at=self.draw.randrange(DIES_WITHIN)))
        self.stop(engine, killed=True)
        self.start(engine)

    def reach(self) -> None:
        """The store goes away, or comes back."""
        self.is_there = not self.is_there
        self.events.append(Reach(self.is_there, self.hangs and not self.is_there))
        self.hangs &= not self.is_there

    def stop(self, engine: str, *, killed: bool) -> None:
        self.events.append(Stop(engine, killed))
        del self.planned[engine]

    def catch_up(self) -> None:
        """Every step that is planned is executed."""
        for engine, count in self.planned.items():
            for _ in range(count):
                self.execute(engine)

    def reload(self, engine: str) -> None:
        """New weights of the engine's model, once every step has been executed."""
        self.catch_up()
        self.events.append(NewWeights(self.models[engine]))

    def forget(self, engine: str) -> None:
        names = [item.identifier for item in self.config.items]
        some = () if self.draw.random() < 0.5 else (self.draw.choice(names),)
        self.events.append(Forget(engine, some))

    def spoil(self) -> None:
        names = [item.identifier for item in self.config.items]
        how = self.draw.choice(WAYS)
        item, other = self.draw.choice(names), self.draw.choice(names)
        self.events.append(Spoil(item, how, other if how == "swapped" else None))


def connector_trace(
    seed: int, store: Store = "disk", *, hangs: bool = False, is_bounded: bool = True
) -> Trace:
    """The trace of a seed for connectors whose store is of that kind. With `hangs` one in
    `HANGS_IN` has a store that hangs once, for which engines wait. Memory that is not bounded is of
    one rank, and holds all items."""
    draw = Random(f"{GENERATOR} {store} {seed}")
    names = draw.sample(NAMES, draw.randint(2, 5))
    in_memory = store == "cpu"
    smallest, largest = (30, 90) if in_memory else (1, 6)
    items = tuple(
        StoredItem(name, draw.randint(smallest, largest), _some(draw, GAPS_MAX)) for name in names
    )
    layers = 1 + _some(draw, 2)
    models = [StoringModel("m", draw.choice((4, 8)), draw.choice(("float32", "bfloat16")), layers)]
    if draw.random() < 0.3:
        models.append(msgspec.structs.replace(models[0], name="another"))
    rows = draw.randint(largest // 3, 3 * largest)
    is_limited = in_memory and is_bounded
    capacity = rows * models[0].row_width * 4 + HEADER_BYTES if is_limited else None
    ranks = 1 + _some(draw, 2) if is_limited else 1
    config = EncoderConnectorConfig(items, tuple(models), store, capacity, ranks)
    playing = Playing(draw, config, hangs=hangs and seed % HANGS_IN == 0)
    engines = ["1"] if in_memory else ["1", "2", "3"][: draw.randint(2, 3)]
    for engine in engines:
        playing.start(engine)
    hostile = not in_memory and draw.random() < 0.6
    reload = Random(f"{GENERATOR} {store} {seed} new weights")
    reloads = is_limited and reload.random() < RELOADS_IN
    for _ in range(draw.randint(*STEPS)):
        _one_more(playing, hostile=hostile)
        if reloads and reload.random() < RELOADS:
            playing.reload(engines[0])
    playing.catch_up()
    playing.events.append(Ask())
    header = EncoderConnectorHeader(SCHEMA, playing.config, seed=seed, generator=GENERATOR)
    return Trace(header, tuple(playing.events))


def _some(draw: Random, most: int) -> int:
    """A number from 1 to `most`; mostly 0 instead."""
    return draw.randint(1, most) if draw.random() < 0.2 else 0


def _one_more(playing: Playing, *, hostile: bool) -> None:
    """A few events that belong together."""
    draw, luck = playing.draw, playing.draw.random()
    engine = draw.choice(sorted(playing.planned))
    if hostile and luck < 0.3:
        _something_bad(playing, engine)
    elif luck < 0.65:
        if playing.planned[engine] < PLANNED_MAX:
            playing.plan(engine)
        if draw.random() < 0.1:
            playing.events.append(AbortPlanned(engine))
        if draw.random() < 0.8:
            playing.execute(engine)
    elif luck < 0.93:
        playing.forget(engine)
    else:
        playing.catch_up()
        playing.events.append(Ask())


def _something_bad(playing: Playing, engine: str) -> None:
    match playing.draw.randrange(7):
        case 0 | 1 if playing.config.store not in SERVERS:
            playing.die(engine)
        case 0 | 1 | 2:
            playing.stop(engine, killed=playing.draw.random() < 0.5)
            playing.start(engine)
        case 3 | 4:
            playing.spoil()
        case 5:
            playing.reach()
        case 6:
            playing.reload(engine)
