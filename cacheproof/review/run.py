"""The work of a review, shared by workers: the traces, the planted faults, then what is minimised.

What comes of it is taken in the order in which it was given out, so that a review says the same
whatever number of workers shares it.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import paired
from cacheproof.differential.search.canary import canaries_in, name_in
from cacheproof.differential.search.known import KnownFault, showing_seeds
from cacheproof.differential.search.paired import (
    Pair,
    PairJob,
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
from cacheproof.output.progress import Reckoning
from cacheproof.search.searchers import crew_for_both
from cacheproof.work.workers import done_among, timed
from cacheproof.work.workplace import AnyCrew, Workplace

PART_SEEDS = 5
KEPT_AT_ONCE = 20
CANARIES_AT_ONCE = 8
AHEAD = 2
"""Jobs that a worker is given in advance, beside the one that it does."""
WEIGHTS = {"RunSeeds": 1.0, "RunKept": 1.0, "PlantInHead": 2.0}
"""How long a seed, a kept trace and a planted fault take, relative to one another, about."""
LOST = "a worker process ended before its work was done: was it killed, or out of memory?"


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
        begun = time.monotonic()

        def searches() -> Iterator[PairJob]:
            for lane, some in _parts(lanes, seeds):
                if seconds is not None and time.monotonic() - begun > seconds:
                    ran.stopped = True
                    return
                yield RunSeeds(lane, some)

        named = list(kept.items())
        of_kept = [
            RunKept(*map(tuple, zip(*named[first : first + KEPT_AT_ONCE], strict=True)))
            for first in range(0, len(named), KEPT_AT_ONCE)
        ]
        showing = list(self._showing(lanes, seeds, known))
        plants = list(_plants(lanes, self.head))
        beside: list[PairJob] = [*of_kept, *showing]
        jobs = itertools.chain(beside, _in_turns(searches(), iter(plants)))
        until = None if seconds is None else begun + seconds
        reckoning = Reckoning(begun, WEIGHTS)
        reckoning.planned["RunKept"] = len(named)
        reckoning.planned["PlantInHead"] = sum(len(one.canaries) for one in plants)
        reckoning.planned["RunSeeds"] = sum(len(one.seeds) for one in showing)
        if until is None:
            reckoning.planned["RunSeeds"] += len(lanes) * len(seeds)
        try:
            for _, outcome in self._done(jobs, ran.told, reckoning, until):
                match outcome:
                    case str():
                        ran.errors.append(outcome)
                    case dict():
                        ran.planted |= outcome
                    case list():
                        ran.pairs += outcome
        except KeyboardInterrupt:
            ran.interrupted = True
            ran.stopped = True
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
        jobs: list[tuple[PairJob, PartedGroup | BreakTally]] = [
            *((ShrinkBreak(one.shortest, one.broken), one) for one in brought),
            *((ShrinkParting(one.shortest, one.parted, one.change), one) for one in groups),
        ]
        reckoning = Reckoning(time.monotonic())
        for job, _ in jobs:
            reckoning.planned[type(job).__name__] += 1
        outcomes = self._done((job for job, _ in jobs), lambda: "making traces small", reckoning)
        try:
            for (_, about), (_, outcome) in zip(jobs, outcomes, strict=True):
                if isinstance(outcome, str):
                    ran.errors.append(outcome)
                else:
                    about.small = outcome
        except KeyboardInterrupt:
            ran.interrupted = True

    def _showing(
        self, lanes: Sequence[Lane], seeds: Sequence[int], known: Sequence[KnownFault]
    ) -> Iterator[RunSeeds]:
        """The seeds that show listed faults of either release and are not among `seeds`."""
        listed = [showing_seeds(known, one.release) for one in (self.base, self.head)]
        for lane in lanes:
            own = {seed for one in listed for seed in one.get(lane.name, ()) if seed not in seeds}
            if own:
                yield RunSeeds(lane, tuple(sorted(own)))

    def _done(
        self,
        jobs: Iterable[PairJob],
        told: Callable[[], str],
        reckoning: Reckoning,
        until: float | None = None,
    ) -> Iterator[tuple[PairJob, Any]]:
        """Each job with its outcome, in the order of the jobs; further jobs come `until` then."""
        waiting: dict[int, tuple[PairJob, Any]] = {}
        under_way: dict[Future[Any], tuple[int, PairJob]] = {}
        numbered = enumerate(jobs)
        due = 0
        while True:
            room = self.crew.number * (1 + AHEAD) - len(under_way)
            for number, job in itertools.islice(numbered, room):
                try:
                    under_way[self.crew.submit(partial(timed, paired.work), job)] = number, job
                except BrokenProcessPool:
                    waiting[number] = job, LOST
            for future in done_among(under_way) if under_way else ():
                number, job = under_way.pop(future)
                outcome, seconds = _outcome(future)
                waiting[number] = job, outcome
                reckoning.took(type(job).__name__, _units(job), seconds)
            if due not in waiting and not under_way:
                return
            while due in waiting:
                yield waiting.pop(due)
                due += 1
            now = time.monotonic()
            at_least = 0.0 if until is None else max(0.0, until - now)
            self.live.show(told(), *reckoning.told(now, self.crew.number, at_least))


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


def _units(job: PairJob) -> int:
    """How much a job is, beside others of its kind."""
    match job:
        case RunSeeds():
            return len(job.seeds)
        case RunKept():
            return len(job.names)
        case PlantInHead():
            return len(job.canaries)
    return 1


def _outcome(future: "Future[Any]") -> tuple[Any, float]:
    """What came of a job, and how long it took; a worker that ended is an error like one of its
    target."""
    try:
        outcome: tuple[Any, float] = future.result()
    except BrokenProcessPool:
        return LOST, 0.0
    return outcome


def _parts(lanes: Sequence[Lane], seeds: Sequence[int]) -> Iterator[tuple[Lane, tuple[int, ...]]]:
    """The lanes in turns, a few seeds at a time."""
    for first in range(0, len(seeds), PART_SEEDS):
        for lane in lanes:
            yield lane, tuple(seeds[first : first + PART_SEEDS])


def _plants(lanes: Sequence[Lane], head: Target) -> Iterator[PlantInHead]:
    for lane in lanes:
        expected = canaries_in(lane, head)
        for first in range(0, len(expected), CANARIES_AT_ONCE):
            some = tuple(expected[first : first + CANARIES_AT_ONCE])
            yield PlantInHead(lane, some, compares=first == 0)


def _in_turns(*several: Iterator[PairJob]) -> Iterator[PairJob]:
    for some in itertools.zip_longest(*several):
        yield from (one for one in some if one is not None)
