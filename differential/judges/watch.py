"""Watches managers of encoder outputs that others call: which contracts they break, and where no
verdict is possible, since a caller broke what it promises.

A manager is followed from its making. It is left alone, and that is noted, once nothing can be said
of it: a contract is broken, a promise is, or its state is not what its last call left.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from cacheproof.differential.judges.live import ENCODER_DECODER, SILENT, Given, LiveManager
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.targets import attached
from cacheproof.differential.targets.attached import BEGIN, Method
from cacheproof.differential.targets.host.recorder import Snapshot, in_order, ledger_of

WRITTEN = "state written"
UNREADABLE = "unreadable call"
ANOTHER = "another item"
UNSEEN = "beginning not seen"
UNKNOWN = "unknown state"
NOTES = {
    WRITTEN: "what its last call left was changed otherwise: by a test, or a method of its own",
    UNREADABLE: "a call's request or numbers cannot be read",
    ANOTHER: "a request's input became another item while the request held it",
    UNSEEN: "the manager was copied, or made before it could be watched, and has entries",
    UNKNOWN: "the manager does not keep its state as vLLM's from 0.10.2 on do",
}
"""Why nothing more is said of a manager, beside the promises of its callers."""
_UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class Break:
    """The contracts that a manager broke with one call, and a text: who made the call, what each
    says, both sides of each, and the last calls."""

    contracts: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Note:
    """Nothing more is said of a manager: why (a promise's id, or one of NOTES), how a call shows
    it, and who made the call."""

    why: str
    text: str
    caller: str


class ManagerWatch:
    """Makes calls of managers for those who call, and judges each at once.

    `managers` counts those that were followed by kind, `calls` what was judged, `spoke` how often
    each contract was asked by kind of manager.
    """

    def __init__(self, release: str | None) -> None:
        self.release = release
        self.managers: Counter[str] = Counter()
        self.calls = 0
        self.spoke: dict[str, Counter[str]] = {kind: Counter() for kind in SILENT}
        self._breaks: list[Break] = []
        self._notes: list[Note] = []
        self._followed: dict[int, LiveManager | None] = {}

    def take(self) -> tuple[list[Break], list[Note]]:
        """Breaks and notes since it was asked last."""
        taken = self._breaks, self._notes
        self._breaks, self._notes = [], []
        return taken

    def call(
        self, manager: Any, operation: str, method: Method, args: Sequence[Any], kwargs: Any
    ) -> Any:
        """Make the call, and judge it."""
        if operation == BEGIN:
            answer = method(manager, *args, **kwargs)
            self._follow(manager, UNSEEN)
            return answer
        live = self._as_left(manager)
        if live is None:
            return method(manager, *args, **kwargs)
        arguments = in_order(method, (manager, *args), kwargs)[1:] if kwargs else args
        given = self._before(manager, live, operation, arguments)
        if given is None:
            return method(manager, *args, **kwargs)
        try:
            answer = method(manager, *args, **kwargs)
        except Exception as error:
            self._judged(manager, live, live.raised(given, error))
            raise
        self._after(manager, live, given, answer)
        return answer

    def _before(
        self, manager: Any, live: LiveManager, operation: str, args: Sequence[Any]
    ) -> Given | None:
        """The call, if something can be said of it."""
        try:
            given = _given(operation, args)
        except _UNREADABLE as error:
            self._leave(manager, UNREADABLE, f"{operation}: {type(error).__name__}: {error}")
            return None
        if live.is_another(given):
            self._leave(manager, ANOTHER, str(given))
            return None
        promise = live.promises(given)
        if promise is not None:
            self._leave(manager, promise.contract.id, f"{given}: {promise.why}")
            return None
        return given

    def _after(self, manager: Any, live: LiveManager, given: Given, answer: Any) -> None:
        try:
            snapshot = _read(manager)
        except _UNREADABLE as error:
            self._leave(manager, UNKNOWN, f"{given}: {type(error).__name__}: {error}")
            return
        self._judged(manager, live, live.answered(given, answer, snapshot))

    def _judged(self, manager: Any, live: LiveManager, violations: list[Violation]) -> None:
        self.calls += 1
        if violations:
            ids = tuple(violation.contract.id for violation in violations)
            text = _told(violations, type(manager).__name__, live.calls)
            self._breaks.append(Break(ids, text))
            self._followed[id(manager)] = None

    def _leave(self, manager: Any, why: str, text: str) -> None:
        self._followed[id(manager)] = None
        self._notes.append(Note(why, text, _caller()))

    # managers

    def _as_left(self, manager: Any) -> LiveManager | None:
        """What follows a manager, if its state is what its last call left. One that was emptied, or
        given another size while it was empty, is followed anew."""
        if id(manager) not in self._followed:
            self._follow(manager, UNSEEN)
        live = self._followed[id(manager)]
        if live is not None:
            try:
                if live.is_as_left(_read(manager)):
                    return live
            except _UNREADABLE:
                pass
            self._follow(manager, WRITTEN)
        return self._followed[id(manager)]

    def _follow(self, manager: Any, otherwise: str) -> None:
        """Follow a manager from now on, if nothing is in it; `otherwise` says why not."""
        key = id(manager)
        if key not in self._followed:
            weakref.finalize(manager, self._followed.pop, key, None)
        name = type(manager).__name__
        try:
            kind, snapshot = _kind_of(manager), _read(manager)
            capacity = manager.cache_size
        except _UNREADABLE as error:
            self._leave(manager, UNKNOWN, f"{name}: {error}")
            return
        if kind is None:
            self._leave(manager, UNKNOWN, name)
        elif not _is_empty(snapshot, capacity):
            self._leave(manager, otherwise, name)
        else:
            self.managers[kind] += 1
            self._followed[key] = LiveManager(
                kind, capacity, snapshot, self.release, self.spoke[kind]
            )


def _read(manager: Any) -> Snapshot:
    snapshot: Snapshot = ledger_of(manager, True).read()
    return snapshot


def _is_empty(snapshot: Snapshot, capacity: int) -> bool:
    free, freeable, *parts = snapshot
    return not any(parts) and free == freeable == capacity


def _kind_of(manager: Any) -> str | None:
    """The kind of a manager; None before entries were shared by identifier."""
    if hasattr(manager, "has_cache"):
        return None
    return "encoder_cache" if hasattr(manager, "cached") else ENCODER_DECODER


def _given(operation: str, args: Sequence[Any]) -> Given:
    """A call as far as a manager looks at it. Raises what reading its arguments raises."""
    if not args:
        return Given(operation)
    request, *numbers = args
    if not isinstance(request.request_id, str):
        raise TypeError(f"request id {request.request_id!r}")
    if not numbers:
        return Given(operation, request.request_id)
    if len(numbers) not in (1, 3) or not all(isinstance(one, Real) for one in numbers):
        raise TypeError(f"{operation}{tuple(numbers)}")
    features = getattr(request, "mm_features", None)
    number = numbers[0]
    identifier = request.mm_hashes[number] if features is None else features[number].identifier
    size_of = getattr(request, "get_num_encoder_embeds", None) or request.get_num_encoder_tokens
    size = size_of(number)
    if not isinstance(identifier, str) or not isinstance(size, Integral):
        raise TypeError(f"item {identifier!r} of {size!r} embeddings")
    return Given(operation, request.request_id, number, identifier, int(size), *numbers[1:])


def _told(violations: Sequence[Violation], manager: str, calls: Sequence[str]) -> str:
    """What a call broke, in some lines."""
    ids = ", ".join(violation.contract.id for violation in violations)
    lines = [f"{ids} broken by {manager}, called by {_caller()}"]
    for violation in violations:
        rule = violation.contract
        lines += [f"  {rule.id}: {rule.title}", f"    {violation.why}", f"    {rule.source}"]
    return "\n".join([*lines, "  last calls", *(f"    {call}" for call in calls)])


def _caller() -> str:
    """Who has called: the first function that is none of ours."""
    frame = sys._getframe()
    ours = (__file__, attached.__file__)
    while frame.f_back is not None and frame.f_code.co_filename in ours:
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "?")
    return f"{module}.{frame.f_code.co_qualname}, line {frame.f_lineno}"
