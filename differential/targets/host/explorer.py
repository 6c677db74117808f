"""Runs a session on from any state that it has been in: what each event makes of each state.

A state is what the session and its manager hold; the objects themselves stay the same, and are put
back into it. Its tree says the same in lists, for whoever looks for symmetries: a mapping is its
pairs in their order, and a set a list that begins with the mark `SET`.
"""

import hashlib
import inspect
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from typing import Any

from .protocol import Event, HostError
from .session import run_event

SET = "{}"
Step = tuple[tuple[Any, ...], int, Any]


class Explorer:
    """Numbers the states of one session; the state that it begins with is number 0.

    `alphabet` are the events that are tried in every state.
    """

    def __init__(self, session: Any, alphabet: Iterable[Event]) -> None:
        self._session = session
        self._alphabet = list(alphabet)
        self._attributes: dict[str, Any] = vars(session.recorder.manager)
        self._fixed = {name: value for name, value in self._attributes.items() if _is_fixed(value)}
        self._numbers: dict[Any, int] = {}
        self._states: list[Any] = []
        self._number()

    @property
    def source(self) -> str:
        """SHA-256 of the text of the manager's class and of what it builds on."""
        classes = type(self._session.recorder.manager).__mro__[:-1]
        text = "\0".join(map(inspect.getsource, classes))
        return hashlib.sha256(text.encode()).hexdigest()

    def tree(self) -> list[Any]:
        """The state that the session is in now."""
        return [tree_of(self._session.position()), tree_of(list(self._data().values()))]

    def expand(self, states: Iterable[int]) -> list[list[Step | None]]:
        """For each state what each event of the alphabet does in it: the record, the number of the
        state that it leads to, and that state's tree where it is new. The record has the full state
        then. None for an event that nothing comes of."""
        return [self._expanded(state) for state in states]

    def _expanded(self, state: int) -> list[Step | None]:
        steps: list[Step | None] = []
        moved = True
        for event in self._alphabet:
            if moved:
                self._put_back(state)
            outcome, calls, raised = run_event(self._session, event)
            moved = outcome is not None or bool(calls) or raised is not None
            if not moved:
                steps.append(None)
                continue
            known = len(self._states)
            number = self._number()
            is_new = number == known
            full = self._session.recorder.full_state() if is_new else None
            record = (outcome, calls, raised, full)
            steps.append((record, number, self.tree() if is_new else None))
        return steps

    def _data(self) -> dict[str, Any]:
        return {name: v for name, v in self._attributes.items() if name not in self._fixed}

    def _number(self) -> int:
        try:
            data = pickle.dumps(self._data(), pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise HostError(f"this manager cannot be explored: {error}") from error
        state = self._session.position(), data
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _put_back(self, state: int) -> None:
        position, data = self._states[state]
        self._attributes.clear()
        self._attributes.update(self._fixed)
        self._attributes.update(pickle.loads(data))
        self._session.go_to(position)
        self._session.recorder.begin()


def _is_fixed(value: Any) -> bool:
    """Whether an attribute stays as it is: a method that is logged, a class or a frozen record."""
    if is_dataclass(value) and not isinstance(value, type):
        return bool(value.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    return inspect.isroutine(value) or isinstance(value, type)


def tree_of(value: Any) -> Any:
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
