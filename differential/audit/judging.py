"""The judge of a scheduler's traces, put beside an engine that runs.

It differs in what is known. The record says nothing of what stands in prompts, so that which KV
fits which request is not followed. It may begin in the middle: what a keyframe shows is taken as
it is, and judged from there on.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cacheproof.differential.audit.following import FollowedQueue, Follower, add_of, name_of
from cacheproof.differential.audit.shortcuts import ShortcutJudge
from cacheproof.differential.judges.manager import Calls, ManagerPosition
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.requests import JudgedRequest
from cacheproof.differential.judges.rules import rules_of
from cacheproof.differential.judges.scheduler_order import Order
from cacheproof.differential.judges.scheduler_position import Arrivals
from cacheproof.differential.recording.messages import Keyframe, KnownRequest
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.manager import Update
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.records import Delta, StepRecord
from cacheproof.differential.traces.scheduler import Schedule, SchedulerConfig
from cacheproof.differential.traces.trace import DecidedEvent, Trace
from cacheproof.reference.semantics import Semantics, offered_by
from cacheproof.spec.records import EncoderCacheState, LedgerState, Step
from cacheproof.spec.registry import Contract

LONG_AGO = 1 << 20
"""Steps since its encode that are assumed of an entry that only the keyframe knows."""
_OF_THE_STORE = frozenset({"mirror"})


class _Order(Order):
    """Requests in the order in which they are due. An engine sorts equal priorities by the clocks
    of those who sent the requests, and not by the order in which they came in."""

    def __init__(
        self,
        arrivals: Mapping[str, float],
        config: SchedulerConfig,
        facts: Semantics,
        followed: Arrivals,
    ) -> None:
        super().__init__(config, facts, followed)
        self._arrivals = arrivals

    def _urgency(self, name: str) -> tuple[int, float]:
        return self._added[name].priority, self._arrivals.get(name, 0.0)


class AuditJudge(ShortcutJudge):
    """Judges one scheduler from a keyframe on. `steps` has the steps that were not compared with a
    worker's store yet: number, tokens, what should be there, and whether all contracts hold of
    that. `step` is the number of the last step."""

    def __init__(
        self,
        trace: Trace,
        release: str | None,
        protocol: Protocol,
        keyframe: Keyframe,
        arrivals: Mapping[str, float],
        silent: frozenset[str],
    ) -> None:
        rules = rules_of(trace, release, silent)
        super().__init__(trace, rules, Reachability(), protocol, release)
        self._order = _Order(arrivals, self._config, offered_by(release), self._at.arrivals)
        self._kv_blocks = None
        self.steps: deque[tuple[int, int, Step, bool]] = deque(maxlen=10_000)
        self.step = keyframe.steps
        self._row = 0
        self._row_of: StepOutcome | None = None
        self._updated_at: LedgerState | None = None
        self.decided_broken: frozenset[str] = frozenset()
        self._stored_step: Step | None = None
        self._stored: dict[str, int] = {}
        self.set_capacity(self._capacity)
        self._begin_at(keyframe)

    @property
    def rules(self) -> list[Contract]:
        """The contracts that judge it."""
        return self._evaluator.rules.all

    def _begin_at(self, keyframe: Keyframe) -> None:
        """Take what a keyframe shows as the state."""
        at = self._at
        entries = {name: size or 0 for name, (_, size) in keyframe.entries.items()}
        if not self._is_decoder:
            at.state = EncoderCacheState(
                self._capacity,
                keyframe.free_slots,
                keyframe.freeable_slots,
                entries,
                {
                    name: frozenset(map(name_of, holders))
                    for name, (holders, _) in keyframe.entries.items()
                },
                dict(keyframe.queue),
                tuple(keyframe.notices),
            )
        self._residents = len(entries)
        at.ghost.size = dict(entries)
        at.ghost.stored = {**dict.fromkeys(keyframe.notices, 0), **entries}
        at.ghost.steps_since_encode = dict.fromkeys(at.ghost.stored, LONG_AGO)
        at.in_flight = [{name_of(number): 0 for number in step} for step in keyframe.in_flight]
        at.running = {name_of(number) for number in keyframe.running}
        at.ran = [name_of(number) for number in keyframe.running]
        held = {
            (name, name_of(number))
            for name, (holders, _) in keyframe.entries.items()
            for number in holders
        }
        for request in keyframe.requests:
            self._take_in(request, held)

    def _take_in(self, known: KnownRequest, held: set[tuple[str, str]]) -> None:
        at, added = self._at, add_of(known)
        name = added.request
        request = at.requests[name] = JudgedRequest(added, self.protocol)
        request.computed = known.computed
        at.prompts[name] = known.prompt
        self._order.add(added)
        at.present = at.present | {name}
        if known.computed:
            at.arrivals.has_run.add(name)
        if name in at.running:
            items = zip(request.identifiers, request.offsets, request.ends, strict=True)
            for number, (identifier, offset, end) in enumerate(items):
                if (identifier, name) in held and offset < known.computed:
                    at.ghost.claim(name, identifier, end)
                    at.claims.setdefault(name, set()).add(number)

    def _schedule(self, event: Schedule, outcome: StepOutcome | None, calls: Calls) -> None:
        super()._schedule(event, outcome, calls)
        if outcome is not None:
            self.step += 1
            self._note_step(outcome["total"])

    def _changed(self, pre: LedgerState, post: LedgerState, delta: Delta) -> Collection[str]:
        """The entries that the record itself names."""
        queue: Any = delta.queue
        return delta.entries if queue is None else delta.entries.keys() | queue.moved

    def _queue_after(self, delta: Delta, queue: Any) -> Mapping[str, int]:
        assert isinstance(queue, FollowedQueue)
        return queue.after

    def _note_step(self, tokens: int) -> None:
        """Note what the step leaves in a worker's store, to be compared later."""
        if self._last_step is not None:
            self.steps.append((self.step, tokens, self._last_step, self._last_step_held))

    def judge(self, number: int, event: DecidedEvent, record: StepRecord) -> None:
        if self._row:
            self._leave_row()
        quiet = self._quiet(record) if type(event) is Schedule else None
        if quiet is not None and self._is_as_it_was(quiet, record.calls):
            self._judge_quiet(number, quiet)
            self.step += 1
            self._note_step(quiet["total"])
        else:
            super().judge(number, event, record)
        if type(event) is Update:
            self._updated_at = self._at.state
        else:
            self._row_of = quiet
        if self._evaluator.violations:
            self._row_of = None  # what stays broken is counted at every event

    def _judge_progress(self, outcome: StepOutcome) -> None:
        if outcome["awaiting"]:  # what they wait for is not in the record
            self._at.stood = None
            self._at.steps_without_token = 0
            return
        super()._judge_progress(outcome)

    def steady_step(self) -> StepOutcome | None:
        """Judge a step that says nothing new, if a row of such steps goes on. Returns the outcome
        of the step that the row follows; None if the step must be judged as any other."""
        at = self._at
        if self._row_of is None or at.stood is not None or at.steps_without_token > 1:
            return None
        if at.state is not self._state_of_last_step:
            return None
        self._row += 1
        self.calls_judged += 1
        at.steps_without_token += 1
        at.in_flight.append(self._row_of["scheduled"])
        self.step += 1
        self._note_step(self._row_of["total"])
        return self._row_of

    def steady_update(self) -> StepOutcome | None:
        """Judge an update that says nothing new, as `steady_step` does a step."""
        at = self._at
        if self._row_of is None or not at.in_flight or at.state is not self._updated_at:
            return None
        step = at.in_flight[0]
        if step.keys() != self._row_of["scheduled"].keys():
            return None
        if any(map(at.ghost.claimed_end.get, step)):
            return None
        del at.in_flight[0]
        at.stood = None
        at.steps_without_token = 0
        return self._row_of

    def _leave_row(self) -> None:
        """End the row of steady steps: move what they moved."""
        at, row, self._row = self._at, self._row, 0
        assert self._row_of is not None
        for name in self._row_of["scheduled"]:
            if name in at.requests:
                at.requests[name].computed += row
        since = at.ghost.steps_since_encode
        for name in since:
            since[name] += row

    def judge_store(self, number: int, tokens: int, store: dict[str, int]) -> bool | None:
        """Compare a worker's store with what should be in it after step `number` of `tokens`
        tokens. Returns False where that step is not known, None where it had other tokens.
        `decided_broken` then has the contracts that the step broke as it was decided."""
        while self.steps and self.steps[0][0] < number:
            self.steps.popleft()
        if not self.steps or self.steps[0][0] != number:
            return False
        _, decided, step, held = self.steps.popleft()
        if decided != tokens:
            return None
        if held and store == step.store:
            return True  # as it was judged when it was decided
        if step is self._stored_step and store == self._stored:
            return True  # as it was judged after the step before
        self._stored_step, self._stored = step, dict(store)
        self.decided_broken = frozenset() if held else self._broken_by(step)
        self._evaluator.step(step._replace(store=store), "update", _OF_THE_STORE)
        return True

    def _broken_by(self, step: Step) -> frozenset[str]:
        """The contracts of stores that a step breaks as it was decided."""
        self._evaluator.step(step, "update", _OF_THE_STORE)
        broken = frozenset(self.violations)
        self.violations.clear()
        return broken

    def contradicts(self, keyframe: Keyframe, follower: Follower) -> str:
        """The part in which a keyframe differs from what the records before it led to; empty:
        none."""
        for word, one, other in self._both(keyframe, follower):
            if one != other:
                return word
        return ""

    def _both(self, keyframe: Keyframe, follower: Follower) -> Iterator[tuple[str, object, object]]:
        state = self._at.state
        yield "running", [name_of(one) for one in keyframe.running], follower.running
        yield "waiting", [name_of(one) for one in keyframe.waiting], follower.waiting
        yield "free slots", keyframe.free_slots, state.free_slots
        if isinstance(state, EncoderCacheState):
            yield "freeable slots", keyframe.freeable_slots, state.freeable_slots
            yield "queue", list(map(tuple, keyframe.queue)), list(state.queue.items())
            holders = {
                name: {name_of(one) for one in numbers}
                for name, (numbers, _) in keyframe.entries.items()
            }
            yield "holders", holders, {name: set(one) for name, one in state.holders.items()}

    def forget_those_gone(self, present: set[str]) -> None:
        """Forget requests that are gone and that no step in flight has."""
        at: ManagerPosition = self._at
        kept = present.union(*at.in_flight)
        if len(at.requests) > 2 * len(kept) + 64:
            self.forget(kept.__contains__)
