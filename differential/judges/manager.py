"""Judges a target's step records: folds the ghost from what was asked and answered, replays the
deltas into states, and evaluates every contract at every call.

A pure predicate of an unchanged state needs no second evaluation: state contracts are judged when
the state or the ghost moved, transition contracts that hold of any unchanged state only when it
changed (`also_unchanged` marks the others), and those of steps only when a step did something with
entries, or the ledger is not the one that the last step left.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import cacheproof.spec.encoder_cache
import cacheproof.spec.encoder_decoder_cache
import cacheproof.spec.engine
import cacheproof.spec.kv_transfers
import cacheproof.spec.manager_calls
import cacheproof.spec.scheduler
import cacheproof.spec.worker_mirror
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.manager import (
    Add,
    Finish,
    ManagerConfig,
    Notices,
    Preempt,
    Release,
    Reset,
    Stall,
    Update,
    Walk,
)
from cacheproof.differential.traces.records import CallRecord, Delta, Raised, StepRecord
from cacheproof.differential.traces.scheduler import (
    Abort,
    Chunk,
    Close,
    Elsewhere,
    Pause,
    Received,
    ResetPrefix,
    Schedule,
    SchedulerConfig,
    Sent,
    Transfer,
)
from cacheproof.differential.traces.trace import SCHEDULER_DEPTHS, Trace
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, DecoderCacheState, EncoderCacheState, Making, Step
from cacheproof.spec.registry import ANY_CALL, WHOLE_EVENT, WITHDRAWAL, Contract, contracts
from cacheproof.spec.scheduler import Span

_READS = frozenset({"inputs", "embeds", "notices"})
CREDITS = frozenset({"release", "free"})
AS_DEBITED = "as an item is debited"
"""The kind in which an encoder-decoder's ledger is wrong at once; releases credit too much."""
SCHEDULER = cacheproof.spec.scheduler.COMPONENT
ENGINE = cacheproof.spec.engine.COMPONENT


@dataclass(frozen=True)
class Violation:
    """A contract that does not hold: where, and both sides of the broken equation.

    `kind` tells apart the ways in which one contract can break, where a judge knows of several.
    """

    contract: Contract
    event: int
    operation: str
    request: str
    identifier: str
    why: str
    kind: str = ""

    @property
    def sentence(self) -> str:
        """One line: contract, place, request and identifier."""
        place = f"event {self.event + 1} ({self.operation})"
        subject = ", ".join(part for part in (self.request, self.identifier) if part)
        return f"{self.contract.id} at {place}{' on ' + subject if subject else ''}: {self.why}"


class Rules:
    """The contracts that apply to one kind of manager and one release, sorted for the hot path.

    Transition contracts are grouped by operation, state contracts by whether they look at the
    ghost. At scheduler depth those of the scheduler are beside them, by what they look at, and what
    it promises, by operation: elsewhere it is this harness that calls. Where an engine executes its
    steps those of the engine are there as well.
    """

    def __init__(
        self,
        manager: str,
        release: str | None,
        *,
        asynchronous: bool = False,
        depth: str = "manager",
    ) -> None:
        rules = [
            rule
            for rule in contracts(manager_component(manager), release)
            if not (asynchronous and rule.synchronous_only)
            and not (rule.kind == "promise" and depth not in SCHEDULER_DEPTHS)
        ]
        of_scheduler = list(contracts(SCHEDULER, release)) if depth in SCHEDULER_DEPTHS else []
        if depth == ENGINE:
            of_scheduler += contracts(ENGINE, release)
        self.all = [*rules, *of_scheduler]
        self.of_scheduler: dict[type, list[tuple[Contract, Callable[[Any], bool]]]] = {}
        for rule in of_scheduler:
            (subject,) = set(rule.predicate.__annotations__.values()) - {bool}
            self.of_scheduler.setdefault(subject, []).append((rule, rule.predicate))
        states = [rule for rule in rules if rule.kind == "state"]
        self.of_state = [(rule, rule.predicate) for rule in states if rule.parameters == ("s",)]
        self.of_state_and_ghost = [
            (rule, rule.predicate) for rule in states if rule.parameters == ("s", "g")
        ]
        assert len(self.of_state) + len(self.of_state_and_ghost) == len(states)
        self.of_step = [rule for rule in rules if rule.kind in ("trace", "mirror")]
        transitions = [rule for rule in rules if rule.kind == "transition"]
        self.of_event = [rule for rule in transitions if rule.calls == WHOLE_EVENT]
        assert all(rule.predicate(_NO_CALL) for rule in self.of_event)
        self.of_ghost = {
            operation: [rule for rule in transitions if _of_ghost(rule) and operation in rule.calls]
            for operation in ANY_CALL
        }
        assert not any(rule.also_unchanged for rule in transitions if _of_ghost(rule))
        self.changed = {
            operation: [
                (rule, _of_call(rule))
                for rule in transitions
                if not _of_ghost(rule) and operation in rule.calls
            ]
            for operation in ANY_CALL
        }
        self.unchanged = {
            operation: [(rule, holds) for rule, holds in rules if rule.also_unchanged]
            for operation, rules in self.changed.items()
        }
        assert not any(self.unchanged[operation] for operation in _READS)
        self.promised = {
            operation: [
                (rule, _of_promise(rule))
                for rule in rules
                if rule.kind == "promise" and operation in rule.calls
            ]
            for operation in ANY_CALL | WITHDRAWAL
        }


def _of_ghost(rule: Contract) -> bool:
    """Whether a transition contract looks at the ghost; the others look at the call."""
    return rule.parameters == ("pre", "post", "g")


def _of_call(rule: Contract) -> Callable[[Any, Any, Call], bool]:
    """The predicate under one signature, so that the hot path need not look at its parameters."""
    holds = rule.predicate
    match rule.parameters:
        case ("pre", "post", "c"):
            return holds
        case ("pre", "c"):
            return lambda pre, post, c: holds(pre, c)
        case ("post", "c"):
            return lambda pre, post, c: holds(post, c)
        case parameters:
            raise ValueError(f"contract {rule.id}: transition over {', '.join(parameters)}")


def _of_promise(rule: Contract) -> Callable[[Any, Ghost, Mapping[str, int], Call], bool]:
    """The predicate of a promise under one signature: state, ghost, what the step encodes, call."""
    holds = rule.predicate
    match rule.parameters:
        case ("s", "c"):
            return lambda state, ghost, encoded, call: holds(state, call)
        case ("g", "c"):
            return lambda state, ghost, encoded, call: holds(ghost, call)
        case ("s", "g", "c"):
            return lambda state, ghost, encoded, call: holds(state, ghost, call)
        case ("g", "w", "c"):
            return lambda state, ghost, encoded, call: holds(ghost, Making(encoded), call)
        case parameters:
            raise ValueError(f"contract {rule.id}: promise over {', '.join(parameters)}")


def manager_component(manager: str) -> str:
    """The component whose contracts judge a kind of manager."""
    return "encoder_decoder_cache" if manager == "encoder_decoder" else manager


class _Request:
    """A request of the trace: its items and how far it has been scheduled."""

    __slots__ = (
        "computed",
        "end_of_items",
        "ends",
        "identifiers",
        "masks",
        "offsets",
        "repeats",
        "sizes",
        "spans",
    )

    def __init__(self, event: Add, protocol: Protocol) -> None:
        self.identifiers: list[str] = []
        self.offsets: list[int] = []
        self.ends: list[int] = []
        self.masks: list[tuple[bool, ...] | None] = []
        self.sizes: list[int] = []
        self.spans: tuple[Span, ...] = ()
        self.end_of_items = 0
        self.repeats = False
        self.computed = 0
        self.extend(event, 0, protocol)

    def extend(self, event: Add | Chunk, first: int, protocol: Protocol) -> None:
        """The items of a prompt that begins at token `first`."""
        for item in event.items:
            number = len(self.identifiers)
            self.identifiers.append(
                item.identifier if protocol.keyed_by_identifier else f"{event.request}#{number}"
            )
            self.offsets.append(first + item.offset)
            self.ends.append(first + item.offset + item.length)
            self.masks.append(item.is_embed)
            counts_all = item.is_embed is None or not protocol.counts_embeds
            self.sizes.append(item.length if counts_all else sum(item.is_embed or ()))
        self.spans = tuple(map(Span, self.offsets, self.ends))
        self.end_of_items = max(self.ends, default=0)
        self.repeats = len(set(self.identifiers)) < len(self.identifiers)

    def read_in(self, start: int, end: int) -> Iterable[int]:
        """Items of which tokens [start, end) receive an embedding."""
        if start >= self.end_of_items:
            return
        for number, offset in enumerate(self.offsets):
            if offset < end and self.ends[number] > start:
                mask = self.masks[number]
                if mask is None or any(mask[max(0, start - offset) : end - offset]):
                    yield number

    def inside_an_item(self) -> bool:
        return any(span.start < self.computed < span.end for span in self.spans)


class Judge:
    """Judges one trace. `violations` holds the first violation of each contract."""

    def __init__(
        self,
        trace: Trace,
        rules: Rules,
        reach: Reachability,
        protocol: Protocol,
    ) -> None:
        self.protocol = protocol
        self.ghost = Ghost()
        self.violations: dict[str, Violation] = {}
        self.calls_judged = 0
        self.resident_sum = 0
        self._residents = 0
        self._rules = rules
        self._reach = reach
        self._is_decoder = trace.header.manager == "encoder_decoder"
        assert isinstance(trace.header.config, ManagerConfig | SchedulerConfig)
        self._capacity = trace.header.config.capacity
        self._state = self._initial_state()
        self._state_of_last_step: Any = None
        self._requests: dict[str, _Request] = {}
        self._chunks: dict[str, list[Chunk]] = {}
        self._is_scheduler = trace.has_scheduler
        self._read_ahead = int(protocol.holds_for_drafter and _has_drafter(trace))
        self._in_flight: list[dict[str, int]] = [] if self._is_scheduler else [{}]
        self._running: set[str] = set()
        self._event = 0
        self._encoded: dict[str, int] = {}
        self._gathered: set[str] = set()
        self._evicted: set[str] = set()
        self._evicted_before: set[str] = set()
        self._evicting: set[str] = set()
        self._allocating: set[str] = set()
        self._decoded: set[tuple[str, str]] = set()
        self._last_step: Step | None = None
        self._handlers: dict[type, Callable[[Any, Any, Any], None]] = {
            Add: self._add,
            Chunk: self._chunk,
            Close: self._only_calls,
            Walk: self._walk,
            Stall: self._stall,
            Notices: self._notices,
            Update: self._update,
            Preempt: self._preempt,
            Finish: self._finish,
            Release: self._only_calls,
            Reset: self._reset,
            Schedule: self._schedule,
            Abort: self._finish,
            ResetPrefix: self._only_calls,
            Pause: self._pause,
            Transfer: self._transfer,
            Elsewhere: self._only_calls,
            Received: self._only_calls,
            Sent: self._only_calls,
        }
        self._notes = {
            "can": self._note_admission,
            "allocate": self._note_allocation,
            "check": self._note_check,
            "release": self._note_release,
        }

    def judge(self, number: int, event: Any, record: StepRecord) -> None:
        """Judge the record of event number `number`."""
        outcome, calls, raised, _ = record
        self._event = number
        if outcome is not None or calls:
            self._handlers[type(event)](event, outcome, calls)
        if raised is not None:
            self._raised(event, calls, raised)

    @property
    def state(self) -> EncoderCacheState | DecoderCacheState:
        """The target's state after the last call that was judged."""
        return self._state

    @property
    def stored(self) -> Mapping[str, int]:
        """Rows in the worker's store, by identifier."""
        return self.ghost.stored

    def set_capacity(self, capacity: int) -> None:
        """The release floored the capacity at its largest item; call before the first event."""
        self._capacity = capacity
        self._state = self._initial_state()

    def position(self) -> tuple[Any, ...]:
        """All that later verdicts depend on: the ghost, the ledger and the engine's progress.

        What says which rare states were met depends on the past as well, and is left out.
        """
        return (
            self.ghost,
            self._state,
            self._requests,
            self._in_flight,
            self._encoded,
            self._gathered,
            self._evicting,
            self._allocating,
        )

    def go_to(self, position: tuple[Any, ...]) -> None:
        """Go on from a position of a judge of the same configuration, which is used up."""
        (
            self.ghost,
            self._state,
            self._requests,
            self._in_flight,
            self._encoded,
            self._gathered,
            self._evicting,
            self._allocating,
        ) = position
        if isinstance(self._state, EncoderCacheState):
            self._residents = len(self._state.size)
        self.violations = {}
        self._evicted, self._evicted_before, self._decoded = set(), set(), set()

    def _initial_state(self) -> Any:
        if self._is_decoder:
            return DecoderCacheState(self._capacity, self._capacity, ())
        return EncoderCacheState(self._capacity, self._capacity, self._capacity, {}, {}, {}, ())

    # events

    def _raised(self, event: Any, calls: Iterable[CallRecord], raised: Raised) -> None:
        call = _raised_by(event, calls, raised)
        for rule in self._rules.of_event:
            if not rule.predicate(call):
                self._broken(rule, {"c": call}, call.operation, call.request, "")

    def _add(self, event: Add, outcome: Any, calls: Any) -> None:
        request = self._requests[event.request] = _Request(event, self.protocol)
        self._note_sizes(request)
        self._only_calls(event, outcome, calls)

    def _note_sizes(self, request: _Request) -> None:
        for identifier, size in zip(request.identifiers, request.sizes, strict=True):
            if self.ghost.size.get(identifier, size) != size:
                self._reach.meet("identifier with another size")

    def _chunk(self, event: Chunk, outcome: Any, calls: Any) -> None:
        self._chunks.setdefault(event.request, []).append(event)
        self._only_calls(event, outcome, calls)
        if outcome and "continued" in outcome:
            self._go_on(outcome["continued"])

    def _go_on(self, continued: Iterable[tuple[str, int]]) -> None:
        """Sessions went on: the next chunk of each is part of its prompt."""
        for request_id, first in continued:
            request = self._requests[request_id]
            request.extend(self._chunks[request_id].pop(0), first, self.protocol)
            self._note_sizes(request)
            self._reach.meet("prompt continued")

    def _only_calls(self, event: Any, outcome: Any, calls: Any) -> None:
        for call in calls:
            self._call(call)

    def _walk(self, event: Walk, outcome: Any, calls: Any) -> None:
        request = self._requests[event.request]
        free_before = self._state.free_slots
        self._only_calls(event, outcome, calls)
        if outcome is None:
            return
        granted, duplicates = outcome
        if granted <= 0:
            self._evicting.discard(event.request)
            return
        for number in duplicates:
            self._reach.meet("duplicate within one walk")
            self.ghost.claim(event.request, request.identifiers[number], request.ends[number])
        start = request.computed
        request.computed = end = start + granted
        self._in_flight[0][event.request] = end
        if self._is_decoder:
            return
        self._gathered.update(
            [request.identifiers[number] for number in request.read_in(start, end)]
        )
        admitted = [call[2] for call in calls if call[0] == "can" and call[5] is True]
        allocated = [call[2] for call in calls if call[0] == "allocate"]
        if len(admitted) > len(allocated):
            self._reach.meet("no embeddings in the window")
            self._evicting.discard(event.request)
        if not self.protocol.keyed_by_identifier and self._overdrawn(
            request, allocated, free_before
        ):
            self._reach.meet("pending items fill the cache")

    def _overdrawn(self, request: _Request, allocated: list[int], free: int) -> bool:
        return sum(request.sizes[number] for number in allocated) > free

    def _stall(self, event: Stall, outcome: Any, calls: Any) -> None:
        if any(call[0] == "check" and call[5] is True for call in calls):
            self._reach.meet("stalled after a claim")
        self._only_calls(event, outcome, calls)
        self._evicting.discard(event.request)

    def _notices(self, event: Any, outcome: Any, calls: Any) -> None:
        reported: list[str] = []
        for call in calls:
            self._call(call)
            if call[0] == "notices" and isinstance(call[5], list):
                reported += call[5]
        self._finish_step(tuple(reported))

    def _update(self, event: Update, outcome: Any, calls: Any) -> None:
        finished = outcome["finished"] if self._is_scheduler and outcome else ()
        ended_last = self._ended_last
        for step in self._in_flight[: event.steps]:
            for request_id in step:
                if request_id not in ended_last:
                    self._confirm(request_id, request_id in finished)
        for request_id in finished:
            self._end(request_id)
        del self._in_flight[: event.steps]
        if not self._in_flight and not self._is_scheduler:
            self._in_flight.append({})
        self._only_calls(event, outcome, calls)
        self._running.difference_update(finished)
        if self._is_scheduler and outcome and "continued" in outcome:
            self._go_on(outcome["continued"])

    @property
    def _ended_last(self) -> Set[str]:
        """Whom an update ends when it is done with all others."""
        return frozenset()

    def _confirm(self, request_id: str, finished: bool) -> None:
        request = self._requests.get(request_id)
        if request is None or (self._is_scheduler and request_id not in self._running):
            return
        if finished:
            self._end(request_id)
            return
        if request.repeats and self._early_occurrence(request, request_id):
            self._reach.meet("first occurrence consumed, later one pending")
        self.ghost.consume(request_id, request.computed - self._read_ahead)

    def _end(self, request_id: str) -> None:
        """A request has ended; one of an encoder-decoder is still to release what it is debited."""
        if not self._is_decoder:
            self._withdraw(request_id)

    def _withdraw(self, request_id: str) -> None:
        """A request runs no more."""
        self._judge_promises("withdraw", request_id, None)
        self.ghost.withdraw(request_id)

    def _early_occurrence(self, request: _Request, request_id: str) -> bool:
        passed = {
            request.identifiers[number]
            for number, end in enumerate(request.ends)
            if end <= request.computed
        }
        return any(
            identifier in passed and request_id in self.ghost.needed.get(identifier, ())
            for number, identifier in enumerate(request.identifiers)
            if request.offsets[number] < request.computed < request.ends[number]
        )

    def _preempt(self, event: Preempt, outcome: Any, calls: Any) -> None:
        request = self._requests[event.request]
        if request.inside_an_item():
            self._reach.meet("preemption inside an item")
        request.computed = 0
        self._in_flight[0].pop(event.request, None)
        self._withdraw(event.request)
        self._only_calls(event, outcome, calls)

    def _finish(self, event: Any, outcome: Any, calls: Any) -> None:
        request = self._requests.get(event.request)
        if request is not None and request.inside_an_item():
            self._reach.meet("abort inside an item")
        if not self._is_scheduler:
            self._in_flight[0].pop(event.request, None)
            self._requests.pop(event.request, None)
        self._running.discard(event.request)
        self._withdraw(event.request)
        self._only_calls(event, outcome, calls)

    def _reset(self, event: Any, outcome: Any, calls: Any) -> None:
        if isinstance(self._state, EncoderCacheState) and self._state.size:
            self._reach.meet("reset with entries")
        self._only_calls(event, outcome, calls)

    def _pause(self, event: Pause, outcome: Any, calls: Any) -> None:
        self._only_calls(event, outcome, calls)

    def _transfer(self, event: Transfer, outcome: Any, calls: Any) -> None:
        if outcome:
            self._reach.meet("transfer failed")

    def _schedule(self, event: Any, outcome: Any, calls: Any) -> None:
        running = set(outcome["running"]) if outcome else set()
        planning = len(calls)
        if not self.protocol.releases_on_update:
            planning = 1 + next(
                (i for i, call in enumerate(calls) if call[0] == "notices"), planning
            )
        for call in calls[:planning]:
            self._call(call, running)
        if outcome is None:
            for call in calls[planning:]:
                self._call(call, running)
            return
        for request_id in self._running - running:
            if self._requests[request_id].inside_an_item():
                self._reach.meet("preemption inside an item")
            self._requests[request_id].computed = 0
        if stopped := self.ghost.owed() - running:
            for request_id in stopped.difference(outcome.get("rejected", ())):
                self._withdraw(request_id)
        self._running = running
        step: dict[str, int] = {}
        for request_id, tokens in outcome["scheduled"].items():
            if request_id not in outcome["computed"]:
                continue  # preempted after it was scheduled; releases up to 0.11 leave its count in
            request = self._requests[request_id]
            start = outcome["computed"][request_id]
            request.computed = step[request_id] = end = start + tokens
            if start < request.end_of_items:
                self._gathered.update(
                    [request.identifiers[number] for number in request.read_in(start, end)]
                )
        self._in_flight.append(step)
        if not self.protocol.releases_on_update:
            for request_id in step:
                self._confirm(request_id, finished=False)
        for call in calls[planning:]:
            self._call(call, running)
        allocated = self._encoded
        loaded = self._filled(outcome.get("loads", {}))
        self._encoded = self._filled(outcome["encode"]) | loaded
        if allocated.keys() - self._encoded.keys():
            self._reach.meet("preempted after encode in the same step")
        self._note_transfers(outcome, loaded)
        self._finish_step(tuple(outcome["notices"]))

    def _filled(self, inputs_by_request: Mapping[str, Iterable[int]]) -> dict[str, int]:
        """Entries that the worker fills with these inputs, and their sizes."""
        return {
            self._requests[request_id].identifiers[number]: self._requests[request_id].sizes[number]
            for request_id, inputs in inputs_by_request.items()
            for number in inputs
        }

    # calls

    def _call(self, record: Any, running: set[str] | None = None) -> None:
        operation, request_id, input_id, budget, pending, answer, delta = record
        self.calls_judged += 1
        if delta is None and operation in _READS and answer is not True:
            self.resident_sum += self._residents
            return
        ghost, rules = self.ghost, self._rules
        identifier, size = "", 0
        if input_id is not None:
            request = self._requests[request_id]
            identifier, size = request.identifiers[input_id], request.sizes[input_id]
        if operation == "free" and (running is None or request_id not in running):
            self._withdraw(request_id)
        if rules.promised[operation]:
            self._judge_promises(operation, request_id, input_id)
        if operation == "allocate":
            ghost.encode(request_id, input_id, identifier, size)
        elif operation == "reset":
            ghost.reset()
            self._encoded.clear()
            self._state_of_last_step = None
        pre = post = self._state
        if delta is not None:
            post = self._state = self._replay(pre, delta)
            for rule in rules.of_ghost[operation]:
                if not rule.predicate(pre, post, ghost):
                    values = {"pre": pre, "post": post, "g": ghost}
                    self._broken(rule, values, operation, request_id, identifier)
        of_call = rules.unchanged[operation] if delta is None else rules.changed[operation]
        if of_call:
            call = Call(
                operation,
                request_id or "",
                -1 if input_id is None else input_id,
                identifier,
                size,
                0 if input_id is None else request.ends[input_id],
                budget or 0,
                pending or 0,
                answer is True,
                (request_id, input_id) in ghost.debits,
                "",
            )
            for rule, holds in of_call:
                if not holds(pre, post, call):
                    values = {"pre": pre, "post": post, "c": call}
                    self._broken(rule, values, operation, request_id, identifier)
        if self._is_decoder:
            self._note_decoder(record, identifier, size)
        if operation == "release":
            ghost.release(request_id, input_id)
        claimed = operation == "allocate" or (answer is True and operation == "check")
        if claimed:
            ghost.claim(request_id, identifier, self._requests[request_id].ends[input_id])
        if delta is not None:
            for rule, holds in rules.of_state:
                if not holds(post):
                    self._broken(rule, {"s": post}, operation, request_id, identifier)
        debited = AS_DEBITED if self._is_decoder and operation == "allocate" else ""
        if claimed or delta is not None or (self._is_decoder and operation in CREDITS):
            for rule, holds in rules.of_state_and_ghost:
                if not holds(post, ghost):
                    values = {"s": post, "g": ghost}
                    self._broken(rule, values, operation, request_id, identifier, debited)
        self.resident_sum += self._residents
        if not self._is_decoder and (note := self._notes.get(operation)):
            note(record, identifier, size, pre, post)
        if operation == "allocate":
            self._encoded[identifier] = size

    def _judge_promises(self, operation: str, name: str | None, number: int | None) -> None:
        """Hold the caller to what it promises of a call that is about to come."""
        promised = self._rules.promised[operation]
        if not promised:
            return
        state, ghost, encoded = self._state, self.ghost, self._encoded
        if name is None or number is None:
            call = Call(operation, name or "", -1, "", 0, 0, 0, 0, False, False, "")
        else:
            request = self._requests[name]
            call = Call(
                operation,
                name,
                number,
                request.identifiers[number],
                request.sizes[number],
                request.ends[number],
                0,
                0,
                False,
                (name, number) in ghost.debits,
                "",
            )
        for rule, holds in promised:
            if not holds(state, ghost, encoded, call):
                values = {"s": state, "g": ghost, "w": Making(encoded), "c": call}
                self._broken(rule, values, operation, name, call.identifier)

    def _replay(self, pre: Any, delta: Delta) -> Any:
        free, freeable, entries, queue, notices = delta
        told = pre.notices if notices is None else tuple(notices)
        if self._is_decoder:
            return DecoderCacheState(self._capacity, free, told)
        size, holders = pre.size, pre.holders
        if entries:
            size, holders = dict(size), dict(holders)
            for identifier, entry in entries.items():
                if entry is None:
                    size.pop(identifier, None)
                    holders.pop(identifier, None)
                    continue
                requests, stated = entry
                holders[identifier] = frozenset(requests)
                if stated is not None:
                    size[identifier] = stated
                elif identifier not in size or identifier in self.ghost.size:
                    size[identifier] = self.ghost.size.get(identifier, 0)
        self._residents = len(size)
        return EncoderCacheState(
            self._capacity,
            free,
            freeable,
            size,
            holders,
            pre.queue if queue is None else dict(queue),
            told,
        )

    # rare states

    def _note_decoder(self, record: Any, identifier: str, size: int) -> None:
        operation, request_id, input_id, budget, pending, answer, _ = record
        meet = self._reach.meet
        if operation == "release" and (request_id, input_id) not in self.ghost.debits:
            meet("decoder item released again")
        elif operation == "can" and answer is not True:
            meet("refused by budget" if size > (budget or 0) else "refused by space")
        elif operation == "can" and pending:
            meet("admitted beside pending items")
        elif operation == "allocate":
            if (request_id, identifier) in self._decoded:
                meet("decoder item encoded again")
            self._decoded.add((request_id, identifier))

    def _note_admission(self, record: Any, identifier: str, size: int, pre: Any, post: Any) -> None:
        _, request_id, _, budget, pending, answer, _ = record
        meet = self._reach.meet
        if pre is not post and (gone := [h for h in pre.size if h not in post.size]):
            meet("eviction")
            self._evicting.add(request_id)
            self._evicted.update(gone)
            if len(gone) > 1:
                meet("several evictions at once")
        if answer is True:
            if pending:
                meet("admitted beside pending items")
        elif budget is not None and size > budget:
            meet("refused by budget")
        else:
            meet("refused by space")
            if pending and size <= pre.freeable_slots:
                meet("pending items fill the cache")

    def _note_allocation(
        self, record: Any, identifier: str, size: int, pre: Any, post: Any
    ) -> None:
        request_id = record[1]
        meet = self._reach.meet
        self._allocating.add(request_id)
        if identifier in self._evicted:
            meet("evicted and encoded again in one step")
        if identifier in self._evicted_before:
            meet("encoded anew after an eviction")
            self._evicted_before.discard(identifier)
        if size == self._capacity:
            meet("item as large as the cache")
        if post.free_slots == 0:
            meet("full")
        if self._requests[request_id].masks[record[2]] is not None:
            meet("sparse item")
        self._note_claim(request_id, identifier)

    def _note_check(self, record: Any, identifier: str, size: int, pre: Any, post: Any) -> None:
        if record[5] is True:
            if identifier in pre.queue:
                self._reach.meet("rescue")
            self._note_claim(record[1], identifier)

    def _note_release(self, record: Any, identifier: str, size: int, pre: Any, post: Any) -> None:
        if pre is post:
            self._reach.meet("released again")

    def _note_claim(self, request_id: str, identifier: str) -> None:
        if len(self.ghost.needed[identifier]) > 1:
            self._reach.meet("shared")
        if self._requests[request_id].repeats:
            self._reach.meet("repeated item")

    def _note_transfers(self, outcome: Any, loaded: Mapping[str, int]) -> None:
        if outcome.get("awaiting"):
            self._reach.meet("waits for a transfer")
        loads = outcome.get("loads")
        if not loads:
            return
        if loaded:
            self._reach.meet("loaded from elsewhere")
        if loads.keys() - outcome["computed"].keys():
            self._reach.meet("preempted after a load in the same step")
        if loaded.keys() & self._evicted:
            self._reach.meet("evicted and loaded in one step")

    # steps

    def _new_step(self) -> None:
        self._evicted_before |= self._evicted
        self._encoded, self._gathered, self._evicted = {}, set(), set()
        self._evicting, self._allocating = set(), set()

    def _finish_step(self, notices: tuple[str, ...]) -> None:
        acts = notices or self._encoded or self._gathered or self._evicting
        if acts or self._is_decoder or self._state is not self._state_of_last_step:
            self._judge_step(notices)
        else:
            self.ghost.step((), {})
        self._state_of_last_step = self._state
        self._new_step()

    def _stored_anew(self, notices: tuple[str, ...]) -> dict[str, int]:
        """What the worker puts into its store in the step, and sizes."""
        return self._encoded

    def _judge_step(self, notices: tuple[str, ...]) -> None:
        before: Mapping[str, int] = dict(self.ghost.stored)
        self.ghost.step(notices, self._stored_anew(notices))
        if self._is_decoder:
            self._gathered = set(self._encoded)
            if notices:
                self._reach.meet("decoder entry reported")
        step = Step(
            capacity=self._capacity,
            before=before,
            notices=notices,
            encoded=self._encoded.keys(),
            gathered=self._gathered,
            store=self.ghost.stored,
            ledger={} if self._is_decoder else self._state.size,
            pending=frozenset()
            if self.protocol.keyed_by_identifier
            else frozenset(self._state.notices),
            steps_since_encode=self.ghost.steps_since_encode,
            evicting=self._evicting,
            allocating=self._allocating,
        )
        self._last_step = step
        for rule in self._rules.of_step:
            if not rule.predicate(step):
                self._broken(rule, {"w": step}, "step", "", "")

    def _broken(
        self,
        rule: Contract,
        values: Mapping[str, Any],
        operation: str,
        request_id: str | None,
        identifier: str,
        kind: str = "",
    ) -> None:
        if rule.id not in self.violations:
            why = rule.explain(**values)
            self.violations[rule.id] = Violation(
                rule, self._event, operation, request_id or "", identifier, why, kind
            )


def _has_drafter(trace: Trace) -> bool:
    config = trace.header.config
    return (
        isinstance(config, SchedulerConfig) and config.drafter and config.num_speculative_tokens > 0
    )


_NO_CALL = Call("event", "", -1, "", 0, 0, 0, 0, False, False, "")


def _raised_by(event: Any, calls: Iterable[CallRecord], raised: Raised) -> Call:
    """The call that raised, or the event when the release raised outside its manager."""
    for operation, request_id, *_, answer, _ in calls:
        if isinstance(answer, dict):
            return _NO_CALL._replace(
                operation=operation, request=request_id or "", raised=raised[0]
            )
    return _NO_CALL._replace(operation=type(event).__struct_config__.tag, raised=raised[0])
