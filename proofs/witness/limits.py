"""Calls of a class that may not end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Endless(BaseException):
    """A call does not end; no contract's judge may take it for an answer."""


def _raise_endless(*_: object) -> None:
    raise Endless


@contextmanager
def limited(seconds: float) -> Iterator[Callable[[], None]]:
    """Raise Endless in the block after some `seconds` of CPU time of this process; the function
    that it gives begins the time anew. An outer limit stands still while an inner one runs."""

    def begin_anew() -> None:
        # CPU time, so that no other load on the machine ends a call
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)

    left_outside, _ = signal.getitimer(signal.ITIMER_VIRTUAL)
    before = signal.signal(signal.SIGVTALRM, _raise_endless)
    begin_anew()
    try:
        yield begin_anew
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        signal.setitimer(signal.ITIMER_VIRTUAL, left_outside)
