"""The progress of a long command: what it does, which share is done, and about how long the rest
takes.

On a terminal that is one line, kept up to date. Elsewhere it is a line now and then, from a thread
of its own: so a command that waits for one slow thing says so as well.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn
from rich.progress import Task as Shown
from rich.table import Column
from rich.text import Text

from cacheproof.differential.traces.wording import visible_line

if TYPE_CHECKING:
    from cacheproof.work.workplace import Workplace

Task = TypeVar("Task")
Result = TypeVar("Result")

LINE_SECONDS = 10.0
"""Seconds between two lines of one phase where there is no terminal."""
SOON_SECONDS = 2.0
"""Seconds until the first line of another phase."""
LOOK_SECONDS = 0.5
"""Seconds between two looks whether a line is due."""
DATA_SECONDS = 5.0
"""Seconds of work below which nothing is said of how long the rest takes."""


@dataclass
class Phase:
    """A phase of a command: one thing that it does.

    Attributes:
        began: a moment of the clock.
        text: how far it is, in words.
        share: of it that is done, from 0 to 1; None where that is not known.
        left: seconds that the rest takes, as far as one can tell; None where one cannot.
        counted_from: how much was done when it was first counted, and the moment.
    """

    what: str
    began: float
    text: str = ""
    share: float | None = None
    left: float | None = None
    counted_from: tuple[float, float] | None = None

    def told(self, now: float) -> str:
        """The phase at that moment, in one line."""
        parts = []
        if self.share is not None:
            # 100% would say that the phase has ended
            percent = min(99, int(self.share * 100))
            parts.append(f"{percent}% done" if percent else "less than 1% done")
        if self.left is not None:
            # what has not ended is never 0 s from its end
            parts.append(f"about {duration(max(1.0, self.left))} left")
        if now - self.began >= 1:
            parts.append(f"{elapsed(now - self.began)} so far")
        clauses = [", ".join(parts), self.text]
        words = "; ".join(one for one in clauses if one)
        return f"{self.what}: {words}" if words else self.what


class Live:
    """The progress that a command shows, from `start` to `close`.

    A phase within another takes its place until it ends. The `clock` counts seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._phases: list[Phase] = []
        self._told: Phase | None = None
        self._told_at = clock()
        self._shown: Progress | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to show the progress."""
        if self._console.is_terminal:
            columns = SpinnerColumn(), BarColumn(bar_width=16), _Line(self._line)
            self._shown = Progress(*columns, console=self._console, transient=True, expand=True)
            self._task = self._shown.add_task("", total=None)
            self._shown.start()
        else:
            threading.Thread(target=self._follow, daemon=True).start()

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """A phase, for as long as the context lasts."""
        self._phases.append(Phase(visible_line(what), self._clock()))
        self._update()
        if self._shown is not None:
            self._shown.refresh()
        try:
            yield
        finally:
            self._phases.pop()
            self._update()

    def show(self, text: str, share: float | None = None, left: float | None = None) -> None:
        """Set how far the phase is: a share from 0 to 1, and seconds that are left."""
        phase = self._phases[-1]
        phase.text, phase.share, phase.left = visible_line(text), share, left
        self._update()

    def count(self, done: float, total: float, text: str = "") -> None:
        """Set how far the phase is, in parts that take about as long as each other. What was done
        before the first count says nothing of how long the rest takes."""
        phase, now = self._phases[-1], self._clock()
        if phase.counted_from is None:
            phase.counted_from = done, now
        first, began = phase.counted_from
        left = rest(done - first, total - first, now - began)
        self.show(text, done / total if total else None, left)

    def counter(self, total: float) -> Callable[..., None]:
        """A function to call with how much more is done of `total`, by default 1."""
        done = 0.0
        self.count(done, total)

        def advance(count: float = 1) -> None:
            nonlocal done
            done += count
            self.count(done, total, f"{done:,.0f} of {total:,.0f}")

        return advance

    def say(self, line: str) -> None:
        """Print a line that stays: news, such as what has just ended."""
        self._console.print(visible_line(line), style="dim", soft_wrap=True)

    def close(self) -> None:
        """Show no more."""
        self._ended.set()
        if self._shown is not None:
            self._shown.stop()

    def look(self) -> None:
        """Print the progress where a line is due: soon of another phase, now and then of the same
        one. A phase that ends before is not worth a line."""
        phase, now = self._phases[-1] if self._phases else None, self._clock()
        if phase is None:
            return
        since = now - max(phase.began, self._told_at)
        if since >= (LINE_SECONDS if phase is self._told else SOON_SECONDS):
            self._told, self._told_at = phase, now
            self.say(phase.told(now))

    def _line(self) -> str:
        return self._phases[-1].told(self._clock()) if self._phases else ""

    def _update(self) -> None:
        if self._shown is not None and self._phases:
            share = self._phases[-1].share
            self._shown.update(
                self._task, total=None if share is None else 1.0, completed=share or 0.0
            )

    def _follow(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()


class _Line(ProgressColumn):
    """The line beside a bar, made anew whenever the bar is drawn."""

    def __init__(self, line: Callable[[], str]) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis", ratio=1))
        self._line = line

    def render(self, task: Shown) -> Text:
        """The line at this moment."""
        return Text(self._line(), no_wrap=True, overflow="ellipsis")


@dataclass
class Reckoning:
    """How much of a work is left, by how long its jobs have taken until now: those of a kind take
    about as long as each other, so many seconds a unit. `began` is a moment of the clock. `weights`
    say how long a unit of a kind takes beside those of others: until one has ended, that is all
    that is known of it."""

    began: float
    weights: Mapping[str, float] = field(default_factory=dict)
    planned: Counter[str] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)

    def took(self, kind: str, units: int, seconds: float) -> None:
        """A job has ended."""
        self.units[kind] += units
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds

    def of_one(self, kind: str) -> float | None:
        """Seconds that a unit of the kind takes; None where nothing is known of it."""
        if self.units[kind]:
            return self.seconds[kind] / self.units[kind]
        weighed = sum(self.weights.get(one, 0.0) * count for one, count in self.units.items())
        if not weighed or kind not in self.weights:
            return None
        known = sum(self.seconds[one] for one in self.units if one in self.weights)
        return self.weights[kind] * known / weighed

    def told(
        self, now: float, workers: int, at_least: float = 0.0
    ) -> tuple[float | None, float | None]:
        """The share that is done, and the seconds that the rest takes so many workers, or
        `at_least`. Nothing while a kind is planned of which nothing is known."""
        left = 0.0
        for kind, planned in self.planned.items():
            due = max(0, planned - self.units[kind])
            seconds = self.of_one(kind)
            # a share without this kind would fall back once it is known
            if due and seconds is None:
                return None, None
            left += due * (seconds or 0.0)
        wall, spent = max(left / workers, at_least), now - self.began
        return (spent / (spent + wall), wall) if spent >= DATA_SECONDS else (None, None)


def telling(
    live: Live,
    place: "Workplace",
    run: Callable[[Task], Result],
    tasks: Sequence[Task],
    abouts: Sequence[str],
    expected: Sequence[float],
    watch: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Result]]:
    """The number of each task and what comes of it at a place, as it comes; meanwhile it is said
    how far they are, by what each is about and the processor time that it is expected to take, and
    one may `watch` for what makes all of them end."""
    ended: set[int] = set()
    began = time.monotonic()

    def look(spent: Sequence[float]) -> None:
        watch()
        share, left = expected_of(expected, spent, ended, time.monotonic() - began)
        begun = [number for number, one in enumerate(spent) if one and number not in ended]
        now = ", ".join(abouts[number] for number in begun) or "processes start"
        live.show(f"{len(ended)} of {len(tasks)} jobs have ended; now: {now}", share, left)

    with closing(place.results(run, tasks, look)) as ran:
        for number, outcome in ran:
            ended.add(number)
            yield number, outcome


def expected_of(
    expected: Sequence[float], spent: Sequence[float], ended: Collection[int], seconds: float
) -> tuple[float | None, float | None]:
    """The share of tasks that is done, and the seconds until all are.

    Args:
        expected: processor time that each was reckoned to take; what has `ended` says how far that
            is off on this machine.
        spent: what each has taken until now; 0 before it begins.
        seconds: since the first began.
    """
    if sum(spent) < DATA_SECONDS:
        return None, None
    of_ended = sum(expected[one] for one in ended)
    # until enough has ended to say how fast this machine is, it is as fast as expected
    pace = sum(spent[one] for one in ended) / of_ended if of_ended >= DATA_SECONDS else 1.0
    # a task beyond its expected time has a tenth of what it took left, not nothing
    left = [
        0.0 if number in ended else max(one * pace - spent[number], spent[number] / 10)
        for number, one in enumerate(expected)
    ]
    running = sum(spent[one] > 0 and one not in ended for one in range(len(expected)))
    rate = sum(spent) / seconds
    # a task has only its part of the rate, so the longest may outlast all others together
    longest = max(left, default=0.0) * max(1, running)
    return sum(spent) / (sum(spent) + sum(left)), max(sum(left), longest) / rate


def rest(done: float, total: float, seconds: float) -> float | None:
    """Seconds until all is done, where `done` took `seconds`; None before that says much."""
    if done <= 0 or seconds < DATA_SECONDS:
        return None
    return seconds * max(0.0, total - done) / done


def elapsed(seconds: float) -> str:
    """A duration in words, to the second, so that no two lines are the same."""
    minutes, rest_of_it = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = (hours, "h"), (minutes, "min"), (rest_of_it, "s")
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def duration(seconds: float) -> str:
    """A duration in words, no more exact than a guess can be."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
