"""Where the jobs of a command are done: by processes of this machine, or on a Ray cluster."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from cacheproof.differential.errors import InputError
from cacheproof.work import cluster, workers
from cacheproof.work.cluster import ClusterCrew
from cacheproof.work.workers import Crew, Look

Task = TypeVar("Task")
Result = TypeVar("Result")
AnyCrew = Crew | ClusterCrew


@dataclass(frozen=True)
class Workplace:
    """`workers` processes of this machine, None for one on each core; or in their place the cluster
    at an address.

    Raises:
        InputError: both are given.
    """

    workers: int | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.cluster is not None and self.workers is not None:
            raise InputError("--workers and --cluster: expected one of them, or neither")

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Join the cluster, if there is one, for as long as the context lasts.

        Raises:
            InputError: there is no such cluster.
        """
        if self.cluster is None:
            yield
            return
        with cluster.joined(self.cluster):
            yield

    def number(self, mib: int) -> int:
        """How many jobs are done at once; each takes `mib` MiB of this machine's memory."""
        return workers.count(self.workers, mib) if self.cluster is None else cluster.cpus()

    def results(
        self,
        run: Callable[[Task], Result],
        tasks: Sequence[Task],
        look: Look = lambda spent: None,
    ) -> Generator[tuple[int, Result], None, None]:
        """The number of each task and the result of `run`, as it comes. Each task has a process of
        its own. `look` is called with what those of this machine have spent.

        Raises:
            HarnessError: a process ended before its task did.
        """
        if self.cluster is None:
            yield from workers.results(run, tasks, self.workers, look)
            return
        with self.joined():
            yield from cluster.results(run, tasks)
