"""Records one scheduler of an engine that runs.

Every function of the scheduler that the engine calls is called as before; what it was asked and
what it left is written down after it. Nothing that this module does may reach the engine: whatever
goes wrong here ends the recording, and the record says so.
"""

import functools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ParamSpec, TypedDict, TypeVar

import msgspec

from cacheproof.differential.recording import settings
from cacheproof.differential.recording.connector import ConnectorRecorder, connectors_of
from cacheproof.differential.recording.ending import say_why_it_ended
from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.kv_cache import KVRecording, kv_recording
from cacheproof.differential.recording.ledger import ManagerRecorder
from cacheproof.differential.recording.messages import (
    Aborted,
    Added,
    Cleared,
    Closed,
    Keyframe,
    KnownRequest,
    ManagerCall,
    Message,
    Opened,
    Raised,
    Scheduled,
    Updated,
)
from cacheproof.differential.recording.quiet_steps import asks_nothing, is_quiet
from cacheproof.differential.recording.raising import place_of, words_of
from cacheproof.differential.recording.requests import Numbers, Queues, RecordedStep, order_of
from cacheproof.differential.recording.writer import Records
from cacheproof.differential.targets.host.scheduler.told import (
    blocks_of,
    inputs_of,
    notices_of,
    unasked,
    withheld_of,
)
from cacheproof.differential.targets.host.vllm_objects.requests import Request
from cacheproof.differential.targets.host.vllm_objects.scheduler import (
    ConfiguredScheduler,
    EngineCoreOutput,
    EngineCoreOutputs,
    SchedulerOutput,
)

# An audit that met a gap goes on at the next keyframe.
KEYFRAME_STEPS = 4096
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
"""The methods of a scheduler that an engine calls, and the method that notes each."""
_NOBODY: list[Any] = []
_NOTHING: dict[Any, Any] = {}


P = ParamSpec("P")
R = TypeVar("R")


class RecordedStanding(TypedDict):
    """The last fields of most records: the calls of the manager, and who runs and waits."""

    calls: list[ManagerCall]
    running: list[int] | None
    waiting: list[int] | None
    free_blocks: int


class SchedulerRecording:
    """The record of one scheduler. It wraps the scheduler's methods; without `wraps`, its owner
    hands on each call of one of `OPERATIONS`."""

    def __init__(
        self,
        scheduler: ConfiguredScheduler,
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
        self._queues = Queues(scheduler)
        self._manager: ManagerRecorder | None = None
        self._connectors: dict[str, ConnectorRecorder] = {}
        self._kv: KVRecording | None = None
        self._drafts = 0
        self._numbers = Numbers()
        self._number = self._numbers.of
        self._steps = 0
        self._steps_until_keyframe = KEYFRAME_STEPS
        self._step = RecordedStep({})
        self._in_flight: deque[Sequence[str]] = deque()
        self._preempted: set[str] = set()
        self._flagged: set[str] = set()
        self._present: list[str] = []
        self._inside = False
        self._ended = False
        self._clock = time.monotonic_ns()
        for name in OPERATIONS if wraps else ():
            if hasattr(scheduler, name):
                method = getattr(scheduler, name)
                setattr(scheduler, name, functools.partial(self.call, name, method))

    def call(self, name: str, method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a call of the scheduler, and write down what it came to."""
        # A call that the scheduler makes of itself is part of the engine's call.
        if self._inside or self._ended:
            return method(*args, **kwargs)
        self._inside = True
        try:
            try:
                self._before(name)
            except Exception as error:
                self._fail(error)
            try:
                answer = method(*args, **kwargs)
            except BaseException as error:
                if not self._ended:
                    self._note_raised(name, error)
                raise
            if not self._ended:
                try:
                    getattr(self, OPERATIONS[name])(answer, *args, **kwargs)
                except Exception as error:
                    self._fail(error)
        finally:
            self._inside = False
        return answer

    def _note_raised(self, name: str, raised: BaseException) -> None:
        try:
            self._raised(name, raised)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """A failure of ours ends the recording and does not reach the engine."""
        self._end()
        say_why_it_ended(error, self._writer)

    def _end(self) -> None:
        self._ended = True
        for recorder in (self._manager, self._kv, *self._connectors.values()):
            if recorder is not None:
                recorder.end()

    # what is written down

    def _before(self, name: str) -> None:
        manager = self._scheduler.encoder_cache_manager
        # A plug-in may have put another manager in the first one's place.
        if self._manager is None or self._manager.manager is not manager:
            self._manager = ManagerRecorder(manager)
            self._opened = settings.opened(
                self._scheduler, self._facts, plain=self._hasher.is_plain
            )
            if not self._connectors:
                identifier = self._hasher.identifier
                self._connectors = connectors_of(self._scheduler, self._number, identifier)
            if self._facts.with_kv and self._kv is None:
                self._kv = kv_recording(self._scheduler, self._hasher, self._number)
            self._drafts = self._opened.settings.get("num_speculative_tokens", 0)
            self._begin()
        elif name == "schedule" and self._writer.wants_file:
            self._begin()
        if name == "finish_requests":
            # Whom the call ends is seen by who is missing after it.
            self._present = list(self._scheduler.requests)

    def _begin(self) -> None:
        assert self._opened is not None
        keyframe = self._keyframe()
        opened = msgspec.structs.replace(self._opened, started=time.time())
        # `started` is now, so no time has passed since.
        self._writer.begin(opened, msgspec.structs.replace(keyframe, time=0))
        self._write_kv(is_whole=True)

    def _write_kv(self, *, is_whole: bool = False) -> None:
        if self._kv is not None:
            self._kv.write(self._writer, is_whole=is_whole)

    def _keyframe(self) -> Keyframe:
        assert self._manager is not None
        self._steps_until_keyframe = KEYFRAME_STEPS
        state = self._manager.full_state()
        hashed, numbers = self._hasher.identifier, self._number
        requests = self._scheduler.requests
        self._queues.read()
        return Keyframe(
            self._tick(),
            self._writer.lost,
            self._steps,
            [
                KnownRequest(
                    **known.arrived,
                    computed=requests[name].num_computed_tokens,
                    preempted=name in self._preempted,
                )
                for name, known in self._numbers.known.items()
                if name in requests
            ],
            list(map(numbers, self._queues.running)),
            list(map(numbers, self._queues.waiting)),
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
            {numbers(name): end or 0 for name, end in self._step.ends_by_name().items()},
        )

    def _added(self, answer: object, request: Request) -> None:
        name = request.request_id
        if name in self._numbers.known:
            # A known name is the next chunk of a session, which no audit follows.
            self._put(Cleared(self._tick(), "session", None, **self._standing(anew=True)))
            return
        arrived = settings.arrived(request, self._numbers.next, self._hasher)
        self._numbers.add(name, arrived)
        if arrived["flags"]:
            self._flagged.add(name)
        self._put(Added(self._tick(), **arrived, **self._standing(anew=True)))

    def _scheduled(self, output: SchedulerOutput, *_: object, **__: object) -> None:
        if not self._goes_on(output):
            self._decided(output)
        self._steps_until_keyframe -= 1
        if self._steps_until_keyframe <= 0:
            self._writer.put(self._keyframe())
            self._write_kv(is_whole=True)

    def _goes_on(self, output: SchedulerOutput) -> bool:
        """Note a step of the commonest kind, if that is what it is: the requests of the step before
        get one token more each, and perhaps a KV block."""
        cached, before = output.scheduled_cached_reqs, self._step
        computed, counts, names = (
            cached.num_computed_tokens,
            output.num_scheduled_tokens,
            before.names,
        )
        if (
            computed != before.ends
            or cached.req_ids != names
            # Lists, since the order is part of a step.
            or [*counts] != names
            or [*counts.values()] != before.ones
            or output.total_num_scheduled_tokens != len(names)
            or not is_quiet(output, self._drafts)
            or getattr(self._scheduler, "encoder_cache_mismatch_reqs", None)
            or self._flagged
            or self._connectors
            or self._queues.may_have_moved
        ):
            return False
        self._steps += 1
        before.ends = [start + 1 for start in computed]
        self._in_flight.append(names)
        blocks = self._blocks(output) if any(cached.new_block_ids) else _NOTHING
        self._put(
            Scheduled(
                self._tick(),
                _NOBODY,
                _NOBODY,
                None,
                _NOTHING,
                _NOBODY,
                self._calls(),
                blocks,
                _NOBODY,
                None,
                None,
                self._free_blocks(),
                _NOTHING,
            )
        )
        return True

    def _decided(self, output: SchedulerOutput) -> None:
        """Note a step of any kind."""
        cached = output.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        ends: dict[str, int | None] = {}
        before, number, stayed = self._step.ends_by_name(), self._number, 0
        tokens = []
        for name, count in output.num_scheduled_tokens.items():
            start = computed.get(name)
            # None: preempted after it was scheduled; releases up to 0.11 leave its count in.
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
        order = order_of(before, ends, tokens, number)
        self._steps += 1
        self._step = RecordedStep(ends)
        self._in_flight.append(self._step.names)
        # Before `_standing` reads the queues anew.
        ran = self._queues.running
        standing = self._standing(anew=bool(tokens or gone))
        encode, finished = output.scheduled_encoder_inputs, output.finished_req_ids
        self._put(
            Scheduled(
                self._tick(),
                tokens=tokens,
                gone=gone,
                order=order,
                encode={number(name): list(inputs) for name, inputs in encode.items()},
                notices=list(map(self._hasher.identifier, notices_of(output))),
                blocks=self._blocks(output),
                finished=[number(name) for name in finished if name in self._numbers.known],
                rest=self._rest(output, computed, ran),
                **standing,
            )
        )
        for name in finished:
            # No later step names it, unless a new request has its name.
            if name not in self._scheduler.requests:
                self._retire(name)

    def _rest(
        self, output: SchedulerOutput, computed: Mapping[str, int], ran: Sequence[str]
    ) -> dict[str, Any]:
        """What a step says beside its tokens, by name; what says nothing is left out."""
        scheduler, number, preempted = self._scheduler, self._number, self._preempted_of(ran)
        resumed = [
            name
            for name in (computed if self._preempted else ())
            if name in self._preempted and name not in preempted
        ]
        self._preempted.difference_update(resumed)
        told: dict[str, Any] = {}
        new = [one.req_id for one in output.scheduled_new_reqs]
        if new:
            # A resumed request may be told to the workers as a new one.
            if first := [number(name) for name in new if name not in resumed]:
                told["new"] = first
            told["told_new"] = list(map(number, new))
            if withheld := withheld_of(output, scheduler.requests):
                told["withheld"] = {number(name): items for name, items in withheld.items()}
        rejected = sorted(getattr(scheduler, "encoder_cache_mismatch_reqs", None) or ())
        for word, names in (
            ("resumed", resumed),
            ("preempted", preempted),
            ("rejected", rejected),
            ("awaiting", self._awaiting()),
        ):
            if names:
                told[word] = list(map(number, names))
        if drafts := output.scheduled_spec_decode_tokens:
            told["drafts"] = {number(name): len(tokens) for name, tokens in drafts.items()}
        if updates := getattr(output, "encoder_input_updates", None):
            for word, is_sent in (("sent_again", True), ("dropped", False)):
                if inputs := inputs_of(updates, is_sent=is_sent):
                    told[word] = {number(name): items for name, items in inputs.items()}
        total = output.total_num_scheduled_tokens
        if total != sum(output.num_scheduled_tokens.values()):
            told["total"] = total
        for word, connector in self._connectors.items():
            if asked := connector.take():
                told[word] = asked
        if not asks_nothing(output, self._drafts) and (
            said_unasked := sorted(set(unasked(output, self._drafts)))
        ):
            told["unasked"] = said_unasked
        return told

    def _preempted_of(self, ran: Sequence[str]) -> list[str]:
        """Which of the requests that ran are preempted now."""
        # `Queues.read` keeps the list where nobody came or left.
        if self._queues.running is ran:
            return []
        requests, runs = self._scheduler.requests, set(self._queues.running)
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
        """Requests that wait for something of their own: a grammar, a load, more prompt."""
        if not (self._flagged or self._connectors):
            return []
        requests = self._scheduler.requests
        return [
            name
            for name in self._queues.waiting
            if requests[name].status.name.startswith("WAITING_FOR")
        ]

    def _updated(
        self,
        answer: Mapping[int, EngineCoreOutputs] | None,
        output: object,
        *_: object,
        **__: object,
    ) -> None:
        names = self._in_flight.popleft() if self._in_flight else _NOBODY
        outputs = [one for client in (answer or {}).values() for one in client.outputs]
        if _is_a_token_each(outputs, names):  # the commonest
            calls, free = self._calls(), self._free_blocks()
            self._put(Updated(self._tick(), _NOTHING, _NOBODY, calls, None, None, free))
            return
        expected = set(names)
        sampled: dict[str, int] = dict.fromkeys(names, 0)
        for one in outputs:
            if one.new_token_ids:
                name = one.request_id
                sampled[name] = sampled.get(name, 0) + len(one.new_token_ids)
        ended = [self._number(one.request_id) for one in outputs if one.finish_reason is not None]
        self._put(
            Updated(
                self._tick(),
                sampled={
                    self._number(name): count
                    for name, count in sampled.items()
                    # A token for each is what an update means where it says nothing.
                    if name in self._numbers.known and (count != 1 or name not in expected)
                },
                ended=ended,
                **self._standing(anew=bool(ended)),
            )
        )

    def _finished(self, answer: object, *_: object, **__: object) -> None:
        requests = self._scheduler.requests
        names = [name for name in self._present if name not in requests]
        standing = self._standing(anew=True)
        if names or standing["calls"]:
            self._put(Aborted(self._tick(), requests=list(map(self._number, names)), **standing))

    def _reset_encoder(self, answer: object, *_: object, **__: object) -> None:
        self._put(Cleared(self._tick(), what="encoder", answer=True, **self._standing()))

    def _reset_prefix(self, answer: object, *args: object, **kwargs: object) -> None:
        running = bool(kwargs.get("reset_running_requests", bool(args) and args[0]))
        if running:
            self._preempted.update(self._queues.running)
        what = "running" if running else "prefix"
        self._put(
            Cleared(self._tick(), what=what, answer=bool(answer), **self._standing(anew=True))
        )

    def _paused(self, answer: object, state: Enum, *_: object, **__: object) -> None:
        modes = {"PAUSED_NEW": "new", "PAUSED_ALL": "all", "UNPAUSED": "none"}
        mode = modes.get(state.name, state.name)
        self._put(Cleared(self._tick(), what="pause", answer=mode, **self._standing()))

    def _shut_down(self, answer: object, *_: object, **__: object) -> None:
        self.close()

    def close(self) -> None:
        """End the record with the engine, in order."""
        if not self._ended:
            self._end()
            self._writer.put(Closed(self._tick(), self._writer.lost))
        self._writer.close()

    def _raised(self, operation: str, error: BaseException) -> None:
        text, place = words_of(error, self._hasher), place_of(error)
        self._put(Raised(self._tick(), operation, type(error).__name__, text, self._calls(), place))
        # The exception may end the process, and the writing thread with it.
        self._writer.flush(1.0)

    # its parts

    def _blocks(self, output: SchedulerOutput) -> dict[int, list[list[int]]]:
        return {self._number(name): ids for name, ids in blocks_of(output).items()}

    def _put(self, message: Message) -> None:
        if self._kv is not None:
            self._kv.write(self._writer, is_whole=False)
        self._writer.put(message)

    def _tick(self) -> int:
        now = time.monotonic_ns()
        passed, self._clock = (now - self._clock) // 1000, now
        return passed

    def _retire(self, name: str) -> None:
        self._numbers.retire(name)
        self._preempted.discard(name)
        self._flagged.discard(name)

    def _free_blocks(self) -> int:
        count: int = self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return count

    def _calls(self) -> list[ManagerCall]:
        assert self._manager is not None
        return self._manager.written(self._number, self._hasher.identifier)

    def _standing(self, *, anew: bool = False) -> RecordedStanding:
        """Who runs and waits, None where that did not change, and the calls of the manager. The
        queues are read again where something happened that can move them, or where their lengths
        changed."""
        running: list[int] | None = None
        waiting: list[int] | None = None
        queues = self._queues
        if anew or queues.may_have_moved:
            ran, waited = queues.running, queues.waiting
            queues.read()
            if queues.running is not ran:
                running = list(map(self._number, queues.running))
            if queues.waiting is not waited:
                waiting = list(map(self._number, queues.waiting))
        return {
            "calls": self._calls(),
            "running": running,
            "waiting": waiting,
            "free_blocks": self._free_blocks(),
        }


def _is_a_token_each(outputs: Sequence[EngineCoreOutput], expected: Sequence[str]) -> bool:
    """Whether each of these requests got a token, and none has ended."""
    names = [
        one.request_id
        for one in outputs
        if len(one.new_token_ids) == 1 and one.finish_reason is None
    ]
    if not len(names) == len(outputs) == len(expected):
        return False
    # Outputs are by client, and of one client in order.
    return names == expected or set(names) == set(expected)
