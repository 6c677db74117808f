"""`cacheproof explore`: what it prints, and what it exits with."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.search.explore import tables
from cacheproof.differential.search.explore.job import Task
from cacheproof.differential.search.explore.scopes import SCOPES, SMALL
from cacheproof.explore import exploring
from cacheproof.output.verdict_line import rule_told
from tests.front.conftest import Run

DECODERS = tuple(scope for scope in SMALL if scope.subject == "encoder_decoder")
ORDER = next(scope for scope in SMALL if scope.name == "order of eviction")


@pytest.fixture
def decoders_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(exploring.SCOPES, "small", DECODERS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scope", "huge"), "--scope huge: expected one of small, full"),
        (("--target", "nope"), "expected reference[@VERSION]"),
        (("--known", "/no/such/file"), "expected a folder with NAME/fault.toml"),
        (("--findings", "/dev/null/findings"), "expected a folder"),
        (("--json", "/no/such/folder/file"), "expected a file in a folder that exists"),
    ],
)
def test_an_argument_that_means_nothing(run: Run, arguments: tuple[str, ...], words: str) -> None:
    assert words in run("explore", *arguments).refusal


def test_a_release_without_a_manager_is_refused_by_its_number(run: Run) -> None:
    assert run("explore", "--target", "vllm@0.8.5").refusal == (
        "target vllm@0.8.5 has nothing to run at depth manager: it needs vllm@0.10.0 or later; "
        "expected depth media_hash, or another target"
    )


@pytest.mark.full
def test_a_checkout_without_a_manager_is_refused(run: Run) -> None:
    checkout = f"path:{releases.install('0.8.5', report=lambda text: None).tree}"
    refusal = run("explore", "--target", checkout).refusal
    assert refusal == f"target {checkout}: no manager to explore; expected a later release"


@pytest.mark.full
@pytest.mark.usefixtures("decoders_only")
def test_the_reference_holds_and_what_cannot_fail_is_named(run: Run, tmp_path: Path) -> None:
    ran = run("explore", "--target", "reference", "--json", tmp_path / "out.json")
    assert ran.code == 0
    assert "ED-5      holds (7)" in ran.out
    assert "WM-2      not seen to fail" in ran.out
    assert "not seen to fail, so its green says nothing: WM-2 (what a step reads" in ran.out
    assert "every state of 2 scopes was visited, 1,644 states, 7,657 transitions judged" in ran.out
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["command"] == "explore"
    assert {row["method"] for row in told["evidence"]} == {"exploration"}
    assert [row["contract"] for row in told["evidence"] if not row["counts"]] == ["WM-2"]
    assert told["scopes"][0]["closed"] is True


def listed_and_not(
    run: Run, arguments: Sequence[str | Path], nothing_known: Path
) -> tuple[str, str]:
    """What an exploration prints where its faults are known, and where none is."""
    listed, unlisted = run(*arguments), run(*arguments, "--known", nothing_known)
    assert (listed.code, unlisted.code) == (0, 1)
    return listed.out, unlisted.out


@pytest.mark.full
@pytest.mark.usefixtures("decoders_only")
def test_a_fault_of_a_release_is_listed_or_it_is_not(
    run: Run, two_releases: tuple[str, str], nothing_known: Path, tmp_path: Path
) -> None:
    target = two_releases[1]
    found = "explore", "--target", target, "--findings", tmp_path
    listed, unlisted = listed_and_not(run, found, nothing_known)
    assert "known: ED-1 at event 2 (free) on a" in listed
    assert "ED-1      refuted, listed" in listed
    assert "ED-1      refuted, NOT LISTED" in unlisted
    assert " shows 3 new faults, which break ED-" in unlisted.splitlines()[0]
    (file,) = tmp_path.glob("ed_2_*.json")
    again = run("replay", file)
    assert again.code == 1
    assert again.out.startswith(f"{target} breaks ED-2")
    assert "replays  10 of 10 identical, digest " in again.out


@pytest.mark.full
def test_an_exploration_that_could_not_have_failed_is_void(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(ORDER, capacity=1, compute_budget=1, prompts=ORDER.prompts[:1])
    monkeypatch.setitem(exploring.SCOPES, "small", (tiny,))
    ran = run("explore", "--target", "reference")
    assert ran.code == 3
    assert "not seen to fail, so its green says nothing: EC-7 (no red twin breaks it" in ran.out
    assert "red twin that nothing refutes within these scopes: newest-evicted-first" in ran.out


@pytest.mark.full
def test_the_table_of_the_reference_is_explored_beside_its_managers(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(exploring.SCOPES, "small", tables.SMALL)
    ran = run("explore", "--target", "reference", "--json", tmp_path / "out.json")
    assert ran.code == 0
    assert "reference EntryTable, text " in ran.out
    assert "TB-5      holds (1)" in ran.out
    assert "every state of 5 scopes was visited, 1,342 states, 8,068 transitions judged" in ran.out
    told = json.loads((tmp_path / "out.json").read_text())
    assert {row["subject"] for row in told["evidence"]} == {"EntryTable"}
    assert len(told["scopes"]) == 5


def test_a_table_whose_red_twins_go_unnoticed_is_void(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(exploring.SCOPES, "small", tables.SMALL[:1])
    ran = run("explore", "--target", "reference")
    assert ran.code == 3
    assert "not seen to fail, so its green says nothing: TB-5 (no red twin breaks it" in ran.out
    assert "red twin that nothing refutes within these scopes: EvictsByTheTimeOf" in ran.out


@pytest.mark.full
def test_a_fault_of_a_release_table_is_listed_or_it_is_not(
    run: Run, monkeypatch: pytest.MonkeyPatch, two_releases: tuple[str, str], nothing_known: Path
) -> None:
    monkeypatch.setitem(exploring.SCOPES, "small", tables.SMALL)
    found = "explore", "--target", two_releases[1]
    listed, unlisted = listed_and_not(run, found, nothing_known)
    broken = f"{rule_told('TB-8')} by begin(x, 2): AssertionError is raised"
    assert f"known, larger-than-the-region: {broken}" in listed
    assert "TB-8      refuted, listed" in listed
    assert f"UNLISTED: {broken}" in unlisted
    assert " shows 1 new fault, which breaks TB-8 (" in unlisted.splitlines()[0]


def test_the_tables_have_all_scopes_that_are_explored(run: Run) -> None:
    tables = run("explore", "--markdown").out.strip()
    assert tables.startswith("| scope of a manager |")
    rows = {line.split(" | ")[0].strip("| ") for line in tables.splitlines()}
    assert {one.name for one in SCOPES["full"]} <= rows


def test_an_interrupted_exploration_prints_what_was_explored_until_then(
    run: Run, monkeypatch: pytest.MonkeyPatch, decoders_only: None, tmp_path: Path
) -> None:
    def interrupted(
        output: object, tasks: Sequence[Task], place: object
    ) -> Iterator[Sequence[exploring.AnyReport]]:
        yield exploring._run(tasks[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(exploring, "_reports", interrupted)
    ran = run("explore", "--target", "reference", "--findings", tmp_path)
    assert ran.code == 130
    assert "EncoderDecoderCacheManager" in ran.out
    assert "interrupted" in ran.out


def test_an_exploration_that_is_interrupted_at_once_prints_no_empty_table(
    run: Run, monkeypatch: pytest.MonkeyPatch, decoders_only: None, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(exploring, "_reports", interrupted)
    ran = run("explore", "--target", "reference", "--findings", tmp_path)
    assert ran.code == 130
    sentence, step = ran.out.splitlines()
    assert sentence.startswith("The exploration of reference was interrupted and shows nothing new")
    assert sentence.endswith(": no state was visited; 1 component of targets was not reached.")
    assert step == "Next: run the command again for the whole"
