"""An audit of a KV cache manager's calls comes to the harness's own verdict."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.audit.kv_cache import KVAudit
from cacheproof.differential.audit.kv_judging import AuditKVJudge
from cacheproof.differential.audit.silence import KV_NEVER_JUDGED
from cacheproof.differential.judges.kv_cache import MANAGER
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.recording.kv_cache import in_parts
from cacheproof.differential.recording.kv_reading import queue_after, tables_after, tables_change
from cacheproof.differential.recording.messages import KV_OPERATIONS, KVCalls, KVState
from cacheproof.differential.targets.host.faults.kv_cache import KV_CACHE_FAULTS
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.spec.registry import contracts
from cacheproof.spec.versions import Versions
from tests.differential.audit.spoiled import audit, file_of, parts_of, records_of
from tests.differential.recording.driven import (
    Driven,
    found_by,
    kv_audited,
    kv_messages,
    long_trace,
    run_recorded,
    whole_traces,
)

STATE_EVENTS = 2
INSTALLED = {release.version for release in releases.list_installed()}
OLDER = [
    pytest.param(release, marks=[pytest.mark.full] if release != "0.28.0" else [])
    for release in MODELLED
    if release in INSTALLED | {"0.28.0"} and release != NEWEST and release in Versions(">=0.14.0")
]
IN_A_SCHEDULER = {
    "hands_out_a_shared_block": "KV-2",
    "hands_out_what_was_used_last": "BP-7",
    "leaks_a_block": "BP-3",
    "frees_the_first_block_first": "BP-5",
    "refuses_every_third_time": "KV-7",
    "takes_a_block_away": "KV-5",
    "takes_a_block_too_many": "KV-6",
}
SEEN_BY_NO_AUDIT = {"measures_no_hit": "KV-15", "names_no_items": "BP-11"}
"""Planted faults that break one contract alone, of which no record can say anything."""


def kv_traces(release: str, count: int) -> Iterator[Trace]:
    """Of each lane of KV cache managers the first traces."""
    for lane in LANES.values():
        if lane.depth == "kv_cache" and lane.is_offered_by(release, frozenset({"vllm"})):
            yield from (lane.trace(seed, release) for seed in range(count))


def differing(driven: Iterable[Driven]) -> list[str]:
    """Where the audit of a record says something else than the harness, or judges less."""
    found = []
    for one in driven:
        ended, broken, missing = kv_audited(one)
        harness = one.harness() - KV_NEVER_JUDGED
        if set(broken) != harness or missing or not ended.calls == ended.judged > 0:
            found.append(f"{one.folder}: {one.fault}: {sorted(set(broken) ^ harness)}")
    return found


def calls_of(one: Driven, operation: str) -> list[Any]:
    number = KV_OPERATIONS.index(operation)
    messages = [message for message in kv_messages(one) if isinstance(message, KVCalls)]
    return [call for message in messages for call in message.calls if call[0] == number]


@pytest.mark.full
@pytest.mark.parametrize("release", [NEWEST, *OLDER])
def test_the_audit_of_a_record_is_the_harness_s_verdict(release: str, tmp_path: Path) -> None:
    runs = [(trace, None) for trace in kv_traces(release, 12)]
    driven = run_recorded(release, runs, tmp_path, STATE_EVENTS)
    assert len(driven) > 8
    assert differing(driven) == []


@pytest.mark.full
def test_what_the_pool_s_calls_say_is_all_that_changed(tmp_path: Path) -> None:
    runs = [(trace, None) for trace in kv_traces(NEWEST, 12)]
    for one in run_recorded(NEWEST, runs, tmp_path, 1):
        assert calls_of(one, "read") == []


@pytest.mark.full
@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.sample(12)) for name in KV_CACHE_FAULTS]
)
def test_a_planted_fault_is_found_as_the_harness_finds_it(fault: str, tmp_path: Path) -> None:
    traces = list(kv_traces(NEWEST, 12))
    runs = [(trace, named) for named in (None, fault) for trace in traces]
    driven = run_recorded(NEWEST, runs, tmp_path, STATE_EVENTS)
    assert differing(driven) == []
    found = {
        named: {
            (one.trace.header.generator, one.trace.header.seed, contract)
            for one in driven
            if one.fault == named
            for contract in kv_audited(one)[1]
        }
        for named in (None, fault)
    }
    assert bool(found[fault] - found[None]) == (fault not in {"nothing", *SEEN_BY_NO_AUDIT})


def test_what_no_record_can_say_is_not_told_as_judged(right: Driven) -> None:
    (ended, _, _) = kv_audited(right)
    assert set(SEEN_BY_NO_AUDIT.values()) == KV_NEVER_JUDGED
    assert KV_NEVER_JUDGED.isdisjoint(rule.id for rule in ended.rules)
    assert {rule.id for rule in contracts(MANAGER, NEWEST)} >= KV_NEVER_JUDGED


@pytest.mark.full
def test_every_call_that_a_scheduler_makes_is_judged_and_nothing_is_broken(tmp_path: Path) -> None:
    runs = [(trace, None) for trace in [*whole_traces(NEWEST, 2), long_trace(4)]]
    for one in run_recorded(NEWEST, runs, tmp_path, 7, with_kv=True):
        ended = one.audited()
        assert ended.kv.calls == ended.kv.judged > 0, one.trace.header
        assert found_by(ended) == one.harness() - ended.silent
        assert ended.account.gaps == []


def test_a_fault_in_a_scheduler_s_kv_cache_is_named(tmp_path: Path) -> None:
    runs = [(long_trace(4), f"kv: {fault}") for fault in IN_A_SCHEDULER]
    driven = run_recorded(NEWEST, runs, tmp_path, with_kv=True)
    for one, contract in zip(driven, IN_A_SCHEDULER.values(), strict=True):
        assert contract in found_by(one.audited()), (one.fault, found_by(one.audited()))


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    """A record of a right scheduler, with a state every few steps."""
    folder = tmp_path_factory.mktemp("right")
    (driven,) = run_recorded(NEWEST, [(long_trace(6), None)], folder, 7, with_kv=True)
    return driven


@pytest.mark.full
def test_after_a_gap_judging_goes_on_at_the_next_state(right: Driven) -> None:
    records = records_of(right.folder)
    ended = audit(parts_of(file_of(records, missing=64)), skips=True)
    resumed = next(place for place, one in enumerate(records) if place > 72 and one[0] == "v")
    unjudged = sum(len(one[1]) for one in records[72:resumed] if one[0] == "c")
    assert ended.kv.calls - ended.kv.judged == unjudged > 0
    assert found_by(ended) == set()


@pytest.mark.full
def test_an_audit_begins_at_any_state(right: Driven) -> None:
    records = records_of(right.folder)
    places = [place for place, one in enumerate(records) if one[0] == "k"][1:]
    for place in places:
        ended = audit(parts_of(file_of([records[0], *records[place:]])), skips=True)
        assert ended.kv.calls == ended.kv.judged > 0
        assert (found_by(ended), ended.account.gaps) == (set(), [])
    assert len(places) > 5


@pytest.mark.full
def test_a_beginning_that_forgets_what_is_cached_cries_wolf(
    right: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in = AuditKVJudge.take_in

    def forgetful(self: AuditKVJudge, state: KVState) -> None:
        state.changed.pop("map", None)
        take_in(self, state)

    monkeypatch.setattr(AuditKVJudge, "take_in", forgetful)
    with pytest.raises(AssertionError):
        test_an_audit_begins_at_any_state(right)


def test_a_state_that_shows_something_else_than_the_calls_before_it_is_a_gap(
    right: Driven,
) -> None:
    records = records_of(right.folder)
    (_, place, *_) = [place for place, one in enumerate(records) if one[0] == "v"]
    records[place][3]["free"] -= 1
    last = next(number for number in range(place, len(records)) if records[number][-1] is False)
    (gap, *_) = audit(parts_of(file_of(records)), skips=True).account.gaps
    assert gap == f"KV cache, record {last}: a state shows other free than the records before it"


def test_a_block_that_nobody_was_asked_about_and_that_changed_is_found(right: Driven) -> None:
    records = records_of(right.folder)
    (place, *_) = [place for place, one in enumerate(records) if one[0] == "c"]
    read = [KV_OPERATIONS.index("read"), None, None, {}, None, {"refs": {"19": 1}}, None]
    records[place][1].append(read)
    assert {"BP-1", "BP-3"} <= found_by(audit(parts_of(file_of(records)), skips=True))


def test_a_pool_that_others_use_is_a_gap(right: Driven) -> None:
    records = records_of(right.folder)
    (place, *_) = [place for place, one in enumerate(records) if one[0] == "c"]
    touch = [KV_OPERATIONS.index("pool"), None, None, {"method": "touch"}, None, None, None]
    records[place][1].append(touch)
    (gap,) = audit(parts_of(file_of(records)), skips=True).account.gaps
    assert gap.endswith("touch: the block pool is used beside its manager")


def test_what_no_contract_follows_is_said() -> None:
    state = KVState({}, ["KV cache groups of other kinds"], {}, [], [], [], False)
    audit = KVAudit()
    assert audit.follow(state, NEWEST, dict.clear) == ""
    assert audit.unjudged == {"KV cache groups of other kinds"}
    call = (KV_OPERATIONS.index("free"), 1, None, {}, None, None, None)
    assert audit.follow(KVCalls([call]), NEWEST, dict.clear) == ""
    assert audit.calls == audit.judged == 0


@pytest.mark.full
def test_a_release_whose_kv_cache_no_audit_follows_is_recorded_without_it(tmp_path: Path) -> None:
    (driven,) = run_recorded("0.13.0", [(long_trace(2), None)], tmp_path, with_kv=True)
    ended = driven.audited()
    assert ended.account.unjudged == {"a KV cache manager before vLLM 0.14.0"}
    assert (ended.kv.calls, ended.account.gap_count) == (0, 0)
    assert ended.account.judged_steps == ended.account.steps > 0


def test_no_record_is_longer_than_a_file_takes() -> None:
    parts = list(in_parts([[1] * 60_000, [2] * 60_000, [3] * 200_000, [4]], len))
    assert [[one[0] for one in part] for part in parts] == [[1], [2], [3], [4]]
    assert list(in_parts([[1], [2]], len)) == [[[1], [2]]]


def test_a_queue_and_tables_after_a_change() -> None:
    assert queue_after([1, 2, 3], [[2], [4], [5, 2]]) == [4, 1, 3, 5, 2]
    assert queue_after([1, 2, 3], [None, [3], []]) == [3]
    with pytest.raises(ValueError, match="leave a queue without them"):
        queue_after([1], [[2], [], []])
    before = {"r1": [[[1, 2], 1], [[3], None]], "r2": [[[4], 1], [[], None]]}
    after = {"r1": [[[1, 5, 6], 2], [[3], None]], "r2": None}
    change = tables_change(before, after)
    assert change == {"r1": [[1, [5, 6], 2], [1, [], None]], "r2": None}
    had = {name: [blocks for blocks, _ in tables] for name, tables in before.items()}
    assert tables_after(had, change) == after
    with pytest.raises(ValueError, match="blocks of r3 stay"):
        tables_after(had, {"r3": [[1, [], None], [0, [], None]]})
