"""The one loop in which the jobs of `fuzz`, `check`, `campaign` and `review` are done: a store says
what is to be done, a crew does it, and the store keeps what came of it.

What differs between them is the store: in memory it ends with its command, in a folder or a
database it outlives it and is shared.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

Task = TypeVar("Task")
TaskToDo = TypeVar("TaskToDo", covariant=True)
Came = TypeVar("Came")
CameToKeep = TypeVar("CameToKeep", contravariant=True)
Claim = TypeVar("Claim")
LOST = "a worker process ended before its work was done: was it killed, or out of memory?"

DoneAmong = Callable[[Collection[Future[Came]]], Collection[Future[Came]]]
"""Waits a moment for futures, and returns those that are done."""


class JobCrew(Protocol):
    """Workers that do jobs, `number` of them at once."""

    @property
    def number(self) -> int: ...

    def submit(self, run: Callable[[Task], Came], task: Task) -> Future[Came]: ...


class JobStore(Protocol[Claim, TaskToDo, CameToKeep]):
    """What a runner asks of the place where jobs are kept."""

    def claim(self, room: int) -> Iterable[tuple[Claim, TaskToDo]]:
        """Take up to `room` jobs, each with what the store knows it by."""

    def look(self) -> None:
        """Say how far all is. Called several times a second."""

    def finish(self, ended: Sequence[tuple[Claim, CameToKeep, float]]) -> None:
        """Keep what jobs came to, and the seconds that each took."""

    def goes_on(self) -> bool:
        """Whether there may be further jobs. Asked when none is under way."""


@dataclass
class JobRunner(Generic[Claim, Task, Came]):
    """Has the jobs of a store done by `work` with a crew. `done_among` waits a moment for futures;
    `ahead`: jobs that a worker is given besides the one that it does."""

    store: JobStore[Claim, Task, Came]
    crew: JobCrew
    work: Callable[[Task], Came]
    done_among: DoneAmong[tuple[Came, float]]
    ahead: int = 2
    under_way: dict[Future[tuple[Came, float]], Claim] = field(default_factory=dict)

    def run(self) -> None:
        """Do jobs until the store goes on no more.

        Raises:
            BrokenProcessPool: a worker ended before its job was done.
        """
        while self.step():
            pass

    def step(self) -> bool:
        """Do what there is to do now; returns whether there may be more. Where the store raised,
        the step can be done again from its beginning."""
        room = self.crew.number * (1 + self.ahead) - len(self.under_way)
        for claim, job in self.store.claim(max(0, room)):
            self.under_way[self.crew.submit(partial(timed, self.work), job)] = claim
        self.store.look()
        if not self.under_way:
            return self.store.goes_on()
        done = self.done_among(self.under_way)
        ended: list[tuple[Claim, Came, float]] = []
        try:
            for future in done:
                outcome, seconds = future.result()
                ended.append((self.under_way[future], outcome, seconds))
        finally:  # a worker that died takes no outcome of others with it
            self.store.finish(ended)
        for future in done:
            del self.under_way[future]
        return True


def timed(work: Callable[[Task], Came], job: Task) -> tuple[Came, float]:
    """The outcome of a job, and the seconds that it took."""
    began = time.monotonic()
    return work(job), time.monotonic() - began
