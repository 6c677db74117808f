"""Lanes say what the records say, at every event, and what is broken is marked where it broke."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.timeline.model import (
    Timeline,
    broken_by,
    require_timeline,
    timeline,
)
from cacheproof.differential.findings.timeline.wording import CHARACTERS_MAX, cut
from cacheproof.differential.generators.block_hash import block_hash_trace
from cacheproof.differential.generators.kv_cache import kv_cache_trace
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.lockstep import Difference
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.retrace import judged
from cacheproof.differential.judges.scheduler import judge_of
from cacheproof.differential.traces import manager as events
from cacheproof.differential.traces.records import Raised
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.records import EncoderCacheState
from tests.differential.findings.timeline.runs import (
    FAULTY,
    IDEAL,
    MENDED,
    STEP,
    are_in_order,
    drawn,
    group,
    kinds_at,
    marks,
    needed_entry,
    row,
    run_of,
    value_at,
)

SEEDS = range(12)
WRONG = {"lost", "missing"}


def of_manager(seed: int) -> Trace:
    return manager_trace(seed, "encoder_cache")


def span_kinds(shown: Timeline) -> Counter[str]:
    return Counter(
        span.kind for one in shown.groups for row in one.rows for span in (*row.spans, *row.over)
    )


def test_an_entry_that_is_evicted_while_it_is_needed_is_shown_as_such() -> None:
    shown = drawn(needed_entry(), FAULTY)
    (subject, *_) = shown.broken
    assert (subject.contract, subject.event) == ("EC-6a", 4)
    spans = [(span.kind, span.start, span.end) for span in row(shown, "Encoder cache", "x").spans]
    assert spans == [("held", 2, 4), ("lost", 4, 5), ("lost", 5, 6)]
    assert marks(row(shown, "Encoder cache", "x")) == [(2, "encoded"), (5, "evicted")]


def test_a_break_elsewhere_is_marked_elsewhere() -> None:
    here, later = drawn(needed_entry(), FAULTY), drawn(needed_entry(*STEP, *STEP), FAULTY)
    assert [one.event + 4 for one in here.broken] == [one.event for one in later.broken]
    assert "event 5" in here.title
    assert "event 9" in later.title


def test_where_it_is_mended_nothing_is_broken() -> None:
    shown = drawn(needed_entry(), MENDED)
    assert shown.broken == ()
    assert shown.title == "reference@0.33.0: nothing is broken"
    assert not WRONG & span_kinds(shown).keys()


def test_an_entry_that_no_worker_was_asked_to_encode_is_shown_as_such(
    finding: Callable[[str], Trace],
) -> None:
    trace = finding("phantom-entry")
    shown = drawn(trace, MENDED)  # which mends another fault, and has this one
    missing = {
        (each.name, span.start)
        for each in group(shown, "Worker's store").rows
        for span in each.spans
        if span.kind == "missing"
    }
    (subject, *_) = (one for one in shown.broken if one.contract == "WM-1")
    assert {at for _, at in missing} == {subject.event}
    assert any(f"'{name}'" in subject.why for name, _ in missing)
    assert not WRONG & span_kinds(drawn(trace)).keys()


@pytest.mark.parametrize("make", [of_manager, scheduler_trace])
def test_under_the_contracts_nothing_is_lost_and_nothing_is_missing(
    make: Callable[[int], Trace],
) -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        met += span_kinds(drawn(make(seed)))
    assert not WRONG & met.keys()
    assert met.keys() >= {"waiting", "running", "scheduled", "held", "idle", "stored"}


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_of_a_scheduler_say_what_its_records_say(seed: int) -> None:
    trace = scheduler_trace(seed)
    moments, _ = run_of(trace, IDEAL)
    shown = drawn(trace)
    requests, ledger = group(shown, "Requests"), group(shown, "Encoder cache")
    store, blocks = group(shown, "Worker's store"), group(shown, "KV blocks")
    for at, moment in enumerate(moments):
        outcome = moment.record.outcome
        standing = kinds_at(requests, at)
        if isinstance(outcome, dict) and "running" in outcome:
            assert standing == dict.fromkeys(outcome["waiting"], "waiting") | dict.fromkeys(
                outcome["running"], "running"
            )
            assert value_at(blocks.charts[0], at) == outcome["free_blocks"]
            assert kinds_at(blocks, at).keys() <= standing.keys()
        assert value_at(ledger.charts[0], at) == moment.after.free_slots  # type: ignore[union-attr]
        if isinstance(moment.after, EncoderCacheState):
            held = {name for name, requests in moment.after.holders.items() if requests}
            kinds = kinds_at(ledger, at)
            assert {name for name, kind in kinds.items() if kind == "held"} == held
            idle = {name for name, kind in kinds.items() if kind == "idle"}
            assert idle == moment.after.holders.keys() - held
        assert kinds_at(store, at) == dict.fromkeys(moment.store_after, "stored")
    steps = [
        (at, sum(moment.record.outcome["scheduled"].values()))
        for at, moment in enumerate(moments)
        if isinstance(moment.event, Schedule) and moment.record.outcome is not None
    ]
    assert [*group(shown, "Scheduler").charts[0].points] == steps


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_of_a_kv_cache_manager_are_counted(seed: int) -> None:
    trace = kv_cache_trace(seed)
    moments, _ = run_of(trace, IDEAL)
    blocks = group(drawn(trace), "KV blocks")
    free, tables = trace.header.config.num_blocks - 1, {}  # type: ignore[union-attr]
    for at, moment in enumerate(moments):
        changed = {} if moment.record.outcome is None else moment.record.outcome["changed"]
        free = changed.get("free", free)
        tables |= changed.get("tables", {})
        having = {
            name
            for name, groups in tables.items()
            if groups and any(any(numbers) for numbers, _ in groups)
        }
        assert value_at(blocks.charts[0], at) == free
        assert kinds_at(blocks, at).keys() == having
    assert blocks.rows


@pytest.mark.parametrize("make", [of_manager, scheduler_trace, kv_cache_trace])
def test_spans_of_a_row_are_in_order(make: Callable[[int], Trace]) -> None:
    for seed in SEEDS:
        shown = drawn(make(seed))
        for one in shown.groups:
            for each in one.rows:
                assert are_in_order(each.spans)
                assert are_in_order(each.over)
                assert [*each.marks] == sorted(each.marks, key=lambda mark: mark.event)


def test_a_window_of_a_run_shows_what_the_whole_run_shows_there() -> None:
    trace = scheduler_trace(3)
    moments, result = run_of(trace, IDEAL)
    first = len(moments) // 2
    whole = drawn(trace)
    window = timeline(trace.header, moments[first:], (), target="reference", first=first)
    assert window.first == first
    assert [one.words for one in window.events] == [one.words for one in whole.events[first:]]
    # What nobody tells in the window is not known there: who stands how, until a step says it.
    settled = next(
        at
        for at in range(first, len(moments))
        if isinstance(moments[at].record.outcome, dict) and "running" in moments[at].record.outcome
    )
    for name in ("Requests", "Encoder cache", "Worker's store"):
        for at in range(settled, len(moments)):
            here, there = group(window, name), group(whole, name)
            assert kinds_at(here, at - first) == kinds_at(there, at), (name, at)
    assert len(result.records) == len(moments)


def test_a_judge_that_goes_on_gives_the_moments_of_a_window() -> None:
    trace = scheduler_trace(3)
    moments, result = run_of(trace, IDEAL)
    judge = judge_of(trace, None, IDEAL.protocol, Reachability())
    told = [
        judged(judge, number, event, record)
        for number, (event, record) in enumerate(zip(trace.events, result.records, strict=True))
    ]
    assert told == moments


def test_what_is_broken_outside_a_window_is_left_out() -> None:
    trace = needed_entry(*STEP, *STEP)
    moments, result = run_of(trace, FAULTY)
    broken = broken_by(examine(trace, result, FAULTY).violations.values())
    assert [one.event for one in broken] == [8, 9]
    inside = timeline(trace.header, moments[9:], broken, target="a", first=9)
    assert [one.event for one in inside.broken] == [9]
    assert timeline(trace.header, moments[:8], broken, target="a").broken == ()


def test_the_subject_comes_first_and_a_difference_is_one_of_them() -> None:
    trace = needed_entry()
    _, result = run_of(trace, FAULTY)
    violations = examine(trace, result, FAULTY).violations.values()
    difference = Difference(5, 1, "can", "answer", True, False)
    found = broken_by(violations, difference, "EC-6")
    assert [one.contract for one in found] == ["EC-6", "EC-6a", "lockstep"]
    assert found[2].why == "answer: reference True, target False"


def test_an_events_calls_and_changes_are_in_words() -> None:
    shown = drawn(needed_entry(), FAULTY).events[5]
    assert shown.words == "2 tokens of a are scheduled"
    said = {call.operation: call for call in shown.calls}
    assert said["can"].asked == "a, item 0 (y), budget 9, pending 0"
    assert said["can"].change == "free 9, freeable 9; x evicted; queue empty; to report x"
    assert ("holders of y", "-", "{a}") in shown.changes


def test_an_exception_is_told() -> None:
    trace = needed_entry()
    moments, _ = run_of(trace, IDEAL)
    record = moments[-1].record._replace(raised=Raised("KeyError", "no\x1b[31m such"))
    moments[-1] = replace(moments[-1], record=record)
    last = timeline(trace.header, moments, (), target="a").events[-1]
    assert last.words.endswith("; raises KeyError: no\\x1b[31m such")


def test_no_text_has_a_character_that_does_anything() -> None:
    trace = needed_entry(item="x\u202e\x1b[31m\u2028<b>")
    shown = drawn(trace, FAULTY)
    texts = msgspec.json.encode(shown).decode()
    assert texts.isprintable()
    assert "x\\\\u202e\\\\x1b[31m\\\\u2028<b>" in texts


def test_a_text_that_nobody_reads_to_its_end_is_cut() -> None:
    assert cut("x" * CHARACTERS_MAX) == "x" * CHARACTERS_MAX
    assert cut("x" * (CHARACTERS_MAX + 2)).endswith("x ... (2 characters more)")


def test_a_depth_without_lanes_is_refused_in_one_line() -> None:
    with pytest.raises(InputError) as refusal:
        require_timeline(block_hash_trace(0).header, [1], "trace.jsonl")
    assert str(refusal.value) == (
        "trace.jsonl: a block_hash-depth trace has no timeline; expected one of manager, "
        "scheduler, engine, kv_cache"
    )


def test_a_trace_without_events_is_refused() -> None:
    header = needed_entry().header
    with pytest.raises(InputError, match="has no events"):
        timeline(header, [], (), target="a")


def test_depths_that_have_a_timeline_say_so() -> None:
    assert {name for name, one in DEPTHS.items() if one.has_timeline} == {
        "manager",
        "scheduler",
        "engine",
        "kv_cache",
    }


def test_steps_of_a_manager_count_what_was_walked() -> None:
    shown = drawn(needed_entry(), MENDED)
    assert group(shown, "Scheduler").charts[0].points == ((3, 9),)
    assert row(shown, "Requests", "b").over[0].words == "scheduled: 9 tokens"


def test_a_request_that_is_preempted_waits_again() -> None:
    trace = needed_entry(
        events.Add("c", prompt=4), events.Walk("c", tokens=2), *STEP, events.Preempt("c"), *STEP
    )
    trace = trace.with_events((*trace.events, *STEP, events.Finish("c")))
    found = row(drawn(trace), "Requests", "c")
    assert marks(found) == [(0, "arrives"), (4, "preempted"), (15, "ends")]
    assert [(span.kind, span.start, span.end) for span in found.spans] == [
        ("waiting", 0, 1),
        ("running", 1, 4),
        ("waiting", 4, 15),
    ]


def test_a_request_that_no_step_can_hold_ends() -> None:
    found = row(drawn(needed_entry(second=6)), "Requests", "b")
    assert marks(found) == [(1, "arrives"), (2, "ends")]
