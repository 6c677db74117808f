"""Logs every call of an encoder cache manager with its answer and what it changed.

A call is a tuple (operation, request, input id, budget, pending, answer, delta). The delta is None
when the state stayed as it was, else (free slots, freeable slots, {identifier: (holders, size) or
None when it left}, queue or None, notices or None); an unchanged part is empty or None. Replaying
the deltas gives the whole state after every call.
"""

from typing import Any

_OPERATIONS = {
    "check_and_update_cache": "check",
    "has_cache": "check",
    "can_allocate": "can",
    "allocate": "allocate",
    "free_encoder_input": "release",
    "free": "free",
    "get_cached_input_ids": "inputs",
    "get_cached_num_encoder_embeds": "embeds",
    "reset": "reset",
}
_DRAINS = ("get_freed_mm_hashes", "get_freed_ids")


class Recorder:
    """Wraps the public methods of one manager instance; calls among themselves are not logged."""

    def __init__(self, manager: Any, *, shows_sizes: bool = True) -> None:
        self.manager = manager
        self.calls: list[tuple[Any, ...]] = []
        self._inside = False
        self._ledger = _ledger_of(manager, shows_sizes)
        self._reset_baseline()
        for name, operation in _OPERATIONS.items():
            if hasattr(manager, name):
                setattr(manager, name, self._wrap(operation, getattr(manager, name)))
        for name in _DRAINS:
            if hasattr(manager, name):
                setattr(manager, name, self._wrap_drain(getattr(manager, name)))

    def take(self) -> list[tuple[Any, ...]]:
        """The calls logged since the last take."""
        calls, self.calls = self.calls, []
        return calls

    def full_state(self) -> dict[str, Any]:
        """The whole state, in the words of the deltas."""
        free, freeable, cached, sizes, queue, notices = self._ledger.read()
        return {
            "free": free,
            "freeable": freeable,
            "entries": {h: (sorted(refs), sizes.get(h)) for h, refs in cached.items()},
            "queue": queue,
            "notices": notices,
        }

    def _wrap(self, operation: str, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return method(*args, **kwargs)
            self._inside = True
            try:
                answer = method(*args, **kwargs)
            except Exception as error:
                self._log(operation, args, kwargs, {"raises": type(error).__name__})
                raise
            finally:
                self._inside = False
            self._log(operation, args, kwargs, _plain(answer))
            return answer

        return call

    def _wrap_drain(self, method: Any) -> Any:
        def call() -> Any:
            answer = method()
            self.calls.append(
                ("notices", None, None, None, None, _identifiers(answer), self._delta())
            )
            return answer

        return call

    def _log(self, operation: str, args: tuple[Any, ...], kwargs: Any, answer: Any) -> None:
        request, input_id, budget, pending, *_ = *args, *kwargs.values(), None, None, None, None
        request_id = None if request is None else request.request_id
        self.calls.append(
            (operation, request_id, input_id, budget, pending, answer, self._delta())
        )

    def _reset_baseline(self) -> None:
        free, freeable, cached, _, queue, notices = self._ledger.read()
        self._free, self._freeable = free, freeable
        self._cached = {h: set(refs) for h, refs in cached.items()}
        self._queue, self._notices = queue, notices

    def _delta(self) -> tuple[Any, ...] | None:
        free, freeable, cached, sizes, queue, notices = self._ledger.read()
        same_entries = cached == self._cached
        new_queue = None if queue == self._queue else queue
        new_notices = None if notices == self._notices else notices
        if (
            same_entries
            and new_queue is None
            and new_notices is None
            and free == self._free
            and freeable == self._freeable
        ):
            return None
        entries: dict[str, tuple[list[str], int | None] | None] = {}
        if not same_entries:
            known = self._cached
            for h, refs in cached.items():
                if h not in known or known[h] != refs:
                    entries[h] = (sorted(refs), sizes.get(h))
                    known[h] = set(refs)
            if len(known) != len(cached):
                for h in [h for h in known if h not in cached]:
                    entries[h] = None
                    del known[h]
        self._free, self._freeable = free, freeable
        self._queue, self._notices = queue, notices
        return (free, freeable, entries, new_queue, new_notices)


class _SharedLedger:
    """An encoder cache manager whose entries are shared by identifier."""

    def __init__(self, manager: Any, shows_sizes: bool) -> None:
        self._manager = manager
        self._sizes = getattr(manager, "num_embeds_by_hash", {}) if shows_sizes else {}

    def read(self) -> tuple[int, int, dict[str, Any], dict[str, int], list[Any], list[str]]:
        manager = self._manager
        return (
            manager.num_free_slots,
            manager.num_freeable_slots,
            manager.cached,
            self._sizes,
            list(manager.freeable.items()),
            manager.freed[:],
        )


class _PerInputLedger:
    """A manager of 0.10.1.1 and before: each (request, input) is an entry of its own."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def read(self) -> tuple[int, int, dict[str, Any], dict[str, int], list[Any], list[str]]:
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

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def read(self) -> tuple[int, int, dict[str, Any], dict[str, int], list[Any], list[str]]:
        manager = self._manager
        free = manager.num_free_slots
        if hasattr(manager, "to_free"):
            return free, free, {}, {}, [], [*manager.to_free, *manager.allocated]
        return free, free, {}, {}, [], manager.freed[:]


def _ledger_of(manager: Any, shows_sizes: bool) -> Any:
    if hasattr(manager, "has_cache"):
        return _PerInputLedger(manager)
    if hasattr(manager, "cached"):
        return _SharedLedger(manager, shows_sizes)
    return _DecoderLedger(manager)


def _identifiers(notices: Any) -> list[str]:
    return [h if isinstance(h, str) else f"{h[0]}#{h[1]}" for h in notices]


def _plain(answer: Any) -> Any:
    return sorted(answer) if isinstance(answer, set) else answer
