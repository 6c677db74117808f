"""Runs one trace through a session and collects a step record per event."""

import atexit
import gc
import os
import signal
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol, TypeVar

from .protocol import Call, Event, HostError, Illegal, Json, Record, RefusedByRelease

Session = TypeVar("Session", bound="DrivenSession")

_DRIVER = Path(__file__).parent
_OF_OTHERS = frozenset({"site-packages", Path(os.__file__).parent.name})
"""Folders of libraries that both a driver and a release call."""

FULL_STATE_EVERY = 1000
COLLECT_AFTER_OBJECTS = 200_000
SECONDS_OF_EVENT = 5.0
"""Processor time after which an event is ended, and at most twice that. Most take milliseconds."""


class DoesNotEnd(BaseException):
    """The release does not end with an event. It is no Exception, which the release may catch."""


class _Watch:
    """The event that is under way, and the one at the last look; None between events. `process` is
    the process that has a clock, 0 where none has yet; None where events are not limited."""

    now: object | None = None
    before: object | None = None
    process: int | None = None


_watch = _Watch()


def limit_events() -> None:
    """End each event, in this process and its forks, with DoesNotEnd where it is under way at two
    looks. Without that an endless loop would show as a host that gives no answer, and name no
    event. One clock looks at all events: to set it for each takes longer than most events."""
    signal.signal(signal.SIGVTALRM, _look)
    _watch.process = 0
    # Python gives signals back before it ends, and one that nobody handles ends it otherwise
    atexit.register(signal.setitimer, signal.ITIMER_VIRTUAL, 0)


def _start_clock() -> None:
    _watch.process = os.getpid()  # forks do not inherit it
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_OF_EVENT, SECONDS_OF_EVENT)


def _look(*_: object) -> None:
    if _watch.now is not None and _watch.now is _watch.before:
        _watch.before = None
        raise DoesNotEnd(f"no end within {SECONDS_OF_EVENT:.0f} s of a processor")
    _watch.before = _watch.now


def calm_collector() -> None:
    """Let the cycle collector run seldom: it would walk modules that are imported, and records of a
    search, again and again, and find next to no cycles in them."""
    gc.set_threshold(COLLECT_AFTER_OBJECTS, 20, 50)


class CallLog(Protocol):
    """What records the calls of what a session drives."""

    def take(self) -> Sequence[Call]:
        """The calls since the last take."""

    def full_state(self) -> object:
        """The whole state now, as plain data; None where none is shown."""


class DrivenSession(Protocol):
    """What runs the events of one trace."""

    @property
    def recorder(self) -> CallLog: ...

    def apply(self, event: Event) -> Json:
        """The event's outcome, None for a no-op."""


class NoCalls:
    """A recorder for systems whose answers are their outcomes, and which show no state."""

    def take(self) -> list[Call]:
        return []

    def full_state(self) -> None:
        return None


@contextmanager
def closed(session: Session) -> Iterator[Session]:
    """The session, closed at the end where it has something to close."""
    try:
        yield session
    finally:
        getattr(session, "close", lambda: None)()


def run_events(session: DrivenSession, events: Iterable[Event]) -> list[Record]:
    """One (outcome, calls, raised, state) per event, up to the first exception of the release.

    Raises:
        RefusedByRelease: the release itself refuses a request of the trace; it has the records so
            far.
        Illegal: a request of the trace cannot be asked of the release.
        HostError: the driver is at fault.
    """
    records: list[Record] = []
    recorder = session.recorder
    calls_until_state = FULL_STATE_EVERY
    for event in events:
        try:
            outcome, calls, raised = run_event(session, event)
        except RefusedByRelease as refusal:
            refusal.records = [*records, *refusal.records]
            raise
        calls_until_state -= len(calls)
        state: object = None
        if calls_until_state <= 0:
            calls_until_state = FULL_STATE_EVERY
            state = recorder.full_state()
        records.append((outcome, calls, raised, state))
        if raised is not None:
            break
    if records and records[-1][3] is None:
        outcome, calls, raised, _ = records[-1]
        records[-1] = outcome, calls, raised, recorder.full_state()
    return records


def run_event(
    session: DrivenSession, event: Event
) -> tuple[Json, Sequence[Call], tuple[str, str] | None]:
    """One event's outcome, its calls, and what the release raised.

    Raises as `run_events`.
    """
    outcome: Json
    raised: tuple[str, str] | None = None
    # In a fork the clock is still to be started.
    if _watch.process is not None and _watch.process != os.getpid():
        _start_clock()
    _watch.now = object()  # a new one, so that two looks tell events apart
    try:
        outcome = session.apply(event)
    except (Illegal, HostError):
        raise
    except (Exception, DoesNotEnd, SystemExit) as error:
        outcome, raised = None, raised_of(error)
    finally:
        _watch.now = None
    return outcome, session.recorder.take(), raised


def raised_of(error: BaseException) -> tuple[str, str]:
    """An exception as a record has it: its type and the first line of its text."""
    return type(error).__name__, (str(error).splitlines() or [""])[0]


def is_raised_by_release(error: Exception) -> bool:
    """Whether an error while something was made was raised by the release, or by what it called;
    not where an attribute is missing in the driver's stand-ins."""
    if isinstance(error, AttributeError) and isinstance(error.obj, SimpleNamespace):
        return False
    frames = [Path(one.filename) for one in traceback.extract_tb(error.__traceback__)]
    # Libraries may be called by either: the innermost frame that is none of theirs decides.
    ours_or_theirs = (one for one in reversed(frames) if not _is_of_others(one))
    return _DRIVER not in next(ours_or_theirs, frames[-1]).parents


def _is_of_others(file: Path) -> bool:
    return "vllm" not in file.parts and not _OF_OTHERS.isdisjoint(file.parts)
