"""One trace's verdict on one target: judged by the contracts and compared with the reference."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cacheproof.differential.depths import DEPTHS, part
from cacheproof.differential.errors import HarnessError
from cacheproof.differential.judges.judge import AnyJudge
from cacheproof.differential.judges.kv_cache import KVCacheJudge
from cacheproof.differential.judges.lockstep import Difference, compare
from cacheproof.differential.judges.manager import ManagerJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.texts.mends import flags_of
from cacheproof.differential.traces.records import FullState, StepRecord, TraceResult
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.spec.records import EncoderCacheState

LOCKSTEP = "lockstep"
SERVED = "SC-18"
"""The contract that a release breaks by refusing without a documented reason."""


@dataclass(frozen=True)
class Examination:
    """What is wrong with a trace's records: the first violation of each contract, and the first
    difference from the reference, if it was `compared` with that. `by_kind` has the first violation
    of each contract and kind. `illegal` means that nothing was judged."""

    violations: Mapping[str, Violation]
    by_kind: Mapping[tuple[str, str], Violation]
    difference: Difference | None
    illegal: str | None
    calls: int
    resident_sum: int
    compared: bool

    @property
    def broken(self) -> set[str]:
        """Ids of the contracts that are broken, and LOCKSTEP with a difference."""
        return {*self.violations, *(() if self.difference is None else (LOCKSTEP,))}

    def breaks(self) -> Iterator[tuple[str, str, int, str]]:
        """What is broken: a contract's id or LOCKSTEP, in which kind, the event, and a sentence."""
        for (contract, kind), violation in self.by_kind.items():
            yield contract, kind, violation.event, violation.sentence
        if self.difference is not None:
            yield LOCKSTEP, "", self.difference.event, self.difference.sentence

    def operation(self, contract: str, kind: str) -> str:
        """What was asked, or happened, where one of its `breaks` is; empty where no call says."""
        if contract == LOCKSTEP:
            return "" if self.difference is None else self.difference.operation
        return self.by_kind[contract, kind].operation


def examine(
    trace: Trace,
    result: TraceResult,
    target: Target,
    reference: ReferenceTarget | None = None,
    reach: Reachability | None = None,
    last: int | None = None,
    sought: tuple[str, str] | None = None,
) -> Examination:
    """Judge a target's result for a trace, up to its `last` event that matters, or to the first at
    which the contract and kind that are `sought` break. One that the target refuses, with a
    documented reason or for want of what is asked for, is not judged.

    Raises:
        HarnessError: the records contradict the trace or themselves: some are missing, they name
            what the trace does not have, or deltas do not add up to the full state.
    """
    if result.illegal is None:
        _check_complete(trace, result, target)
    elif not result.records:
        return _not_judged(result.illegal)
    judge = judge_of(
        trace, target.release, target.protocol, result.capacity, reach or Reachability()
    )
    if target.mended and isinstance(judge, KVCacheJudge):
        judge.mend(flags_of(target.mended))
    judged = trace.events if last is None else trace.events[: last + 1]
    for number, (event, record) in enumerate(zip(judged, result.records, strict=False)):
        judge_record(judge, number, event, record, target)
        if sought is None or sought[0] not in judge.violations or result.illegal is not None:
            continue
        if sought in judge.by_kind:
            break
    if result.illegal is not None and SERVED not in judge.violations:
        return _not_judged(result.illegal)
    difference = None
    compared = reference is not None and reference.compares(trace)
    if reference is not None and compared:
        expected = reference.run([trace])[0]
        compared = expected.illegal is None
        if compared:
            difference = compare(expected, result, DEPTHS[trace.depth].its_own)
    violations = judge.violations
    return Examination(
        violations,
        judge.by_kind,
        difference,
        None,
        judge.calls_judged,
        judge.resident_sum,
        compared,
    )


def _not_judged(illegal: str) -> Examination:
    return Examination({}, {}, None, illegal, 0, 0, compared=False)


def judge_record(
    judge: AnyJudge, number: int, event: AnyEvent, record: StepRecord, target: Target
) -> None:
    """Judge the record of event number `number`.

    Raises:
        HarnessError: it contradicts the trace or the records before it.
    """
    try:
        judge.judge(number, event, record)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise HarnessError(
            f"host of {target.name}: the record of event {number + 1} does not fit the trace "
            f"({type(error).__name__}: {error})"
        ) from error
    if record.state is not None and isinstance(judge, ManagerJudge):
        _check_replay(judge, record.state, target, number)


def judge_of(
    trace: Trace,
    release: str | None,
    protocol: Protocol,
    capacity: int | None,
    reach: Reachability,
) -> AnyJudge:
    """What judges the records of a trace; `capacity` is what the release made of the trace's."""
    judge: AnyJudge = part(DEPTHS[trace.depth].judge).judge_of(trace, release, protocol, reach)
    if capacity is not None and isinstance(judge, ManagerJudge):
        judge.set_capacity(capacity)
    return judge


def _check_complete(trace: Trace, result: TraceResult, target: Target) -> None:
    """Check that every event up to the first exception has a record, and that the last record
    carries the full state, unless the target was not even made."""
    records = result.records
    ended = len(records) == len(trace.events) or (records and records[-1].raised is not None)
    is_made = len(records) > 1 or any(one.calls or one.raised is None for one in records)
    without_state = DEPTHS[trace.depth].has_ledger and is_made and records[-1].state is None
    if not ended or without_state:
        raise HarnessError(
            f"host of {target.name}: {len(records)} records for {len(trace.events)} events, or "
            f"no state in the last one"
        )


def _check_replay(judge: ManagerJudge, full: FullState, target: Target, number: int) -> None:
    state = judge.state
    agrees = state.free_slots == full.free and list(state.notices) == full.notices
    if isinstance(state, EncoderCacheState):
        agrees = (
            agrees
            and state.freeable_slots == full.freeable
            and list(state.queue.items()) == full.queue
            and {h: sorted(requests) for h, requests in state.holders.items()}
            == {h: requests for h, (requests, _) in full.entries.items()}
            and all(size in (None, state.size[h]) for h, (_, size) in full.entries.items())
        )
    if not agrees:
        raise HarnessError(
            f"host of {target.name}: the deltas up to event {number + 1} do not add up to the "
            f"state that it reports"
        )
