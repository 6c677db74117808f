"""Faults in disguise are told as new, and each condition of the attribution is needed for it."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.search import attribution as attributing
from cacheproof.differential.search.attribution import UNTURNED, Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import Cause, Symptom
from cacheproof.differential.traces.records import TraceResult

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from disguised_table import Disguised, Shown, Turned, gallery  # noqa: E402

GALLERY = gallery()
NOT_MODELLED = "session-length"
"""The model does not run its trace, in which a session outgrows the model's length."""
KEPT = [change for change in GALLERY.changes if change.is_kept]
CAUSED = [one for one in GALLERY.turned if one.condition]
IN_PROCESS = [
    one
    for one in GALLERY.shown
    if one.fault != NOT_MODELLED and one.of_lane.depth not in (UNTURNED, "media_hash")
]


def named(change: Disguised) -> str:
    return change.name


def placed(place: Shown | Turned) -> str:
    name = place.fault if isinstance(place, Shown) else place.flag
    return f"{name}-{place.contract}"


@pytest.fixture
def without_a(monkeypatch: pytest.MonkeyPatch) -> None:
    """No target parts from its model."""

    def run_of(self: Attribution, trace: Any, result: Any, last: int, seen: Any = None) -> Any:
        return attributing._Run(trace, last, None, is_compared=True, is_modelled=True)

    monkeypatch.setattr(Attribution, "_run_of", run_of)


@pytest.fixture
def without_b(monkeypatch: pytest.MonkeyPatch) -> None:
    """No contract breaks once a cause is taken away."""
    monkeypatch.setattr(Attribution, "_breaks", lambda *_: False)


@pytest.fixture
def without_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault is listed to break every contract. Of all of them together no three are tried."""
    monkeypatch.setattr(attributing, "TOGETHER_MAX", 1)
    for listed in (Cause, Symptom):
        monkeypatch.setattr(listed, "breaks", lambda *_: True)


# what needs no release


def test_the_gallery_is_of_all_depths_and_by_hand_and_generated(script: Any) -> None:
    changes = GALLERY.changes
    assert len({change.name for change in changes}) == len(changes)
    assert len({change.edit for change in changes}) == len(changes)
    assert len(changes) >= 40
    assert {change.of_lane.depth for change in changes} == {
        "manager", "scheduler", "kv_cache", "block_hash", "media_hash", "encoder_connector",
    }  # fmt: skip
    assert min(Counter(change.made for change in changes).values()) >= 20
    assert {change.looks_like for change in changes} <= {one.fault for one in GALLERY.shown}


@pytest.mark.parametrize("change", GALLERY.changes, ids=named)
def test_by_its_symptom_it_is_a_listed_fault(script: Any, change: Disguised) -> None:
    assert change.looks_like in script.symptom(change)


def of_kept(script: Any, change: Disguised, *, in_lockstep: bool) -> Attributed:
    """As what its small finding is told."""
    found: Finding = script.kept(change)
    model = script.model()
    attribution = Attribution(load(), "0.33.0", model)
    if not in_lockstep:
        return attribution.of_finding(found, change.lane)
    result = TraceResult(found.records, capacity=found.capacity)
    seen = examine(found.trace, result, model, model)
    return attribution.of(found.trace, result, seen, change.lane)[found.contract, found.kind]


@pytest.mark.parametrize("in_lockstep", [False, True])
@pytest.mark.parametrize("change", KEPT, ids=named)
def test_a_small_trace_of_it_is_told_as_new(
    script: Any, change: Disguised, in_lockstep: bool
) -> None:
    told = of_kept(script, change, in_lockstep=in_lockstep)
    assert told.fault is None
    assert told.parts
    assert change.looks_like in told.why


@pytest.mark.usefixtures("without_a")
@pytest.mark.parametrize("change", KEPT, ids=named)
def test_without_the_comparison_with_the_model_a_small_trace_passes(
    script: Any, change: Disguised
) -> None:
    assert of_kept(script, change, in_lockstep=False).fault in script.symptom(change)


@pytest.mark.parametrize("one", GALLERY.turned, ids=placed)
def test_a_fault_of_the_model_is_told_by_its_own_cause(script: Any, one: Turned) -> None:
    assert script.told_of_model(one, one.flag).fault == one.told
    assert script.told_of_model(one).why == script.NOT_BROKEN.why


def passing(script: Any) -> set[str]:
    """Faults of the model that are told as a listed fault that they are not."""
    return {
        placed(one)
        for one in CAUSED
        if script.told_of_model(one, one.flag).fault not in (None, one.told)
    }


def needing(condition: str) -> set[str]:
    return {placed(one) for one in CAUSED if one.condition == condition}


def test_no_fault_of_the_model_passes(script: Any) -> None:
    assert passing(script) == set()


@pytest.mark.usefixtures("without_b")
def test_without_the_model_without_the_cause_some_pass(script: Any) -> None:
    assert passing(script) == needing("b") != set()


@pytest.mark.usefixtures("without_c")
def test_without_the_contracts_that_a_fault_is_listed_to_break_others_pass(script: Any) -> None:
    assert passing(script) >= needing("c") != set()


@pytest.mark.parametrize("one", IN_PROCESS, ids=placed)
def test_the_listed_fault_is_told_by_name_where_it_is(script: Any, one: Shown) -> None:
    assert script.told_of_model(one).fault == one.fault


def made(script: Any, *told: Attributed) -> Any:
    """A run of a change that is told so in each way."""
    return script.Run(GALLERY.changes[0], False, *told, TraceResult([]))


@pytest.mark.parametrize("other", [Attributed("phantom-entry"), Attributed(why="does not break")])
def test_what_one_way_does_not_tell_as_new_is_not_counted(script: Any, other: Attributed) -> None:
    new = Attributed()
    said = script.page([made(script, new, new, new), made(script, new, new, other)], [], [])
    assert "1 of 2 changes are told as new" in said
    assert "## Not told as new: 1" in said


def test_a_change_without_that_name_is_refused(script: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such change"):
        script.write_one("none", tmp_path, GALLERY)


# on the release itself


@pytest.fixture(scope="module")
def room(script: Any) -> Iterator[Any]:
    with closing(script.Room()) as made:
        yield made


@pytest.fixture(scope="module")
def runs(script: Any, room: Any) -> dict[str, Any]:
    """What comes of each change."""
    return {change.name: room.run(change) for change in GALLERY.changes}


@pytest.mark.full
@pytest.mark.parametrize("change", GALLERY.changes, ids=named)
def test_it_is_told_as_new_in_every_way(runs: Any, change: Disguised) -> None:
    run = runs[change.name]
    assert not run.is_own
    assert run.is_new, run.line


@pytest.mark.full
@pytest.mark.usefixtures("without_a")
@pytest.mark.parametrize("change", GALLERY.changes, ids=named)
def test_without_the_comparison_with_the_model_it_passes(
    room: Any, runs: Any, change: Disguised
) -> None:
    assert room.told(change, runs[change.name].result).fault is not None


@pytest.mark.full
@pytest.mark.parametrize("switched_off", ["without_b", "without_c"])
def test_the_comparison_with_the_model_alone_tells_a_change_apart(
    room: Any, runs: Any, request: pytest.FixtureRequest, switched_off: str
) -> None:
    request.getfixturevalue(switched_off)
    passes = {
        change.name
        for change in GALLERY.changes
        if room.told(change, runs[change.name].result).fault is not None
    }
    assert passes == set()


@pytest.mark.full
def test_without_the_release_on_the_machine_changed_connectors_pass_and_nothing_else(
    room: Any, runs: Any
) -> None:
    passes = {
        change.name
        for change in GALLERY.changes
        if room.told_without_release(change, runs[change.name].result).fault == change.looks_like
    }
    assert passes == {one.name for one in GALLERY.changes if one.of_lane.depth == UNTURNED}


@pytest.mark.full
@pytest.mark.parametrize("one", GALLERY.shown, ids=placed)
def test_the_listed_fault_is_told_by_name_on_the_unchanged_release(room: Any, one: Shown) -> None:
    assert room.told_unchanged(one).fault == one.fault


@pytest.mark.full
def test_a_search_of_the_tree_of_one_ends_with_a_finding(script: Any, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    script.write_one("third-picture", tree, GALLERY)
    ended = subprocess.run(
        [sys.executable, "-m", "cacheproof", "fuzz", "--target", f"path:{tree}",
         "--depth", "scheduler", "--against", "none", "--seeds", "0:4"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout
    assert "WM-1" in ended.stdout.splitlines()[0]
