"""fuzz, check, campaign and review come to the same over the same seeds, byte for byte where they
write findings."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheproof.campaign import run as campaign_run
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.noting import Noted, Noting
from cacheproof.review import reviewing
from cacheproof.search import main_job, searching
from tests.front.conftest import Run

DEPTH, SEEDS = "manager", "0:6"
TWO = "--workers", "2"
Told = tuple[dict[str, bytes], dict[str, bool], list[dict[str, Any]]]
"""The findings by file, whole but for who made them when; the planted faults; what broke where."""


@pytest.fixture
def leaking(
    odd_targets: Any, monkeypatch: pytest.MonkeyPatch, nothing_known: Path
) -> tuple[object, ...]:
    """Has all commands search one target with a fault of its own; the options that they share."""

    def resolve(text: str, **_: object) -> Any:
        return odd_targets.Leaking() if text != "sound" else odd_targets.ReferenceTarget()

    for module in (searching, campaign_run, main_job, reviewing):
        monkeypatch.setattr(module, "resolve", resolve)
    return "--known", nothing_known, *TWO


def told(document: dict[str, Any], folder: Path) -> Told:
    """What a command says that it found, and what it wrote of it."""
    found = {}
    for path in folder.glob("*.json"):
        one = finding_file.load(path)
        assert isinstance(one, Finding)
        found[path.name] = msgspec.json.encode(msgspec.structs.replace(one, tool={}, seconds=0.0))
    broken = sorted(document["broken"], key=lambda one: json.dumps(one, sort_keys=True))
    return found, dict(sorted(document["canaries"].items())), broken


def fuzzed(run: Run, shared: tuple[object, ...], folder: Path) -> Told:
    where = "--findings", folder / "fuzz", "--json", folder / "fuzz.json"
    run("fuzz", "--target", "reference", "--depth", DEPTH, "--seeds", SEEDS, *shared, *where)
    return told(json.loads((folder / "fuzz.json").read_text()), folder / "fuzz")


def campaigned(run: Run, shared: tuple[object, ...], folder: Path) -> Told:
    plan, store = folder / "plan.toml", folder / "store"
    plan.write_text(f'targets = ["reference"]\ndepths = ["{DEPTH}"]\nseeds = "{SEEDS}"\n')
    ran = run("campaign", "start", plan, "--store", store, *shared, "--json", folder / "out.json")
    assert ran.code == 1, ran.err
    (target,) = json.loads((folder / "out.json").read_text())["targets"]
    return told(target, store / "findings")


def test_a_search_and_a_campaign_find_the_same(
    run: Run, leaking: tuple[object, ...], tmp_path: Path
) -> None:
    of_fuzz = fuzzed(run, leaking, tmp_path)
    assert {name.split("_reference")[0] for name in of_fuzz[0]} >= {"ec_1", "ed_1", "ed_5"}
    assert of_fuzz == campaigned(run, leaking, tmp_path)


def test_a_campaign_that_loses_a_break_is_seen(
    run: Run, leaking: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_fuzz = fuzzed(run, leaking, tmp_path)
    note = Noting.note

    def careless(self: Noting, broken: Break) -> Noted | None:
        return None if broken.contract == "ED-1" else note(self, broken)

    monkeypatch.setattr(Noting, "note", careless)
    assert of_fuzz != campaigned(run, leaking, tmp_path)


@pytest.mark.full
def test_a_check_finds_what_a_search_finds(
    run: Run, leaking: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = {name: lane for name, lane in LANES.items() if lane.depth == DEPTH}
    monkeypatch.setattr(main_job, "LANES", lanes)
    monkeypatch.setattr(main_job, "SEEDS", {"short": range(*map(int, SEEDS.split(":")))})
    monkeypatch.setattr(main_job, "install_all", lambda wanted, report: None)
    folder = tmp_path / "check"
    where = "--findings", folder, "--json", tmp_path / "check.json"
    run("check", "--release", "0.33.0", *leaking, *where)
    (target,) = json.loads((tmp_path / "check.json").read_text())["targets"]
    assert told(target, folder) == fuzzed(run, leaking, tmp_path)


@pytest.mark.full
def test_a_review_tells_of_head_what_a_search_of_it_does(
    run: Run, leaking: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewing, "require_lanes", lambda lanes, *texts: None)
    monkeypatch.setattr(reviewing, "_kept_traces", lambda *_: {})
    sides = "--base", "sound", "--head", "leaking", "--depth", DEPTH, "--seeds", SEEDS
    run("review", *sides, *leaking, "--json", tmp_path / "review.json")
    reviewed = json.loads((tmp_path / "review.json").read_text())
    _, canaries, broken = fuzzed(run, leaking, tmp_path)
    traces: Counter[tuple[str, str]] = Counter()
    for one in broken:
        traces[one["contract"], one["kind"] or ""] += one["traces"]
    brought = {(one["contract"], one["kind"]): one["head"] for one in reviewed["brought"]}
    assert brought == traces
    planted = {name: found for name, found in reviewed["planted"].items() if name in canaries}
    assert planted == canaries
