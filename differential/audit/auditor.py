"""Judges the record of one engine as it comes, in memory that does not grow with it.

Where the record has a gap, judging stops, and goes on at the next keyframe. What was not judged is
counted and named.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cacheproof.differential.audit.following import Contradiction, Follower, Observed
from cacheproof.differential.audit.judging import AuditJudge
from cacheproof.differential.audit.kv_cache import KVAudit
from cacheproof.differential.audit.silence import NEVER_JUDGED, not_judged
from cacheproof.differential.audit.steady import Steady, is_steady_step, is_steady_update
from cacheproof.differential.audit.streams import Gap, Part
from cacheproof.differential.judges.kv_cache import MANAGER as KV_CACHE
from cacheproof.differential.judges.retrace import Moment, judged
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.recording.messages import (
    Added,
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
from cacheproof.differential.traces.manager import Reset
from cacheproof.differential.traces.scheduler import SchedulerConfig, SchedulerHeader
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import MODELLED
from cacheproof.spec.registry import Contract

WINDOW = 200
GAPS_MAX = 100
KINDS_MAX = 1000
_EVERY_STEP = (Scheduled, Updated, Added)
_HARD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)


@dataclass(frozen=True)
class Found:
    """A contract that an engine broke: how, in which of its records and steps, what led there, and
    for which time: seconds since the epoch."""

    violation: Violation
    record: int
    step: int
    at: float
    window: tuple[Observed, ...]

    @property
    def is_of_kv_cache(self) -> bool:
        """Whether the KV cache manager broke it, whose calls are in no trace of a scheduler."""
        return KV_CACHE in self.violation.contract.applies_to


@dataclass
class Traffic:
    """What an encoder cache did: occurrences of items that it had, entries that it took in and that
    it evicted."""

    hits: int = 0
    encodes: int = 0
    evictions: int = 0

    def count(self, observed: Observed) -> None:
        """Count the calls of one event."""
        is_reset = isinstance(observed.event, Reset)
        for operation, _, _, _, _, answer, delta in observed.record.calls:
            if operation == "check":
                self.hits += answer is True
            elif operation == "allocate":
                self.encodes += 1
            if delta is not None and not is_reset and None in delta.entries.values():
                self.evictions += sum(one is None for one in delta.entries.values())


@dataclass
class Account:
    """What an audit has seen and judged so far.

    gaps: what is missing, and in how many places; `unjudged_records` could not be judged for it.
    raised: exceptions of the engine, by operation and type.
    broken: how often each contract was broken, by id and kind.
    """

    records: int = 0
    steps: int = 0
    judged_steps: int = 0
    stores: int = 0
    unjudged_records: int = 0
    lost: int = 0
    started: float = 0.0
    seconds: float = 0.0
    requests: int = 0
    gaps: list[str] = field(default_factory=list)
    gap_count: int = 0
    raised: dict[str, int] = field(default_factory=dict)
    broken: dict[tuple[str, str], int] = field(default_factory=dict)
    unjudged: set[str] = field(default_factory=set)
    closed: bool = False
    traffic: Traffic = field(default_factory=Traffic)


class Auditor:
    """Audits one scheduler, and the stores of its workers. Feed it parts of streams in order.

    Attributes:
        account, found: what was seen and found so far.
        silent: the contracts that cannot judge it.
        skips: whether steps that say nothing new are judged by the step before them.
        kv: the audit of what is recorded of the KV cache manager.
        number: that of the last record; events: how many were judged.
        moments: where what is around each event is kept, if it is to be drawn.
    """

    def __init__(self) -> None:
        self.account = Account()
        self.found: list[Found] = []
        self.opened: Opened | None = None
        self.trace: Trace | None = None
        self.silent: frozenset[str] = NEVER_JUDGED
        self._has_connector = False
        self.release: str | None = None
        self.judge: AuditJudge | None = None
        self.follower: Follower | None = None
        self.kv = KVAudit()
        self._rules: Sequence[Contract] = ()
        self.moments: deque[Moment] | None = None
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

    @property
    def rules(self) -> list[Contract]:
        """The contracts that judge it, and those that judge its KV cache manager."""
        return [*self._rules, *self.kv.rules]

    @property
    def now(self) -> float:
        """The time of the last record, in seconds since the epoch."""
        return self.account.started + self.account.seconds

    def feed(self, part: Part) -> None:
        """The next part of the scheduler's stream."""
        if isinstance(part, Gap):
            self._gap(part.why)
            self.kv.suspend()
            return
        self.number, message = part
        account = self.account
        account.records += 1
        if self.judge is not None and isinstance(message, _EVERY_STEP):
            account.seconds += message.time / 1e6
            account.steps += type(message) is Scheduled
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
        account.steps += isinstance(message, Scheduled)
        if isinstance(message, Closed):
            account.closed = True
            account.lost = max(account.lost, message.lost)
        elif isinstance(message, Raised):
            self._note_raised(message)
        if isinstance(message, Cleared) and message.what == "session":
            self._suspend("a session goes on, which an audit does not follow")
        if self.judge is None:
            account.unjudged_records += 1
            return
        self._judge(message)

    def feed_worker(self, rank: int, part: Part) -> None:
        """The next part of a worker's stream."""
        if isinstance(part, Gap):
            self._note_gap(f"worker {rank}: {part.why}")
            self._stores[rank] = None
            return
        message = part.message
        if isinstance(message, Opened):
            self._stores[rank] = {}
        elif isinstance(message, Raised):
            self._note_raised(message)
        elif isinstance(message, Stored):
            self._stored.setdefault(rank, deque()).append(message)

    def wants_store(self, rank: int) -> bool:
        """Whether the steps that were judged are ahead of what is known of the worker's store."""
        waiting = self._stored.get(rank)
        known = waiting[-1].step if waiting else self._store_steps.get(rank, 0)
        return self.judge is not None and known < self.judge.step

    def match_stores(self) -> None:
        """Compare what workers held with what should have been there, as far as both are known."""
        for rank, waiting in self._stored.items():
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
            self._harvest()

    def _is_due(self, message: Stored) -> bool:
        assert self.judge is not None
        return message.step <= self.judge.step

    # a scheduler's records

    def _open(self, opened: Opened) -> None:
        self.account.started = opened.started
        self.account.seconds = 0.0
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
                word = self.judge.contradicts(keyframe, self.follower)
                if not word:
                    self.judge.forget_those_gone(self._present())
                    return
                self._gap(f"keyframe {self.number} shows other {word} than the records before it")
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

    def _judge(self, message: Any) -> None:
        assert self.judge is not None
        assert self.follower is not None
        if (
            self.skips
            and self.moments is None
            and self._is_steady(message, self.judge, self.follower)
        ):
            return
        arrivals, judge, follower = len(self.follower.present), self.judge, self.follower
        violations = judge.violations
        try:
            for observed in follower.follow(message):
                self._window.append(observed)
                if observed.record.calls:
                    self.account.traffic.count(observed)
                self._judge_event(judge, observed)
                self.events += 1
                if violations:
                    self._harvest()
        except (Contradiction, *_HARD) as error:
            self._suspend(f"record {self.number}: {error}")
            return
        self.account.requests += max(0, len(self.follower.present) - arrivals)
        if isinstance(message, Scheduled):
            self.account.judged_steps += 1
            if self.account.judged_steps % 64 == 0:
                self.judge.forget_those_gone(self._present())

    def _judge_event(self, judge: AuditJudge, observed: Observed) -> None:
        if self.moments is None:
            judge.judge(self.events, observed.event, observed.record)
        else:
            self.moments.append(judged(judge, self.events, observed.event, observed.record))

    def _is_steady(self, message: Any, judge: AuditJudge, follower: Follower) -> bool:
        """Judge a message that says nothing new, if that is what it is."""
        kind = type(message)
        if kind is Scheduled and is_steady_step(message):
            outcome = judge.steady_step()
            if outcome is None:
                return False
            row = follower.go_on(message.free_blocks)
            self.account.judged_steps += 1
        elif kind is Updated and is_steady_update(message):
            outcome = judge.steady_update()
            if outcome is None:
                return False
            row = follower.arrive(message.free_blocks)
        else:
            return False
        self._window.append(Steady(outcome, row, message.free_blocks, kind is Updated))
        self.events += 1
        return True

    def _present(self) -> set[str]:
        assert self.follower is not None
        return {f"r{number}" for number in self.follower.present}

    def _judge_kv(self, message: KVState | KVCalls) -> None:
        if self.trace is None:
            return
        missing = self.kv.follow(message, self.release, self._take)
        self.account.unjudged |= self.kv.unjudged
        if missing:
            self._note_gap(f"KV cache, record {self.number}: {missing}")

    def _harvest(self) -> None:
        assert self.judge is not None
        self._take(self.judge.violations)

    def _take(self, broken: dict[str, Violation]) -> None:
        """Take what is broken, so that it is noticed again when it breaks again."""
        for violation in broken.values():
            key = (violation.contract.id, violation.kind)
            count = self.account.broken.get(key, 0)
            if count or len(self.account.broken) < KINDS_MAX:
                self.account.broken[key] = count + 1
            is_lasting = violation.contract.kind == "state"  # what is wrong once stays wrong
            met = self._lasting if is_lasting else ()
            if not count and violation.contract.id not in met:
                if is_lasting:
                    self._lasting.add(violation.contract.id)
                self.found.append(
                    Found(
                        violation,
                        self.number,
                        self.account.steps,
                        self.now,
                        tuple(
                            one.observed() if isinstance(one, Steady) else one
                            for one in self._window
                        ),
                    )
                )
        broken.clear()

    # what is not judged

    def _gap(self, why: str) -> None:
        self._note_gap(why)
        self._suspend("")

    def _note_gap(self, why: str) -> None:
        self.account.gap_count += 1
        if len(self.account.gaps) < GAPS_MAX:
            self.account.gaps.append(why)

    def _suspend(self, why: str) -> None:
        if why and self._suspended != why:
            self._note_gap(why)
        self._suspended = why
        self.judge = self.follower = None
        self._window.clear()

    def _note_raised(self, message: Raised) -> None:
        key = f"{message.operation}: {message.error}"
        if key in self.account.raised or len(self.account.raised) < KINDS_MAX:
            self.account.raised[key] = self.account.raised.get(key, 0) + 1
        if message.operation == "recording":
            self._note_gap(f"the recording ended: {message.error}: {message.text}")


def _for_some_media(settings: dict[str, Any]) -> dict[str, Any]:
    """A model that takes no media has an encoder cache of no room and a budget of 0; nothing asks
    for any of it, so that a trace's least will do."""
    least = {"capacity": 1, "compute_budget": 1}
    return settings | {name: one for name, one in least.items() if settings.get(name) == 0}
