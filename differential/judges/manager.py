"""Judges a manager: folds what the requests are owed from what was asked and answered, replays the
deltas into states, and has every contract evaluated at every call.

Contracts of steps are judged only when a step did something with entries, or the ledger is not the
one that the last step left.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cacheproof.differential.judges.evaluator import Evaluator
from cacheproof.differential.judges.manager_rare import ManagerRareStates
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.requests import JudgedRequest
from cacheproof.differential.judges.rules import NO_CALL, Rules, rules_of
from cacheproof.differential.judges.violation import Violation, by_kind
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import tag_of
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
from cacheproof.differential.traces.outcomes import WalkOutcome
from cacheproof.differential.traces.records import CallRecord, Delta, Raised, StepRecord
from cacheproof.differential.traces.scheduler import Abort, SchedulerConfig
from cacheproof.differential.traces.trace import DecidedEvent, Trace
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import (
    Call,
    DecoderCacheState,
    EncoderCacheState,
    LedgerState,
    Step,
    inputs_in,
    leaves_out,
    named_by,
    number_of,
)

Calls = Sequence[CallRecord]
Handler = Callable[[Any, Any, Calls], None]
"""Takes an event of one kind, its outcome and its calls; which kind, the table of handlers says."""
CREDITS = frozenset({"release", "free"})
_made: Callable[[tuple[object, ...]], Call] = partial(tuple.__new__, Call)
_state: Callable[[tuple[object, ...]], EncoderCacheState] = partial(
    tuple.__new__, EncoderCacheState
)
"""Make a call and a state of these fields, in order, without a call of Python: there are many."""
_NOTHING: tuple[bool, int, Set[str], bool] = (False, 0, frozenset(), False)
"""What `_told` says of a call that asks for neither a size nor inputs."""
_NOTED = frozenset({"can", "allocate", "check", "release"})
AS_DEBITED = "as an item is debited"
"""Kind of a break in which an encoder-decoder's ledger is wrong at the debit itself; releases break
the same contracts by crediting too much."""


@dataclass(slots=True)
class ManagerPosition:
    """All that later verdicts depend on. Which rare states were met depends on the past as well,
    and is left out.

    Attributes:
        state: the target's ledger after the last call.
        ghost: what the requests are owed.
        requests: those that are known, by name.
        in_flight: of each step whose output is outstanding, up to which token its requests come;
            at manager depth the last one is in the making.
        encoded: what was allocated in the step in the making, and sizes.
        gathered: what it reads.
        evicting, allocating: the requests whose admission evicted, and that were allocated.
    """

    state: LedgerState
    in_flight: list[dict[str, int]]
    ghost: Ghost = field(default_factory=Ghost)
    requests: dict[str, JudgedRequest] = field(default_factory=dict)
    encoded: dict[str, int] = field(default_factory=dict)
    gathered: set[str] = field(default_factory=set)
    evicting: set[str] = field(default_factory=set)
    allocating: set[str] = field(default_factory=set)


class ManagerJudge:
    """Judges one trace. `violations` holds the first violation of each contract."""

    def __init__(
        self,
        trace: Trace,
        rules: Rules,
        reach: Reachability,
        protocol: Protocol,
    ) -> None:
        self.protocol = protocol
        self.calls_judged = 0
        self.resident_sum = 0
        self._residents = 0
        self._evaluator = Evaluator(rules)
        self._reach = reach
        self._rare_calls = ManagerRareStates(reach.meet)
        self._is_decoder = trace.header.manager == "encoder_decoder"
        assert isinstance(trace.header.config, ManagerConfig | SchedulerConfig)
        self._capacity = trace.header.config.capacity
        # Such releases hold an item until the drafter, a token ahead, is past it.
        self._read_ahead = int(protocol.holds_for_drafter and _has_drafter(trace))
        self._at = self._begin()
        self._state_of_last_step: LedgerState | None = None
        self._last_step: Step | None = None
        self._last_step_held = False
        self._handlers = self._handlers_by_event()

    def _begin(self) -> ManagerPosition:
        # One step is always in the making at this depth: the last one in flight.
        return ManagerPosition(self._initial_state(), [{}])

    def _handlers_by_event(self) -> dict[type, Handler]:
        return {
            Add: self._add,
            Walk: self._walk,
            Stall: self._stall,
            Notices: self._notices,
            Update: self._update,
            Preempt: self._preempt,
            Finish: self._finish,
            Release: self._only_calls,
            Reset: self._reset,
        }

    def judge(self, number: int, event: DecidedEvent, record: StepRecord) -> None:
        """Judge the record of event number `number`."""
        outcome, calls, raised, _ = record
        self._evaluator.event = number
        if outcome is not None or calls:
            self._handlers[type(event)](event, outcome, calls)
        if raised is not None:
            self._raised(event, calls, raised)

    @property
    def violations(self) -> dict[str, Violation]:
        """The first violation of each contract that is broken."""
        return self._evaluator.violations

    @property
    def by_kind(self) -> dict[tuple[str, str], Violation]:
        """The violations by contract and kind."""
        return by_kind(self.violations)

    @property
    def state(self) -> LedgerState:
        """The target's state after the last call that was judged."""
        return self._at.state

    @property
    def ghost(self) -> Ghost:
        """What the requests are owed after the last call that was judged."""
        return self._at.ghost

    @property
    def stored(self) -> Mapping[str, int]:
        """Rows in the worker's store, by identifier."""
        return self._at.ghost.stored

    def set_capacity(self, capacity: int) -> None:
        """Take the capacity that the release floored at its largest item; call before the first
        event."""
        self._capacity = capacity
        self._at.state = self._initial_state()

    def position(self) -> ManagerPosition:
        """The position of the judge, which goes on changing it: copy it to keep it."""
        return self._at

    def go_to(self, position: ManagerPosition) -> None:
        """Go on from a position of a judge of the same configuration, and take it over."""
        self._at = position
        if isinstance(position.state, EncoderCacheState):
            self._residents = len(position.state.size)
        # Both know what came just before, which at this position is something else.
        self._evaluator.forget()
        self._rare_calls.forget()
        self._state_of_last_step = None

    def explain_others(self, explained: Set[str]) -> None:
        """Tell why a contract is broken only for others than these, from now on."""
        self._evaluator.explained = explained

    def _initial_state(self) -> LedgerState:
        if self._is_decoder:
            return DecoderCacheState(self._capacity, self._capacity, ())
        return EncoderCacheState(self._capacity, self._capacity, self._capacity, {}, {}, {}, ())

    # what the requests are owed, from event to event

    def _raised(self, event: DecidedEvent, calls: Iterable[CallRecord], raised: Raised) -> None:
        self._evaluator.raised(_raised_by(event, calls, raised))

    def _add(self, event: Add, outcome: object, calls: Calls) -> None:
        request = self._at.requests[event.request] = JudgedRequest(event, self.protocol)
        self._rare_calls.sizes(request, self._at.ghost.size)
        self._only_calls(event, outcome, calls)

    def _only_calls(self, event: object, outcome: object, calls: Calls) -> None:
        for call in calls:
            self._call(call)

    def _walk(self, event: Walk, outcome: WalkOutcome | None, calls: Calls) -> None:
        at = self._at
        request = at.requests[event.request]
        free_before = at.state.free_slots
        self._only_calls(event, outcome, calls)
        if outcome is None:
            return
        granted, duplicates = outcome
        if granted <= 0:
            # Nothing is scheduled of it: what its admission evicted need not be used.
            at.evicting.discard(event.request)
            return
        # The walk makes no call for an item that it has met before, and yet claims it.
        for number in duplicates:
            self._reach.meet("duplicate within one walk")
            at.ghost.claim(event.request, request.identifiers[number], request.ends[number])
        start = request.computed
        request.computed = end = start + granted
        at.in_flight[0][event.request] = end
        if self._is_decoder:
            return
        at.gathered.update([request.identifiers[number] for number in request.read_in(start, end)])
        admitted = [call.input for call in calls if call.operation == "can" and call.answer is True]
        allocated = [call.input or 0 for call in calls if call.operation == "allocate"]
        if len(admitted) > len(allocated):
            self._reach.meet("no embeddings in the window")
            at.evicting.discard(event.request)
        is_keyed = self.protocol.keyed_by_identifier
        if not is_keyed and sum(request.sizes[number] for number in allocated) > free_before:
            self._reach.meet("pending items fill the cache")

    def _stall(self, event: Stall, outcome: object, calls: Calls) -> None:
        if any(call.operation == "check" and call.answer is True for call in calls):
            self._reach.meet("stalled after a claim")
        self._only_calls(event, outcome, calls)
        # There are no KV blocks for it: what its admission evicted need not be used.
        self._at.evicting.discard(event.request)

    def _notices(self, event: Notices, outcome: object, calls: Calls) -> None:
        reported: list[str] = []
        for call in calls:
            self._call(call)
            if call.operation == "notices" and isinstance(call.answer, list):
                reported += call.answer
        self._finish_step(tuple(reported))

    def _update(self, event: Update, outcome: object, calls: Calls) -> None:
        in_flight = self._at.in_flight
        for step in in_flight[: event.steps]:
            for name in step:
                self._confirm(name)
        del in_flight[: event.steps]
        if not in_flight:
            in_flight.append({})
        self._only_calls(event, outcome, calls)

    def _confirm(self, name: str) -> None:
        """Note that a step of the request is done."""
        request = self._at.requests.get(name)
        if request is not None:
            if request.repeats:
                self._rare_calls.early_occurrence(request, name, self._at.ghost)
            self._at.ghost.consume(name, request.computed - self._read_ahead)

    def _withdraw(self, name: str) -> None:
        """Withdraw a request, which runs no more."""
        self._judge_promises("withdraw", name, None)
        self._at.ghost.withdraw(name)

    def _preempt(self, event: Preempt, outcome: object, calls: Calls) -> None:
        request = self._at.requests[event.request]
        self._rare_calls.stops(request, "preemption")
        request.computed = 0
        self._at.in_flight[0].pop(event.request, None)
        self._withdraw(event.request)
        self._only_calls(event, outcome, calls)

    def _finish(self, event: Finish | Abort, outcome: object, calls: Calls) -> None:
        self._rare_calls.stops(self._at.requests.get(event.request), "abort")
        self._forget(event.request)
        self._withdraw(event.request)
        self._only_calls(event, outcome, calls)

    def _forget(self, name: str) -> None:
        """Forget a request that is gone."""
        self._at.in_flight[0].pop(name, None)
        self._at.requests.pop(name, None)

    def _reset(self, event: Reset, outcome: object, calls: Calls) -> None:
        state = self._at.state
        if isinstance(state, EncoderCacheState) and state.size:
            self._reach.meet("reset with entries")
        self._only_calls(event, outcome, calls)

    # calls

    def _call(self, record: CallRecord, running: set[str] | None = None) -> None:
        """Follow one call and judge it.

        The order is part of what the contracts mean. A free by who does not run is the first word
        of a withdrawal, so the ghost hears of that before anything is judged. Promises are about
        the world before the call. An encode and a reset are told before the states are compared,
        since a delta leaves sizes out that the ghost has; claims, and what is released, after the
        transition is judged, since that asks what was owed as the call was made; and before the
        state is, which must fit what is owed now.
        """
        operation, request_id, input_id, budget, pending, answer, delta = record
        self.calls_judged += 1
        at, evaluator = self._at, self._evaluator
        ghost, rules = at.ghost, evaluator.rules
        # Most calls of a step: reads that changed nothing, which no contract asks about.
        if delta is None and operation in rules.silent and answer is not True:
            self.resident_sum += self._residents
            return
        name, number, identifier, size, end = request_id or "", -1, "", 0, 0
        if input_id is not None:
            request, number = at.requests[name], input_id
            identifier, size = request.identifiers[number], request.sizes[number]
            end = request.ends[number]
        if operation == "free" and (running is None or name not in running):
            self._withdraw(name)
        debited = (name, number) in ghost.debits
        granted = answer is True
        call = None
        if rules.promised[operation]:
            asked = (operation, name, number, identifier, size, end, 0, 0, False, debited, "")
            call = _made((*asked, *_NOTHING))
            evaluator.promises(at.state, ghost, at.encoded, call)
        if operation == "allocate":
            ghost.encode(name, number, identifier, size)
            debited, call = True, None
        elif operation == "reset":
            ghost.reset()
            evaluator.doubt()  # the ghost has forgotten the sizes of all entries
            debited, call = False, None
            at.encoded.clear()
            # The reset empties the store too: the next step is judged, whatever the ledger is.
            self._state_of_last_step = None
        pre = post = at.state
        changed: Collection[str] = ()
        if delta is not None:
            post = at.state = self._replay(pre, delta)
            changed = self._changed(pre, post, delta)
        # The ghost has another size for the entry, even where the ledger stayed as it was.
        if operation == "allocate" and identifier not in changed:
            changed = {*changed, identifier}
        # The call as it was asked will do, unless the answer or the budgets say more.
        if call is None or granted or budget or pending:
            item, offered = (identifier, size, end), (budget or 0, pending or 0)
            told = self._told(operation, name, answer)
            said = (granted, debited, "", *told)
            call = _made((operation, name, number, *item, *offered, *said))
        if delta is not None or rules.unchanged[operation]:
            evaluator.transition(pre, post, ghost, call, changed)
        if self._is_decoder:
            self._rare_calls.decoder_call(record, identifier, size, ghost.debits)
        if operation == "release":
            ghost.release(name, number)
        claimed = operation == "allocate" or (granted and operation == "check")
        if claimed:
            ghost.claim(name, identifier, end)
        if claimed or delta is not None or (self._is_decoder and operation in CREDITS):
            kind = AS_DEBITED if self._is_decoder and operation == "allocate" else ""
            evaluator.state(pre, post, ghost, call, kind, changed)
        self.resident_sum += self._residents
        if isinstance(pre, EncoderCacheState) and operation in _NOTED:
            self._note(record, size, pre, post)
        if operation == "allocate":
            at.encoded[identifier] = size

    def _told(
        self, operation: str, request: str, answer: object
    ) -> tuple[bool, int, Set[str], bool]:
        """What an answer says beyond yes or no."""
        if operation == "embeds":
            return answer is not None, number_of(answer), frozenset(), False
        if operation == "inputs":
            inputs, at = inputs_in(answer), self._at
            named = named_by(inputs, at.requests[request].identifiers)
            return False, 0, named, leaves_out(at.ghost.debits, request, inputs)
        return _NOTHING

    def _note(self, call: CallRecord, size: int, pre: EncoderCacheState, post: LedgerState) -> None:
        """Note what an admission evicted, who is allocated, and which rare states are met."""
        assert isinstance(post, EncoderCacheState)
        at, rare, name, number = self._at, self._rare_calls, call.request or "", call.input or 0
        if call.operation == "can":
            changed = () if call.delta is None else call.delta.entries
            evicted = [entry for entry in changed if entry in pre.size and entry not in post.size]
            if evicted:
                at.evicting.add(name)
            rare.admission(call, size, pre, evicted)
        elif call.operation == "allocate":
            at.allocating.add(name)
            rare.allocation(at.requests[name], number, post, at.ghost)
        elif call.operation == "check" and call.answer is True:
            rare.hit(at.requests[name], number, pre, at.ghost)
        elif call.operation == "release" and pre is post:
            self._reach.meet("released again")

    def _judge_promises(self, operation: str, name: str | None, number: int | None) -> None:
        """Hold the caller to what it promises of a call that is about to come."""
        if not self._evaluator.rules.promised[operation]:
            return
        at = self._at
        if name is None or number is None:
            call = _made((operation, name or "", -1, "", 0, 0, 0, 0, False, False, "", *_NOTHING))
        else:
            request = at.requests[name]
            item = request.identifiers[number], request.sizes[number], request.ends[number]
            debited = (name, number) in at.ghost.debits
            call = Call(operation, name, number, *item, 0, 0, False, debited, "")
        self._evaluator.promises(at.state, at.ghost, at.encoded, call)

    def _changed(self, pre: LedgerState, post: LedgerState, delta: Delta) -> Collection[str]:
        """The entries of which the state after a call says something else than the state before."""
        if isinstance(pre, DecoderCacheState) or isinstance(post, DecoderCacheState):
            return delta.entries
        if post.queue is pre.queue:
            return delta.entries
        return {*delta.entries, *_moved(pre.queue, post.queue)}

    def _replay(self, pre: LedgerState, delta: Delta) -> LedgerState:
        free, freeable, entries, queue, notices = delta
        told = pre.notices if notices is None else tuple(notices)
        if isinstance(pre, DecoderCacheState):
            return DecoderCacheState(self._capacity, free, told)
        size, holders = pre.size, pre.holders
        if entries:
            known = self._at.ghost.size
            # A copy, since contracts look at the state before the call as well.
            holders = dict(holders)
            resized: dict[str, int | None] = {}
            for identifier, entry in entries.items():
                if entry is None:
                    holders.pop(identifier, None)
                    resized[identifier] = None
                    continue
                requests, stated = entry
                holders[identifier] = frozenset(requests)
                # Not every ledger has sizes; the ghost has what the entry was debited last.
                if stated is None and (identifier not in size or identifier in known):
                    stated = known.get(identifier, 0)
                if stated is not None and size.get(identifier) != stated:
                    resized[identifier] = stated
            if resized:
                size = dict(size)
                for identifier, stated in resized.items():
                    if stated is None:
                        size.pop(identifier, None)
                    else:
                        size[identifier] = stated
                self._residents = len(size)
        after = pre.queue if queue is None else self._queue_after(delta, queue)
        return _state((self._capacity, free, freeable, size, holders, after, told))

    def _queue_after(self, delta: Delta, queue: list[tuple[str, int]]) -> Mapping[str, int]:
        """The queue after a delta that changes it to `queue`."""
        return dict(queue)

    # steps

    def _new_step(self) -> None:
        self._rare_calls.next_step()
        at = self._at
        at.encoded, at.gathered = {}, set()
        at.evicting, at.allocating = set(), set()

    def _finish_step(self, notices: tuple[str, ...]) -> None:
        at = self._at
        acts = notices or at.encoded or at.gathered or at.evicting
        if acts or self._is_decoder or at.state is not self._state_of_last_step:
            self._judge_step(notices)
        else:
            # The clock of stored entries goes on, judged or not.
            at.ghost.step((), {})
        self._state_of_last_step = at.state
        self._new_step()

    def _stored_anew(self, notices: tuple[str, ...]) -> dict[str, int]:
        """What the worker puts into its store in the step, with sizes."""
        return self._at.encoded

    def _judge_step(self, notices: tuple[str, ...]) -> None:
        at = self._at
        # A copy: the ghost writes to its own as the step is told.
        before: Mapping[str, int] = dict(at.ghost.stored)
        at.ghost.step(notices, self._stored_anew(notices))
        if self._is_decoder:
            at.gathered = set(at.encoded)
            if notices:
                self._reach.meet("decoder entry reported")
        is_keyed = self.protocol.keyed_by_identifier
        self._last_step = Step(
            capacity=self._capacity,
            before=before,
            notices=notices,
            encoded=at.encoded.keys(),
            gathered=at.gathered,
            store=dict(at.ghost.stored),
            ledger=at.state.size if isinstance(at.state, EncoderCacheState) else {},
            pending=frozenset() if is_keyed else frozenset(at.state.notices),
            steps_since_encode=at.ghost.steps_since_encode,
            evicting=at.evicting,
            allocating=at.allocating,
        )
        self._last_step_held = self._evaluator.step(self._last_step)


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> ManagerJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    return ManagerJudge(trace, rules_of(trace, release), reach, protocol)


def _moved(before: Mapping[str, int], after: Mapping[str, int]) -> Collection[str]:
    """The entries that came to a queue, left it or changed in it; not those that others passed."""
    return {name for name, _ in before.items() ^ after.items()}


def _has_drafter(trace: Trace) -> bool:
    config = trace.header.config
    return (
        isinstance(config, SchedulerConfig) and config.drafter and config.num_speculative_tokens > 0
    )


def _raised_by(event: DecidedEvent, calls: Iterable[CallRecord], raised: Raised) -> Call:
    """The call that raised, or the event when the release raised outside its manager."""
    for call in calls:
        if isinstance(call.answer, dict):
            return NO_CALL._replace(
                operation=call.operation, request=call.request or "", raised=raised.type
            )
    return NO_CALL._replace(operation=tag_of(type(event)), raised=raised.type)
