"""Records one scheduler of an engine that runs.

Every function of the scheduler that the engine calls is called as before; what it was asked and
what it left is written down after it. Nothing that this module does may reach the engine: whatever
goes wrong here ends the recording, and the record says so.
"""

import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from cacheproof.differential.recording import settings
from cacheproof.differential.recording.connector import ConnectorRecorder
from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.ledger import ManagerRecorder
from cacheproof.differential.recording.messages import (
    Aborted,
    Added,
    Cleared,
    Closed,
    Keyframe,
    KnownRequest,
    Message,
    Opened,
    Raised,
    Scheduled,
    Updated,
)
from cacheproof.differential.recording.writer import Records
from cacheproof.differential.targets.host.scheduler_session import WAITING_QUEUES
from cacheproof.differential.targets.host.scheduler_told import (
    blocks_of,
    inputs_of,
    notices_of,
    unasked,
    withheld_of,
)

KEYFRAME_STEPS = 4096
RETIRED_MAX = 4096
OPERATIONS = {
    "add_request": "_added",
    "schedule": "_scheduled",
    "update_from_output": "_updated",
    "finish_requests": "_finished",
    "reset_encoder_cache": "_reset_encoder",
    "reset_prefix_cache": "_reset_prefix",
    "set_pause_state": "_paused",
    "shutdown": "_shut_down",
}
"""The methods of a scheduler that an engine calls, and what notes each."""
_logger = logging.getLogger("vllm.cacheproof")


def say_why_it_ended(error: Exception, writer: Records) -> None:
    """A recording ends of what went wrong in it."""
    with suppress(Exception):
        _logger.warning("cacheproof: the recording has ended: %r", error, exc_info=error)
        why = str(error)[:200].encode(errors="replace").decode()
        writer.put(Raised(0, "recording", type(error).__name__, why, []))
        writer.flush(1.0)


class _Known:
    """A request as it arrived, and its number."""

    __slots__ = ("arrived", "number")

    def __init__(self, number: int, arrived: dict[str, Any]) -> None:
        self.number = number
        self.arrived = arrived


class SchedulerRecording:
    """The record of one scheduler, which it wraps; or else who wraps it hands on each call of one
    of `OPERATIONS`."""

    def __init__(
        self,
        scheduler: Any,
        writer: Records,
        hasher: Hasher,
        facts: settings.Facts,
        *,
        wraps: bool = True,
    ) -> None:
        self._scheduler = scheduler
        self._facts = facts
        self._writer = writer
        self._hasher = hasher
        self._opened: Opened | None = None
        self._queues = [name for name in WAITING_QUEUES if hasattr(scheduler, name)]
        self._manager: ManagerRecorder | None = None
        self._connector: ConnectorRecorder | None = None
        self._drafts = 0
        self._known: dict[str, _Known] = {}
        self._retired: dict[str, int] = {}
        self._arrivals = 0
        self._steps = 0
        self._steps_until_keyframe = KEYFRAME_STEPS
        self._ends: dict[str, int | None] = {}
        self._in_flight: deque[Mapping[str, Any]] = deque()
        self._preempted: set[str] = set()
        self._flagged: set[str] = set()
        self._running: list[str] = []
        self._waiting: list[str] = []
        self._lengths: tuple[int, ...] = ()
        self._present: list[str] = []
        self._inside = False
        self._ended = False
        self._clock = time.monotonic_ns()
        for name in OPERATIONS if wraps else ():
            if hasattr(scheduler, name):
                method = getattr(scheduler, name)
                setattr(scheduler, name, functools.partial(self.call, name, method))

    def call(self, name: str, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Make a call of the scheduler, and write down what it came to."""
        if self._inside or self._ended:
            return method(*args, **kwargs)
        self._inside = True
        try:
            self._safely(self._before, name)
            try:
                answer = method(*args, **kwargs)
            except BaseException as error:
                self._safely(self._raised, name, error)
                raise
            self._safely(getattr(self, OPERATIONS[name]), answer, *args, **kwargs)
        finally:
            self._inside = False
        return answer

    def _safely(self, function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call one of ours; its failure is ours alone."""
        if self._ended:
            return
        try:
            function(*args, **kwargs)
        except Exception as error:
            self._end()
            say_why_it_ended(error, self._writer)

    def _end(self) -> None:
        self._ended = True
        for recorder in (self._manager, self._connector):
            if recorder is not None:
                recorder.end()

    # what is written down

    def _before(self, name: str) -> None:
        manager = self._scheduler.encoder_cache_manager
        if self._manager is None or self._manager.manager is not manager:
            self._manager = ManagerRecorder(manager)
            self._opened = settings.opened(
                self._scheduler, self._facts, plain=self._hasher.is_plain
            )
            connector = getattr(self._scheduler, "ec_connector", None)
            if connector is not None and self._connector is None:
                self._connector = ConnectorRecorder(
                    connector, self._number, self._hasher.identifier
                )
            self._drafts = self._opened.settings.get("num_speculative_tokens", 0)
            self._begin()
        elif name == "schedule" and self._writer.wants_file:
            self._begin()
        if name == "finish_requests":
            self._present = list(self._scheduler.requests)

    def _begin(self) -> None:
        assert self._opened is not None
        keyframe = self._keyframe()
        opened = msgspec.structs.replace(self._opened, started=time.time())
        self._writer.begin(opened, msgspec.structs.replace(keyframe, time=0))

    def _keyframe(self) -> Keyframe:
        assert self._manager is not None
        self._steps_until_keyframe = KEYFRAME_STEPS
        state = self._manager.full_state()
        hashed, numbers = self._hasher.identifier, self._number
        requests = self._scheduler.requests
        self._list_requests()
        return Keyframe(
            self._tick(),
            self._writer.lost,
            self._steps,
            [
                KnownRequest(
                    **known.arrived | {"prefix": known.arrived["prefix"][:1]},
                    computed=requests[name].num_computed_tokens,
                    preempted=name in self._preempted,
                )
                for name, known in self._known.items()
                if name in requests
            ],
            list(map(numbers, self._running)),
            list(map(numbers, self._waiting)),
            self._free_blocks(),
            state["free"],
            state["freeable"],
            {
                hashed(name): (list(map(numbers, holders)), size)
                for name, (holders, size) in state["entries"].items()
            },
            [(hashed(name), size) for name, size in state["queue"]],
            list(map(hashed, state["notices"])),
            [list(map(numbers, step)) for step in self._in_flight],
            {numbers(name): end or 0 for name, end in self._ends.items()},
        )

    def _added(self, answer: Any, request: Any) -> None:
        name = request.request_id
        if name in self._known:
            self._put(Cleared, "session", None, **self._standing(anew=True))
            return
        arrived = settings.arrived(request, self._arrivals, self._hasher)
        self._known[name] = _Known(self._arrivals, arrived)
        self._arrivals += 1
        if arrived["flags"]:
            self._flagged.add(name)
        self._put(Added, **arrived, **self._standing(anew=True))

    def _scheduled(self, output: Any, *_: Any, **__: Any) -> None:
        cached = output.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        ends: dict[str, int | None] = {}
        before, number, stayed = self._ends, self._number, 0
        tokens = []
        for name, count in output.num_scheduled_tokens.items():
            start = computed.get(name)
            ends[name] = None if start is None else start + count
            end = before.get(name)
            stayed += end is not None
            if count != 1 or start is None or end != start:
                tokens.append((number(name), count, start))
        gone = (
            []
            if stayed == len(before)
            else [number(name) for name in before if ends.get(name) is None]
        )
        order = self._order(before, ends, tokens)
        self._steps += 1
        self._ends = ends
        self._in_flight.append(ends)
        ran = self._running
        standing = self._standing(anew=bool(tokens or gone))
        encode, finished = output.scheduled_encoder_inputs, output.finished_req_ids
        self._put(
            Scheduled,
            tokens=tokens,
            gone=gone,
            order=order,
            encode={number(name): list(inputs) for name, inputs in encode.items()},
            notices=list(map(self._hasher.identifier, notices_of(output))),
            blocks={number(name): ids for name, ids in blocks_of(output).items()},
            finished=[number(name) for name in finished if name in self._known],
            rest=self._rest(output, computed, ran),
            **standing,
        )
        for name in finished:
            if name not in self._scheduler.requests:
                self._retire(name)
        self._steps_until_keyframe -= 1
        if self._steps_until_keyframe <= 0:
            self._writer.put(self._keyframe())

    def _order(
        self, before: Mapping[str, Any], now: Mapping[str, Any], tokens: Sequence[Any]
    ) -> list[int] | None:
        """The order of a step's requests, where it does not follow from the step before."""
        if not tokens and list(before) == list(now):
            return None
        told = {number for number, _, _ in tokens}
        known = [name for name in before if name in now and self._number(name) not in told]
        likely = [*map(self._number, known), *(number for number, _, _ in tokens)]
        actual = list(map(self._number, now))
        return None if likely == actual else actual

    def _rest(self, output: Any, computed: Mapping[str, Any], ran: Sequence[str]) -> dict[str, Any]:
        """What is said of a step beside its tokens, by name; nothing of what says nothing."""
        scheduler = self._scheduler
        new = [one.req_id for one in output.scheduled_new_reqs]
        preempted = self._preempted_of(ran)
        resumed = [
            name
            for name in (computed if self._preempted else ())
            if name in self._preempted and name not in preempted
        ]
        self._preempted.difference_update(resumed)
        said: dict[str, Any] = {
            "new": [name for name in new if name not in resumed],
            "told_new": new,
            "resumed": resumed,
            "preempted": preempted,
            "rejected": sorted(getattr(scheduler, "encoder_cache_mismatch_reqs", ())),
            "awaiting": self._awaiting(),
        }
        told: dict[str, Any] = {
            word: list(map(self._number, names)) for word, names in said.items() if names
        }
        by_request: dict[str, Any] = {}
        if drafts := output.scheduled_spec_decode_tokens:
            by_request["drafts"] = {name: len(tokens) for name, tokens in drafts.items()}
        if new:
            by_request["withheld"] = withheld_of(output, scheduler.requests)
        if updates := getattr(output, "encoder_input_updates", None):
            by_request["sent_again"] = inputs_of(updates, is_sent=True)
            by_request["dropped"] = inputs_of(updates, is_sent=False)
        for word, values in by_request.items():
            if values:
                told[word] = {self._number(name): value for name, value in values.items()}
        total = output.total_num_scheduled_tokens
        if total != sum(output.num_scheduled_tokens.values()):
            told["total"] = total
        if self._connector is not None and (asked := self._connector.take()):
            told["connector"] = asked
        if said_unasked := sorted(set(unasked(output, self._drafts))):
            told["unasked"] = said_unasked
        return told

    def _preempted_of(self, ran: Sequence[str]) -> list[str]:
        """Who of those that ran is preempted now."""
        if self._running is ran:
            return []
        requests, runs = self._scheduler.requests, set(self._running)
        preempted = [
            name
            for name in ran
            if name not in runs
            and (request := requests.get(name)) is not None
            and request.status is self._facts.preempted
        ]
        self._preempted.update(preempted)
        return preempted

    def _awaiting(self) -> list[str]:
        """Who waits for something of its own: a grammar, a load, more prompt."""
        if not self._may_wait:
            return []
        requests = self._scheduler.requests
        return [
            name for name in self._waiting if requests[name].status.name.startswith("WAITING_FOR")
        ]

    @property
    def _may_wait(self) -> bool:
        """Whether any request can wait for something of its own."""
        scheduler = self._scheduler
        return (
            bool(self._flagged)
            or getattr(scheduler, "connector", None) is not None
            or getattr(scheduler, "ec_connector", None) is not None
        )

    def _updated(self, answer: Any, output: Any, *_: Any, **__: Any) -> None:
        expected = self._in_flight.popleft() if self._in_flight else {}
        others: dict[str, int] = {}
        ended, met = [], 0
        for client in (answer or {}).values():
            for one in client.outputs:
                name, count = one.request_id, len(one.new_token_ids)
                if one.finish_reason is not None:
                    ended.append(name)
                if count == 1 and name in expected:
                    met += 1
                elif count:
                    others[name] = others.get(name, 0) + count
        if met != len(expected):
            told = {
                one.request_id
                for client in (answer or {}).values()
                for one in client.outputs
                if one.new_token_ids
            }
            others |= {name: 0 for name in expected if name not in told}
        self._put(
            Updated,
            sampled={
                self._number(name): count for name, count in others.items() if name in self._known
            },
            ended=list(map(self._number, ended)),
            **self._standing(anew=bool(ended)),
        )

    def _finished(self, answer: Any, *_: Any, **__: Any) -> None:
        requests = self._scheduler.requests
        names = [name for name in self._present if name not in requests]
        standing = self._standing(anew=True)
        if names or standing["calls"]:
            self._put(Aborted, requests=list(map(self._number, names)), **standing)

    def _reset_encoder(self, answer: Any, *_: Any, **__: Any) -> None:
        self._put(Cleared, what="encoder", answer=True, **self._standing())

    def _reset_prefix(self, answer: Any, *args: Any, **kwargs: Any) -> None:
        running = bool(kwargs.get("reset_running_requests", bool(args) and args[0]))
        if running:
            self._preempted.update(self._running)
        what = "running" if running else "prefix"
        self._put(Cleared, what=what, answer=bool(answer), **self._standing(anew=True))

    def _paused(self, answer: Any, state: Any, *_: Any, **__: Any) -> None:
        modes = {"PAUSED_NEW": "new", "PAUSED_ALL": "all", "UNPAUSED": "none"}
        mode = modes.get(state.name, state.name)
        self._put(Cleared, what="pause", answer=mode, **self._standing())

    def _shut_down(self, answer: Any, *_: Any, **__: Any) -> None:
        self.close()

    def close(self) -> None:
        """The engine ends in order."""
        if not self._ended:
            self._end()
            self._writer.put(Closed(self._tick(), self._writer.lost))
        self._writer.close()

    def _raised(self, operation: str, error: BaseException) -> None:
        text = str(error)[:1000] if self._hasher.is_plain else ""
        assert self._manager is not None
        calls = self._manager.written(self._number, self._hasher.identifier)
        self._writer.put(Raised(self._tick(), operation, type(error).__name__, text, calls))
        self._writer.flush(1.0)

    # its parts

    def _put(self, kind: type[Message], *args: Any, **fields: Any) -> None:
        self._writer.put(kind(self._tick(), *args, **fields))

    def _tick(self) -> int:
        now = time.monotonic_ns()
        passed, self._clock = (now - self._clock) // 1000, now
        return passed

    def _number(self, name: str) -> int:
        known = self._known.get(name)
        return self._retired.get(name, -1) if known is None else known.number

    def _retire(self, name: str) -> None:
        """A request is gone. Its number is kept for a while: a ledger may still name it."""
        known = self._known.pop(name, None)
        self._preempted.discard(name)
        self._flagged.discard(name)
        if known is not None:
            self._retired[name] = known.number
            if len(self._retired) > RETIRED_MAX:
                del self._retired[next(iter(self._retired))]

    def _free_blocks(self) -> int:
        count: int = self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return count

    def _standing(self, *, anew: bool = False) -> dict[str, Any]:
        """Who runs and waits, where that changed, and the calls of the manager. The queues are read
        again where something happened that can move them, or where their lengths changed."""
        assert self._manager is not None
        running: list[int] | None = None
        waiting: list[int] | None = None
        if anew or self._lengths_now() != self._lengths:
            ran, waited = self._running, self._waiting
            self._list_requests()
            if self._running is not ran:
                running = list(map(self._number, self._running))
            if self._waiting is not waited:
                waiting = list(map(self._number, self._waiting))
        return {
            "calls": self._manager.written(self._number, self._hasher.identifier),
            "running": running,
            "waiting": waiting,
            "free_blocks": self._free_blocks(),
        }

    def _lengths_now(self) -> tuple[int, ...]:
        scheduler = self._scheduler
        return (len(scheduler.running), *[len(getattr(scheduler, one)) for one in self._queues])

    def _list_requests(self) -> None:
        """Note who runs and waits; the lists stay the same objects where nothing changed."""
        scheduler = self._scheduler
        self._lengths = self._lengths_now()
        running = [request.request_id for request in scheduler.running]
        waiting = [
            request.request_id for queue in self._queues for request in getattr(scheduler, queue)
        ]
        if running != self._running:
            self._running = running
        if waiting != self._waiting:
            self._waiting = waiting
