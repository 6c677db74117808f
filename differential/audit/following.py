"""Makes events and records of a trace out of what an engine recorded."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypedDict, TypeVar

from cacheproof.differential.recording.ledger import changed
from cacheproof.differential.recording.messages import (
    OPERATIONS,
    Aborted,
    Added,
    AnyMessage,
    Cleared,
    Entries,
    Keyframe,
    KnownRequest,
    ManagerCall,
    Queue,
    Scheduled,
    Updated,
)
from cacheproof.differential.recording.messages import Raised as RaisedMessage
from cacheproof.differential.traces.base import Adapter, Item
from cacheproof.differential.traces.manager import Add, Reset, Update
from cacheproof.differential.traces.outcomes import QueuesOutcome
from cacheproof.differential.traces.records import CallRecord, Delta, Entry, Raised, StepRecord
from cacheproof.differential.traces.scheduler import Abort, Pause, ResetPrefix, Schedule

REQUESTS_MAX = 100_000
_BY_NAME = ("new", "told_new", "resumed", "preempted", "rejected", "awaiting")
_BY_REQUEST = ("drafts", "withheld", "sent_again", "dropped")
_MODES = ("new", "all", "none")
_NOBODY: dict[str, list[str]] = {word: [] for word in _BY_NAME}
_NAMES_MAX = 1 << 16
_STEP = Schedule()
_TOKENS_FOR_ALL = Update(1, ())
_DREW_NOTHING: ManagerCall = (OPERATIONS.index("notices"), None, None, None, None, [], None)
NOTHING_DRAWN = CallRecord("notices", None, None, None, None, [], None)


class Contradiction(Exception):
    """A record does not fit those before it."""


ValueT = TypeVar("ValueT")
FollowedEvent = Add | Schedule | Update | Abort | Reset | ResetPrefix | Pause


class AskedOfConnector(TypedDict):
    """What a connector is to load, and which requests it made wait."""

    loads: dict[str, list[int]]
    awaiting: list[str]


class Observed(NamedTuple):
    """An event of an engine, and what came of it, in the words of a trace."""

    event: FollowedEvent
    record: StepRecord


def name_of(number: int) -> str:
    """Name of a request in a trace, by its number."""
    return f"r{number}"


_observed: Callable[[tuple[FollowedEvent, StepRecord]], Observed] = partial(tuple.__new__, Observed)
_recorded: Callable[[tuple[object, ...]], StepRecord] = partial(tuple.__new__, StepRecord)
_called: Callable[[tuple[object, ...]], CallRecord] = partial(tuple.__new__, CallRecord)
_delta: Callable[[tuple[object, ...]], Delta] = partial(tuple.__new__, Delta)
_entry: Callable[[tuple[list[str], int | None]], Entry] = partial(tuple.__new__, Entry)
"""Make records of these fields, in order, without a call of Python: there are many a step."""


class _Names(dict[int, str]):
    """Names of requests, by number: one string object for all steps."""

    def __missing__(self, number: int) -> str:
        if len(self) >= _NAMES_MAX:
            self.clear()
        name = self[number] = name_of(number)
        return name


class FollowedQueue:
    """The queue after a call, in the place of a delta's list, which would be longer than what
    changed: a map that is never written to, and the entries that came to it, left it, or moved in
    it."""

    __slots__ = ("after", "moved")

    def __init__(self, after: Mapping[str, int], moved: Collection[str]) -> None:
        self.after = after
        self.moved = moved

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.after.items())


def add_of(request: Added | KnownRequest) -> Add:
    """The event with which a request arrives in a trace."""
    try:
        items = tuple(
            Item(identifier, offset, length, None, _mask(runs, length))
            for identifier, offset, length, runs in request.items
        )
    except (TypeError, ValueError) as error:
        raise Contradiction(f"an item of request {request.request}: {error}") from None
    lora = Adapter(f"adapter {request.lora}", request.lora, "-") if request.lora else None
    return Add(
        name_of(request.request),
        prompt=request.prompt,
        items=items,
        max_tokens=max(1, request.max_tokens),
        priority=request.priority,
        lora=lora,
        skip_reading=request.skip_reading,
        resumable="resumable" in request.flags,
    )


def _mask(runs: Sequence[int] | None, length: int) -> tuple[bool, ...] | None:
    if runs is None:
        return None
    if sum(runs) != length or min(runs, default=0) < 0:
        raise ValueError(f"a mask of {sum(runs)} places for {length}")
    mask: list[bool] = []
    for place, run in enumerate(runs):
        mask += [place % 2 == 1] * run
    return tuple(mask)


class Follower:
    """Follows the records of one scheduler from a keyframe on.

    Attributes:
        present: the requests that are there, by number.
        arrivals: when each of them arrived, by name, as the engine sorts them.
        running, waiting: who runs and waits, by name, in order.
        free_blocks: KV blocks that nobody holds.
    """

    def __init__(self, keyframe: Keyframe, *, has_connector: bool) -> None:
        self._has_connector = has_connector
        self.present: dict[int, Add] = {}
        for request in keyframe.requests:
            self.present[request.request] = add_of(request)
        self.arrivals = {name_of(one.request): one.arrival for one in keyframe.requests}
        self._name = _Names()
        self.running = self._names(keyframe.running)
        self.waiting = self._names(keyframe.waiting)
        self.free_blocks = keyframe.free_blocks
        self._last_step = {self._name[number]: end for number, end in keyframe.last_step.items()}
        self._in_flight = list(map(self._names, keyframe.in_flight))
        self._queue: dict[str, int] = dict(keyframe.queue)
        self._row = 0
        self._step_names = list(self._last_step)
        self._handlers: dict[type, Callable[[Any], Sequence[Observed]]] = {
            Added: self._added,
            Scheduled: self._scheduled,
            Updated: self._updated,
            Aborted: self._aborted,
            Cleared: self._cleared,
            RaisedMessage: self._raised,
        }

    def follow(self, message: AnyMessage) -> Sequence[Observed]:
        """The events that a message stands for; none for one that only says what is known. Those
        who end with it are there until `settle` is told of it.

        Raises:
            Contradiction: it does not fit those before it.
        """
        handler = self._handlers.get(type(message))
        if handler is None:
            return ()
        if self._row:
            self._leave_row()
        try:
            return handler(message)
        except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            kind = type(message).__name__
            raise Contradiction(f"{kind}: {type(error).__name__}: {error}") from None

    def settle(self, finished: Iterable[int]) -> None:
        """Forget those who have ended, once the step that says so is judged."""
        for number in finished:
            if self.present.pop(number, None) is not None:
                del self.arrivals[name_of(number)]

    def go_on(self, free_blocks: int) -> int:
        """Follow a step in which the requests of the step before get one more token each. Returns
        its number in the row of such steps."""
        self._row += 1
        self._in_flight.append(self._step_names)
        self.free_blocks = free_blocks
        return self._row

    def arrive(self, free_blocks: int) -> int:
        """Follow the output of such a step, a token per request. Returns the step's number in the
        row."""
        self._in_flight.pop(0)
        self.free_blocks = free_blocks
        return self._row

    def _leave_row(self) -> None:
        self._last_step = {name: end + self._row for name, end in self._last_step.items()}
        self._row = 0

    def _added(self, message: Added) -> Sequence[Observed]:
        if message.request in self.present:
            raise ValueError(f"request {message.request} comes again")
        if len(self.present) >= REQUESTS_MAX:
            raise ValueError(f"more than {REQUESTS_MAX} requests at once")
        added = self.present[message.request] = add_of(message)
        self.arrivals[added.request] = message.arrival
        return (_observed((added, self._record(self._standing(message), message.calls))),)

    def _scheduled(self, message: Scheduled) -> Sequence[Observed]:
        scheduled, computed = self._tokens(message)
        self._step_names = list(scheduled)
        self._in_flight.append(self._step_names)
        self._stand(message)
        rest = message.rest
        outcome: dict[str, Any] = {
            "scheduled": scheduled,
            "computed": computed,
            "encode": _by_request(message.encode),
            "notices": message.notices,
            "blocks": _by_request(message.blocks),
            "finished": self._names(message.finished),
            "total": rest["total"] if "total" in rest else sum(scheduled.values()),
            "drafts": {},
            **_NOBODY,
            "running": self.running,
            "waiting": self.waiting,
            "free_blocks": message.free_blocks,
        }
        if rest:
            outcome |= {word: list(map(name_of, rest[word])) for word in _BY_NAME if word in rest}
            outcome |= {word: _by_request(rest[word]) for word in _BY_REQUEST if word in rest}
        calls = self._calls(message.calls)
        if self._has_connector:
            asked = _asked(rest.get("connector", ()), self.present)
            outcome["loads"] = asked["loads"]
            outcome["awaiting"] = [*outcome["awaiting"], *asked["awaiting"]]
        return (_observed((_STEP, _recorded((outcome, calls, None, None)))),)

    def _tokens(self, message: Scheduled) -> tuple[dict[str, int], dict[str, int]]:
        """Tokens of the step by request, and those computed before it: one more for each request of
        the step before, unless the record says otherwise."""
        computed = dict(self._last_step)
        for number in message.gone:
            computed.pop(self._name[number], None)
        told = {self._name[number]: (tokens, end) for number, tokens, end in message.tokens}
        for name in told:
            computed.pop(name, None)
        scheduled = dict.fromkeys(computed, 1)
        for name, (tokens, end) in told.items():
            scheduled[name] = tokens
            if end is not None:
                computed[name] = end
        if message.order is not None:
            missing = [one for one in message.order if self._name[one] not in scheduled]
            if missing:
                raise KeyError(missing[0])
            scheduled = {name: scheduled[name] for name in self._names(message.order)}
            computed = {name: computed[name] for name in scheduled if name in computed}
        self._last_step = {name: end + scheduled[name] for name, end in computed.items()}
        return scheduled, computed

    def _updated(self, message: Updated) -> Sequence[Observed]:
        step, event = self._in_flight.pop(0), _TOKENS_FOR_ALL
        sampled = dict.fromkeys(step, 1)
        if message.sampled:
            told = {self._name[number]: tokens for number, tokens in message.sampled.items()}
            sampled = {name: 1 for name in step if name not in told}
            sampled |= {name: tokens for name, tokens in told.items() if tokens}
            accepts = tuple(max(0, tokens - 1) for tokens in sampled.values())
            event = Update(1, accepts if any(accepts) else ())
        self._stand(message)
        outcome = {
            "sampled": sampled,
            "finished": self._names(message.ended),
            "running": self.running,
            "waiting": self.waiting,
            "free_blocks": message.free_blocks,
        }
        return (_observed((event, self._record(outcome, message.calls))),)

    def _aborted(self, message: Aborted) -> Sequence[Observed]:
        calls = self._calls(message.calls)
        standing = self._standing(message)
        # Releases end them in an order of their own, and each call tells what it changed.
        freed = list(dict.fromkeys(call.request for call in calls))
        requests = sorted(
            message.requests,
            key=lambda number: freed.index(name_of(number)) if name_of(number) in freed else -1,
        )
        last = requests[-1] if requests else None
        observed: list[Observed] = []
        for number in requests:
            name = name_of(number)
            own = [call for call in calls if call.request == name]
            calls = [call for call in calls if call.request != name]
            record = StepRecord(None, own, None, None)
            if number == last:
                record = StepRecord(standing, [*own, *calls], None, None)
            observed.append(Observed(Abort(name), record))
        return observed

    def _cleared(self, message: Cleared) -> Sequence[Observed]:
        standing = self._standing(message)
        calls = self._calls(message.calls)
        if message.what == "encoder":
            return (Observed(Reset(), StepRecord(True, calls, None, None)),)
        if message.what in ("prefix", "running"):
            event = ResetPrefix(message.what == "running")
            return (Observed(event, StepRecord(bool(message.answer), calls, None, None)),)
        if message.what == "pause" and message.answer in _MODES:
            return (Observed(Pause(message.answer), StepRecord(True, calls, None, None)),)
        raise ValueError(f"{message.what} {message.answer}, which nothing follows: {standing}")

    def _raised(self, message: RaisedMessage) -> Sequence[Observed]:
        events: dict[str, FollowedEvent] = {
            "schedule": _STEP,
            "update_from_output": Update(),
            "reset_encoder_cache": Reset(),
        }
        event = events.get(message.operation)
        if event is None:
            return ()
        raised = Raised(message.error, message.text)
        return (Observed(event, StepRecord(None, self._calls(message.calls), raised, None)),)

    def _record(self, outcome: object, calls: Iterable[ManagerCall]) -> StepRecord:
        return _recorded((outcome, self._calls(calls), None, None))

    def _stand(self, message: Added | Scheduled | Updated | Aborted | Cleared) -> None:
        """Follow who runs, who waits, and what is free."""
        if message.running is not None:
            self.running = self._names(message.running)
        if message.waiting is not None:
            self.waiting = self._names(message.waiting)
        self.free_blocks = message.free_blocks

    def _standing(self, message: Added | Aborted | Cleared) -> QueuesOutcome:
        self._stand(message)
        return {
            "running": self.running,
            "waiting": self.waiting,
            "free_blocks": message.free_blocks,
        }

    def _names(self, numbers: Iterable[int]) -> list[str]:
        return list(map(self._name.__getitem__, numbers))

    def _calls(self, calls: Iterable[ManagerCall]) -> list[CallRecord]:
        made: list[CallRecord] = []
        for call in calls:
            operation, request, number, budget, pending, answer, delta = call
            if delta is None and call == _DREW_NOTHING:
                made.append(NOTHING_DRAWN)
                continue
            told = None if delta is None else self._change(*delta)
            name = None if request is None else self._name[request]
            made.append(
                _called((OPERATIONS[operation], name, number, budget, pending, answer, told))
            )
        return made

    def _change(
        self,
        free: int,
        freeable: int,
        entries: Entries,
        queue: Queue | None,
        notices: list[str] | None,
    ) -> Delta:
        name, followed = self._name.__getitem__, None
        if queue is not None:
            gone, added = queue
            self._queue = changed(self._queue, gone, added)
            followed = FollowedQueue(self._queue, {*gone, *[one for one, _ in added]})
        told = {
            identifier: None if entry is None else _entry((list(map(name, entry[0])), entry[1]))
            for identifier, entry in entries.items()
        }
        return _delta((free, freeable, told, followed, notices))


def _by_request(values: dict[int, ValueT]) -> dict[str, ValueT]:
    return {name_of(number): value for number, value in values.items()}


def _asked(calls: Iterable[Sequence[Any]], present: Mapping[int, Add]) -> AskedOfConnector:
    """What a connector is to load (what is allocated after it said that it has the item), and which
    requests it made wait."""
    has: dict[str, bool] = {}
    loads: dict[str, list[int]] = {}
    awaiting: list[str] = []
    for method, request, item, answer in calls:
        if method == "has_cache_item":
            has[item] = answer
        elif method == "has_caches":
            items = present[request].items
            has |= dict(zip((one.identifier for one in items), answer, strict=True))
        elif method == "ensure_cache_available" and answer is False:
            awaiting.append(name_of(request))
        elif method == "update_state_after_alloc" and has.get(
            present[request].items[item].identifier
        ):
            loads.setdefault(name_of(request), []).append(item)
    return {"loads": loads, "awaiting": awaiting}
