"""What all watches have in common: what was broken, by whom, and where nothing more can be said."""

import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cacheproof.differential.judges.violation import Violation

WRITTEN = "state written"
UNREADABLE = "unreadable call"
ANOTHER = "another item"
UNSEEN = "beginning not seen"
UNKNOWN = "unknown state"
ANOTHER_TEXT = "another text"
NO_HIT = "hit of its own making"
EMPTY = "nothing asked for"
ROLLED_BACK = "rolled back too far"
NOT_HELD = "released by another"
FOREIGN = "blocks of its own making"
REPLACED = "part replaced"
CONNECTED = "external encoder cache"
BESIDE = "its caches left alone"
UNFOLLOWED = "not to be followed"
RAISED = "call refused"
NOTES = {
    WRITTEN: "what its last call left was changed otherwise: by a test, or a method of its own",
    UNREADABLE: "a call's request or numbers cannot be read",
    ANOTHER: "a request's input became another item while the request held it",
    UNSEEN: "it was copied, or made before it could be watched, and has entries",
    UNKNOWN: "it does not keep its state as vLLM's from 0.10.2 on do",
    ANOTHER_TEXT: "a request that has blocks came back with another text under its id",
    NO_HIT: "blocks or tokens are given as a hit that no look-up of the request answers",
    EMPTY: "slots are asked for without a token",
    ROLLED_BACK: "a request goes on before tokens that its caller has said are done with",
    NOT_HELD: "blocks are given back that whoever gives them back has not taken",
    FOREIGN: "blocks are given to a pool that are none of its blocks",
    REPLACED: "something else was put in the place of its methods",
    CONNECTED: "a scheduler whose encoder cache has a connector is not followed",
    BESIDE: "nothing more is said of a manager that it is made of",
    UNFOLLOWED: "what it did does not follow from what an engine asks of it",
    RAISED: "a call ended in an exception; whether a scheduler would make it, only one knows",
}
"""Why nothing more is said of an object, beside the promises of its callers."""
UNREADABLE_ERRORS = (AttributeError, LookupError, TypeError, ValueError)
"""What reading an argument, or a state that is none, ends in."""
Live = TypeVar("Live")
_OURS = frozenset(
    f"cacheproof.differential.{name}"
    for name in (
        "audit.scheduler_watch",
        "judges.kv_cache_watch",
        "judges.watch",
        "judges.watching",
        "recording.engine",
        "targets.attached",
    )
)


@dataclass(frozen=True)
class WatchedBreak:
    """The contracts that a call broke, and a text: who made the call, what each says, both sides of
    each, and the last calls."""

    contracts: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Note:
    """Nothing more is said of an object: why (a promise's id, or a word that the watch explains),
    how a call shows it, and who made the call."""

    why: str
    text: str
    caller: str


class Watching(Generic[Live]):
    """Keeps what follows each object, as long as the object lives, and what was found.

    `what` is what a summary calls the objects. `managers` counts those that were followed by kind,
    `calls` what was judged, `spoke` how often each contract was asked by kind. What follows an
    object is None once it is left alone.
    """

    def __init__(self, release: str | None, kinds: Iterable[str], what: str) -> None:
        self.release = release
        self.what = what
        self.managers: Counter[str] = Counter()
        self.calls = 0
        self.spoke: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
        self._breaks: list[WatchedBreak] = []
        self._notes: list[Note] = []
        self._followed: dict[int, Live | None] = {}
        self._left: set[int] = set()

    def take(self) -> tuple[list[WatchedBreak], list[Note]]:
        """Breaks and notes since it was asked last."""
        taken = self._breaks, self._notes
        self._breaks, self._notes = [], []
        return taken

    def has_left(self, followed: object) -> bool:
        """Whether the object was followed, and is left alone by now."""
        return id(followed) in self._left

    def _keep(self, followed: object, live: Live | None) -> None:
        """From now on `live` follows the object, or nothing does."""
        key = id(followed)
        if key not in self._followed:
            weakref.finalize(followed, self._forget, key)
        self._followed[key] = live

    def _forget(self, key: int) -> None:
        self._followed.pop(key, None)
        self._left.discard(key)

    def _say_no_more(self, *keys: int) -> None:
        """Leave the objects of these ids alone."""
        for key in keys:
            self._followed[key] = None
            self._left.add(key)

    def _judged(
        self, followed: object, violations: Sequence[Violation], last_calls: Iterable[str]
    ) -> None:
        """A call was judged: what it breaks is a break, and the object is left alone."""
        self.calls += 1
        if violations:
            ids = tuple(violation.contract.id for violation in violations)
            text = _told(violations, type(followed).__name__, last_calls)
            self._breaks.append(WatchedBreak(ids, text))
            self._say_no_more(id(followed))

    def _leave(self, followed: object, why: str, text: str) -> None:
        """Nothing more is said of the object."""
        self._keep(followed, None)
        self._say_no_more(id(followed))
        self._notes.append(Note(why, text, caller()))


def _told(violations: Sequence[Violation], name: str, calls: Iterable[str]) -> str:
    """What a call broke, in some lines."""
    ids = ", ".join(violation.contract.id for violation in violations)
    lines = [f"{ids} broken by {name}, called by {caller()}"]
    for violation in violations:
        rule = violation.contract
        lines += [f"  {rule.id}: {rule.title}", f"    {violation.why}", f"    {rule.source}"]
    return "\n".join([*lines, "  last calls", *(f"    {call}" for call in calls)])


def caller() -> str:
    """The caller: the first function that is none of ours."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in _OURS:
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "?")
    return f"{module}.{frame.f_code.co_qualname}, line {frame.f_lineno}"
