"""A search by the clock ends by the clock, and says what it had no time for."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search import canary, seeded
from cacheproof.differential.search.canary import Canary, Planting, plant
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import NEWEST
from cacheproof.search import search_run
from tests.front.conftest import Run

OF_THE_FIRST = (
    "import time\n"
    "from cacheproof.reference.encoder_cache import EncoderCacheManager\n"
    "class Mine(EncoderCacheManager):\n"
)
STUCK = f"{OF_THE_FIRST}    def can_allocate(self, *arguments):\n        time.sleep(3600)\n"
FAULTY = (
    f"{OF_THE_FIRST}    def can_allocate(self, request, input_id, budget, pending):\n"
    "        return super().can_allocate(request, input_id, 10 ** 6, pending)\n"
)
FUZZ = "fuzz", "--target", f"mine:Mine@{NEWEST}", "--depth", "manager", "--json", "-"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a plug-in in the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


def test_a_call_that_never_returns_does_not_keep_a_search(mine: Path, run_process: Run) -> None:
    mine.write_text(STUCK)
    ran = run_process(*FUZZ, "--seconds", "2")
    assert ran.code == 3
    told = json.loads(ran.out)
    assert told["void_because"] == ["within 2 s no fault was planted", "no trace was judged"]
    assert told["left_undone"] == {"planted faults": told["left_undone"]["planted faults"]}
    assert "planted faults had their turn" in told["verdict"]
    assert told["next"].startswith("give it more time, with --seconds")


def test_a_call_that_never_returns_does_not_keep_a_review(
    mine: Path, tmp_path: Path, run_process: Run
) -> None:
    mine.write_text(STUCK)
    both = "--base", f"reference@{NEWEST}", "--head", f"mine:Mine@{NEWEST}", "--depth", "manager"
    file = tmp_path / "review.json"
    ran = run_process("review", *both, "--seconds", "2", "--json", str(file))
    assert ran.code == 3
    told = json.loads(file.read_text())
    assert told["void_because"] == ["no call was judged", "within 2 s no fault was planted"]
    (left,) = (line for line in told["not_looked_at"] if line.startswith("The seconds did not"))
    assert "planted faults" in left


def test_what_breaks_and_is_not_small_in_time_is_no_green(
    mine: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.write_text(FAULTY)
    monkeypatch.setattr(search_run.SearchRun, "_written", lambda *_: None)  # none comes in time
    ran = run(*FUZZ, "--seconds", "6", "--findings", "found", "--workers", "1")
    assert ran.code == 3
    told = json.loads(ran.out)
    (why,) = [one for one in told["void_because"] if "EC-12" in one]
    assert why.startswith("within 6 s what breaks ")
    assert why.endswith(" may be new, and was not minimised")
    assert told["findings"] == []


def test_planting_runs_a_trace_without_a_fault_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, target = LANES["encoder cache"], ReferenceTarget()
    runs: list[tuple[Trace, str | None]] = []
    run_of = target.run

    def counted(traces: list[Trace], fault: str | None = None) -> list[TraceResult]:
        runs.extend((one, fault) for one in traces)
        return run_of(traces, fault)

    monkeypatch.setattr(target, "run", counted)
    some = canary.canaries_in(lane, target)
    assert all(plant(some, target, lane).values())
    without = [trace.header.seed for trace, fault in runs if fault is None]
    assert len(without) == len(set(without)) < len(some)


def test_a_judge_that_seeks_one_contract_stops_where_it_breaks_and_finds_no_less() -> None:
    lane, target = LANES["scheduler"], ReferenceTarget()
    stopped = 0
    for one in canary.canaries_in(lane, target):
        sought = one.contract, one.kind
        for trace in (lane.trace(seed, NEWEST) for seed in range(3)):
            (result,) = target.run([trace], one.fault)
            whole = examine(trace, result, target)
            seen = examine(trace, result, target, sought=sought)
            assert (sought in seen.by_kind) == (sought in whole.by_kind)
            assert seen.by_kind.items() <= whole.by_kind.items()
            stopped += seen.calls < whole.calls
    assert stopped > 10


def test_no_fault_is_planted_after_the_end() -> None:
    lane, target = LANES["encoder cache"], ReferenceTarget()
    one = Canary("EC-1", "leaks_a_slot")
    traces = [lane.trace(seed, NEWEST) for seed in range(5)]
    assert Planting(target, traces).finds(one, time.monotonic()) is None
    assert Planting(target, traces).finds(one, math.inf) is True
    assert plant([one], target, lane, time.monotonic()) == {}


def test_no_batch_is_begun_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, target = LANES["encoder cache"], ReferenceTarget()
    batches = iter([0.0, 0.0, 1.0])
    clock = type("Clock", (), {"monotonic": staticmethod(lambda: next(batches, 1.0))})
    monkeypatch.setattr(seeded, "time", clock)
    outcome = search(target, [lane], against=None, seeds=range(50), until=1.0)
    assert outcome.lanes[0].traces == seeded.BATCH_TRACES


def test_faults_of_all_lanes_have_their_turn() -> None:
    lanes, target = [LANES["encoder cache"], LANES["scheduler"]], ReferenceTarget()
    turns = [lane.name for lane, _ in canary.plantings_in_turns(lanes, target)]
    assert turns[:4] == ["encoder cache", "scheduler"] * 2
    planted = [one for _, some in canary.plantings_in_turns(lanes, target) for one in some]
    assert len(planted) == sum(len(canary.canaries_in(lane, target)) for lane in lanes)


def test_faults_that_had_no_turn_are_left_undone_and_not_missed(
    mine: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.write_text(f"{OF_THE_FIRST}    pass\n")
    took: list[str] = []
    update = search_run.SearchRun.finish

    def out_of_time_after_a_planting(self: search_run.SearchRun, ended: Any) -> None:
        update(self, ended)
        took.extend(due.kind for (_, due), _, _ in ended)
        if "Plant" in took:
            self.seconds = -1.0

    monkeypatch.setattr(search_run.SearchRun, "finish", out_of_time_after_a_planting)
    ran = run(*FUZZ, "--seconds", "600", "--seeds", "0:5", "--workers", "1")
    told = json.loads(ran.out)
    assert told["void_because"] == []
    assert told["left_undone"]["planted faults"] > 0
    assert told["canaries"]
    assert all(told["canaries"].values())
