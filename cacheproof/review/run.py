"""The work of a review: the traces and the planted faults, then what is minimised."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import paired
from cacheproof.differential.search.canary import (
    Canary,
    canaries_in,
    name_in,
    plantings_in_turns,
)
from cacheproof.differential.search.clocks import of_clock
from cacheproof.differential.search.known import KnownFault, showing_seeds
from cacheproof.differential.search.paired import (
    Pair,
    PlantInHead,
    RunKept,
    RunSeeds,
    ShrinkBreak,
    ShrinkParting,
    StartBoth,
    difference_in,
    telling_apart,
)
from cacheproof.differential.search.weighing import BreakTally, PartedGroup
from cacheproof.differential.targets.base import Target
from cacheproof.differential.traces.trace import Trace
from cacheproof.output.console import CommandOutput, Live
from cacheproof.search.memory_store import WRITE_SECONDS, DueJob, MemoryStore, turns
from cacheproof.search.searchers import crew_for_both
from cacheproof.work.workplace import AnyCrew, Workplace

PART_SEEDS = 5
KEPT_AT_ONCE = 20
TRACES_SHARE = 0.6
"""The share of a review's seconds that is for traces and planted faults, and of what is left the
share for minimising: proofs have what is between."""
SMALL_SHARE = 0.15
PLANTED = "planted faults"
WEIGHTS = {"Seeds": 1.0, "Kept": 1.0, "Plant": 2.0}
"""How long a seed, a kept trace and a planted fault take, relative to one another, about."""


@dataclass
class RanTraces:
    """What came of the traces; `planted` says which faults were found that were planted in head.
    `stopped`: the `seconds` were up before the seeds; all of them are at `until`, a moment of the
    monotonic clock. `left_undone` says what they did not last for, and how much of it.
    `interrupted`: somebody wanted no more."""

    seconds: float | None = None
    until: float = math.inf
    pairs: list[Pair] = field(default_factory=list)
    planted: dict[str, bool] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    stopped: bool = False
    interrupted: bool = False
    left_undone: dict[str, int] = field(default_factory=dict)

    @property
    def proofs_until(self) -> float:
        """The moment from which what is left is for minimising."""
        return self.until - SMALL_SHARE * (self.seconds or 0.0)

    @property
    def calls(self) -> int:
        """How many calls were judged."""
        return sum(pair.calls for pair in self.pairs)

    def told(self) -> str:
        """The progress of the traces, in words."""
        found = sum(self.planted.values())
        return f"{len(self.pairs):,} traces; {found:,} planted faults found"

    def leave(self, what: str, number: int) -> None:
        """Note what the seconds did not last for."""
        if number:
            self.left_undone[what] = number


@dataclass
class ReviewRun:
    """The workers of a review; to be used within `working`."""

    base: Target
    head: Target
    crew: AnyCrew
    live: Live

    def traces(
        self,
        lanes: Sequence[Lane],
        seeds: Sequence[int],
        seconds: float | None,
        kept: Mapping[str, Trace],
        known: Sequence[KnownFault],
    ) -> RanTraces:
        """Run the kept traces, the seeds that show listed faults and seeds of all lanes on both,
        and plant faults in head. By the clock this takes its share of the `seconds` from when both
        are ready."""
        ran = RanTraces(seconds)
        store = MemoryStore(ran.errors, WEIGHTS, seconds and TRACES_SHARE * seconds)
        showing = list(self._showing(lanes, seeds, known))
        plants = list(_plants(lanes, self.head))
        planned = store.reckoning.planned
        planned["Kept"], planned["Seeds"] = len(kept), sum(len(some) for _, some in showing)
        planned["Plant"] = sum(len(some) for _, some, _ in plants)
        if seconds is None:
            planned["Seeds"] += len(lanes) * len(seeds)
        start = DueJob(StartBoth(), store.unless_error(lambda _: None), "Start", in_order=False)
        parts = itertools.chain(showing, turns(lanes, iter(seeds), lambda: PART_SEEDS))
        searches = itertools.chain(_of_kept(store, kept, ran), _of_seeds(store, parts, ran))
        planted = _of_plants(store, plants, ran)
        # the first break may take long, since releases with mends start for it
        first = itertools.islice(planted, 1)
        ordinary = itertools.chain([start], first, store.in_turns(searches, planted))
        store.do(self.crew, paired.work, self.live, ordinary, ran.told)
        if seconds is not None:
            ran.until = min(store.ready, time.monotonic()) + seconds
        ran.interrupted = store.interrupted
        ran.stopped = store.stopped or store.interrupted
        worth = list(self._worth(lanes, ran))
        asked = [name for name in worth if name in ran.planted or not ran.stopped]
        if store.stopped:
            done = {(pair.lane, pair.name) for pair in ran.pairs}
            shown = [(lane.name, paired.name_of(seed)) for lane, some in showing for seed in some]
            ran.leave("kept traces", sum((None, name) not in done for name in kept))
            ran.leave("seeds that show listed faults", sum(one not in done for one in shown))
            ran.leave(PLANTED, len(worth) - len(asked))
        ran.planted = {name: ran.planted.get(name, False) for name in asked}
        return ran

    def _worth(self, lanes: Sequence[Lane], ran: RanTraces) -> Iterator[str]:
        """The planted faults that must be found: not against what head breaks of itself."""
        broken = {
            (contract, pair.lane, kind)
            for pair in ran.pairs
            if pair.lane is not None
            for contract, kind in pair.head
        }
        for lane in lanes:
            yield from (name_in(lane, one) for one in canaries_in(lane, self.head, broken))
            if canaries_in(lane, self.head) and telling_apart(lane, self.base, self.head):
                yield difference_in(lane)

    def small(
        self, ran: RanTraces, groups: Sequence[PartedGroup], brought: Sequence[BreakTally]
    ) -> None:
        """Make a trace of each small, as far as the seconds last, and put it there."""
        store = MemoryStore(ran.errors, {}, ran.seconds)
        store.ready = ran.until - (ran.seconds or 0.0)
        until = of_clock(store.before_end(WRITE_SECONDS))

        def due(job: ShrinkBreak | ShrinkParting, about: BreakTally | PartedGroup) -> DueJob:
            take = store.unless_error(partial(setattr, about, "small"))
            return DueJob(job, take, type(job).__name__)

        dues = [
            *(due(ShrinkBreak(one.shortest, one.broken, until), one) for one in brought),
            *(
                due(ShrinkParting(one.shortest, one.parted, one.change, until), one)
                for one in groups
            ),
        ]
        store.plan_for(*dues)
        in_time = store.in_time(dues)
        store.do(self.crew, paired.work, self.live, in_time, lambda: "making traces small")
        ran.interrupted |= store.interrupted
        if store.stopped:
            small = [one.small for one in brought], [one.small for one in groups]
            ran.leave("traces to be minimised", sum(some.count(None) for some in small))

    def _showing(
        self, lanes: Sequence[Lane], seeds: Sequence[int], known: Sequence[KnownFault]
    ) -> Iterator[tuple[Lane, tuple[int, ...]]]:
        """The seeds that show listed faults of either release and are not among `seeds`."""
        listed = [showing_seeds(known, one.release) for one in (self.base, self.head)]
        for lane in lanes:
            own = {seed for one in listed for seed in one.get(lane.name, ()) if seed not in seeds}
            if own:
                yield lane, tuple(sorted(own))


def working(
    output: CommandOutput,
    base: Target,
    head: Target,
    known: Sequence[KnownFault],
    lanes: Sequence[Lane],
    place: Workplace,
    do: Callable[[ReviewRun], None],
) -> None:
    """Do something with the workers of a review of these lanes."""
    with place.joined():
        crew = crew_for_both(place, base, head, known, lanes)
        with closing(crew), output.live(f"reviewing {base.name} and {head.name}") as live:
            do(ReviewRun(base, head, crew, live))


def _of_kept(store: MemoryStore, kept: Mapping[str, Trace], ran: RanTraces) -> Iterator[DueJob]:
    taken = store.unless_error(ran.pairs.extend)
    named = iter(kept.items())
    for some in store.in_time(iter(lambda: tuple(itertools.islice(named, KEPT_AT_ONCE)), ())):
        names, traces = zip(*some, strict=True)
        yield DueJob(RunKept(names, traces, of_clock(store.deadline)), taken, "Kept", len(some))


def _of_seeds(
    store: MemoryStore, parts: Iterable[tuple[Lane, tuple[int, ...]]], ran: RanTraces
) -> Iterator[DueJob]:
    taken = store.unless_error(ran.pairs.extend)
    for lane, some in store.in_time(parts):
        job = RunSeeds(lane, some, of_clock(store.deadline))
        yield DueJob(job, taken, "Seeds", len(some))


def _of_plants(
    store: MemoryStore, plants: Iterable[tuple[Lane, tuple[Canary, ...], bool]], ran: RanTraces
) -> Iterator[DueJob]:
    taken = store.unless_error(ran.planted.update)
    for lane, some, compares in store.in_time(plants):
        job = PlantInHead(lane, some, compares, of_clock(store.deadline))
        yield DueJob(job, taken, "Plant", len(some))


def _plants(lanes: Sequence[Lane], head: Target) -> Iterator[tuple[Lane, tuple[Canary, ...], bool]]:
    """The faults to be planted, and whether the comparison is to see one of them, which is asked
    once of a lane."""
    compared = set()
    for lane, some in plantings_in_turns(lanes, head):
        yield lane, some, lane.name not in compared
        compared.add(lane.name)
