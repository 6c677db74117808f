"""fuzz, check, campaign and review come to the same over the same seeds, byte for byte where they
write findings."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheproof.campaign import run as campaign_run
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.shrinking.edits import cost
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.campaigns.reporting import fault_of
from cacheproof.differential.search.noting import Noted, Noting
from cacheproof.review import reviewing
from cacheproof.search import main_job, searching, two_targets
from tests.front.conftest import Run

DEPTH, SEEDS = "manager", "0:6"
TWO = "--workers", "2"
NOTE = Noting.note
Options = tuple[object, ...]


@dataclass(frozen=True)
class Told:
    """What a command says: the findings by file, whole but for who made them and when, the planted
    faults, and what broke where."""

    findings: dict[str, Finding]
    canaries: dict[str, bool]
    broken: list[dict[str, Any]]

    @classmethod
    def of(cls, document: dict[str, Any], folder: Path) -> "Told":
        found = {}
        for path in sorted(folder.glob("*.json")):
            one = finding_file.load(path)
            assert isinstance(one, Finding)
            found[path.name] = msgspec.structs.replace(one, tool={}, seconds=0.0)
        broken = sorted(document["broken"], key=lambda one: json.dumps(one, sort_keys=True))
        return cls(found, document["canaries"], broken)

    @property
    def by_fault(self) -> dict[object, bytes]:
        """The smallest finding of each fault, byte for byte."""
        kept: dict[object, Finding] = {}
        for one in self.findings.values():
            before = kept.setdefault(fault_of(one), one)
            kept[fault_of(one)] = min(before, one, key=lambda finding: cost(finding.trace))
        return {fault: msgspec.json.encode(one) for fault, one in kept.items()}


@pytest.fixture(params=["Leaking", "Evicting"])
def searched(
    request: pytest.FixtureRequest,
    odd_targets: Any,
    monkeypatch: pytest.MonkeyPatch,
    nothing_known: Path,
) -> Options:
    """Has all commands search one target with a fault of its own; the options that they share."""

    def resolve(text: str, **_: object) -> Any:
        return getattr(odd_targets, "ReferenceTarget" if text == "sound" else request.param)()

    for module in (searching, campaign_run, main_job, two_targets):
        monkeypatch.setattr(module, "resolve", resolve)
    return "--known", nothing_known, *TWO


def fuzzed(run: Run, shared: Options, folder: Path) -> Told:
    where = "--findings", folder / "fuzz", "--json", folder / "fuzz.json"
    run("fuzz", "--target", "reference", "--depth", DEPTH, "--seeds", SEEDS, *shared, *where)
    return Told.of(json.loads((folder / "fuzz.json").read_text()), folder / "fuzz")


def campaigned(run: Run, shared: Options, folder: Path) -> Told:
    plan, store = folder / "plan.toml", folder / "store"
    plan.write_text(f'targets = ["reference"]\ndepths = ["{DEPTH}"]\nseeds = "{SEEDS}"\n')
    ran = run("campaign", "start", plan, "--store", store, *shared, "--json", folder / "out.json")
    assert ran.code == 1, ran.err
    (target,) = json.loads((folder / "out.json").read_text())["targets"]
    return Told.of(target, store / "findings")


@pytest.mark.sample(2)
def test_a_search_and_a_campaign_find_the_same(run: Run, searched: Options, tmp_path: Path) -> None:
    one, other = fuzzed(run, searched, tmp_path), campaigned(run, searched, tmp_path)
    assert one.findings
    assert one.by_fault == other.by_fault
    assert len(other.findings) == len(other.by_fault)
    assert (one.canaries, one.broken) == (other.canaries, other.broken)


def one_contract_less(self: Noting, broken: Break) -> Noted | None:
    return None if broken.contract in ("ED-1", "EC-7") else NOTE(self, broken)


@pytest.mark.sample(2)
def test_a_campaign_that_loses_a_break_is_seen(
    run: Run, searched: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = fuzzed(run, searched, tmp_path)
    monkeypatch.setattr(Noting, "note", one_contract_less)
    assert one.by_fault != campaigned(run, searched, tmp_path).by_fault


@pytest.mark.full
def test_a_check_finds_what_a_search_finds(
    run: Run, searched: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = {name: lane for name, lane in LANES.items() if lane.depth == DEPTH}
    monkeypatch.setattr(main_job, "LANES", lanes)
    monkeypatch.setattr(main_job, "SEEDS", {"short": range(*map(int, SEEDS.split(":")))})
    monkeypatch.setattr(main_job, "install_all", lambda wanted, report: None)
    folder = tmp_path / "check"
    where = "--findings", folder, "--json", tmp_path / "check.json"
    run("check", "--release", "0.33.0", *searched, *where)
    (target,) = json.loads((tmp_path / "check.json").read_text())["targets"]
    assert Told.of(target, folder).by_fault == fuzzed(run, searched, tmp_path).by_fault


@pytest.mark.full
def test_a_review_tells_of_head_what_a_search_of_it_does(
    run: Run, searched: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_targets, "require_lanes", lambda lanes, *texts: None)
    monkeypatch.setattr(reviewing, "_kept_traces", lambda *_: {})
    sides = "--base", "sound", "--head", "odd", "--depth", DEPTH, "--seeds", SEEDS
    run("review", *sides, *searched, "--json", tmp_path / "review.json")
    reviewed = json.loads((tmp_path / "review.json").read_text())
    fuzz = fuzzed(run, searched, tmp_path)
    traces: Counter[tuple[str, str]] = Counter()
    for one in fuzz.broken:
        traces[one["contract"], one["kind"] or ""] += one["traces"]
    brought = {(one["contract"], one["kind"]): one["head"] for one in reviewed["brought"]}
    assert brought == traces
    planted = {name: found for name, found in reviewed["planted"].items() if name in fuzz.canaries}
    assert planted == fuzz.canaries
