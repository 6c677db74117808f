"""Watches schedulers that others call: each is recorded into memory and audited as it goes, by what
records and audits an engine that runs.

A scheduler is left alone once its caches are, or something happens to it that no engine does: its
state, its requests or its settings are not what its last call left, or a part of it was replaced.
"""

import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.streams import Numbered
from cacheproof.differential.judges.live_contracts import SCHEDULER, live_contracts
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.judges.watching import (
    BESIDE,
    CONNECTED,
    RAISED,
    REPLACED,
    UNFOLLOWED,
    UNKNOWN,
    UNREADABLE_ERRORS,
    WRITTEN,
    Watching,
)
from cacheproof.differential.recording import settings
from cacheproof.differential.recording.engine import OPERATIONS, SchedulerRecording
from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.messages import AnyMessage, Message, Opened
from cacheproof.differential.targets.attached import BEGIN, Method, WatchedClasses
from cacheproof.differential.targets.host.scheduler.session import WAITING_QUEUES
from cacheproof.differential.targets.host.vllm_objects.scheduler import ConfiguredScheduler

SCHEDULERS = WatchedClasses(
    "vllm.v1.core.sched.scheduler", ("Scheduler",), {name: name for name in OPERATIONS}
)
REFUSABLE = "LV-2"
"""The contract of what an engine refuses before its scheduler sees it; other callers of a scheduler
owe the same refusal."""
_ALWAYS_ANSWERED = frozenset({"schedule", "reset_encoder_cache"})
"""Calls that no caller can get wrong."""
CALLS_SHOWN = 8
_HASHER = Hasher(b"", plain=True)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(AnyMessage)


class _Memory:
    """Stands in for a writer: hands every record to an auditor."""

    lost = 0
    wants_file = False

    def __init__(self, release: str | None) -> None:
        self.auditor = Auditor()
        self._release = release
        self._number = 0
        self._harvested = 0

    def begin(self, *messages: Message) -> None:
        """The recording begins, or begins anew."""
        for message in messages:
            self.put(self._opened(message) if isinstance(message, Opened) else message)

    def _opened(self, opened: Opened) -> Opened:
        release = opened.vllm if self._release is None else self._release
        return msgspec.structs.replace(opened, vllm=release)

    def put(self, message: Message, *, at_once: bool = True) -> None:
        """Audit a record, as it would be read."""
        record = _DECODER.decode(_ENCODER.encode(message))
        self.auditor.feed(Numbered(self._number, record))
        self._number += 1

    def flush(self, seconds: float) -> bool:
        """Nothing waits to be written."""
        return True

    def close(self) -> None:
        """Nothing is open, so nothing is closed."""

    def found(self) -> list[Violation]:
        """What was broken since it was asked last."""
        new = self.auditor.found[self._harvested :]
        self._harvested += len(new)
        return [one.violation for one in new]


class Watches(Protocol):
    """A watch of what a scheduler is made of."""

    def has_left(self, followed: object) -> bool:
        """Whether it has followed an object, and says nothing of it any more."""


class _Seen(NamedTuple):
    """What of a scheduler nobody but itself changes: how far each request is, who runs and waits,
    the settings, and the methods of a part in whose place something else stands."""

    requests: dict[str, tuple[object, ...]]
    queues: tuple[tuple[str, ...], ...]
    settings: dict[str, object]
    replaced: dict[str, int]


class _Live:
    """What follows one scheduler, which it does not keep alive."""

    def __init__(
        self, scheduler: ConfiguredScheduler, release: str | None, facts: settings.Facts
    ) -> None:
        self.memory = _Memory(release)
        self._facts = facts
        self._scheduler = weakref.proxy(scheduler)
        self.recording = SchedulerRecording(
            self._scheduler, self.memory, _HASHER, facts, wraps=False
        )
        self.calls: deque[str] = deque(maxlen=CALLS_SHOWN)
        self._speaking = frozenset(live_contracts(SCHEDULER, release))
        self.last: _Seen | None = None

    @property
    def in_force(self) -> frozenset[str]:
        """The ids of the contracts that judge the scheduler; its managers are judged beside it."""
        return self._speaking.intersection(rule.id for rule in self.memory.auditor.rules)

    def seen(self) -> _Seen:
        """The scheduler as it is now. Raises what reading an unknown shape raises."""
        scheduler = self._scheduler
        queues = ("running", *(name for name in WAITING_QUEUES if hasattr(scheduler, name)))
        return _Seen(
            {
                name: (
                    request.status,
                    request.num_computed_tokens,
                    request.num_tokens,
                    getattr(request, "num_output_placeholders", 0),
                )
                for name, request in scheduler.requests.items()
            },
            tuple(
                tuple(request.request_id for request in getattr(scheduler, queue))
                for queue in queues
            ),
            self._facts.settings(scheduler),
            _replaced(
                scheduler,
                scheduler.encoder_cache_manager,
                scheduler.kv_cache_manager,
                scheduler.kv_cache_manager.block_pool,
            ),
        )


class SchedulerWatch(Watching[_Live]):
    """Makes calls of schedulers for those who call, and audits each at once. `managers` and
    `caches` watch what schedulers are made of, `facts` says how a scheduler is asked."""

    def __init__(
        self,
        release: str | None,
        managers: Watches,
        caches: Watches,
        facts: Callable[[], settings.Facts] = settings.of_vllm,
    ) -> None:
        super().__init__(release, (SCHEDULER,), "schedulers")
        self._managers = managers
        self._caches = caches
        self._facts = facts

    def call(
        self,
        scheduler: ConfiguredScheduler,
        operation: str,
        method: Method,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> Any:
        """Make the call, and audit it."""
        make = partial(method, scheduler)
        if operation == BEGIN:
            answer = make(*args, **kwargs)
            self._begin(scheduler)
            return answer
        live = self._followed.get(id(scheduler))
        if live is None or not self._is_left_alone(scheduler, live):
            return make(*args, **kwargs)
        try:
            answer = live.recording.call(operation, make, *args, **kwargs)
        except Exception as error:
            self._after(scheduler, live, operation, error)
            raise
        self._after(scheduler, live, operation)
        return answer

    def _begin(self, scheduler: ConfiguredScheduler) -> None:
        try:
            live = _Live(scheduler, self.release, self._facts())
        except UNREADABLE_ERRORS as error:
            self._leave(scheduler, UNKNOWN, f"{type(error).__name__}: {error}")
            return
        self.managers[SCHEDULER] += 1
        self._keep(scheduler, live)

    def _is_left_alone(self, scheduler: ConfiguredScheduler, live: _Live) -> bool:
        """Whether nobody has touched the scheduler since its last call; else nothing more is said
        of it."""
        try:
            seen = live.seen()
        except UNREADABLE_ERRORS as error:
            self._leave(scheduler, UNKNOWN, f"{type(error).__name__}: {error}")
            return False
        last = _Seen({}, (), seen.settings, {}) if live.last is None else live.last
        if (connector := getattr(scheduler, "ec_connector", None)) is not None:
            self._leave(scheduler, CONNECTED, type(connector).__name__)
        elif replaced := [
            name for name, by in seen.replaced.items() if last.replaced.get(name) != by
        ]:
            self._leave(scheduler, REPLACED, ", ".join(replaced))
        elif changed := _differing(last, seen):
            self._leave(scheduler, WRITTEN, changed)
        elif self._has_left_caches(scheduler):
            self._leave(scheduler, BESIDE, type(scheduler).__name__)
        return self._followed[id(scheduler)] is live

    def _has_left_caches(self, scheduler: ConfiguredScheduler) -> bool:
        return self._managers.has_left(scheduler.encoder_cache_manager) or self._caches.has_left(
            scheduler.kv_cache_manager
        )

    def _after(
        self,
        scheduler: ConfiguredScheduler,
        live: _Live,
        operation: str,
        error: Exception | None = None,
    ) -> None:
        """Take what the call was found to break."""
        live.calls.append(operation)
        account = live.memory.auditor.account
        in_force = live.in_force
        violations = [one for one in live.memory.found() if one.contract.id in in_force]
        self.spoke[SCHEDULER].update(in_force)
        refusable = [one for one in violations if one.contract.id == REFUSABLE]
        if self._has_left_caches(scheduler):
            self._leave(scheduler, BESIDE, operation)
        elif refusable:
            self._leave(scheduler, REFUSABLE, f"{operation}: {refusable[0].why}")
        elif error is not None and operation not in _ALWAYS_ANSWERED:
            self._leave(scheduler, RAISED, f"{operation}: {type(error).__name__}: {error}")
        elif account.gap_count:
            self._leave(scheduler, UNFOLLOWED, f"{operation}: {account.gaps[0]}")
        else:
            self._judged(scheduler, violations, live.calls)
        try:
            live.last = live.seen()
        except UNREADABLE_ERRORS as error:
            self._leave(scheduler, UNKNOWN, f"{operation}: {type(error).__name__}: {error}")


def _replaced(*parts: object) -> dict[str, int]:
    """The methods of objects in whose place something else stands, and what that is."""
    return {
        f"{type(part).__name__}.{name}": id(value)
        for part in parts
        for name, value in vars(part).items()
        if callable(value) and hasattr(type(part), name)
    }


def _differing(last: _Seen, now: _Seen) -> str:
    """What somebody changed, empty for nothing."""
    for name in last.requests.keys() | now.requests.keys():
        if last.requests.get(name) != now.requests.get(name):
            return f"request {name}"
    if last.queues and last.queues != now.queues:
        return "who runs and waits"
    changed = [name for name, value in now.settings.items() if last.settings.get(name) != value]
    return ", ".join(changed)
