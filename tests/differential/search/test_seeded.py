"""Seeded searches over the reference and over variants of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics

LANE = LANES["encoder cache"]
MANAGER_LANES = [lane for lane in LANES.values() if lane.depth == "manager"]
SEEDS = range(60)


class Faulty(ReferenceTarget):
    """The reference with one of the planted faults in every trace."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return super().run(traces, "leaks_a_slot")


class Refusing(ReferenceTarget):
    """Refuses every trace."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return [TraceResult([], illegal="not today") for _ in traces]


class Forgetting(ReferenceTarget):
    """Leaves out the last record of every trace."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return [TraceResult(result.records[:-1]) for result in super().run(traces)]


def test_the_reference_holds_and_every_seed_is_searched_in_every_lane() -> None:
    outcome = search(ReferenceTarget(), MANAGER_LANES, against=ReferenceTarget(), seeds=SEEDS)
    assert [report.traces for report in outcome.lanes] == [len(SEEDS)] * len(MANAGER_LANES)
    assert outcome.breaks == []
    assert outcome.harness_errors == []
    assert outcome.calls == sum(report.calls for report in outcome.lanes) > 10_000


def test_the_same_seeds_give_the_same_search() -> None:
    first, again = (search(Faulty(), [LANE], against=None, seeds=SEEDS) for _ in range(2))
    assert first.broken == again.broken
    assert [b.sentence for b in first.breaks] == [b.sentence for b in again.breaks]


def test_of_what_breaks_often_every_break_is_counted_and_a_few_are_kept() -> None:
    outcome = search(Faulty(), [LANE], against=None, seeds=SEEDS, kept_per_break=2)
    assert outcome.broken["EC-1", LANE.name] > 10
    kept = [one for one in outcome.breaks if one.contract == "EC-1"]
    assert len(kept) == 2
    assert kept[0].trace.header.seed in SEEDS


def test_a_fault_differs_from_the_reference_as_well() -> None:
    outcome = search(Faulty(), [LANE], against=ReferenceTarget(), seeds=SEEDS)
    assert outcome.broken["lockstep", LANE.name] > 10


def test_refused_traces_are_counted_by_reason_and_never_judged() -> None:
    outcome = search(Refusing(), [LANE], against=None, seeds=SEEDS)
    assert outcome.lanes[0].illegal == {"not today": len(SEEDS)}
    assert outcome.calls == 0


def test_records_that_are_missing_are_a_harness_error_and_no_finding() -> None:
    outcome = search(Forgetting(), [LANE], against=ReferenceTarget(), seeds=SEEDS)
    assert outcome.breaks == []
    assert any("records for" in error for error in outcome.harness_errors)


def test_rare_states_that_were_not_met_are_named() -> None:
    few = search(ReferenceTarget(), [LANE], against=None, seeds=range(1)).lanes[0]
    many = search(ReferenceTarget(), [LANE], against=None, seeds=SEEDS).lanes[0]
    assert few.never_met != []
    assert many.never_met == []


@pytest.mark.parametrize("lane", LANES)
def test_a_lanes_seed_gives_one_trace(lane: str) -> None:
    make: Any = LANES[lane].make
    assert make(7) == make(7)
    assert make(7) != make(8)


def test_an_error_of_the_target_itself_is_reported_and_the_search_gives_up() -> None:
    class Broken(ReferenceTarget):
        def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
            raise HarnessError("it is gone")

    outcome = search(Broken(), [LANE], against=None, seeds=range(5000))
    assert outcome.harness_errors[0] == "encoder cache, from seed 0: it is gone"
    assert len(outcome.harness_errors) < 10


def test_a_lane_is_about_what_some_releases_do_not_have() -> None:
    lane = LANES["scheduler with loads"]
    assert lane.is_offered_by("0.12.0")
    assert lane.is_offered_by(None)
    assert not lane.is_offered_by("0.11.0")
    assert LANES["scheduler"].is_offered_by("0.8.5")


def test_a_cause_is_asked_for_in_the_first_traces_and_whether_the_target_parts_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    told = Attribution._told

    def counted(self: Attribution, run: Any, broken: tuple[str, str], *others: Any) -> Attributed:
        asked.append(broken[0])
        return told(self, run, broken, *others)

    monkeypatch.setattr(Attribution, "_told", counted)
    release = "0.31.0"
    model = ReferenceTarget(Semantics.of_vllm(release), release=release)
    known = [one for one in load() if one.name == "same-step"]
    whole, some = (
        search(
            model,
            [LANE],
            against=None,
            seeds=SEEDS,
            attribution=Attribution(known, release, model),
            causes_max=most,
        )
        for most in (None, 2)
    )
    assert whole.broken["EC-6a", LANE.name] > 4
    assert asked.count("EC-6a") == whole.broken["EC-6a", LANE.name] + 2
    assert [one.attributed for one in whole.breaks] == [one.attributed for one in some.breaks]
