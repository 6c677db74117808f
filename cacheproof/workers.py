"""Work on every core, in processes that end with this one, however it ends."""

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from cacheproof.differential.errors import HarnessError

Task = TypeVar("Task")
Result = TypeVar("Result")


WORKER_MIB = 700
"""What is reckoned for a worker with its host, and below for one with an engine."""
ENGINE_MIB = 3000
LOOK_SECONDS = 0.2
"""How long one looks for work that is done; an interruption waits as long at most."""


def count(wanted: int | None, mib: int = WORKER_MIB) -> int:
    """How many workers there are to be: as many as are wanted, else one for each core that this
    process may use, as long as the memory that is free holds them."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, _free_mib() // mib))


def _free_mib() -> int:
    """Memory that is free, as far as the system says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return sys.maxsize
    free = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(next(free, sys.maxsize)) // 1024


class Crew:
    """Processes that are begun once and then do one job after the other.

    `begin` is called with the arguments in each before its first job. To be closed, which ends
    them where they are.
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
        with _between_interruptions(), _interruptions_left_to_parent():
            return self._pool.submit(run, task)

    def close(self) -> None:
        """End all of them, whatever they do."""
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
    tempfile.tempdir = None
    begin(*arguments)


def results(
    run: Callable[[Task], Result], tasks: Sequence[Task], workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """The number of each task and what `run` makes of it, as it comes; begun in their order, so
    many at once, by default one on each core. Each has a process of its own: a solver's work hangs
    on what its process did before.

    Raises:
        HarnessError: a process ended before its task did.
    """
    if not tasks:
        return
    context = get_context("spawn")
    followed, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        min(count(workers), len(tasks)),
        mp_context=context,
        initializer=_end_with_parent,
        initargs=(followed,),
        max_tasks_per_child=1,
    )
    with followed, pool, held:
        with _between_interruptions(), _interruptions_left_to_parent():
            begun = {pool.submit(run, task): number for number, task in enumerate(tasks)}
        try:
            while begun:
                for done in done_among(begun):
                    yield begun.pop(done), done.result()
        except BrokenProcessPool:
            raise HarnessError(
                "a worker process ended before its work was done; expected memory for one on each "
                "core, and code that does not end the process that runs it"
            ) from None


def done_among(begun: Collection["Future[Result]"]) -> "set[Future[Result]]":
    """Those that are done, as soon as one is, or none after a short time."""
    with _between_interruptions():
        return wait(begun, LOOK_SECONDS, FIRST_COMPLETED).done


def _end_with_parent(followed: Connection, scratch: str | None = None) -> None:
    """End when the parent lets go of its end of the pipe: it has ended, or wants no more. The
    folder for temporary files, if there is one, goes as well."""

    def follow() -> None:
        followed.poll(None)
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _interruptions_left_to_parent() -> Iterator[None]:
    """What is started here does not hear of Ctrl-C, from its first moment on, nor does what it
    starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _between_interruptions() -> Iterator[None]:
    """Ctrl-C is heard before or after what is done here. An exception in the midst of it could
    leave a lock of a future held, for which the pool then waits when it is closed (the `with` of a
    condition is several steps of Python)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)
