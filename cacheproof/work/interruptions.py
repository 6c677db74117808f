"""Ctrl-C and SIGTERM: one interruption, after which a command says what it has, and ends.

A whole group of processes is often asked to end at once. Workers leave it to the process that
began them, which ends them when it has told what they did.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)


def heed() -> None:
    """From here on SIGTERM interrupts this process as Ctrl-C does. What was set to be ignored stays
    so: a shell's background job is not for Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return
    for one, default in zip(
        INTERRUPTIONS, (signal.default_int_handler, signal.SIG_DFL), strict=True
    ):
        if signal.getsignal(one) == default:
            signal.signal(one, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """An interruption. A SIGTERM that follows is not heard: whoever cancels a job may send both,
    and what was found is being told. Ctrl-C again ends that too."""
    signal.signal(signal.SIGTERM, unheard)
    raise KeyboardInterrupt


def unheard(_number: int, _frame: FrameType | None) -> None:
    """Do nothing. Unlike SIG_IGN it is not passed on to a program that is started."""


@contextmanager
def left_to_parent() -> Iterator[None]:
    """Block interruptions in processes that are started here, from their first moment on, and in
    what those start."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """In a process started under `left_to_parent`: let what it starts be ended by SIGTERM again."""
    signal.signal(signal.SIGTERM, unheard)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def between_interruptions() -> Iterator[None]:
    """An interruption is heard before or after what is done here. An exception in the midst of it
    could leave a lock of a future held, for which the pool then waits when it is closed (the `with`
    of a condition is several steps of Python)."""
    # handlers run in the main thread, so no other is interrupted
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = [signal.signal(one, lambda number, _: heard.append(number)) for one in INTERRUPTIONS]
    try:
        yield
    finally:
        for one, handler in zip(INTERRUPTIONS, before, strict=True):
            signal.signal(one, handler)
        if heard:
            signal.raise_signal(heard[0])
