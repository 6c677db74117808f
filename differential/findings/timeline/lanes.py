"""The lanes of a timeline: what holds of requests, entries and blocks, from event to event."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from cacheproof.differential.findings.timeline.wording import cut
from cacheproof.differential.judges.retrace import Moment
from cacheproof.differential.traces.engine import EngineHeader
from cacheproof.differential.traces.kv_cache import Arrive, End, KVCacheHeader, Slots
from cacheproof.differential.traces.manager import Add, Finish, Notices, Preempt, Walk
from cacheproof.differential.traces.outcomes import (
    KVOutcome,
    QueuesOutcome,
    StepOutcome,
    has_queues,
)
from cacheproof.differential.traces.scheduler import Abort, Schedule, SchedulerConfig
from cacheproof.differential.traces.trace import Header
from cacheproof.spec.records import EncoderCacheState

State = tuple[str, str, str]
"""What holds of a row: its kind, a label for where there is little room, and words."""


class RowSpan(msgspec.Struct, frozen=True, array_like=True):
    """What holds of a row from event `start` until before event `end`."""

    start: int
    end: int
    kind: str
    label: str
    words: str


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What happens to a row at an event."""

    event: int
    kind: str
    words: str


class Row(msgspec.Struct, frozen=True):
    """A lane of a request or of an entry: what holds of it, what happens in single events over
    that, and marks. Spans of a kind are in order and do not overlap."""

    name: str
    spans: tuple[RowSpan, ...]
    over: tuple[RowSpan, ...] = ()
    marks: tuple[Mark, ...] = ()


class Chart(msgspec.Struct, frozen=True):
    """A number over events. `level`: it holds until the next point, else it is of its event alone.
    `limit` is what it may not exceed."""

    name: str
    points: tuple[tuple[int, int], ...]
    is_level: bool
    limit: int | None = None


class LaneGroup(msgspec.Struct, frozen=True):
    """Lanes that belong together. The `note` says where they are from."""

    name: str
    note: str
    charts: tuple[Chart, ...]
    rows: tuple[Row, ...]


class _Level:
    """A number that holds until it changes."""

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []

    def show(self, at: int, number: int) -> None:
        if not self._points or self._points[-1][1] != number:
            self._points.append((at, number))

    def charts(self, name: str, limit: int) -> Iterator[Chart]:
        """The chart of the number, where it was ever known."""
        if self._points:
            yield Chart(name, tuple(self._points), True, limit)


@dataclass
class _Growing:
    """A row in the making: what it will be, and what holds of it since when."""

    spans: list[RowSpan] = field(default_factory=list)
    over: list[RowSpan] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    since: int = 0
    state: State | None = None

    def enter(self, at: int, state: State | None) -> None:
        if state == self.state:
            return
        if self.state is not None and self.since < at:
            self.spans.append(RowSpan(self.since, at, *self.state))
        self.since, self.state = at, state


class _Rows:
    """Rows of one group, by name."""

    def __init__(self) -> None:
        self._rows: dict[str, _Growing] = {}
        self._open: set[str] = set()

    def show(self, at: int, states: Mapping[str, State]) -> None:
        """From this event on these states hold, and no others."""
        for name in [name for name in self._open if name not in states]:
            self._rows[name].enter(at, None)
            self._open.discard(name)
        for name, (kind, label, words) in states.items():
            self._row(name).enter(at, (kind, cut(label), cut(words)))
            self._open.add(name)

    def mark(self, at: int, name: str, kind: str, words: str) -> None:
        self._row(name).marks.append(Mark(at, kind, cut(words)))

    def over(self, at: int, name: str, kind: str, label: str, words: str) -> None:
        self._row(name).over.append(RowSpan(at, at + 1, kind, label, cut(words)))

    def finish(self, end: int) -> tuple[Row, ...]:
        self.show(end, {})
        return tuple(
            Row(cut(name), tuple(one.spans), tuple(one.over), tuple(one.marks))
            for name, one in self._rows.items()
        )

    def _row(self, name: str) -> _Growing:
        return self._rows.setdefault(name, _Growing())


class _Lanes(Protocol):
    """Follows a run, event by event, and has a group at its end."""

    def follow(self, at: int, moment: Moment) -> None: ...

    def group(self, end: int) -> LaneGroup: ...


def follow(header: Header, moments: Sequence[Moment]) -> Iterator[LaneGroup]:
    """The groups of a run of that header."""
    lanes = list(_lanes_of(header))
    for at, moment in enumerate(moments):
        for one in lanes:
            one.follow(at, moment)
    return (one.group(len(moments)) for one in lanes)


def _lanes_of(header: Header) -> Iterable[_Lanes]:
    if isinstance(header, KVCacheHeader):
        return _Requests(), _ManagedBlocks(header.config.num_blocks - 1)
    config = header.config
    if isinstance(config, SchedulerConfig):
        steps, blocks = config.max_num_batched_tokens, config.num_blocks - 1
        store = _Store(is_told=isinstance(header, EngineHeader))
        return _Requests(), _Steps(steps), _Ledger(), store, _ToldBlocks(blocks)
    return _Requests(), _Steps(None), _Ledger(), _Store(is_told=False)


class _Requests:
    """Who waits, who runs, who gets tokens, who is preempted, and who has ended."""

    def __init__(self) -> None:
        self._rows = _Rows()
        self._states: dict[str, str] = {}

    def follow(self, at: int, moment: Moment) -> None:
        event, outcome = moment.event, moment.record.outcome
        if outcome is None:
            return
        match event:
            case Add() | Arrive():
                self._states[event.request] = "waiting"
                self._rows.mark(at, event.request, "arrives", "arrives")
            case Walk() if outcome[0] > 0:
                self._states[event.request] = "running"
                self._tokens(at, event.request, outcome[0])
            case Walk() if outcome[0] < 0:
                self._end(at, event.request)
            case Slots() if outcome["answer"] is True:
                self._states[event.request] = "running"
                self._tokens(at, event.request, _allocated(outcome))
            case Preempt():
                self._preempt(at, event.request)
            case Finish() | Abort() | End():
                self._end(at, event.request)
            case Schedule():
                self._step(at, outcome)
        if has_queues(outcome):
            self._queues(at, outcome)
        self._rows.show(at, {name: _standing(state) for name, state in self._states.items()})

    def group(self, end: int) -> LaneGroup:
        return LaneGroup("Requests", "", (), self._rows.finish(end))

    def _step(self, at: int, outcome: StepOutcome) -> None:
        for name in outcome.get("preempted", ()):
            self._preempt(at, name)
        for name, count in outcome["scheduled"].items():
            self._tokens(at, name, count, outcome["computed"].get(name))

    def _queues(self, at: int, outcome: QueuesOutcome) -> None:
        now = dict.fromkeys(outcome["waiting"], "waiting") | dict.fromkeys(
            outcome["running"], "running"
        )
        for name in self._states.keys() - now.keys():
            self._end(at, name)
        self._states |= now

    def _tokens(self, at: int, name: str, count: int, start: int | None = None) -> None:
        words = f"{count} tokens" if start is None else f"tokens {start} to {start + count}"
        self._rows.over(at, name, "scheduled", str(count), f"scheduled: {words}")

    def _preempt(self, at: int, name: str) -> None:
        self._states[name] = "waiting"
        self._rows.mark(at, name, "preempted", "preempted")

    def _end(self, at: int, name: str) -> None:
        if self._states.pop(name, None) is not None:
            self._rows.mark(at, name, "ends", "ends")


def _standing(state: str) -> State:
    """The state as a row has it. A running request has no label: its tokens take that place."""
    return state, "" if state == "running" else state, state


def _allocated(outcome: KVOutcome) -> int:
    """Tokens of the event's last allocation."""
    counts = [one[2][0] for one in outcome["calls"] if one[0] == "allocate_slots"]
    return int(counts[-1])


class _Steps:
    """Tokens of each step, and their budget."""

    def __init__(self, budget: int | None) -> None:
        self._budget = budget
        self._walked = 0
        self._points: list[tuple[int, int]] = []

    def follow(self, at: int, moment: Moment) -> None:
        outcome = moment.record.outcome
        match moment.event:
            case Walk() if outcome is not None:
                self._walked += max(0, outcome[0])
            case Notices():
                self._points.append((at, self._walked))
                self._walked = 0
            case Schedule() if outcome is not None:
                self._points.append((at, outcome["total"]))

    def group(self, end: int) -> LaneGroup:
        chart = Chart("tokens of the step", tuple(self._points), False, self._budget)
        return LaneGroup("Scheduler", "", (chart,), ())


class _Ledger:
    """The entries that the manager has, who holds them, and its slots."""

    def __init__(self) -> None:
        self._rows = _Rows()
        self._free = _Level()
        self._freeable = _Level()
        self._capacity = 0

    def follow(self, at: int, moment: Moment) -> None:
        state = moment.after
        assert state is not None
        self._capacity = state.capacity
        self._free.show(at, state.free_slots)
        states: dict[str, State] = {}
        if isinstance(state, EncoderCacheState):
            self._freeable.show(at, state.freeable_slots)
            states = dict(_entries(state, moment.needed))
        self._mark(at, moment)
        self._rows.show(at, states)

    def group(self, end: int) -> LaneGroup:
        charts = (
            *self._free.charts("free slots", self._capacity),
            *self._freeable.charts("freeable slots", self._capacity),
        )
        return LaneGroup("Encoder cache", "the manager's ledger", charts, self._rows.finish(end))

    def _mark(self, at: int, moment: Moment) -> None:
        for call in moment.record.calls:
            if call.operation == "notices" and isinstance(call.answer, list):
                for name in call.answer:
                    self._rows.mark(at, name, "reported", "reported to the worker")
            for name, entry in {} if call.delta is None else call.delta.entries.items():
                if entry is None:
                    self._rows.mark(at, name, "evicted", f"evicted by {call.operation}")
            if call.operation == "allocate" and call.delta is not None:
                for name in call.delta.entries:
                    self._rows.mark(at, name, "encoded", f"allocated for {call.request}")


def _entries(
    state: EncoderCacheState, needed: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, State]]:
    for name in state.notices:
        if name not in state.size:
            yield name, ("evicted", "not reported", "evicted, and the worker is not told yet")
    for name, size in state.size.items():
        holders = state.holders[name]
        slots = f"{size} slot{'s' * (size != 1)}"
        if holders:
            by = ", ".join(sorted(holders))
            yield name, ("held", by, f"held by {by}, {slots}")
        elif name not in needed:
            yield name, ("idle", "idle", f"idle: freeable, {slots}")
    for name, requests in needed.items():
        by = ", ".join(sorted(requests))
        if not state.holders.get(name):
            has = "it is idle" if name in state.size else "it has no such entry"
            yield name, ("lost", f"needed by {by}", f"needed by {by}, and in the ledger {has}")


_MISSING = ("missing", "missing", "the ledger has it, and a step has left the store without it")


class _Store:
    """What is in the worker's store, by identifier. `is_told`: the worker says itself."""

    def __init__(self, *, is_told: bool) -> None:
        self._rows = _Rows()
        self._is_told = is_told
        self._missing: set[str] = set()

    def follow(self, at: int, moment: Moment) -> None:
        store: Mapping[str, int] | None = moment.store_after
        if self._is_told:
            outcome = moment.record.outcome
            store = outcome.get("store") if isinstance(outcome, dict) else None
        if store is None:
            return
        states: dict[str, State] = {
            name: ("stored", str(rows), f"{rows} row{'s' * (rows != 1)}")
            for name, rows in store.items()
        }
        if isinstance(moment.after, EncoderCacheState) and not self._is_told:
            absent = moment.after.size.keys() - store.keys()
            if isinstance(moment.event, Schedule | Notices):
                self._missing = set(absent)
            self._missing &= absent
            states |= dict.fromkeys(sorted(self._missing), _MISSING)
        self._rows.show(at, states)

    def group(self, end: int) -> LaneGroup:
        source = "as the worker says" if self._is_told else "as the steps tell it"
        return LaneGroup("Worker's store", source, (), self._rows.finish(end))


class _Blocks:
    """KV blocks: how many are free, and how many each request has."""

    _source: str

    def __init__(self, total: int) -> None:
        self._total = total
        self._rows = _Rows()
        self._free = _Level()
        self._counts: dict[str, int] = {}

    def group(self, end: int) -> LaneGroup:
        charts = tuple(self._free.charts("free blocks", self._total))
        return LaneGroup("KV blocks", self._source, charts, self._rows.finish(end))


class _ToldBlocks(_Blocks):
    """KV blocks as the steps tell of them."""

    _source = "as the steps tell it"

    def follow(self, at: int, moment: Moment) -> None:
        outcome = moment.record.outcome
        if not isinstance(outcome, dict) or "free_blocks" not in outcome:
            return
        self._free.show(at, outcome["free_blocks"])
        if isinstance(moment.event, Schedule):
            afresh = {*outcome["new"], *outcome["resumed"]}
            for name in outcome.get("preempted", ()):
                self._counts.pop(name, None)
            for name, groups in outcome["blocks"].items():
                had = 0 if name in afresh else self._counts.get(name, 0)
                self._counts[name] = had + sum(map(len, groups))
        gone = self._counts.keys() - {*outcome["running"], *outcome["waiting"]}
        for name in gone:
            del self._counts[name]
        self._rows.show(at, _counted(self._counts))


class _ManagedBlocks(_Blocks):
    """KV blocks as their manager has them."""

    _source = "as their manager has them"

    def follow(self, at: int, moment: Moment) -> None:
        outcome = moment.record.outcome
        changed = {} if outcome is None else outcome["changed"]
        if "free" in changed or at == 0:
            self._free.show(at, changed.get("free", self._total))
        for name, groups in changed.get("tables", {}).items():
            self._counts.pop(name, None)
            if groups is not None:  # block 0 stands for one that is no longer read
                self._counts[name] = sum(one != 0 for blocks, _ in groups for one in blocks)
        self._rows.show(at, _counted(self._counts))


def _counted(counts: Mapping[str, int]) -> dict[str, State]:
    return {
        name: ("blocks", str(count), f"{count} block{'s' * (count != 1)}")
        for name, count in counts.items()
        if count
    }
