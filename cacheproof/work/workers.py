"""Work on every core, in processes that end with this one, however it ends."""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.targets.host_server import SERVERS
from cacheproof.work.interruptions import between_interruptions, leave_to_parent, left_to_parent

Task = TypeVar("Task")
Result = TypeVar("Result")


WORKER_MIB = 700
"""MiB that are reckoned for a worker with its host."""
ENGINE_MIB = 3000
"""MiB that are reckoned for a worker with an engine."""
LOOK_SECONDS = 0.2
"""Seconds of one wait for work that is done, and the longest that an interruption waits."""
COUNT_SECONDS = 0.5
"""Seconds between two reports of a worker's processor time."""
Look = Callable[[Sequence[float]], None]
"""Called with the seconds of processor time that each task has taken; 0 before it begins."""


def count(wanted: int | None, mib: int = WORKER_MIB) -> int:
    """The number of workers: as many as are wanted, else one for each core that this process may
    use, as far as free memory holds them."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, _free_mib() // mib))


def _free_mib() -> int:
    """Free memory; where the system does not say, without end."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return sys.maxsize
    free = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(next(free, sys.maxsize)) // 1024


class Crew:
    """Processes that are begun once and then do one job after the other.

    Each calls `begin` with the arguments before its first job. `close` ends them where they are.
    """

    def __init__(self, number: int, begin: Callable[..., object], *arguments: object) -> None:
        self.number = number
        context = get_context("spawn")
        self._followed, self._held = context.Pipe(duplex=False)
        self._scratch = tempfile.TemporaryDirectory(
            prefix="cacheproof-workers-", ignore_cleanup_errors=True
        )
        self._pool = ProcessPoolExecutor(
            number,
            mp_context=context,
            initializer=_begin_with_parent,
            initargs=(self._followed, self._scratch.name, begin, arguments),
        )

    def submit(self, run: Callable[[Task], Result], task: Task) -> "Future[Result]":
        """Do it as soon as a process is free. The future raises BrokenProcessPool where one has
        ended before its work was done."""
        with between_interruptions(), left_to_parent():
            return self._pool.submit(run, task)

    def close(self) -> None:
        """End all of them, whatever they do."""
        # first: without this end of the pipe the processes end, and the pool need not wait for jobs
        self._held.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._followed.close()
        self._scratch.cleanup()


def _begin_with_parent(
    followed: Connection,
    scratch: str,
    begin: Callable[..., object],
    arguments: Sequence[object],
) -> None:
    """Begin, with a folder for temporary files that outlives the process: it is ended anywhere.
    Where the parent was killed there is nobody left but us to remove it."""
    _end_with_parent(followed, scratch)
    os.environ["TMPDIR"] = scratch
    tempfile.tempdir = None  # else a folder that was found before TMPDIR changed would stay
    begin(*arguments)


def results(
    run: Callable[[Task], Result],
    tasks: Sequence[Task],
    workers: int | None = None,
    look: Look = lambda spent: None,
) -> Generator[tuple[int, Result], None, None]:
    """The number of each task and the result of `run`, as it comes. Tasks are begun in their order,
    `workers` at once, by default one on each core. Each has a process of its own: a solver's work
    depends on what its process did before. `look` is called several times a second.

    Raises:
        HarnessError: a process ended before its task did.
    """
    if not tasks:
        return
    context = get_context("spawn")
    followed, held = context.Pipe(duplex=False)
    spent = context.RawArray("d", len(tasks))
    pool = ProcessPoolExecutor(
        min(count(workers), len(tasks)),
        mp_context=context,
        initializer=_begin_counting,
        initargs=(followed, spent),
        max_tasks_per_child=1,
    )
    # left from right to left: without `held` the processes end, and the pool need not wait for them
    with followed, pool, held:
        with between_interruptions(), left_to_parent():
            begun = {
                pool.submit(_counted, run, number, task): number
                for number, task in enumerate(tasks)
            }
        try:
            while begun:
                ended = done_among(begun)
                look(spent)
                for done in ended:
                    yield begun.pop(done), done.result()
        except BrokenProcessPool:
            raise HarnessError(
                "a worker process ended before its work was done; expected memory for one on each "
                "core, and code that does not end the process that runs it"
            ) from None


_spent: MutableSequence[float] = []


def _begin_counting(followed: Connection, spent: MutableSequence[float]) -> None:
    global _spent
    _end_with_parent(followed)
    _spent = spent


def _counted(run: Callable[[Task], Result], number: int, task: Task) -> Result:
    """Do a task, and let the parent see meanwhile how much processor time that takes."""

    def count() -> None:
        while True:
            _spent[number] = time.process_time()
            time.sleep(COUNT_SECONDS)

    threading.Thread(target=count, daemon=True).start()
    outcome = run(task)
    _spent[number] = time.process_time()
    return outcome


def done_among(begun: Collection["Future[Result]"]) -> "set[Future[Result]]":
    """The futures that are done, as soon as one is; none after LOOK_SECONDS."""
    with between_interruptions():
        return wait(begun, LOOK_SECONDS, FIRST_COMPLETED).done


def _end_with_parent(followed: Connection, scratch: str | None = None) -> None:
    """End when the parent lets go of its end of the pipe: it has ended, or wants no more. What was
    started here and the folder for temporary files, if there is one, go as well."""
    leave_to_parent()

    def follow() -> None:
        followed.poll(None)
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        SERVERS.abandon()
        # sys.exit would end this thread alone
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
