"""Runs a session on from any state that it has been in, and tries every event in every state.

A state is what a session and the objects that it drives hold; these stay the same, and are put back
into it. Its tree says the same in lists, for whoever looks for symmetries: a mapping is its pairs
in their order, and a set a list that begins with the mark `SET`.
"""

import hashlib
import inspect
import marshal
import pickle
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, TypedDict, TypeVar

from .protocol import Event, HostError, Illegal, Json, Record, Tree
from .session import CallLog, run_event

SET = "{}"
_WITHOUT_REFERENCES = 2
"""The version of marshal's format in which equal data has equal bytes."""
Kept = TypeVar("Kept")
Place = TypeVar("Place")


class Expansion(TypedDict):
    """What follows some states, as `differential/traces/records.py` describes it."""

    steps: list[list[int]]
    records: list[Record]
    trees: list[Tree]
    full: list[Any]


class ExplorerMoment(NamedTuple, Generic[Kept]):
    """The state of a session at a moment: equal states have equal keys. `keep` makes what can be
    put back, and `tree` the state's tree."""

    key: Hashable
    keep: Callable[[], Kept]
    tree: Callable[[], Tree]


class States(Protocol[Kept]):
    """The states of one session. The text of `classes` decides what follows from a state."""

    @property
    def classes(self) -> Iterable[type]: ...

    def now(self) -> ExplorerMoment[Kept]:
        """The session's state now. Raises HostError where it cannot be kept."""

    def put_back(self, kept: Kept) -> None:
        """Put the session back into a state that was kept."""


class StateRecorder(CallLog, Protocol):
    """A recorder that counts changes from a state that it is told of."""

    def begin(self) -> None:
        """Take the state now as the one from which changes count."""


class ExploredSession(Protocol):
    """A session that is put into states, and tries events in them."""

    @property
    def recorder(self) -> StateRecorder: ...

    def apply(self, event: Event) -> Json:
        """The event's outcome, None for a no-op."""


class MovedSession(Protocol[Place]):
    """A session that says what it holds beside its manager, and can be put back into that."""

    @property
    def recorder(self) -> "RecorderWithManager": ...
    def position(self) -> Place: ...
    def go_to(self, position: Place) -> None: ...


class RecorderWithManager(Protocol):
    """The recorder of a session that drives one manager."""

    @property
    def manager(self) -> object: ...


class Explorer(Generic[Kept]):
    """Numbers the states of one session; its first state has number 0.

    `alphabet` are the events that are tried in every state, `capacity` what the manager made of
    the one that it was given; a table has none.
    """

    def __init__(
        self,
        session: ExploredSession,
        states: States[Kept],
        alphabet: Iterable[Event],
        capacity: int | None = None,
    ) -> None:
        self.capacity = capacity
        self._session = session
        self._states = states
        self._alphabet = list(alphabet)
        self._numbers: dict[Hashable, int] = {}
        self._kept: list[Kept] = []
        self._records: dict[Hashable, int] = {}
        self._number(states.now())

    @property
    def source(self) -> str:
        """SHA-256 of the text of the classes that are explored."""
        text = "\0".join(map(_text_of, self._states.classes))
        return hashlib.sha256(text.encode()).hexdigest()

    def tree(self) -> Tree:
        """The tree of the session's state now."""
        return self._states.now().tree()

    def expand(self, states: Iterable[int]) -> Expansion:
        """What follows these states by each event of the alphabet that is no no-op there, and is
        not refused."""
        expansion = Expansion(steps=[], records=[], trees=[], full=[])
        for state in states:
            expansion["steps"].append(self._expanded(state, expansion))
        return expansion

    def _expanded(self, state: int, expansion: Expansion) -> list[int]:
        """The steps from a state; what is new is added to the expansion."""
        steps: list[int] = []
        session, moved = self._session, True
        for number, event in enumerate(self._alphabet):
            if moved:
                self._states.put_back(self._kept[state])
                session.recorder.begin()
            try:
                outcome, calls, raised = run_event(session, event)
            except Illegal:
                moved = True
                continue
            moved = outcome is not None or bool(calls) or raised is not None
            if not moved:
                continue
            moment = self._states.now()
            known = len(self._kept)
            after = self._number(moment)
            if after == known:
                expansion["trees"].append(moment.tree())
                expansion["full"].append(session.recorder.full_state())
            record = outcome, calls, raised, None
            steps += number, self._record_number(record, expansion["records"]), after
        return steps

    def _record_number(self, record: Record, new: list[Record]) -> int:
        """The number of a record, which is added to those that are `new` if it is."""
        known = len(self._records)
        try:
            key: Hashable = as_bytes(record)
        except ValueError:  # it holds what marshal does not know: it counts as a new one
            key = known, None
        number = self._records.setdefault(key, known)
        if number == known:
            new.append(record)
        return number

    def _number(self, moment: ExplorerMoment[Kept]) -> int:
        number = self._numbers.setdefault(moment.key, len(self._kept))
        if number == len(self._kept):
            self._kept.append(moment.keep())
        return number


class ManagerStates(Generic[Place]):
    """The states of a `ManagerSession`: its manager's attributes, and its own position."""

    def __init__(self, session: MovedSession[Place]) -> None:
        self._session = session
        self._manager = session.recorder.manager
        self._attributes = vars(self._manager)
        self._fixed = {name: value for name, value in self._attributes.items() if is_fixed(value)}

    @property
    def classes(self) -> Iterable[type]:
        return type(self._manager).__mro__[:-1]

    def now(self) -> ExplorerMoment[tuple[Place, bytes]]:
        data = {name: v for name, v in self._attributes.items() if name not in self._fixed}
        try:
            pickled = pickle.dumps(data, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise HostError(f"this manager cannot be explored: {error}") from error
        position = self._session.position()
        kept = position, pickled
        return ExplorerMoment(
            kept, lambda: kept, lambda: [tree_of(position), tree_of(list(data.values()))]
        )

    def put_back(self, kept: tuple[Place, bytes]) -> None:
        position, data = kept
        self._attributes.clear()
        self._attributes.update(self._fixed)
        self._attributes.update(pickle.loads(data))
        self._session.go_to(position)


@cache
def _text_of(kind: type) -> str:
    return inspect.getsource(kind)


def as_bytes(data: Any) -> bytes:
    """Plain data as bytes, equal for equal data. Raises ValueError where it is not plain."""
    return marshal.dumps(data, _WITHOUT_REFERENCES)


def is_fixed(value: object) -> bool:
    """Whether an attribute never changes: a method that is logged, a class or a frozen record."""
    if is_dataclass(value) and not isinstance(value, type):
        return bool(value.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    return inspect.isroutine(value) or isinstance(value, type)


def tree_of(value: object) -> Tree:
    """Plain data as lists, strings, numbers and None."""
    match value:
        case None | bool() | int() | str():
            return value
        case dict():
            return [[tree_of(key), tree_of(held)] for key, held in value.items()]
        case set() | frozenset():
            return [SET, *map(tree_of, value)]
        case Sequence():
            return [tree_of(held) for held in value]
        case _:
            raise HostError(f"a manager that holds a {type(value).__name__} cannot be explored")
