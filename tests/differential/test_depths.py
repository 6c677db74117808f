"""A depth is its own modules and one line: a toy of one, searched, judged, minimised and shown."""

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest
from rich.console import Console

from cacheproof.differential import roles
from cacheproof.differential.depths import DEPTHS, Depth, part
from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.findings.report import print_finding
from cacheproof.differential.findings.standalone.writing import standalone_test, why_none
from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.violation import Violation, by_kind
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import SCHEMA, Event
from cacheproof.differential.traces.records import StepRecord, TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump, parse
from cacheproof.spec.registry import by_id

ROOT = Path(__file__).parents[2]
ANSWERS = by_id("SC-12")
"""Any contract will do: the toy's is that a count does not come to three."""


class Tick(Event, frozen=True, tag="tick"):
    count: int


class ToyConfig(msgspec.Struct, frozen=True):
    """Nothing is set."""


class ToyHeader(msgspec.Struct, frozen=True, tag_field="depth", tag="toy"):
    schema: int
    config: ToyConfig
    manager: Literal["toy"] = "toy"
    seed: int | None = None
    generator: str | None = None


class ToyJudge:
    state = None
    calls_judged = resident_sum = 0

    def __init__(self, *_: Any) -> None:
        self.stored: dict[str, int] = {}
        self.violations: dict[str, Violation] = {}

    @property
    def by_kind(self) -> dict[tuple[str, str], Violation]:
        return by_kind(self.violations)

    def judge(self, number: int, event: Any, record: Any) -> None:
        if record.outcome >= 3:
            self.violations.setdefault(
                ANSWERS.id,
                Violation(ANSWERS, number, "tick", "", "", f"{record.outcome} < 3 is false"),
            )


def run(target: Any, trace: Any, fault: str | None) -> TraceResult:
    return TraceResult([StepRecord(event.count, [], None, None) for event in trace.events])


def trace_of(seed: int) -> Any:
    events = [Tick(count) for count in range(seed % 7)]
    return Trace(ToyHeader(SCHEMA, ToyConfig(), seed=seed), tuple(events))  # type: ignore[arg-type]


TOY = Depth(
    traces=SimpleNamespace(HEADER=ToyHeader, EVENTS=(Tick,)),
    lanes=(SimpleNamespace(LANES=(Lane("toy", "toy", "toy", trace_of, frozenset()),)),),
    reference=SimpleNamespace(run=run, runs=lambda *_: True, is_there=lambda _: True),
    judge=SimpleNamespace(judge_of=ToyJudge),
    view=SimpleNamespace(
        VIEW=View(
            lanes=("clock", "count"),
            sides=lambda moment: (str(moment.record.outcome),),
            step_titles=("count",),
            step=lambda moments: [(str(moments[-1].record.outcome),)],
        )
    ),
    standalone=SimpleNamespace(standalone_test=lambda finding: (None, "a toy needs none")),
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Lane:
    monkeypatch.setitem(DEPTHS, "toy", TOY)
    (lane,) = TOY.lanes[0].LANES
    assert isinstance(lane, Lane)
    return lane


@pytest.mark.parametrize("name", DEPTHS)
def test_every_part_of_a_depth_is_there(name: str) -> None:
    depth = DEPTHS[name]
    assert depth.header.__struct_config__.tag == name  # type: ignore[attr-defined]
    assert depth.events
    assert all(lane.depth == name for module in depth.lanes for lane in part(module).LANES)
    reference = part(depth.reference)
    assert all(map(callable, (reference.run, reference.runs, reference.is_there)))
    assert callable(part(depth.judge).judge_of)
    assert isinstance(part(depth.view).VIEW, View)
    assert callable(part(depth.standalone).standalone_test)
    assert depth.edits is None or all(map(callable, part(depth.edits).EDITS))


def test_a_toy_depth_goes_all_the_way(toy: Lane) -> None:
    target = ReferenceTarget()
    assert target.runs_depth("toy")
    traces = [toy.trace(seed, None) for seed in range(7)]
    assert [parse(dump(trace).encode().splitlines(), "toy") for trace in traces] == traces
    results = target.run(traces)
    seen = [examine(*one, target, target) for one in zip(traces, results, strict=True)]
    assert [sorted(one.violations) for one in seen] == [[]] * 4 + [[ANSWERS.id]] * 3
    assert all(one.compared and one.difference is None for one in seen)
    finding = found_in(target, traces[6], ANSWERS.id)
    assert finding is not None
    assert finding.trace.events == (Tick(3),)
    assert (standalone_test(finding), why_none(finding)) == (None, "a toy needs none")
    screen = io.StringIO()
    print_finding(finding, Console(file=screen, width=100))
    assert f"{ANSWERS.id} at event 1 (tick)" in screen.getvalue()
    assert ">1" in screen.getvalue()


def test_without_its_line_nobody_knows_the_toy() -> None:
    with pytest.raises(KeyError):
        ReferenceTarget().run([trace_of(3)])


def test_mypy_is_shown_the_modules_of_every_depth() -> None:
    assert {
        name: roles.DepthModules(
            traces=part(depth.traces),
            lanes=tuple(map(part, depth.lanes)),
            reference=part(depth.reference),
            judge=part(depth.judge),
            view=part(depth.view),
            standalone=part(depth.standalone),
            edits=None if depth.edits is None else part(depth.edits),
        )
        for name, depth in DEPTHS.items()
    } == roles.MODULES


@pytest.mark.full
@pytest.mark.parametrize("judge", ["kv_cache_judge", "block_hash_judge"])
def test_mypy_refuses_a_judge_of_another_depth(judge: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"""
from cacheproof.differential.roles import *

DepthModules[kv_cache_traces.KVCacheEvent](
    kv_cache_traces, (), reference_kv_cache, {judge}, kv_cache_view, kv_cache_test
)
""")
    mypy = subprocess.run(
        [sys.executable, "-m", "mypy", program], cwd=ROOT, capture_output=True, text=True
    )
    refusal = 'Argument 4 to "DepthModules" has incompatible type'
    assert (refusal in mypy.stdout) == (judge != "kv_cache_judge"), mypy.stdout + mypy.stderr
    assert mypy.returncode == (judge != "kv_cache_judge")
