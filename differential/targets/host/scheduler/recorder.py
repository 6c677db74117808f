"""Logs every call of an encoder cache manager with its answer and what it changed.

A call is a tuple (operation, request, input id, budget, pending, answer, delta). The delta is None
when the state stayed as it was, else (free slots, freeable slots, {identifier: (holders, size) or
None when it left}, queue or None, notices or None); an unchanged part is empty or None. Replaying
the deltas gives the whole state after every call.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar

from ..protocol import Json
from ..vllm_objects.encoder_cache import (
    EncoderCacheManager,
    Notice,
    PerInputManager,
    is_per_input,
)

Given = ParamSpec("Given")
Answered = TypeVar("Answered")

OPERATIONS = {
    "check_and_update_cache": "check",
    "has_cache": "check",
    "can_allocate": "can",
    "allocate": "allocate",
    "free_encoder_input": "release",
    "free": "free",
    "get_cached_input_ids": "inputs",
    "get_cached_num_encoder_embeds": "embeds",
    "get_freed_mm_hashes": "notices",
    "get_freed_ids": "notices",
    "reset": "reset",
}
"""Public method of a manager -> its name in records."""

Holders = dict[str, set[str]]
Snapshot = tuple[int, int, Holders, dict[str, int], list[tuple[str, int]], list[str]]
"""Free slots, freeable slots, {identifier: holders}, {identifier: size}, queue and notices."""
Entry = tuple[list[str], int | None]
"""An entry's holders, and its size."""
Delta = tuple[int, int, dict[str, Entry | None], list[tuple[str, int]] | None, list[str] | None]
LoggedCall = tuple[str, str | None, int | None, int | None, int | None, Json, Delta | None]


class ManagerState(TypedDict):
    """The whole state of a manager."""

    free: int
    freeable: int
    entries: dict[str, Entry]
    queue: list[tuple[str, int]]
    notices: list[str]


class Recorder:
    """Wraps the public methods of one manager instance; calls among themselves are not logged."""

    def __init__(self, manager: EncoderCacheManager, *, shows_sizes: bool = True) -> None:
        self.manager = manager
        self.calls: list[LoggedCall] = []
        self._inside = False
        self._ledger = ledger_of(manager, shows_sizes)
        self.begin()
        for name, operation in OPERATIONS.items():
            if hasattr(manager, name):
                setattr(manager, name, self._wrap(operation, getattr(manager, name)))

    def begin(self) -> None:
        """Take the manager's state as the one from which changes count from now on."""
        free, freeable, cached, sizes, queue, notices = self._ledger.read()
        known = {h: set(refs) for h, refs in cached.items()}
        self._last = (free, freeable, known, dict(sizes), queue, notices)

    def take(self) -> list[LoggedCall]:
        """The calls logged since the last take."""
        calls, self.calls = self.calls, []
        return calls

    def full_state(self) -> ManagerState:
        """The whole state, in the words of the deltas."""
        free, freeable, cached, sizes, queue, notices = self._ledger.read()
        return {
            "free": free,
            "freeable": freeable,
            "entries": {h: (sorted(refs), sizes.get(h)) for h, refs in cached.items()},
            "queue": queue,
            "notices": notices,
        }

    def _wrap(self, operation: str, method: Callable[Given, Answered]) -> Callable[Given, Answered]:
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Answered:
            if self._inside:
                return method(*args, **kwargs)
            self._inside = True
            try:
                answer = method(*args, **kwargs)
            except BaseException as error:
                given = in_order(method, args, kwargs)
                self._log(operation, given, {"raises": type(error).__name__})
                raise
            finally:
                self._inside = False
            self._log(operation, in_order(method, args, kwargs) if kwargs else args, answer)
            return answer

        return call

    def _log(self, operation: str, args: tuple[Any, ...], answer: object) -> None:
        count = len(args)
        self.calls.append(
            (
                operation,
                args[0].request_id if count else None,
                args[1] if count > 1 else None,
                args[2] if count > 2 else None,
                args[3] if count > 3 else None,
                answer if answer is None or type(answer) is bool else _plain(answer),
                self._delta(),
            )
        )

    def _delta(self) -> Delta | None:
        now = self._ledger.read()
        last = self._last
        if now == last:
            return None
        free, freeable, cached, sizes, queue, notices = now
        _, _, known, known_sizes, last_queue, last_notices = last
        delta = (
            free,
            freeable,
            _changed_entries(cached, sizes, known, known_sizes),
            None if queue == last_queue else queue,
            None if notices == last_notices else notices,
        )
        if sizes != known_sizes:
            known_sizes = dict(sizes)
        self._last = (free, freeable, known, known_sizes, queue, notices)
        return delta


def in_order(
    method: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Any, ...]:
    """Arguments in the order of the method's parameters; as they come, where the method does not
    take them."""
    try:
        bound = signature(method).bind(*args, **kwargs)
    except TypeError:
        return (*args, *kwargs.values())
    return (*bound.args, *bound.kwargs.values())


def _changed_entries(
    cached: Holders,
    sizes: dict[str, int],
    known: Holders,
    known_sizes: dict[str, int],
) -> dict[str, Entry | None]:
    """The changes of `cached` and of `sizes`; brings `known` up to date."""
    entries: dict[str, Entry | None] = {}
    same_sizes = sizes == known_sizes
    for h, refs in cached.items():
        if known.get(h) != refs or not (same_sizes or known_sizes.get(h) == sizes.get(h)):
            entries[h] = (sorted(refs), sizes.get(h))
            known[h] = set(refs)
    if len(known) != len(cached):
        for h in [h for h in known if h not in cached]:
            entries[h] = None
            del known[h]
    return entries


class Ledger(Protocol):
    """A reader of a manager's state."""

    def read(self) -> Snapshot: ...


class _SharedLedger:
    """An encoder cache manager whose entries are shared by identifier."""

    def __init__(self, manager: EncoderCacheManager, shows_sizes: bool) -> None:
        self._manager = manager
        self._shows_sizes = shows_sizes and hasattr(manager, "num_embeds_by_hash")

    def read(self) -> Snapshot:
        manager = self._manager
        return (
            manager.num_free_slots,
            manager.num_freeable_slots,
            manager.cached,
            manager.num_embeds_by_hash if self._shows_sizes else {},
            list(manager.freeable.items()),
            manager.freed[:],
        )


class _PerInputLedger:
    """A manager of 0.10.1.1 and before, in which each (request, input) is an entry of its own."""

    def __init__(self, manager: PerInputManager) -> None:
        self._manager = manager

    def read(self) -> Snapshot:
        manager = self._manager
        entries = {
            f"{request}#{input_id}": {request}
            for request, inputs in manager.cached.items()
            for input_id in inputs
        }
        free = manager.num_free_slots
        return free, free, entries, {}, [], _identifiers(manager.freed)


class _DecoderLedger:
    """An encoder-decoder manager: slots and pending notices, no entries."""

    def __init__(self, manager: EncoderCacheManager) -> None:
        self._manager = manager

    def read(self) -> Snapshot:
        manager = self._manager
        free = manager.num_free_slots
        if hasattr(manager, "to_free"):
            return free, free, {}, {}, [], [*manager.to_free, *manager.allocated]
        return free, free, {}, {}, [], manager.freed[:]


def ledger_of(manager: EncoderCacheManager, shows_sizes: bool) -> Ledger:
    """A reader of a manager's state."""
    if is_per_input(manager):
        return _PerInputLedger(manager)
    if hasattr(manager, "cached"):
        return _SharedLedger(manager, shows_sizes)
    return _DecoderLedger(manager)


def _identifiers(notices: Iterable[Notice]) -> list[str]:
    return [h if isinstance(h, str) else f"{h[0]}#{h[1]}" for h in notices]


def _plain(answer: Any) -> Json:
    """An answer as records have it: sets sorted, pairs of older releases as identifiers."""
    if isinstance(answer, set):
        return sorted(answer)
    return _identifiers(answer) if isinstance(answer, list) else answer
