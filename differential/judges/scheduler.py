"""Judges a scheduler: the contracts of its manager at every call, and its own after every event."""

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from functools import partial
from typing import Any

from cacheproof.differential.judges import scheduler_kinds as kinds
from cacheproof.differential.judges.kv_transfers import KVTransferMirror
from cacheproof.differential.judges.limits import service, way_of
from cacheproof.differential.judges.manager import Calls, Handler, ManagerJudge, ManagerPosition
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.requests import entries
from cacheproof.differential.judges.rules import Rules, Subject, about, rules_of
from cacheproof.differential.judges.scheduler_items import Advance, UnspentBudget
from cacheproof.differential.judges.scheduler_kv import KVMirror, follows
from cacheproof.differential.judges.scheduler_order import Order
from cacheproof.differential.judges.scheduler_position import SchedulerPosition
from cacheproof.differential.judges.scheduler_rare import SchedulerRareStates
from cacheproof.differential.judges.scheduler_subjects import Subjects, is_one_of
from cacheproof.differential.targets.host.protocol import REFUSED, Protocol
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.manager import Add, Reset, Update
from cacheproof.differential.traces.outcomes import (
    ContinuedOutcome,
    QueuesOutcome,
    StepOutcome,
    UpdateOutcome,
    has_queues,
)
from cacheproof.differential.traces.records import CallRecord, Raised, StepRecord
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
from cacheproof.differential.traces.trace import DecidedEvent, Trace
from cacheproof.reference.semantics import offered_by
from cacheproof.spec.records import EncoderCacheState
from cacheproof.spec.scheduler_records import (
    Answer,
    Fills,
    Inputs,
    Presence,
    References,
    Standing,
    StepPlan,
    Stretch,
    Telling,
    Turn,
)
from cacheproof.spec.versions import Versions

_NOBODY: Set[str] = frozenset()
_FILLS_NOTHING = Fills((), frozenset())
_ALL_SENT = Inputs({}, {})
_SECOND_RUNNER_KEEPS_OUTPUTS = Versions(">=0.28.0")
"""Releases whose second model runner encodes no item whose output it has; the first encodes it, and
takes the new output for the old one."""


class SchedulerJudge(ManagerJudge):
    """Judges one trace at scheduler depth."""

    _at: SchedulerPosition

    def __init__(
        self,
        trace: Trace,
        rules: Rules,
        reach: Reachability,
        protocol: Protocol,
        release: str | None,
    ) -> None:
        super().__init__(trace, rules, reach, protocol)
        assert isinstance(trace.header.config, SchedulerConfig)
        self._trace = trace
        config = self._config = trace.header.config
        facts = offered_by(release)
        self._subjects = Subjects(trace, protocol, facts, release)
        self._order = Order(config, facts, self._at.arrivals)
        self._keeps_outputs = trace.runner == "second" and is_one_of(
            release, _SECOND_RUNNER_KEEPS_OUTPUTS
        )
        self._held: dict[type, object] = {}
        self._presence: tuple[object, object, Collection[str] | None] = (None, None, None)
        self._chunks: dict[str, list[Chunk]] = {}
        self._resumable: set[str] = set()
        self._resumed: set[str] = set()
        self._kv_blocks = (
            KVMirror(config, self._order.added)
            if follows(config, is_decoder=self._is_decoder)
            else None
        )
        self._rare = SchedulerRareStates(reach.meet, config, self._order.added)
        self._kv = (
            None
            if config.kv_connector is None
            else KVTransferMirror(config, self._order.added, reach)
        )

    def _begin(self) -> SchedulerPosition:
        return SchedulerPosition(self._initial_state(), [])

    def _handlers_by_event(self) -> dict[type, Handler]:
        return super()._handlers_by_event() | {
            Chunk: self._chunk,
            Close: self._only_calls,
            Schedule: self._schedule,
            Update: self._end_steps,
            Abort: self._finish,
            ResetPrefix: self._only_calls,
            Pause: self._pause,
            Transfer: self._transfer,
            Elsewhere: self._only_calls,
            Received: self._only_calls,
            Sent: self._only_calls,
        }

    def position(self) -> SchedulerPosition:
        return self._at

    def go_to(self, position: ManagerPosition) -> None:
        assert isinstance(position, SchedulerPosition)
        super().go_to(position)
        self._order.go_to(position.arrivals)

    def forget(self, is_there: Callable[[str], bool]) -> None:
        """Forget the requests that are gone, so that their names can come again. No step in flight
        has them."""
        at = self._at
        gone = [name for name in at.requests if not is_there(name)]
        for name in gone:
            at.forget(name)
        self._order.forget(gone)
        at.ran = [name for name in at.ran if name in at.requests]

    def judge(self, number: int, event: DecidedEvent, record: StepRecord) -> None:
        outcome = record.outcome
        if self._kv is not None and outcome is not None:
            self._evaluator.event = number
            self._judge_transfers(self._kv, event, outcome)
        super().judge(number, event, record)
        if isinstance(event, Abort):  # one of several that a call ended says nothing of who is left
            self._at.present = self._at.present - {event.request}
        if has_queues(outcome):
            self._at.ran = outcome["running"]
            self._judge_presence(event, outcome)
            if self._kv_blocks is not None:
                self._kv_blocks.keep({*self._at.ran, *outcome["waiting"]})
        restarts = isinstance(event, ResetPrefix) and event.running
        if self._kv_blocks is not None and restarts and outcome:
            self._kv_blocks.keep(())
        if isinstance(event, Schedule):
            return
        # What comes from outside, and every token, begins a new stretch (LV-1, LV-3).
        if not isinstance(event, Update) or (outcome is not None and outcome["sampled"]):
            self._at.stood = None
            self._at.steps_without_token = 0

    # what the requests are owed, from event to event

    def _add(self, event: Add, outcome: object, calls: Calls) -> None:
        super()._add(event, outcome, calls)
        if outcome is not None:
            self._order.add(event)
            self._at.prompts[event.request] = event.prompt
            if event.resumable:
                self._resumable.add(event.request)
            self._check("add", self._subjects.room(self._capacity))
            self._check("add", self._subjects.arrival(event, self._capacity))

    def _chunk(self, event: Chunk, outcome: ContinuedOutcome | None, calls: Calls) -> None:
        self._chunks.setdefault(event.request, []).append(event)
        self._only_calls(event, outcome, calls)
        if outcome and "continued" in outcome:
            self._go_on(outcome["continued"])
        if outcome is not None:
            self._check("chunk", self._subjects.arrival(event, self._capacity))

    def _go_on(self, continued: Iterable[tuple[str, int]]) -> None:
        """Follow sessions that went on: the next chunk of each is part of its prompt."""
        for name, first in continued:
            chunk = self._chunks[name].pop(0)
            request = self._at.requests[name]
            request.extend(chunk, first, self.protocol)
            self._at.prompts[name] = first + chunk.prompt
            if self._kv_blocks is not None:
                self._kv_blocks.go_on(name, first, chunk)
            self._rare_calls.sizes(request, self._at.ghost.size)
            self._reach.meet("prompt continued")

    def _schedule(self, event: Schedule, outcome: StepOutcome | None, calls: Calls) -> None:
        # About an item, or the state has changed.
        telling = [call for call in calls if call.input is not None or call.delta is not None]
        fills = outcome is not None and bool(outcome["encode"] or outcome.get("loads"))
        # Asked before the step is followed: it is about the entries from before it.
        kept = self._subjects.kept(self._at, telling) if fills else None
        advance = self._follow_step(outcome, calls)
        if outcome is not None and advance is not None:
            self._judge_schedule(outcome, advance, telling, kept)

    def _follow_step(self, outcome: StepOutcome | None, calls: Calls) -> Advance | None:
        """Follow what a step decides and calls; None where it decides nothing."""
        at = self._at
        running = set(outcome["running"]) if outcome else set()
        planning = len(calls)
        # Releases before 0.20 release at the end of schedule(), after the notices are drawn.
        if not self.protocol.releases_on_update:
            planning = 1 + next(
                (i for i, call in enumerate(calls) if call.operation == "notices"), planning
            )
        for call in calls[:planning]:
            self._call(call, running)
        if outcome is None:
            for call in calls[planning:]:
                self._call(call, running)
            return None
        self._follow_preemptions(outcome, running)
        advance = at.follow_tokens(outcome)
        if not self.protocol.releases_on_update:
            # For them a step is done as soon as it is scheduled.
            for name in advance.ends:
                self._confirm(name)
        for call in calls[planning:]:
            self._call(call, running)
        allocated = at.encoded
        loaded = entries(at.requests, outcome.get("loads", {}))
        # As the step says: a preemption in the same step takes back what was allocated.
        at.encoded = entries(at.requests, outcome["encode"]) | loaded
        if allocated.keys() - at.encoded.keys():
            self._reach.meet("preempted after encode in the same step")
        self._rare_calls.transfers(outcome, loaded.keys())
        self._finish_step(tuple(outcome["notices"]))
        return advance

    def _follow_preemptions(self, outcome: StepOutcome, running: set[str]) -> None:
        """Withdraw requests that run no more; those that are rejected end with the next update."""
        at = self._at
        for name in at.running - running:
            self._rare_calls.stops(at.requests[name], "preemption")
            at.requests[name].computed = 0
        if stopped := at.ghost.owed() - running:
            for name in stopped.difference(outcome.get("rejected", ())):
                self._withdraw(name)
        at.running = running

    def _end_steps(self, event: Update, outcome: UpdateOutcome | None, calls: Calls) -> None:
        at = self._at
        finished = outcome["finished"] if outcome else ()
        ended_last = _NOBODY if self._kv is None else self._kv.ended_last
        claiming = at.ghost.claimed_end
        # First, so that what is confirmed below counts no rejected draft.
        at.follow_rejected(outcome, event.steps)
        for step in at.in_flight[: event.steps]:
            for name in [name for name in step if claiming.get(name) or name in finished]:
                # Ended below, after all others, as the update does it.
                if name in ended_last:
                    continue
                if name in finished and name in at.running and name in at.requests:
                    self._end(name)
                elif claiming.get(name):
                    self._confirm(name)
        for name in finished:
            self._end(name)
        del at.in_flight[: event.steps]
        self._only_calls(event, outcome, calls)
        at.running.difference_update(finished)
        if outcome and "continued" in outcome:
            self._go_on(outcome["continued"])
        if outcome is not None:
            self._judge_update(outcome)

    def _confirm(self, name: str) -> None:
        if name in self._at.running:
            super()._confirm(name)

    def _end(self, name: str) -> None:
        """A request has ended; one of an encoder-decoder is still to release what it is debited."""
        if not self._is_decoder:
            self._withdraw(name)

    def _forget(self, name: str) -> None:
        self._at.running.discard(name)  # its steps are still in flight

    def _reset(self, event: Reset, outcome: object, calls: Calls) -> None:
        super()._reset(event, outcome, calls)
        self._at.dropped.clear()

    def _pause(self, event: Pause, outcome: object, calls: Calls) -> None:
        self._only_calls(event, outcome, calls)
        self._at.paused = event.mode != "none"

    def _transfer(self, event: Transfer, outcome: Sequence[str], calls: Calls) -> None:
        if outcome:
            self._reach.meet("transfer failed")
        self._at.pending.discard(event.identifier)
        if event.state == "pending":
            self._at.pending.add(event.identifier)
        self._at.in_vain.update(outcome)

    def _stored_anew(self, notices: tuple[str, ...]) -> dict[str, int]:
        """What the worker stores in the step. A second model runner that keeps its outputs encodes
        no item whose output is there."""
        at = self._at
        if self._is_decoder or not self._keeps_outputs:
            return at.encoded
        kept = at.ghost.stored.keys() - set(notices)
        return {entry: size for entry, size in at.encoded.items() if entry not in kept}

    # what is asked

    def _check(self, operation: str, subject: Subject, kind: Callable[[], str] = str) -> None:
        """Judge a subject by all contracts about it; `kind` says in which way one is broken. The
        very record that held when one of its type was judged last is not judged again."""
        self.calls_judged += 1
        about_it = type(subject)
        if self._held.get(about_it) is subject:
            return
        evaluator = self._evaluator
        hold = evaluator.rules.together.get(about_it)
        if hold is None or hold(subject):
            self._held[about_it] = subject
            return
        for rule, holds in evaluator.rules.of_scheduler[about_it]:
            if not holds(subject):
                evaluator.broken(rule, about(rule, subject), operation, "", "", kind())

    def _raised(self, event: DecidedEvent, calls: Iterable[CallRecord], raised: Raised) -> None:
        """Judge an exception: by the manager's contracts if its manager raised it, else by the
        scheduler's."""
        if any(isinstance(call.answer, dict) for call in calls):
            super()._raised(event, calls, raised)
            return
        operation = tag_of(type(event))
        if raised.type.startswith(REFUSED):
            refused = service(self._trace, raised.type.removeprefix(REFUSED))
            self._check(operation, refused, lambda: way_of(raised.message))
            return
        waiting = self._presence[2] or ()
        kind = partial(kinds.raising, raised, operation, self._config, self._at, waiting)
        self._check(operation, Answer(raised.type), kind)

    def _judge_schedule(
        self,
        outcome: StepOutcome,
        advance: Advance,
        telling: list[CallRecord],
        kept: Set[str] | None,
    ) -> None:
        """Judge what a step decided; `telling` are the calls about an item or with a change of the
        state."""
        at, subjects = self._at, self._subjects
        plan = subjects.plan(at, outcome, advance)
        self._check("schedule", plan)
        self._rare.schedule(outcome)
        inputs = _ALL_SENT
        if at.follow_withheld(outcome):
            told_new = outcome["told_new"]
            self._resumed = self._resumed.union(outcome["resumed"]).difference(told_new)
            inputs = subjects.inputs(at, outcome)
        resumed = self._resumed
        self._check("schedule", inputs, lambda: kinds.withholding(inputs, outcome, resumed))
        told = Telling(plan.tokens, outcome["drafts"], outcome["encode"], outcome["total"])
        self._check("schedule", told, lambda: kinds.overdrafting(told, self._at.ran))
        if outcome["preempted"]:
            self._check("schedule", self._order.victims(outcome["preempted"], self._at.ran))
        if not self._config.ec_connector:
            for spending in subjects.spending(at, outcome, telling):
                self._check("schedule", spending)
        self._judge_kv(outcome)
        rest = subjects.rest(at, plan, telling, self._capacity)
        if not self._is_decoder:  # whose items are in no prompt
            self._judge_items(plan, advance, outcome, telling, kept, rest)
        if self._kv is None:
            items = partial(subjects.items, at)
            # Without the last step in flight, which is this one.
            self._check("schedule", self._order.judge(outcome, at.in_flight[:-1], items, rest))
        self._note_claims(outcome, telling)
        if subjects.has_whole_items:
            self._rare.whole_items(plan, outcome["running"], at.requests)
        self._judge_progress(outcome)

    def _judge_kv(self, outcome: StepOutcome) -> None:
        """Judge which KV the step reads and writes."""
        mirror = self._kv_blocks
        if mirror is None:
            return
        for subject in mirror.schedule(outcome):
            kind = partial(kinds.misreading, subject, outcome, self._resumable, mirror.was_left)
            self._check("schedule", subject, kind)

    def _judge_items(
        self,
        plan: StepPlan,
        advance: Advance,
        outcome: StepOutcome,
        calls: Iterable[CallRecord],
        kept: Set[str] | None,
        rest: UnspentBudget,
    ) -> None:
        """Judge what the step fills and reads, and where items stop it. `kept` is None for a step
        that fills nothing."""
        at, subjects = self._at, self._subjects
        fills = _FILLS_NOTHING if kept is None else subjects.fills(at, outcome, kept)
        self._check("schedule", fills)
        at.follow_claims(outcome, calls)
        self._check("schedule", subjects.reads(at, advance, fills))
        self._check("schedule", subjects.claims(at, advance))
        stops = subjects.stops(at, plan, advance, outcome, calls, rest)
        self._check("schedule", stops)
        self._rare.stops(stops, partial(subjects.items, at), rest)

    def _judge_update(self, outcome: UpdateOutcome) -> None:
        """Judge what an update leaves held by requests that do not run."""
        at = self._at
        if self._kv_blocks is not None:
            self._kv_blocks.update(outcome["sampled"])
        self._rare.update(outcome, () if self._kv is None else self._kv.thrown_back)
        if isinstance(at.state, EncoderCacheState):
            held = References(set(outcome["running"]), at.state.holders)
            waiting, preempted, resumable = outcome["waiting"], at.preempted, self._resumable
            self._check("update", held, lambda: kinds.holding(held, waiting, preempted, resumable))

    def _judge_presence(self, event: DecidedEvent, outcome: QueuesOutcome) -> None:
        """Judge which requests are there after an event. Sessions are left out: they stay between
        turns, which end."""
        at = self._at
        # Always a new set: whether it is the same object says whether to judge anew.
        if isinstance(event, Add) and not event.resumable:
            at.present = at.present | {event.request}
        if ended := outcome.get("finished"):
            at.present = at.present.difference(ended)
        running, waiting, (owed, ran, waited) = (
            outcome["running"],
            outcome["waiting"],
            self._presence,
        )
        if at.present is not owed or running is not ran or waiting is not waited:
            there = {*running, *waiting}
            if self._resumable:
                there -= self._resumable
            self._present = Presence(at.present, there)
            self._presence = at.present, running, waiting
        if self._held.get(Presence) is self._present:
            self.calls_judged += 1
        else:
            self._check(tag_of(type(event)), self._present)

    def _judge_transfers(self, kv: KVTransferMirror, event: DecidedEvent, outcome: Any) -> None:
        """Judge what an event does with KV that comes from elsewhere, before all else: what a step
        misread is no progress."""
        if isinstance(event, Elsewhere):
            kv.elsewhere(event.request, event.tokens)
        elif isinstance(event, Abort):
            kv.ended(event.request)
        elif isinstance(event, Schedule):
            for subject in kv.schedule(outcome):
                self._check("schedule", subject)
        elif isinstance(event, Update):
            for output in kv.update(outcome, event.steps):
                self._check("update", output)
            for name in kv.thrown_back:
                self._at.requests[name].computed = 0

    def _judge_progress(self, outcome: StepOutcome) -> None:
        """Judge whether steps make progress, where nothing is in their way."""
        at = self._at
        stood, at.stood = at.stood, None
        names = [*outcome["running"], *outcome["waiting"]]
        waits = not (self._resumable.isdisjoint(names) and at.in_vain.isdisjoint(names))
        awaits = at.pending or (self._kv is not None and self._kv.is_waiting)
        if at.paused or awaits or waits:
            at.steps_without_token = 0
            return  # a session may wait for more prompt; who waits in vain is ended by updates
        if outcome["scheduled"]:
            at.steps_without_token += 1
            self._check("schedule", Stretch(at.steps_without_token, self._order.tokens_max(names)))
        if not any(at.in_flight[:-1]) and not outcome.get("rejected"):
            self._judge_turn(outcome, stood)  # the rejected end with the next update

    def _judge_turn(self, outcome: StepOutcome, stood: Standing | None) -> None:
        """Judge the second of two steps in a row that are decided with nothing outstanding."""
        tokens = sum(outcome["scheduled"].values())
        # It schedules something, and no idle step before it is to be compared.
        if stood is None and tokens:
            return
        stands = self._subjects.standing(self._at, outcome)
        if stood is not None:
            requests = len(stands.running) + len(stands.waiting)
            subjects = self._subjects
            kind = partial(kinds.stopping, self.violations, subjects.named_stops)
            self._check("schedule", Turn(tokens, requests, stood, stands), kind)
        if tokens == 0:
            self._at.stood = stands

    # which rare states were met

    def _note_claims(self, outcome: StepOutcome, calls: Iterable[CallRecord]) -> None:
        """Note who claims a hit in vain, and who was preempted and has claimed nothing since."""
        at = self._at
        preempted = outcome["preempted"]
        claimed = {call.request for call in calls if call.operation == "check" and call.answer}
        if claimed.difference(preempted, outcome["running"]):
            self._reach.meet("stalled after a claim")
        if at.preempted:
            allocated = [call.request for call in calls if call.operation == "allocate"]
            at.preempted = at.preempted.difference(claimed, allocated)
        if preempted:
            at.preempted = at.preempted.union(preempted)


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> SchedulerJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    return SchedulerJudge(trace, rules_of(trace, release), reach, protocol, release)
