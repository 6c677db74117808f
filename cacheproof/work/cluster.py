"""Work on a Ray cluster, job by job, as `workers` does it on the cores of this machine.

Scheduling, retries and transport are Ray's. A job is a value, and its outcome depends on nothing
else: a node that dies costs its jobs another run. Ray comes with the extra `cluster`.
"""

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TypeVar

from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.work.code_digest import code_digest
from cacheproof.work.extras import install_line
from cacheproof.work.workers import done_among

Task = TypeVar("Task")
Result = TypeVar("Result")
OF_JOBS = ("differential", "gpu_runner", "proofs", "reference", "spec")
"""Parts of this package whose text decides the outcome of a job."""
CONNECT_SECONDS = 10.0
"""Seconds to wait for a cluster's address; Ray itself tries for two minutes."""
COUNT_SECONDS = 2.0
"""Seconds after which CPUs are counted again."""
RUNS_MAX = 100
"""Most runs of a job whose process or node ends each time: then the job is the cause."""


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Join the cluster at `address`; "auto" is the one that `ray start` began on this machine. At
    the end, what is under way there is given up. Within another `joined`, its cluster stays.

    Raises:
        InputError: Ray is not installed, or there is no such cluster, or it has no CPU.
    """
    ray = quiet_ray()
    if ray.is_initialized():
        yield
        return
    try:
        # before ray.init: an address where nobody answers is refused in seconds
        if (place := re.fullmatch(r"([\w.-]+):(\d{1,5})", address, re.ASCII)) is not None:
            socket.create_connection((place[1], int(place[2])), CONNECT_SECONDS).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        why = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(
            f"--cluster {address}: {why}; expected auto, or HOST:PORT of a Ray cluster that "
            "`ray start` has begun"
        ) from None
    try:
        if not _cpus():
            raise InputError(
                f"--cluster {address}: the cluster has no CPUs; start a node that has some"
            )
        yield
    finally:
        ray.shutdown()


def cpus() -> int:
    """How many CPUs the cluster has now, or one while all of its nodes are away."""
    return max(1, _cpus())


def _cpus() -> int:
    return int(quiet_ray().cluster_resources().get("CPU", 0))


class ClusterCrew:
    """Processes of the cluster that is joined, one on each of its CPUs.

    `begin` is called with the arguments in each process before its first job; they must mean the
    same on every node, which has its own file system. `afresh`: each job has a process of its own.
    """

    def __init__(
        self, begin: Callable[..., object], *arguments: object, afresh: bool = False
    ) -> None:
        ray = quiet_ray()
        calls = {"max_calls": 1} if afresh else {}
        self._do = ray.remote(max_retries=RUNS_MAX - 1, num_cpus=1, **calls)(_do)
        self._begin = ray.put((code_digest(OF_JOBS), begin, arguments))
        self._number, self._counted_at = cpus(), time.monotonic()

    @property
    def number(self) -> int:
        """How many CPUs there are: nodes may go and come."""
        if time.monotonic() - self._counted_at > COUNT_SECONDS:
            self._number, self._counted_at = cpus(), time.monotonic()
        return self._number

    def submit(self, run: Callable[[Task], Result], task: Task) -> "Future[Result]":
        """Do it as soon as a CPU is free, and again if its process or node dies. The future raises
        what `run` raised, or HarnessError where Ray gives up."""
        future: Future[Result] = Future()
        self._do.remote(self._begin, run, task).future().add_done_callback(
            lambda done: _settle(future, done)
        )
        return future

    def close(self) -> None:
        """Do nothing: what is under way ends when the cluster is left."""


def results(run: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    """The number of each task and what `run` makes of it, as it comes, on the cluster that is
    joined. Each has a process of its own.

    Raises:
        HarnessError: Ray gave up a task.
    """
    crew = ClusterCrew(_begin_nothing, afresh=True)
    begun = {crew.submit(run, task): number for number, task in enumerate(tasks)}
    while begun:
        for done in done_among(begun):
            yield begun.pop(done), done.result()


def _begin_nothing() -> None:
    """Do nothing: a task needs no beginning."""


def _settle(future: "Future[Result]", done: "Future[Result]") -> None:
    """Settle a future with the outcome of Ray's, errors in our words."""
    error = done.exception()
    if error is None:
        future.set_result(done.result())
        return
    future.set_exception(_cause_of(error))


def _cause_of(error: BaseException) -> BaseException:
    errors = quiet_ray().exceptions
    if isinstance(error, errors.RayTaskError):
        return error.cause if isinstance(error.cause, BaseException) else error
    if isinstance(error, errors.RayError):
        why = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        return HarnessError(
            f"the cluster gave up a job: {why}; expected nodes with the memory that a job takes, "
            f"and a job that does not end its process {RUNS_MAX} times"
        )
    return error


_begun: tuple[str, Callable[..., object], tuple[object, ...]] | None = None


def _do(
    beginning: tuple[str, Callable[..., object], tuple[object, ...]],
    run: Callable[[Task], Result],
    task: Task,
) -> Result:
    """The outcome of a job in a process of the cluster, which may have done jobs of other crews."""
    global _begun
    if _begun != beginning:
        digest, begin, arguments = beginning
        # a node has its own installation: another text would answer for code that is not here
        if _own_digest() != digest:
            raise HarnessError(
                "a node of the cluster has another cacheproof than this one; expected the same text"
            )
        begin(*arguments)
        _begun = beginning
    try:
        return run(task)
    except SystemExit as error:  # Ray would take the process for dead, and do the job again
        raise HarnessError(str(error)) from None


@cache
def _own_digest() -> str:
    return code_digest(OF_JOBS)


def quiet_ray() -> ModuleType:
    """Ray, which prints nothing: it would tell of nodes that die on standard output, where the JSON
    of a command goes. It reads that when it is first imported.

    Raises:
        InputError: it is not installed.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".|^$")
    try:
        import ray
    except ImportError:
        raise InputError(
            "--cluster needs Ray, which this Python has not; expected what "
            f"{install_line('cluster')} brings"
        ) from None
    return ray
