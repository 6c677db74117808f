"""What commands print, as sentences and as JSON, and how they end."""

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.gallery import kill_matrix
from cacheproof.differential.traces.trace_file import dump
from cacheproof.search import search_run, searching
from tests.front.conftest import Run

REFERENCE = "fuzz", "--target", "reference", "--seeds", "0:50"
FEW_CALLS = "fuzz", "--target", "reference", "--seeds", "0:5", "--depth", "manager"


def document(text: str, command: str) -> dict[str, Any]:
    """JSON and nothing else."""
    content = json.loads(text)
    assert content["schema_version"] == 1
    assert content["command"] == command
    assert set(content["versions"]) >= {"cacheproof", "python"}
    return content


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "findings"


@pytest.mark.full
def test_the_reference_holds_and_every_lane_that_it_runs_is_named(run: Run, folder: Path) -> None:
    ran = run(*REFERENCE, "--findings", folder, "--verbose")
    assert ran.code == 0
    assert ran.out.startswith("reference shows nothing new: ")
    assert list(folder.iterdir()) == []
    for lane in LANES.values():
        is_offered = lane.is_offered_by(None, ("vllm", "reference"))
        is_run = lane.depth != "engine" and is_offered and lane.lacks is None
        assert (lane.name in ran.out) == is_run


@pytest.mark.full
def test_the_reference_under_a_releases_semantics_has_the_releases_faults(
    run: Run, folder: Path, nothing_known: Path
) -> None:
    seeds = "--depth", "manager", "--seeds", "0:4"
    arguments = "--target", "reference@0.28.0", *seeds, "--findings", folder
    listed = run("fuzz", *arguments)
    unlisted = run("fuzz", *arguments, "--known", nothing_known)
    assert (listed.code, unlisted.code) == (0, 1)
    assert re.search(r"^  repeated-item +\d+ .*EC-6a", listed.out, re.MULTILINE)
    assert "EC-6a at event" not in listed.out
    assert "EC-6a at event" in unlisted.out
    assert "known    not listed" in unlisted.out


@pytest.mark.full
def test_one_fault_is_shown_whole_once(run: Run, folder: Path, nothing_known: Path) -> None:
    """Its other faces are a line each, unless all is asked for; each has its file, and its place in
    the JSON."""
    seeds = "--depth", "manager", "--seeds", "0:6"
    arguments = "--target", "reference@0.20.0", *seeds, "--known", nothing_known
    brief = run("fuzz", *arguments, "--findings", folder, "--json", folder.parent / "all.json")
    whole = run("fuzz", *arguments, "--findings", folder, "--verbose")
    content = document((folder.parent / "all.json").read_text(), "fuzz")
    found, causes = content["findings"], content["causes"]
    faces = len(found) - len(causes)
    assert faces > 0
    assert sorted(one for cause in causes for one in cause["findings"]) == [*range(len(found))]
    assert whole.out.count("first wrong step: event") == len(found)
    assert brief.out.count("first wrong step: event") == len(causes)
    assert f"{len(causes)} findings ({faces} other faces) in " in brief.out
    assert f"{len(causes)} new faults ({faces} other faces), " in brief.out
    for file in folder.glob("*.json"):
        assert file.name in brief.out
    assert brief.code == whole.code == 1


def test_a_listed_fault_is_replayed_by_its_name(run: Run, folder: Path) -> None:
    arguments = "--target", "reference@0.28.0", "--depth", "manager", "--seeds", "0:4"
    assert run("fuzz", *arguments, "--findings", folder).code == 0
    (file, *_) = folder.glob("repeated_item_*.json")
    found = load(file)
    assert isinstance(found, Finding)
    assert (found.fault, found.known, found.stopped_early) == (
        "repeated-item",
        "vLLM PR #54284 (merged)",
        True,
    )
    assert run("replay", file, "--times", 2).code == 1
    refusal = run("replay", "repeated-item@0.28.0", "--findings", folder).refusal
    assert refusal.startswith("repeated-item@0.28.0: no finding of that fault in ")
    file.rename(file.with_name(file.name.replace("reference_0_28_0", "vllm_0_28_0")))
    named = run("replay", "repeated-item@0.28.0", "--findings", folder, "--times", 2)
    assert named.code == 1


@pytest.mark.full
@pytest.mark.parametrize("is_listed", [True, False])
def test_results_do_not_depend_on_the_number_of_workers(
    run: Run, tmp_path: Path, nothing_known: Path, is_listed: bool
) -> None:
    seeds = "--depth", "manager", "--seeds", "0:22"
    known = () if is_listed else ("--known", nothing_known)
    reports = []
    for workers in (1, 3):
        where = "--findings", tmp_path / str(workers), "--workers", workers, "--json", "-"
        ran = run("fuzz", "--target", "reference@0.28.0", *seeds, *where, *known)
        assert ran.code == (0 if is_listed else 1)
        report = document(ran.out, "fuzz")
        report.pop("seconds")
        report.pop("next")  # it names the folder
        for one in report["findings"]:
            one.pop("seconds")
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0]["findings"]
    one, many = (sorted(path.name for path in (tmp_path / n).iterdir()) for n in ("1", "3"))
    assert one == many


@pytest.mark.full
def test_listed_faults_are_made_small_where_that_is_asked_for(run: Run, folder: Path) -> None:
    search = "fuzz", "--target", "reference@0.28.0", "--depth", "manager", "--seeds", "0:1"
    sizes = []
    for further in ((), ("--shrink-listed",)):
        report = document(run(*search, "--findings", folder, *further, "--json", "-").out, "fuzz")
        (fault,) = [one for one in report["faults"] if one["name"] == "repeated-item"]
        sizes.append(fault["events"]["reference@0.28.0"])
    assert sizes[1] <= 6 < sizes[0]


@pytest.mark.full
def test_a_real_releases_faults_are_found_written_and_replayed(
    run: Run, two_releases: tuple[str, str], folder: Path, nothing_known: Path
) -> None:
    seeds = "--depth", "manager", "--seeds", "0:1", "--findings", folder, "--json", "-"
    ran = run("fuzz", "--target", two_releases[0], *seeds, "--known", nothing_known)
    assert ran.code == 1
    findings = document(ran.out, "fuzz")["findings"]
    assert "EC-6a" in {one["contract"] for one in findings}
    fields = {"contract", "target", "sentence", "events", "seed", "digest", "known"}
    assert all(fields <= set(one) for one in findings)

    (file,) = folder.glob("ec_6a_*.json")
    assert load(file)
    same = run("replay", file, "--times", "10", "--json", "-")
    assert same.code == 1
    replayed = document(same.out, "replay")
    assert len(replayed["digests"]) == 10
    assert set(replayed["digests"]) == {load(file).digest}
    assert replayed["broke"] == 10
    assert run("replay", file, "--target", two_releases[1], "--times", "4").code == 0


@pytest.mark.parametrize(
    "target",
    [
        "reference",
        "reference@0.28.0",
        *(pytest.param(one, marks=pytest.mark.full) for one in ("old", "new")),
    ],
)
def test_a_trace_replays_alike_everywhere(
    run: Run, two_releases: tuple[str, str], tmp_path: Path, target: str
) -> None:
    name = {"old": two_releases[0], "new": two_releases[1]}.get(target, target)
    path = tmp_path / "trace.jsonl"
    path.write_text(dump(manager_trace(3)))
    ran = run("replay", path, "--target", name, "--times", "10", "--json", "-")
    replayed = document(ran.out, "replay")
    assert replayed["same"] == replayed["times"] == len(replayed["digests"]) == 10
    assert ran.code == (1 if replayed["broke"] else 0)


@pytest.mark.full
def test_a_schedulers_trace_replays_alike(
    run: Run, two_releases: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(dump(scheduler_trace(3)))
    ran = run("replay", path, "--target", two_releases[1], "--times", "10", "--json", "-")
    assert document(ran.out, "replay")["same"] == 10


@pytest.mark.full
def test_releases_part_where_a_change_decides(run: Run, two_releases: tuple[str, str]) -> None:
    ran = run("diff", *two_releases, "--seconds", "1", "--json", "-")
    assert ran.code == 1
    report = document(ran.out, "diff")
    assert report["targets"] == list(two_releases)
    first = report["partings"][0]
    assert " against " in first["sentence"]
    assert len(first["events"]) <= 10


@pytest.mark.full
def test_a_release_and_its_reference_do_not_part(run: Run, two_releases: tuple[str, str]) -> None:
    ran = run("diff", two_releases[1], "reference@0.33.0", "--seconds", "1")
    assert ran.code == 0
    assert " decide alike: no difference on " in ran.out.splitlines()[0]


@pytest.mark.full
def test_a_reference_hashes_media_with_the_libraries_of_the_release_beside_it(
    run: Run, two_releases: tuple[str, str]
) -> None:
    words = ("diff", "reference@0.33.0", two_releases[1], "--depth", "media_hash", "--seconds", "1")
    ran = run(*words)
    assert ran.code == 0, ran.out


def test_the_contract_table_as_json(run: Run) -> None:
    ran = run("contracts", "--json", "-")
    assert ran.code == 0
    ids = {one["id"] for one in document(ran.out, "contracts")["contracts"]}
    assert {"EC-1", "EC-6a", "ED-3", "WM-4"} <= ids


@pytest.mark.full
def test_the_gallery_prints_its_page(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_matrix, "VARIANTS", kill_matrix.VARIANTS[:3])
    assert run("gallery").out == kill_matrix.kill_matrix().to_markdown()


@pytest.mark.full
def test_the_gallery_as_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_matrix, "VARIANTS", kill_matrix.VARIANTS[:20])
    ran = run("gallery", "--json", "-")
    assert ran.code == 0
    variants = document(ran.out, "gallery")["variants"]
    assert len(variants) == 20
    assert all(one["name"] and one["killed_by"] for one in variants)


@pytest.mark.full
def test_the_gallery_of_one_component_runs_its_variants_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [one.manager for one in kill_matrix.VARIANTS]
    few = kill_matrix.VARIANTS[: kinds.index("encoder_decoder") + 2]
    monkeypatch.setattr(kill_matrix, "VARIANTS", few)
    ran = run("gallery", "--component", "encoder_decoder_cache", "--json", "-")
    assert ran.code == 0
    told = document(ran.out, "gallery")
    assert {one["manager"] for one in told["variants"]} == {"encoder_decoder"}
    assert told["component"] == "encoder_decoder_cache"
    assert "faulty variants of encoder_decoder_cache are caught" in told["verdict"]


def test_a_component_without_a_variant_is_refused_with_those_that_have_some(run: Run) -> None:
    refusal = run("gallery", "--component", "engine").refusal
    assert refusal.startswith("--component engine: no faulty variant to run; expected one of block")
    assert refusal.endswith("scheduler, worker_mirror")


def test_releases_that_are_there_as_json(run: Run, two_releases: tuple[str, str]) -> None:
    ran = run("vllm", "list", "--json", "-")
    assert ran.code == 0
    there = {one["version"] for one in document(ran.out, "vllm list")["releases"]}
    assert {"0.28.0", "0.33.0"} <= there


@pytest.mark.full
def test_json_in_a_file_leaves_the_report_on_the_screen(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    path = tmp_path / "report.json"
    ran = run(*FEW_CALLS, "--findings", folder, "--json", path)
    assert ran.out.startswith("reference shows nothing new: ")
    assert document(path.read_text(), "fuzz")["target"] == "reference"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Broken", "void: harness error: "),
        ("Deaf", "void: the fault planted against EC-1 "),
        ("Deadly", "void: harness error: a worker process ended before its work was done"),
    ],
)
def test_what_proves_nothing_is_void_and_ends_with_3(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    odd_targets: ModuleType,
    folder: Path,
    name: str,
    words: str,
) -> None:
    monkeypatch.setattr(searching, "resolve", lambda text, report: getattr(odd_targets, name)())
    ran = run(*FEW_CALLS, "--findings", folder)
    assert words in ran.out
    assert ran.code == 3


def test_faults_that_were_never_planted_count_as_missed(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(search_run, "plantings_in_turns", lambda lanes, target: iter(()))
    ran = run(*FEW_CALLS, "--findings", folder)
    assert "MISSED: the fault planted against EC-1 (encoder cache)" in ran.out
    assert ran.code == 3


@pytest.mark.full
def test_the_main_job_as_json(run: Run, folder: Path) -> None:
    arguments = "--budget", "short", "--release", "0.33.0", "--findings", folder, "--json", "-"
    ran = run("check", *arguments)
    assert ran.code == 0
    report = document(ran.out, "check")
    assert report["exit_code"] == 0
    assert report["findings"]
    for line in report["evidence"]:
        assert {"contract", "target", "verdict", "scope", "seconds"} <= set(line)
