"""The work of a review: the traces and the planted faults, then what is minimised."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import paired
from cacheproof.differential.search.canary import canaries_in, name_in, plantings
from cacheproof.differential.search.known import KnownFault, showing_seeds
from cacheproof.differential.search.paired import (
    Pair,
    PlantInHead,
    RunKept,
    RunSeeds,
    ShrinkBreak,
    ShrinkParting,
    difference_in,
    telling_apart,
)
from cacheproof.differential.search.weighing import BreakTally, PartedGroup
from cacheproof.differential.targets.base import Target
from cacheproof.differential.traces.trace import Trace
from cacheproof.output.console import CommandOutput, Live
from cacheproof.search.memory_store import DueJob, MemoryStore, alternating, turns
from cacheproof.search.searchers import crew_for_both
from cacheproof.work.workplace import AnyCrew, Workplace

PART_SEEDS = 5
KEPT_AT_ONCE = 20
WEIGHTS = {"Seeds": 1.0, "Kept": 1.0, "Plant": 2.0}
"""How long a seed, a kept trace and a planted fault take, relative to one another, about."""


@dataclass
class RanTraces:
    """What came of the traces; `planted` says which faults were found that were planted in head.
    `stopped`: the seconds were up before the seeds; `interrupted`: somebody wanted no more."""

    pairs: list[Pair] = field(default_factory=list)
    planted: dict[str, bool] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    stopped: bool = False
    interrupted: bool = False

    @property
    def calls(self) -> int:
        """How many calls were judged."""
        return sum(pair.calls for pair in self.pairs)

    def told(self) -> str:
        """The progress of the traces, in words."""
        found = sum(self.planted.values())
        return f"{len(self.pairs):,} traces; {found:,} planted faults found"


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
        """Run seeds of all lanes, the kept traces and the seeds that show listed faults on both,
        and plant faults in head. After `seconds` no further seeds are begun."""
        ran = RanTraces()
        store = MemoryStore(ran.errors, WEIGHTS, seconds, ready=time.monotonic())
        taken = store.unless_error(ran.pairs.extend)
        named = list(kept.items())
        of_kept = [
            DueJob(RunKept(*map(tuple, zip(*some, strict=True))), taken, "Kept", len(some))
            for first in range(0, len(named), KEPT_AT_ONCE)
            if (some := named[first : first + KEPT_AT_ONCE])
        ]

        def of_seeds(parts: Iterable[tuple[Lane, tuple[int, ...]]]) -> Iterator[DueJob]:
            return (DueJob(RunSeeds(*one), taken, "Seeds", len(one[1])) for one in parts)

        showing = list(of_seeds(self._showing(lanes, seeds, known)))
        planted = store.unless_error(ran.planted.update)
        plants = [
            DueJob(job, planted, "Plant", len(job.canaries)) for job in _plants(lanes, self.head)
        ]
        store.plan_for(*of_kept, *showing, *plants)
        if seconds is None:
            store.reckoning.planned["Seeds"] += len(lanes) * len(seeds)
        parts = store.in_time(turns(lanes, iter(seeds), lambda: PART_SEEDS))
        ordinary = itertools.chain(of_kept, showing, alternating(of_seeds(parts), iter(plants)))
        store.do(self.crew, paired.work, self.live, ordinary, ran.told)
        ran.interrupted = store.interrupted
        ran.stopped = store.stopped or store.interrupted
        worth = self._worth(lanes, ran)
        asked = [name for name in worth if name in ran.planted or not ran.interrupted]
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
        """Make a trace of each small, and put it there."""
        store = MemoryStore(ran.errors, {})

        def due(job: ShrinkBreak | ShrinkParting, about: BreakTally | PartedGroup) -> DueJob:
            take = store.unless_error(partial(setattr, about, "small"))
            return DueJob(job, take, type(job).__name__)

        dues = [
            *(due(ShrinkBreak(one.shortest, one.broken), one) for one in brought),
            *(due(ShrinkParting(one.shortest, one.parted, one.change), one) for one in groups),
        ]
        store.plan_for(*dues)
        store.do(self.crew, paired.work, self.live, iter(dues), lambda: "making traces small")
        ran.interrupted |= store.interrupted

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
    place: Workplace,
    do: Callable[[ReviewRun], None],
) -> None:
    """Do something with the workers of a review."""
    with place.joined():
        crew = crew_for_both(place, base, head, known)
        with closing(crew), output.live(f"reviewing {base.name} and {head.name}") as live:
            do(ReviewRun(base, head, crew, live))


def _plants(lanes: Sequence[Lane], head: Target) -> Iterator[PlantInHead]:
    for lane in lanes:
        for number, some in enumerate(plantings(lane, head)):
            yield PlantInHead(lane, some, compares=number == 0)
