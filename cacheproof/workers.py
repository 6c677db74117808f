"""Work on every core, in processes that end with this one, however it ends."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from cacheproof.differential.errors import HarnessError

Task = TypeVar("Task")
Result = TypeVar("Result")


def results(run: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    """The number of each task and what `run` makes of it, as it comes; begun in their order. Each
    has a process of its own: a solver's work hangs on what its process did before.

    Raises:
        HarnessError: a process ended before its task did.
    """
    if not tasks:
        return
    context = get_context("spawn")
    followed, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        min(os.cpu_count() or 1, len(tasks)),
        mp_context=context,
        initializer=_end_with_parent,
        initargs=(followed,),
        max_tasks_per_child=1,
    )
    with followed, pool, held:
        with _interruptions_left_to_parent():
            begun = {pool.submit(run, task): number for number, task in enumerate(tasks)}
        try:
            for done in as_completed(begun):
                yield begun[done], done.result()
        except BrokenProcessPool:
            raise HarnessError(
                "a worker process ended before its work was done; expected memory for one on each "
                "core, and code that does not end the process that runs it"
            ) from None


def _end_with_parent(followed: Connection) -> None:
    """End when the parent lets go of its end of the pipe: it has ended, or wants no more."""

    def follow() -> None:
        followed.poll(None)
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
