"""What is recorded of the calls of a class that was explored in small settings."""

import pickle
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

SettingT = TypeVar("SettingT")
CallT = TypeVar("CallT")
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
        """Tells it from all others."""
        return pickle.dumps((self.made.asked, self.made.setting, self.before, self.after))

    def __str__(self) -> str:
        return f"{self.made.asked} from {self.before} to {self.after}"


@dataclass
class Exploration(Generic[SettingT, CallT]):
    """What came of a setting: of each operation, how many calls were made; contract -> the calls
    that break it first; and one call of each kind."""

    setting: SettingT
    calls: Counter[str] = field(default_factory=Counter)
    broken: dict[str, str] = field(default_factory=dict)
    unlike: dict[Hashable, Transition[SettingT, CallT]] = field(default_factory=dict)

    def record(
        self, kind: Hashable, asked: CallT, answer: object, before: Found, after: Found
    ) -> None:
        """Keep a call, if it is the first of its kind."""
        if kind not in self.unlike:
            said = answer if isinstance(answer, bool) else None
            self.unlike[kind] = Transition(self.setting, asked, said, before, after)


def change_of(found: Any, was: Any) -> Hashable:
    """By how much something changed; "" where it did not."""
    if found == was:
        return ""
    return len(found) - len(was) if isinstance(found, dict) else "changed"


class HasPath(Protocol):
    """A state that says which calls led to it."""

    @property
    def path(self) -> tuple[object, ...]: ...


def told(before: HasPath | None, asked: object) -> str:
    """The calls that led to a state, and one more, in words."""
    return "; ".join(map(str, (*(() if before is None else before.path), asked)))
