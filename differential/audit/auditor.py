"""Judges the record of one engine as it comes, in memory that does not grow with it.

Where the record has a gap, judging stops, and goes on at the next keyframe. What was not judged is
counted and named.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from cacheproof.differential.audit.account import (
    OF_A_STEP,
    Account,
    At,
    Failure,
    FoundBreak,
    FrontEndFailure,
)
from cacheproof.differential.audit.following import Contradiction, Follower, Observed
from cacheproof.differential.audit.judging import AuditJudge
from cacheproof.differential.audit.kv_cache import KVAudit
from cacheproof.differential.audit.processed_media import MediaAudit, MediaBreak
from cacheproof.differential.audit.silence import NEVER_JUDGED, not_judged
from cacheproof.differential.audit.steady import Steady, is_steady_step, is_steady_update
from cacheproof.differential.audit.streams import Gap, Part
from cacheproof.differential.judges.retrace import Moment, judged
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.recording.messages import (
    Added,
    AnswersFailed,
    AnyMessage,
    Cleared,
    Closed,
    Keyframe,
    KVCalls,
    KVState,
    Opened,
    Raised,
    Scheduled,
    Stored,
    Updated,
)
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.scheduler import SchedulerConfig, SchedulerHeader
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import MODELLED
from cacheproof.spec.registry import Contract

# Bounds, so that an audit's memory does not grow with the record.
WINDOW = 200
GAPS_MAX = 100
KINDS_MAX = 1000
STEPS_KEPT = 10_000
"""Steps whose moment of decision is kept, for what workers say of them later."""
_EVERY_STEP = (Scheduled, Updated, Added)
_at: Callable[[tuple[int, int, float, int]], At] = partial(tuple.__new__, At)
_steady: Callable[[tuple[StepOutcome, int, int, bool]], Steady] = partial(tuple.__new__, Steady)
"""Make these without a call of Python: there is one a step."""
_HARD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)


class Auditor:
    """Audits one scheduler, and the stores of its workers. Feed it parts of streams in order.

    Attributes:
        account: what was seen so far. found: the first break of each contract and kind, in order;
            last: the last break of each.
        silent: the contracts that cannot judge it.
        skips: whether steps that say nothing new are judged by the step before them.
        kv: the audit of what is recorded of the KV cache manager, and media: that of the caches of
            processed media. front_end_failure: how the front end has ended.
        mixed: when a step has encoded for requests that start over and for new ones, of a decoder
            that attends to what the step encoded: the last of these, in seconds since the epoch.
        number: the number of the last record. events: how many events were judged.
        moments: of each event the number of its record and what is around it, if it is to be drawn.
    """

    def __init__(self) -> None:
        self.account = Account()
        self.found: list[FoundBreak] = []
        self.last: dict[tuple[str, str], FoundBreak] = {}
        self.opened: Opened | None = None
        self.trace: Trace | None = None
        self.silent: frozenset[str] = NEVER_JUDGED
        self._has_connector = False
        self.release: str | None = None
        self.judge: AuditJudge | None = None
        self.follower: Follower | None = None
        self.kv = KVAudit()
        self.media = MediaAudit()
        self.front_end_failure: FrontEndFailure | None = None
        self.mixed: deque[float] = deque(maxlen=STEPS_KEPT)
        self._rules: Sequence[Contract] = ()
        self.moments: deque[tuple[int, Moment]] | None = None
        self._protocol = Protocol()
        self._window: deque[Observed | Steady] = deque(maxlen=WINDOW)
        self.skips = True
        self.number = 0
        self.events = 0
        self._suspended = ""
        self._lasting: set[str] = set()
        self._stored: dict[int, deque[Stored]] = {}
        self._stores: dict[int, dict[str, int] | None] = {}
        self._store_steps: dict[int, int] = {}
        self._decided: deque[At] = deque(maxlen=STEPS_KEPT)
        self._failures: dict[int | None, Failure] = {}

    @property
    def rules(self) -> list[Contract]:
        """The contracts that judge the scheduler, its KV cache manager, and its processed media."""
        return [*self._rules, *self.kv.rules, *self.media.rules]

    @property
    def now(self) -> float:
        """The time of the last record, in seconds since the epoch."""
        return self.account.started + self.account.seconds

    @property
    def step(self) -> int:
        """The number of the last step, by the engine's own count where that is known."""
        return self.account.steps if self.judge is None else self.judge.step

    @property
    def fatal(self) -> Failure | None:
        """The exception after which the engine did not go on."""
        return min(self._failures.values(), key=lambda one: one.step, default=None)

    @property
    def lacks_fatal_step(self) -> bool:
        """Whether a worker died of a step of which the scheduler's record has nothing, though it
        was followed to its end, and the worker counts its steps as the scheduler does."""
        if self.judge is None or self.fatal is None or None in self._stores.values():
            return False
        return self.fatal.step > self.judge.step

    def when(self, step: int) -> At:
        """When a step was decided; where that is not known, the last record."""
        known = (at for at in reversed(self._decided) if at.step == step)
        return next(known, self._at_last_event())

    def _at_last_event(self) -> At:
        return At(self.number, self.step, self.now, self.events - 1)

    def feed(self, part: Part) -> None:
        """Take the next part of the scheduler's stream."""
        if isinstance(part, Gap):
            self._gap(part.why)
            self.kv.suspend()
            return
        self.number, message = part
        account = self.account
        account.records += 1
        # The commonest records, which need not go through the cases below.
        if self.judge is not None and isinstance(message, _EVERY_STEP):
            account.seconds += message.time / 1e6
            if type(message) is Scheduled:
                account.steps += 1
                # A step follows, so no exception before it was fatal.
                self._failures.pop(None, None)
            self._judge(message)
            return
        if isinstance(message, Opened):
            self._open(message)
            return
        account.seconds += getattr(message, "time", 0) / 1e6
        if isinstance(message, Keyframe):
            self._keyframe(message)
            return
        if isinstance(message, KVState | KVCalls):
            self._judge_kv(message)
            return
        if isinstance(message, Scheduled):
            account.steps += 1
            self._failures.pop(None, None)
        if isinstance(message, Closed):
            account.closed = True
            account.lost = max(account.lost, message.lost)
        elif isinstance(message, Raised):
            self._note_raised(message, None, self.step)
        if isinstance(message, Cleared) and message.what == "session":
            self._suspend("a session goes on, which an audit does not follow")
        if self.judge is None:
            account.unjudged_records += 1
            return
        self._judge(message)

    def feed_worker(self, rank: int, part: Part) -> None:
        """Take the next part of a worker's stream."""
        if isinstance(part, Gap):
            self._note_gap(f"worker {rank}: {part.why}")
            # Unknown from here on, until a file begins anew.
            self._stores[rank] = None
            return
        message = part.message
        if isinstance(message, Opened):
            self._stores[rank] = {}
        elif isinstance(message, Raised):
            # A worker that does not know its step was in the one after the last that it ended.
            self._note_raised(message, rank, message.step or self._ended_by(rank) + 1)
        elif isinstance(message, Stored):
            self._failures.pop(rank, None)
            self._stored.setdefault(rank, deque()).append(message)

    def feed_media(self, role: str, part: Part, now: float) -> None:
        """Take the next part of what a half of the caches of processed media has recorded."""
        if role == "answers":
            self._take_answers(part, now)
            return
        self._note_raised_by_media(role, part)
        for broken in self.media.feed(role, part, self.release, now):
            self._take_media(broken)
        self.account.unjudged |= self.media.unjudged
        for why in self.media.gaps:
            self._note_gap(why)
        self.media.gaps.clear()

    def end_media(self) -> None:
        """Nothing more comes of the caches of processed media."""
        for broken in self.media.end():
            self._take_media(broken)

    def _take_answers(self, part: Part, now: float) -> None:
        if isinstance(part, Gap):
            self._note_gap(f"front end: {part.why}")
        elif isinstance(part.message, Raised):
            raised = part.message
            self._note_raised(raised, None, 0)
            words = raised.operation, raised.error, raised.text, raised.place
            self.front_end_failure = FrontEndFailure(now, Failure(*words, 0), ())
        elif isinstance(part.message, AnswersFailed) and self.front_end_failure is not None:
            ended = tuple(part.message.ended)
            self.front_end_failure = replace(self.front_end_failure, ended=ended)

    def _note_raised_by_media(self, role: str, part: Part) -> None:
        if isinstance(part, Gap) or not isinstance(part.message, Raised):
            return
        # A worker that cannot read shared memory ends its step, of which its runner has no word.
        is_read = part.message.operation == "get_and_update_features"
        ends = self.media.is_shared and role == "receiver" and is_read
        rank = min(self._stores, default=0)
        self._note_raised(part.message, rank, self._ended_by(rank) + 1, ends=ends)

    def _take_media(self, broken: MediaBreak) -> None:
        violation = broken.violation
        by_then = (at for at in reversed(self._decided) if at.time <= broken.time)
        at = next(by_then, At(0, 0, broken.time, -1))
        step = self.fatal.step if self.fatal is not None and self.media.is_shared else at.step
        self._keep(violation, at._replace(step=step, time=broken.time), led=broken.led)

    def wants_store(self, rank: int) -> bool:
        """Whether the steps that were judged are ahead of what is known of the worker's store."""
        return self.judge is not None and self._ended_by(rank) < self.judge.step

    def _ended_by(self, rank: int) -> int:
        """The last step that a worker is known to have ended."""
        waiting = self._stored.get(rank)
        return waiting[-1].step if waiting else self._store_steps.get(rank, 0)

    def match_stores(self) -> None:
        """Compare what workers held with what should have been there, as far as both are known."""
        for rank, waiting in self._stored.items():
            # Also without a judge: what follows a gap changes this store.
            while waiting and (self.judge is None or self._is_due(waiting[0])):
                message = waiting.popleft()
                self._store_steps[rank] = message.step
                store = self._stores.get(rank)
                if store is None:
                    continue
                for name, rows in message.changed.items():
                    if rows is None:
                        store.pop(name, None)
                    else:
                        store[name] = rows
                if self.judge is not None:
                    self._compare(self.judge, rank, message, store)

    def _compare(
        self, judge: AuditJudge, rank: int, message: Stored, store: dict[str, int]
    ) -> None:
        compared = judge.judge_store(message.step, message.tokens, store)
        if compared is None:
            self._stores[rank] = None
            self._note_gap(f"worker {rank}: its step {message.step} is not the scheduler's")
        elif compared:
            self.account.stores += 1
            if judge.violations:
                at = self.when(message.step)
                self._take(judge.violations, at, decided=judge.decided_broken)

    def _is_due(self, message: Stored) -> bool:
        assert self.judge is not None
        return message.step <= self.judge.step

    # a scheduler's records

    def _open(self, opened: Opened) -> None:
        self.account.started = opened.started
        self.account.seconds = 0.0
        # The engine's next file: only the clock begins anew.
        if self.opened is not None:
            return
        self.opened = opened
        self.account.unjudged.update(opened.unjudged)
        self.silent = not_judged(set(opened.unjudged))
        try:
            config = msgspec.convert(_for_some_media(opened.settings), SchedulerConfig)
            self._protocol = Protocol(*opened.protocol)
            manager: Any = msgspec.convert(opened.manager, type=str)
            header = msgspec.convert(
                {"depth": "scheduler", "schema": 1, "manager": manager, "config": config},
                SchedulerHeader,
            )
        except (TypeError, msgspec.MsgspecError) as error:
            self._suspend(f"the engine's settings are none of a scheduler: {error}")
            return
        self.trace = Trace(header, ())
        self._has_connector = config.ec_connector
        base = opened.vllm.split("+")[0]
        self.release = base if base in MODELLED else None
        if self.release is None:
            self.account.unjudged.add(f"what vLLM {opened.vllm} does otherwise than its model")

    def _keyframe(self, keyframe: Keyframe) -> None:
        self.account.lost = max(self.account.lost, keyframe.lost)
        if self.trace is None:
            return
        try:
            if self.judge is not None and self.follower is not None:
                # In the middle of a record a keyframe only has to agree with what was followed.
                word = self.judge.contradicts(keyframe, self.follower)
                if not word:
                    self.judge.forget_those_gone(self._present())
                    return
                self._gap(f"keyframe {self.number} shows other {word} than the records before it")
            # Sessions are not followed: the audit waits for a keyframe without one.
            if any("resumable" in request.flags for request in keyframe.requests):
                return
            if self.trace.header.manager == "encoder_decoder" and keyframe.running:
                return  # what its requests are debited is in no keyframe
            self.follower = Follower(keyframe, has_connector=self._has_connector)
            self.judge = AuditJudge(
                self.trace,
                self.release,
                self._protocol,
                keyframe,
                self.follower.arrivals,
                self.silent,
            )
            self._rules = self.judge.rules
            self.account.requests += len(keyframe.requests)
            self._suspended = ""
            self._window.clear()
        except (Contradiction, *_HARD) as error:
            self._suspend(f"keyframe {self.number}: {error}")

    def _judge(self, message: AnyMessage) -> None:
        assert self.judge is not None
        assert self.follower is not None
        # A page draws each event, so none is skipped where moments are kept for one.
        if (
            self.skips
            and self.moments is None
            and self._is_steady(message, self.judge, self.follower)
        ):
            return
        judge, follower = self.judge, self.follower
        violations = judge.violations
        try:
            for observed in follower.follow(message):
                self._window.append(observed)
                if type(message) is Scheduled and self._mixes(observed):
                    self.mixed.append(self.now)
                if observed.record.calls:
                    self.account.traffic.count(observed)
                self._judge_event(judge, observed)
                self.events += 1
                if violations:
                    self._harvest()
            if type(message) is Scheduled and message.finished:
                follower.settle(message.finished)
        except (Contradiction, *_HARD) as error:
            self._suspend(f"record {self.number}: {error}")
            return
        if type(message) is Added:
            self.account.requests += 1
        elif type(message) is Scheduled:
            self.account.judged_steps += 1
            self._note_step()
            if self.account.judged_steps % 64 == 0:
                self.judge.forget_those_gone(self._present())

    def _mixes(self, observed: Observed) -> bool:
        outcome = observed.record.outcome
        is_decoder = self.trace is not None and self.trace.header.manager == "encoder_decoder"
        if not is_decoder or not isinstance(outcome, dict):
            return False
        encoding = set(outcome.get("encode", ()))
        kinds = outcome.get("new", ()), outcome.get("resumed", ())
        return all(not encoding.isdisjoint(some) for some in kinds)

    def _judge_event(self, judge: AuditJudge, observed: Observed) -> None:
        if self.moments is None:
            judge.judge(self.events, observed.event, observed.record)
        else:
            moment = judged(judge, self.events, observed.event, observed.record)
            self.moments.append((self.number, moment))

    def _is_steady(self, message: AnyMessage, judge: AuditJudge, follower: Follower) -> bool:
        """Whether a message says nothing new; if so, it is judged here."""
        if type(message) is Scheduled:
            outcome = judge.steady_step() if is_steady_step(message) else None
            if outcome is None:
                return False
            row = follower.go_on(message.free_blocks)
            self.account.judged_steps += 1
            self.events += 1
            self._note_step()
            self._window.append(_steady((outcome, row, message.free_blocks, False)))
            return True
        if type(message) is Updated:
            outcome = judge.steady_update() if is_steady_update(message) else None
            if outcome is None:
                return False
            row = follower.arrive(message.free_blocks)
            self.events += 1
            self._window.append(_steady((outcome, row, message.free_blocks, True)))
            return True
        return False

    def _present(self) -> set[str]:
        assert self.follower is not None
        return {f"r{number}" for number in self.follower.present}

    def _judge_kv(self, message: KVState | KVCalls) -> None:
        if self.trace is None:
            return
        # it is told ahead of the event in which it was
        at = At(self.number + 1, self.step, self.now, self.events)
        missing = self.kv.follow(message, self.release, partial(self._take, at=at))
        self.account.unjudged |= self.kv.unjudged
        if missing:
            self._note_gap(f"KV cache, record {self.number}: {missing}")

    def _note_step(self) -> None:
        assert self.judge is not None
        account = self.account
        now = account.started + account.seconds
        self._decided.append(_at((self.number, self.judge.step, now, self.events - 1)))

    def _harvest(self) -> None:
        assert self.judge is not None
        self._take(self.judge.violations, self._at_last_event())

    def _take(
        self, broken: dict[str, Violation], at: At, *, decided: Collection[str] | None = None
    ) -> None:
        """Empty `broken`, so that what breaks again is noticed again. `decided` is given for a
        worker's store: the contracts that the step broke as it was decided."""
        # A worker's step may be compared late: the window ends with the step's event.
        later = max(0, self.events - 1 - at.event)
        window = tuple(self._window)[: len(self._window) - later] if broken else ()
        for violation in broken.values():
            is_of_worker = decided is not None and violation.contract.id not in decided
            self._keep(violation, at, window, is_of_worker=is_of_worker)
        broken.clear()

    def _keep(
        self,
        violation: Violation,
        at: At,
        window: tuple[Observed | Steady, ...] = (),
        *,
        is_of_worker: bool = False,
        led: tuple[str, ...] = (),
    ) -> None:
        """Count a break, and keep the first and the last of its kind."""
        found = FoundBreak(violation, at, window, is_of_worker, led)
        key = found.key
        count = self.account.broken.get(key, 0)
        if not count and len(self.account.broken) >= KINDS_MAX:
            return
        self.account.broken[key] = count + 1
        self.last[key] = found
        is_lasting = violation.contract.kind == "state"  # what is wrong once stays wrong
        met = self._lasting if is_lasting else ()
        if not count and violation.contract.id not in met:
            if is_lasting:
                self._lasting.add(violation.contract.id)
            self.found.append(found)

    # what is not judged

    def _gap(self, why: str) -> None:
        self._note_gap(why)
        # Without a reason of its own: the gap is noted.
        self._suspend("")

    def _note_gap(self, why: str) -> None:
        self.account.gap_count += 1
        if len(self.account.gaps) < GAPS_MAX:
            self.account.gaps.append(why)

    def _suspend(self, why: str) -> None:
        # The same reason again is still the same gap.
        if why and self._suspended != why:
            self._note_gap(why)
        self._suspended = why
        self.judge = self.follower = None
        self._window.clear()

    def _note_raised(
        self, message: Raised, rank: int | None, step: int, *, ends: bool = False
    ) -> None:
        """Count an exception; `rank` is the worker that raised it, None for the scheduler. Whether
        it `ends` the step is known of most by the call."""
        if ends or message.operation in OF_A_STEP:
            self._failures[rank] = Failure(
                message.operation, message.error, message.text, message.place, step
            )
        key = f"{message.operation}: {message.error}"
        if key in self.account.raised or len(self.account.raised) < KINDS_MAX:
            self.account.raised[key] = self.account.raised.get(key, 0) + 1
        if message.operation == "recording":
            self._note_gap(f"the recording ended: {message.error}: {message.text}")


def _for_some_media(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, made legal for a trace. A model that takes no media has a cache and a budget of
    0; nothing asks for either, so a trace's least will do."""
    least = {"capacity": 1, "compute_budget": 1}
    return settings | {name: one for name, one in least.items() if settings.get(name) == 0}
