"""A step that does nothing with entries is judged again only when the ledger moved, and that is
enough."""

from collections.abc import Iterator

import pytest

from cacheproof.differential.judges.examination import examine, judge_of
from cacheproof.differential.judges.manager import ManagerJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.faults.manager import FAULTS
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import CallRecord, Delta, StepRecord
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import AnyEvent, Trace
from tests.differential.scheduler_traces import trace

REFERENCE = ReferenceTarget()
TRACES = [
    LANES[name].trace(seed, None) for name in ("encoder cache", "scheduler") for seed in (1, 2)
]
STEPS_BEFORE = 4


def judge_every_step(judge: ManagerJudge, notices: tuple[str, ...]) -> None:
    judge._judge_step(notices)
    judge._new_step()


def judge_no_step(judge: ManagerJudge, notices: tuple[str, ...]) -> None:
    judge._new_step()


def breaks() -> Iterator[tuple[str, int, object]]:
    """What the planted faults break, in each trace, and where."""
    for fault in FAULTS:
        for number, result in enumerate(REFERENCE.run(TRACES, fault)):
            seen = examine(TRACES[number], result, REFERENCE)
            yield fault, number, list(seen.breaks())


def test_judging_every_step_finds_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(breaks())
    monkeypatch.setattr(ManagerJudge, "_finish_step", judge_every_step)
    assert list(breaks()) == found


def test_judging_no_step_finds_less(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(breaks())
    monkeypatch.setattr(ManagerJudge, "_finish_step", judge_no_step)
    assert list(breaks()) != found


def decoding() -> Trace:
    """A request with an item that decodes for a while: most steps do nothing with entries."""
    steps: list[AnyEvent] = [Schedule(), Update()] * 8
    request = Add("r", 20, (Item("h", 2, 4),), max_tokens=12)
    return trace(request, *steps, max_num_batched_tokens=32, max_num_seqs=1, num_blocks=8)


def losing_an_entry(record: StepRecord) -> StepRecord:
    """The record, with a call behind which the ledger has lost the item's entry."""
    lost = Delta(8, 8, {"h": None}, [], None)
    call = CallRecord("inputs", "r", None, None, None, [], lost)
    return record._replace(calls=[*record.calls, call])


def test_an_entry_that_is_lost_between_two_steps_is_found_by_the_next_step() -> None:
    trace = decoding()
    (result,) = REFERENCE.run([trace])
    judge = judge_of(trace, None, REFERENCE.protocol, result.capacity, Reachability())
    lost_at = 2 * STEPS_BEFORE
    for number, (event, record) in enumerate(zip(trace.events, result.records, strict=True)):
        judge.judge(number, event, losing_an_entry(record) if number == lost_at else record)
    assert judge.violations["WM-1"].event == lost_at + 1
