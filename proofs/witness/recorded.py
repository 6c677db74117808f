"""What is recorded of the calls of a class that was explored in small settings."""

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from cacheproof.proofs.witness.breadth import breadth_first


class Operated(Protocol):
    """A call, which says of which operation it is."""

    @property
    def operation(self) -> str: ...


class HasPath(Protocol):
    """A state that says which calls led to it."""

    @property
    def path(self) -> tuple[object, ...]: ...


SettingT = TypeVar("SettingT")
CallT = TypeVar("CallT", bound=Operated)
StateT = TypeVar("StateT", bound=HasPath)
Found = Mapping[tuple[str, str], Any]
"""What every attribute is, by its owner and name; containers are Python's."""


@dataclass(frozen=True)
class Transition(Generic[SettingT, CallT]):
    """A call that was made, its answer where contracts look at it, and every attribute around it,
    by owner and name, as the proof has them."""

    setting: SettingT
    asked: CallT
    answer: bool | None
    before: Found
    after: Found


@dataclass(frozen=True)
class RecordedCall(Generic[SettingT, CallT]):
    """A call that CPython made, for the translator to be held against."""

    made: Transition[SettingT, CallT]

    @property
    def before(self) -> Found:
        return self.made.before

    @property
    def after(self) -> Found:
        return self.made.after

    @property
    def mark(self) -> bytes:
        """A key that is unique to this call."""
        return mark_of(self.made.asked, self.made.setting, self.before, self.after)

    def __str__(self) -> str:
        return f"{self.made.asked} from {self.before} to {self.after}"


def mark_of(*parts: object) -> bytes:
    """A digest that tells calls apart, and is the same in every process."""
    return hashlib.sha256(repr(_in_order(parts)).encode()).digest()


def _in_order(one: object) -> object:
    """A value whose members stand in one order, the same in every process."""
    match one:
        case set() | frozenset():
            return set, sorted(map(repr, map(_in_order, one)))
        case Mapping():
            return dict, [(_in_order(key), _in_order(value)) for key, value in one.items()]
        case list() | tuple():
            return [_in_order(each) for each in one]
    return one


@dataclass
class SettingExploration(Generic[SettingT, CallT]):
    """What came of a setting: operation -> how many calls were made; contract -> the calls that
    break it first; and one call of each kind."""

    setting: SettingT
    calls: Counter[str] = field(default_factory=Counter)
    broken: dict[str, str] = field(default_factory=dict)
    unlike: dict[Hashable, Transition[SettingT, CallT]] = field(default_factory=dict)

    def go_through(
        self,
        begin: CallT,
        offered: Callable[[StateT], Iterable[CallT]],
        attempt: Callable[[StateT | None, CallT], StateT | None],
        key: Callable[[StateT], Hashable],
        calls_max: int,
        safety: str,
    ) -> None:
        """Go through the states that calls lead to, until `calls_max` are made and the last state
        is done; or to a call that does not end, which breaks the contract that nothing raises.

        Args:
            begin: the call that builds an object.
            offered: the calls that are made from a state.
            attempt: makes a call; None where the state after it is not to be gone on from.
            key: equal for states of which only one need be gone on from.
            calls_max: when to stop.
            safety: the contract that nothing raises.
        """

        def made(before: StateT | None, asked: CallT) -> StateT | None:
            self.calls[asked.operation] += 1
            return attempt(before, asked)

        reached = breadth_first(
            lambda: made(None, begin), offered, made, key, lambda: self.calls.total() < calls_max
        )
        if reached.endless is not None:
            self.broken[safety] = f"{told(*reached.endless)}: it does not end"

    def record(
        self, kind: Hashable, asked: CallT, answer: object, before: Found, after: Found
    ) -> None:
        """Keep a call, if it is the first of its kind."""
        if kind not in self.unlike:
            said = answer if isinstance(answer, bool) else None
            self.unlike[kind] = Transition(self.setting, asked, said, before, after)


def change_of(found: object, was: object) -> Hashable:
    """By how much something changed; "" where it did not."""
    if found == was:
        return ""
    if isinstance(found, dict) and isinstance(was, dict):
        return len(found) - len(was)
    return "changed"


def told(before: HasPath | None, asked: object) -> str:
    """The calls that led to a state, and one more, in words."""
    return "; ".join(map(str, (*(() if before is None else before.path), asked)))
