"""Runs of one function, a run for each way that it can take on symbolic values.

A symbolic value is a z3 term of which nothing is known but what was assumed. Where a run asks
whether something holds of such values, both answers are tried, each in a run of its own.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import z3

T = TypeVar("T")
RLIMIT = 2_000_000
"""z3's own measure of work, which no other load on the machine changes."""
PATHS_MAX = 2_000
"""Ways through one function that are followed."""


class Undecided(Exception):
    """z3 answered unknown; the message says of what."""


class Unread(Exception):
    """A text leaves the language that is read; the message says with what."""


class PathEnded(Exception):
    """A path ends before its function does, such as after one round of a loop."""


@dataclass(frozen=True)
class SequenceLoop:
    """`count` elements; `each` is what tells one from another, `elements` what tells all."""

    count: z3.ArithRef
    elements: z3.ExprRef
    each: tuple[z3.ExprRef, ...]


@dataclass(frozen=True)
class Path(Generic[T]):
    """One way through a function: what it returned, and under which conditions it is taken."""

    result: T
    conditions: tuple[z3.BoolRef, ...]


@dataclass
class _Run:
    """`answers` are (what was answered, whether the other answer is still to be tried); the first
    of them are those of the script."""

    script: list[tuple[bool, bool]]
    answers: list[tuple[bool, bool]] = field(default_factory=list)
    conditions: list[z3.BoolRef] = field(default_factory=list)
    loops: list[SequenceLoop] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)


_runs: list[_Run] = []
_ENDED = object()


def satisfiable(conditions: list[z3.BoolRef], seed: int = 0) -> z3.ModelRef | None:
    """A model of the conditions, None where there is none.

    Raises:
        Undecided: z3 cannot tell within its limit.
    """
    solver = z3.SimpleSolver()
    solver.set("rlimit", RLIMIT)
    solver.set("random_seed", seed)
    solver.add(*conditions)
    answer = solver.check()
    if answer == z3.unknown:
        raise Undecided(f"{solver.reason_unknown()}: {conditions[-1]}")
    return solver.model() if answer == z3.sat else None


def paths(function: Callable[[], T]) -> list[Path[T]]:
    """Every way that the function can take to its end.

    Raises:
        Unread: there are more than `PATHS_MAX`.
    """
    return [one for one in all_paths(function) if not ended(one)]


def all_paths(function: Callable[[], T]) -> list[Path[Any]]:
    """Every way that the function can take; `ended` says which end early.

    Raises:
        Unread: there are more than `PATHS_MAX`.
    """
    found: list[Path[Any]] = []
    script: list[tuple[bool, bool]] | None = []
    taken = itertools.count(1)
    while script is not None:
        if next(taken) > PATHS_MAX:
            raise Unread(f"more than {PATHS_MAX} paths")
        run = _Run(script)
        _runs.append(run)
        try:
            found.append(Path(function(), tuple(run.conditions)))
        except PathEnded:
            found.append(Path(_ENDED, tuple(run.conditions)))
        finally:
            _runs.pop()
        script = _next(run.answers)
    return found


def ended(path: Path[Any]) -> bool:
    """Whether a path ends before its function does."""
    return path.result is _ENDED


def _next(answers: list[tuple[bool, bool]]) -> list[tuple[bool, bool]] | None:
    """The answers of the next run: those of the last, up to the last that has another, which it
    takes; None where there is none."""
    for place in reversed(range(len(answers))):
        if answers[place][1]:
            # True was tried first, and False is the last that there is
            return [*answers[:place], (False, False)]
    return None


def next_number() -> int:
    """The number of the next symbol of the run: the same in every run that comes there in the same
    way."""
    return next(_runs[-1].numbers)


def assume(*facts: z3.BoolRef) -> None:
    """From here on the run takes the facts for true."""
    _runs[-1].conditions += facts


def assumed() -> list[z3.BoolRef]:
    """What the present run has taken for true so far."""
    return list(_runs[-1].conditions)


def holds(condition: z3.BoolRef) -> bool:
    """Whether the condition holds on this run."""
    run = _runs[-1]
    if len(run.answers) < len(run.script):
        # as the run before, in which z3 was asked
        answer, is_open = run.script[len(run.answers)]
    else:
        can_hold = satisfiable([*run.conditions, condition]) is not None
        # the run's conditions can hold together: where one answer cannot, the other can
        is_open = can_hold and satisfiable([*run.conditions, z3.Not(condition)]) is not None
        answer = can_hold
    run.answers.append((answer, is_open))
    run.conditions.append(condition if answer else z3.Not(condition))
    return answer


@contextmanager
def within(loop: SequenceLoop) -> Iterator[None]:
    """Run one round of a loop: what is made in the block is made once for each round."""
    loops = _runs[-1].loops
    loops.append(loop)
    try:
        yield
    finally:
        loops.pop()


def open_loops() -> tuple[SequenceLoop, ...]:
    """The loops, outermost first, of which one round is being run."""
    return tuple(_runs[-1].loops)
