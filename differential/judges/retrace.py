"""Judges stored records again and looks at every moment: what the report and the test show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cacheproof.differential.judges.examination import judge_of
from cacheproof.differential.judges.judge import AnyJudge
from cacheproof.differential.judges.manager import ManagerJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.spec.records import LedgerState

State = LedgerState | None


@dataclass(frozen=True)
class Moment:
    """One event with the ledger and the worker's store around it; block keys have no ledger.

    `needed` is what requests need after it, by the judge's own account, and who needs it.
    """

    event: AnyEvent
    record: StepRecord
    before: State
    after: State
    store_before: dict[str, int]
    store_after: dict[str, int]
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)


def judged(judge: AnyJudge, number: int, event: AnyEvent, record: StepRecord) -> Moment:
    """Judge the record of event number `number`, and look at what is around it."""
    before, store = judge.state, dict(judge.stored)
    judge.judge(number, event, record)
    needed = judge.ghost.needed if isinstance(judge, ManagerJudge) else {}
    return Moment(
        event,
        record,
        before,
        judge.state,
        store,
        dict(judge.stored),
        {identifier: frozenset(requests) for identifier, requests in needed.items()},
    )


@dataclass(frozen=True)
class RetracedBreak:
    """A contract breaks at call number `call` of an event, with `judge` just after that call.

    `call` counts from 1, and is 0 where the event makes none. `before` is the ledger before it.
    """

    event: int
    call: int
    judge: AnyJudge
    before: State


@dataclass(frozen=True)
class Retrace:
    """A trace, a target's records for it, and how that target is judged."""

    trace: Trace
    records: Sequence[StepRecord]
    release: str | None
    protocol: Protocol
    capacity: int | None

    def moments(self) -> Iterator[Moment]:
        judge = self._judge()
        for number, (event, record) in enumerate(
            zip(self.trace.events, self.records, strict=False)
        ):
            yield judged(judge, number, event, record)

    def first_break(self, contract: str, kind: str = "") -> RetracedBreak | None:
        """Where the contract breaks first, in that kind where one is given; None where it does
        not."""
        judge = self._judge()
        for number, (event, record) in enumerate(
            zip(self.trace.events, self.records, strict=False)
        ):
            judge.judge(number, event, record)
            if violation_of(judge, contract, kind) is not None:
                return self._first_call(contract, kind, number)
        return None

    def breaks_at(self, contract: str, event: int) -> bool:
        """Whether the contract breaks at an event for the first time in one of its kinds, whatever
        that was called when it was found."""
        judge = self._judge_up_to(event, len(self.records[event].calls))
        found = judge.by_kind.items()
        return any(name == contract and one.event == event for (name, _), one in found)

    def at(self, event: int, call: int) -> RetracedBreak:
        """The moment just after call number `call` of an event, counted from 1."""
        return RetracedBreak(
            event, call, self._judge_up_to(event, call), self._judge_up_to(event, call - 1).state
        )

    def whole(self, event: int) -> RetracedBreak:
        """The moment after all the calls of an event, with the ledger before the first of them."""
        count = len(self.records[event][1])
        before = (
            self._judge_up_to(event - 1, len(self.records[event - 1][1])).state if event else None
        )
        judge = self._judge_up_to(event, count)
        return RetracedBreak(event, count, judge, before or self._judge().state)

    def _first_call(self, contract: str, kind: str, number: int) -> RetracedBreak:
        count = len(self.records[number][1])
        for call in range(1, count):
            if violation_of(self._judge_up_to(number, call), contract, kind) is not None:
                return self.at(number, call)
        return self.at(number, count)

    def _judge_up_to(self, number: int, count: int) -> AnyJudge:
        """Judge the events before `number` and of that one only its first `count` calls."""
        judge = self._judge()
        for earlier, (event, record) in enumerate(
            zip(self.trace.events[:number], self.records, strict=False)
        ):
            judge.judge(earlier, event, record)
        whole = self.records[number]
        if count == 0 and whole.calls:
            return judge
        cut = whole._replace(calls=whole.calls[:count], state=None)
        if count < len(whole.calls):
            outcome = whole.outcome if self.trace.has_scheduler else None
            cut = cut._replace(outcome=outcome, raised=None)
        judge.judge(number, self.trace.events[number], cut)
        return judge

    def _judge(self) -> AnyJudge:
        return judge_of(self.trace, self.release, self.protocol, self.capacity, Reachability())


def violation_of(judge: AnyJudge, contract: str, kind: str) -> Violation | None:
    """The first violation of a contract, in that kind where one is given."""
    if not kind:
        return judge.violations.get(contract)
    return judge.by_kind.get((contract, kind))
