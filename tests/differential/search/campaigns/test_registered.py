"""A campaign that begins with a register: its traces come first, and its faults have a history."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import pytest

from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.findings.finding import LOCKSTEP, Finding, found_in
from cacheproof.differential.findings.identity import identity_of
from cacheproof.differential.findings.register import FaultRecord, record_of
from cacheproof.differential.lanes.all_lanes import lane_called
from cacheproof.differential.search import verdict
from cacheproof.differential.search.campaigns import reporting
from cacheproof.differential.search.campaigns.faults import OfTarget, faults_of
from cacheproof.differential.search.campaigns.merging import merge_stores
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.reporting import fault_of
from cacheproof.differential.search.campaigns.running import replays_in
from cacheproof.differential.search.campaigns.store import REPLAY, CampaignTarget
from cacheproof.differential.search.seeded import search
from cacheproof.differential.search.work import ReplayTask
from cacheproof.differential.targets.reference import ReferenceTarget
from tests.differential.search.campaigns.conftest import Faulty

LANE = "encoder-decoder"
PLAN = CampaignPlan(targets=("reference",), lanes=(LANE,), seeds="0:4", shard_seeds=4)
LATER = msgspec.structs.replace(PLAN, seeds="4:8")
BOTH = msgspec.structs.replace(PLAN, seeds=("0:4", "4:8"))
DAY = "1970-01-01"
"""Before the clock of the rig."""


@cache
def found() -> Finding:
    """What breaks ED-5 in the faulty target."""
    target = Faulty()
    searched = search(target, [lane_called(LANE)], against=None, seeds=range(4))
    (broken, *_) = [one for one in searched.breaks if one.contract == "ED-5"]
    small = found_in(target, broken.trace, "ED-5", kind=broken.kind, times=1)
    assert small is not None
    return small


@pytest.fixture
def record() -> FaultRecord:
    return record_of(found(), LANE, DAY)


def fault(document: dict[str, Any], record: FaultRecord) -> dict[str, Any]:
    (one,) = [one for one in document["faults"] if one["identity"] == record.identity]
    return one


def test_the_traces_of_the_register_come_before_all_else(rig, record: FaultRecord) -> None:
    store = rig.store(PLAN, records=[record])
    crew = rig.run(store)
    assert isinstance(crew.done[0], ReplayTask)
    assert sum(isinstance(one, ReplayTask) for one in crew.done) == 1
    one = fault(rig.document(store), record)
    assert (one["was"], one["status"]) == ("new", "new")
    assert one["targets"]["reference"]["breaks"]


def test_what_no_seed_meets_is_found_by_its_trace(rig, record: FaultRecord) -> None:
    plan = msgspec.structs.replace(PLAN, lanes=(), seeds="0:1", shard_seeds=1)
    rig.target = OnlySmall(len(record.events))
    alone, with_it = rig.store(plan), rig.store(plan, records=[record])
    for store in (alone, with_it):
        rig.run(store)
    assert rig.document(alone)["exit_code"] == verdict.HOLDS
    assert rig.document(with_it)["exit_code"] == verdict.UNLISTED


class OnlySmall(ReferenceTarget):
    """Faulty on traces of so many events at most."""

    def __init__(self, events_max: int) -> None:
        super().__init__()
        self._events_max = events_max

    def run(self, traces, fault=None):
        return [
            super(OnlySmall, self).run(
                [one], fault or ("leaks_a_slot" if len(one.events) <= self._events_max else None)
            )[0]
            for one in traces
        ]

    def another(self):
        return self


@pytest.mark.sample(2)
def test_a_fault_that_holds_by_now_is_mended_and_the_digest_is_another(rig, record) -> None:
    broken = rig.store(PLAN, records=[record])
    rig.run(broken)
    rig.target = ReferenceTarget()
    mended = rig.store(PLAN, records=[record])
    rig.run(mended)
    one = fault(rig.document(mended), record)
    assert (one["was"], one["status"]) == ("new", "mended")
    assert one["targets"] == {"reference": {"breaks": False, "events": None}}
    assert rig.document(mended)["digest"] != rig.document(broken)["digest"]
    alone = rig.store(PLAN)
    rig.run(alone)
    assert rig.document(alone)["digest"] != rig.document(mended)["digest"]


@pytest.mark.sample(2)
def test_a_campaign_with_a_register_that_is_killed_comes_to_the_same(
    rig, record: FaultRecord
) -> None:
    whole = rig.store(PLAN, records=[record])
    rig.run(whole)
    store = rig.store(PLAN, records=[record])
    for killed_at in (0, 1, 2, 3):
        rig.run(store, killed_at=killed_at, workers=3)
        left = rig.document(store)["targets"][0]["void_because"]
        assert re.search(r"^only .* shards are done$| is left to be done$", left[0])
    rig.run(store)
    assert rig.document(store) == rig.document(whole)


@pytest.mark.full
def test_stores_that_began_with_one_register_are_merged(rig, record: FaultRecord) -> None:
    places = []
    for plan in (PLAN, LATER):
        places.append(rig.place())
        own = replace(rig, place=lambda: places[-1])
        store = own.store(plan, records=[record])
        own.run(store)
    merged = merge_stores(*places, None, 1e12)
    assert merged.both == 0
    into = replace(rig, place=lambda: places[0])
    store = reporting.CampaignStore(places[0])
    into.run(store)
    whole = rig.store(BOTH, records=[record])
    rig.run(whole)
    assert rig.document(store) == rig.document(whole)


def test_stores_that_began_with_two_registers_are_not_merged(rig, record: FaultRecord) -> None:
    places = [rig.place(), rig.place()]
    for place, records in zip(places, ([record], []), strict=True):
        replace(rig, place=lambda place=place: place).store(PLAN, records=records)
    with pytest.raises(InputError, match="the registers that they began with differ"):
        merge_stores(*places, None, 1e12)


@pytest.mark.full
def test_a_trace_of_the_register_ends_no_search(rig, record: FaultRecord) -> None:
    plan = CampaignPlan(targets=("reference",), until="first-unlisted", shard_seeds=1)
    store = rig.store(plan, records=[record])
    assert rig.run(store).searched


class Breaking(ReferenceTarget):
    """Its host breaks over any trace that is as small as one of a register."""

    def run(self, traces, fault=None):
        if fault is None and len(traces) == 1:
            raise HarnessError("the host ended")
        return super().run(traces, fault)

    def another(self):
        return self


def test_a_trace_that_cannot_be_run_makes_the_campaign_void_until_it_is(rig, record) -> None:
    rig.target = Breaking()
    store = rig.store(PLAN, records=[record])
    rig.run(store)
    (void, *_) = rig.document(store)["targets"][0]["void_because"]
    assert void == f"harness error: trace of {record.name}: the host ended"
    rig.target = ReferenceTarget()
    store.try_again(rig.clock.now())
    rig.run(store)
    assert rig.document(store)["targets"][0]["void_because"] == []
    assert fault(rig.document(store), record)["status"] == "mended"


def test_only_traces_that_a_target_can_answer_are_asked(record: FaultRecord) -> None:
    about = CampaignTarget("reference", None, "", False, False, (LANE,))
    other = msgspec.structs.replace(record, lane="encoder cache")
    parts = msgspec.structs.replace(record, contract=LOCKSTEP)
    assert [one.number for one in replays_in(0, about, [other, parts, record])] == [0]
    compared = msgspec.structs.replace(about, compared=True)
    jobs = replays_in(0, compared, [other, parts, record])
    assert [(one.kind, one.number) for one in jobs] == [(REPLAY, 0), (REPLAY, 1)]


def test_what_is_listed_never_stands_for_what_is_not() -> None:
    unlisted = found()
    listed = unlisted.annotated(None, "a note", "repeated-item")
    assert identity_of(listed) == identity_of(unlisted)
    assert fault_of(listed) != fault_of(unlisted)


@pytest.fixture
def of_two_targets(record: FaultRecord) -> Callable[..., Any]:
    """What a fault comes to that one target has and another, with no finding, may have."""

    def told(other_breaks: bool) -> Any:
        seen = msgspec.structs.replace(
            record.first, target="vllm@0.33.0", release="0.33.0", breaks=other_breaks
        )
        other = msgspec.structs.replace(record, sightings=(seen,))
        targets = [
            OfTarget("reference", [record], [found()]),
            OfTarget("vllm@0.33.0", [other], []),
        ]
        (one,) = faults_of({}, targets)
        return one

    return told


@pytest.mark.parametrize(("breaks", "status"), [(True, "new"), (False, "mended")])
def test_a_fault_of_several_targets_is_one(of_two_targets, breaks: bool, status: str) -> None:
    one = of_two_targets(breaks)
    assert one.breaks == {"reference": True, "vllm@0.33.0": breaks}
    assert one.smallest("reference") == found()
    assert one.smallest("vllm@0.33.0") is None
    assert one.status == status
