"""Watches managers of encoder outputs that others call: which contracts they break, and where no
verdict is possible, since a caller broke what it promises.

A manager is followed from its making. It is left alone, and that is noted, once nothing can be said
of it: a contract is broken, a promise is, or its state is not what its last call left.
"""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from cacheproof.differential.judges.live import Given, LiveManager
from cacheproof.differential.judges.live_contracts import ENCODER_CACHE, ENCODER_DECODER
from cacheproof.differential.judges.watching import (
    ANOTHER,
    UNKNOWN,
    UNREADABLE,
    UNREADABLE_ERRORS,
    UNSEEN,
    WRITTEN,
    Watching,
)
from cacheproof.differential.targets.attached import BEGIN, Method
from cacheproof.differential.targets.host.scheduler.recorder import Snapshot, in_order, ledger_of
from cacheproof.differential.targets.host.vllm_objects.encoder_cache import EncoderCacheManager


class ManagerWatch(Watching[LiveManager]):
    """Makes calls of managers for those who call, and judges each at once."""

    def __init__(self, release: str | None) -> None:
        super().__init__(release, (ENCODER_CACHE, ENCODER_DECODER), "managers")

    def call(
        self,
        manager: EncoderCacheManager,
        operation: str,
        method: Method,
        args: Sequence[object],
        kwargs: dict[str, object],
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
            self._judged(manager, live.raised(given, error), live.calls)
            raise
        self._after(manager, live, given, answer)
        return answer

    def _before(
        self,
        manager: EncoderCacheManager,
        live: LiveManager,
        operation: str,
        args: Sequence[object],
    ) -> Given | None:
        """The call, if something can be said of it."""
        try:
            given = _given(operation, args)
        except UNREADABLE_ERRORS as error:
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

    def _after(
        self, manager: EncoderCacheManager, live: LiveManager, given: Given, answer: object
    ) -> None:
        try:
            violations = live.answered(given, answer, _read(manager))
        except UNREADABLE_ERRORS as error:
            self._leave(manager, UNKNOWN, f"{given}: {type(error).__name__}: {error}")
        else:
            self._judged(manager, violations, live.calls)

    # managers

    def _as_left(self, manager: EncoderCacheManager) -> LiveManager | None:
        """What follows a manager, if its state is what its last call left. One that was emptied, or
        given another size while it was empty, is followed anew."""
        if id(manager) not in self._followed:
            self._follow(manager, UNSEEN)
        live = self._followed[id(manager)]
        if live is not None:
            try:
                if live.is_as_left(_read(manager)):
                    return live
            except UNREADABLE_ERRORS:
                pass
            self._follow(manager, WRITTEN)
        return self._followed[id(manager)]

    def _follow(self, manager: EncoderCacheManager, otherwise: str) -> None:
        """Follow a manager from now on, if nothing is in it; `otherwise` says why not."""
        name = type(manager).__name__
        try:
            kind, snapshot = _kind_of(manager), _read(manager)
            capacity = manager.cache_size
        except UNREADABLE_ERRORS as error:
            self._leave(manager, UNKNOWN, f"{name}: {error}")
            return
        if kind is None:
            self._leave(manager, UNKNOWN, name)
        elif not _is_empty(snapshot, capacity):
            self._leave(manager, otherwise, name)
        else:
            self.managers[kind] += 1
            live = LiveManager(kind, capacity, snapshot, self.release, self.spoke[kind])
            self._keep(manager, live)


def _read(manager: EncoderCacheManager) -> Snapshot:
    snapshot: Snapshot = ledger_of(manager, True).read()
    return snapshot


def _is_empty(snapshot: Snapshot, capacity: int) -> bool:
    free, freeable, *parts = snapshot
    return not any(parts) and free == freeable == capacity


def _kind_of(manager: EncoderCacheManager) -> str | None:
    """The kind of a manager; None before entries were shared by identifier."""
    if hasattr(manager, "has_cache"):
        return None
    return ENCODER_CACHE if hasattr(manager, "cached") else ENCODER_DECODER


def _given(operation: str, args: Sequence[Any]) -> Given:
    """A call as far as a manager looks at it. Raises what reading its arguments raises."""
    if not args:
        return Given(operation)
    request, *numbers = args
    if not isinstance(request.request_id, str):
        raise TypeError(f"request id {request.request_id!r}")
    features = getattr(request, "mm_features", None)
    if not numbers:
        if operation != "inputs":
            return Given(operation, request.request_id)
        shown = request.mm_hashes if features is None else [one.identifier for one in features]
        return Given(operation, request.request_id, identifiers=tuple(shown))
    if len(numbers) not in (1, 3) or not all(isinstance(one, Real) for one in numbers):
        raise TypeError(f"{operation}{tuple(numbers)}")
    number = numbers[0]
    identifier = request.mm_hashes[number] if features is None else features[number].identifier
    size_of = getattr(request, "get_num_encoder_embeds", None) or request.get_num_encoder_tokens
    size = size_of(number)
    if not isinstance(identifier, str) or not isinstance(size, Integral):
        raise TypeError(f"item {identifier!r} of {size!r} embeddings")
    return Given(operation, request.request_id, number, identifier, int(size), *numbers[1:])
