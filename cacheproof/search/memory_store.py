"""The jobs of one run of a command, kept in memory: fuzz, check and review.

Outcomes are taken in the order in which their jobs were begun, so that what is said depends neither
on the number of workers nor on which was the faster.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.job_runner import LOST, JobRunner
from cacheproof.output.console import Live
from cacheproof.output.progress import Reckoning
from cacheproof.work.workers import done_among
from cacheproof.work.workplace import AnyCrew

One = TypeVar("One")
LEFT_SHARE = 0.25
"""Most of a search's seconds that is left for minimising, or for writing down."""
GRACE_SECONDS = 2.0
"""Seconds after the end for which jobs that are under way are waited for: they look at the clock
between two traces, and a single one may take long."""
WRITE_SECONDS = 5.0
"""Most seconds before the end that are left for replaying what was minimised."""
PLANTED_SHARE = 0.15
"""Most of the work of a search by the clock that is spent on planted faults."""


class OutOfTimeError(Exception):
    """What is under way is to be left where it is: the seconds are up."""


@dataclass(frozen=True)
class DueJob:
    """A job that is due, and what takes its outcome in: once the jobs begun before it are taken in,
    or as soon as it is there. It is so many `units` of a kind, for how long the rest takes."""

    job: object
    take: Callable[[Any], None]
    kind: str
    units: int = 1
    in_order: bool = True


class MemoryStore:
    """What is to be done and what came of it, with the errors that make it void. `weights` say how
    long a unit of a kind of job takes beside others. No search is begun after `seconds` from the
    first outcome, which is that of a job by which a host is ready."""

    def __init__(
        self,
        errors: list[str],
        weights: Mapping[str, float],
        seconds: float | None = None,
    ) -> None:
        self.errors = errors
        self.interrupted = self.stopped = False
        self.began = time.monotonic()
        self.ready = math.inf  # until a host is ready no second of the search has passed
        self.seconds = seconds
        self.reckoning = Reckoning(self.began, weights)
        self._has_begun = False
        self._begun = self._taken = 0
        self._came: dict[int, Callable[[], None]] = {}

    def do(
        self,
        crew: AnyCrew,
        work: Callable[[Any], Any],
        live: Live,
        ordinary: Iterator[DueJob],
        told: Callable[[], str],
    ) -> None:
        """Do what is `ordinary` and what comes of it; an interruption ends it with what there is,
        and so does a worker's end. `told` is the work done so far, in words."""
        self.live, self.ordinary, self._crew, self._told = live, ordinary, crew, told
        try:
            JobRunner(self, crew, work, done_among).run()
        except KeyboardInterrupt:
            self.interrupted = True
        except OutOfTimeError:
            self.stopped = True
        except BrokenProcessPool:
            self.errors.append(LOST)

    def next_due(self) -> DueJob | None:
        """What is to be done next; None where there is nothing for now."""
        return None if self.is_starting() else next(self.ordinary, None)

    def is_starting(self) -> bool:
        """Whether the first job is under way by which a host is ready: until then nobody knows when
        the seconds of what is begun are up."""
        had_begun, self._has_begun = self._has_begun, True
        return self.seconds is not None and self.ready == math.inf and had_begun

    def in_turns(self, searches: Iterable[DueJob], planted: Iterable[DueJob]) -> Iterator[DueJob]:
        """A search and the faults that are planted, in turns; of a search by the clock these take
        their share, until nothing else is left to do."""
        is_searching = True

        def all_searches() -> Iterator[DueJob]:
            nonlocal is_searching
            yield from searches
            is_searching = False

        def sharing() -> Iterator[DueJob | None]:
            for due in planted:
                while self.seconds is not None and is_searching and self._has_planted_enough:
                    yield None
                yield due

        return _alternating(all_searches(), sharing())

    @property
    def _has_planted_enough(self) -> bool:
        """Whether planted faults have taken their share of the time."""
        spent = self.reckoning.seconds
        return spent.get("Plant", 0.0) > PLANTED_SHARE * sum(spent.values())

    def goes_on(self) -> bool:
        """Whether there is more to do when all is done that was due."""
        return False

    def plan_for(self, *dues: DueJob) -> None:
        """Tell the reckoning of work that is known to come."""
        for due in dues:
            self.reckoning.planned[due.kind] += due.units

    def unless_error(self, take: Callable[[Any], None]) -> Callable[[Any], None]:
        """What takes an outcome in, but notes a text as an error."""
        return lambda came: self.errors.append(came) if isinstance(came, str) else take(came)

    @property
    def deadline(self) -> float:
        """The moment of the monotonic clock at which the seconds are up."""
        return math.inf if self.seconds is None else self.ready + self.seconds

    @property
    def is_out_of_time(self) -> bool:
        """Whether the seconds are up."""
        return time.monotonic() > self.deadline

    def before_end(self, most: float) -> float:
        """The moment that is so many seconds before the end, or a share of all where they are
        few."""
        return self.deadline - (min(most, LEFT_SHARE * self.seconds) if self.seconds else 0.0)

    def in_time(self, parts: Iterable[One]) -> Iterator[One]:
        """The parts of a search until the seconds are up, when it is `stopped`."""
        for part in parts:
            if self.is_out_of_time:
                self.stopped = True
                return
            yield part

    def claim(self, room: int) -> Iterator[tuple[tuple[int | None, DueJob], object]]:
        for due in itertools.islice(iter(self.next_due, None), room):
            number = None
            if due.in_order:
                number, self._begun = self._begun, self._begun + 1
            yield (number, due), due.job

    def finish(self, ended: Sequence[tuple[tuple[int | None, DueJob], Any, float]]) -> None:
        for (number, due), outcome, seconds in ended:
            self.ready = min(self.ready, time.monotonic())
            self.reckoning.took(due.kind, due.units, seconds)
            if number is None:
                due.take(outcome)
            else:
                self._came[number] = partial(due.take, outcome)
        while self._taken in self._came:
            self._came.pop(self._taken)()
            self._taken += 1

    def look(self) -> None:
        """Show how far all is. Raises OutOfTimeError when what is under way is to be left."""
        now = time.monotonic()
        if now > self.deadline + GRACE_SECONDS:
            raise OutOfTimeError
        if self.ready == math.inf:
            self.live.show("a worker starts, and imports the target")
            return
        self.live.show(self._told(), *self._left(now))

    def _left(self, now: float) -> tuple[float | None, float | None]:
        """The share that is done, and the seconds that the rest takes."""
        at_least = 0.0 if self.seconds is None else max(0.0, self.deadline - now)
        return self.reckoning.told(now, self._crew.number, at_least)


def turns(
    lanes: Sequence[Lane], seeds: Iterator[int], size: Callable[[], int]
) -> Iterator[tuple[Lane, tuple[int, ...]]]:
    """The lanes in turns, a few seeds at a time: as many as `size` says then."""
    while some := tuple(itertools.islice(seeds, size())):
        for lane in lanes:
            yield lane, some


def _alternating(*several: Iterator[One | None]) -> Iterator[One]:
    """One of each in turns, then the rest of the longer; None lets the others go first."""
    for some in itertools.zip_longest(*several):
        yield from (one for one in some if one is not None)
