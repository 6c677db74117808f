"""`bisect` names releases; `--register` remembers, and runs first what it remembers."""

import json
from pathlib import Path

import pytest

from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.semantics import Semantics
from cacheproof.replay import bisecting
from tests.front.conftest import Ran, Run

LOST_SLOTS = kept_traces()["reused-media-id"]


@pytest.fixture
def modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases are the reference under their semantics."""

    def resolve(name: str, *, report: object) -> ReferenceTarget:
        release = name.removeprefix("vllm@")
        return ReferenceTarget(Semantics.of_vllm(release), name=name, release=release)

    monkeypatch.setattr(bisecting, "resolve", resolve)
    releases = ["0.10.2", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.33.0"]
    monkeypatch.setattr(bisecting, "_releases", lambda *_, **__: releases)


@pytest.fixture
def small(run: Run, tmp_path: Path) -> Path:
    """A finding of EC-6a in 0.28.0."""
    run("fuzz", "--target", "reference@0.28.0", "--depth", "manager", "--seeds", "0:1",
        "--findings", tmp_path, "--workers", "1", "--shrink-listed")  # fmt: skip
    (path,) = tmp_path.glob("repeated_item_ec_6a_*.json")
    return path


@pytest.mark.full
@pytest.mark.usefixtures("modelled")
def test_a_finding_is_asked_of_every_release(run: Run, small: Path) -> None:
    ran = run("bisect", small)
    assert ran.code == 0
    assert "EC-6a breaks in 0.10.2 to 0." in ran.out
    assert "brought by 0.10.2 or before: no older release was asked" in ran.out
    assert "mended by 0." in ran.out


@pytest.mark.full
@pytest.mark.usefixtures("modelled")
def test_a_contract_that_holds_everywhere_is_said_to(run: Run, small: Path) -> None:
    ran = run("bisect", small, "--contract", "EC-9", "--json", "-")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["bisections"] == []
    assert [one["broken"] for one in document["releases"]] == [[]] * 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("/no/such/file",), "/no/such/file: cannot be read"),
        (("no-such-fault@0.28.0",), "no listed fault has that name"),
        ((LOST_SLOTS, "--contract", "XX-1"), "--contract XX-1: no contract id; expected"),
        ((LOST_SLOTS, "--checkout", "."), "expected all three"),
        ((LOST_SLOTS, "--good", "a", "--bad", "b"), "expected all three"),
        (
            (LOST_SLOTS, "--checkout", "/no/such", "--good", "a", "--bad", "b"),
            "--checkout /no/such: no git checkout; expected",
        ),
        ((kept_traces()["another-sound"],), "the trace of an engine; expected"),
    ],
)
def test_what_cannot_be_bisected_is_refused(
    run: Run, arguments: tuple[object, ...], words: str
) -> None:
    assert words in run("bisect", *arguments).refusal


def fuzz(run: Run, release: str, folder: Path, register: Path) -> Ran:
    return run("fuzz", "--target", f"reference@{release}", "--depth", "manager", "--seeds", "0:1",
               "--findings", folder, "--workers", "1", "--register", register)  # fmt: skip


def test_a_register_remembers_and_says_what_is_mended(run: Run, tmp_path: Path) -> None:
    register = tmp_path / "register.jsonl"
    first = fuzz(run, "0.28.0", tmp_path, register)
    assert "not seen before" in first.out
    records = [json.loads(line) for line in register.read_text().splitlines()]
    assert {"listed"} == {one["status"] for one in records}
    newer = fuzz(run, "0.33.0", tmp_path, register)
    assert "mended: " in newer.out
    assert "repeated-item (EC-6a)" in newer.out
    again = fuzz(run, "0.28.0", tmp_path, register)
    assert "; 0 not seen before" in again.out
    statuses = {
        (one["contract"], one["status"])
        for one in map(json.loads, register.read_text().splitlines())
    }
    assert ("EC-6a", "mended") in statuses


@pytest.mark.full
def test_a_trace_of_the_register_is_met_without_its_seed(run: Run, tmp_path: Path) -> None:
    register = tmp_path / "register.jsonl"
    fuzz(run, "0.28.0", tmp_path, register)
    (line,) = [one for one in register.read_text().splitlines() if '"EC-6a"' in one]
    register.write_text(f"{line}\n")
    ran = run("fuzz", "--target", "reference@0.28.0", "--depth", "manager", "--seeds", "2:3",
              "--findings", tmp_path / "b", "--workers", "1", "--register", register)  # fmt: skip
    assert "repeated-item" in ran.out
    without = run("fuzz", "--target", "reference@0.28.0", "--depth", "manager", "--seeds", "2:3",
                  "--findings", tmp_path / "third", "--workers", "1")  # fmt: skip
    assert "EC-6a" not in without.out


@pytest.mark.parametrize("text", ["{}", "[", "\x00"])
def test_a_register_that_is_none_is_refused(run: Run, tmp_path: Path, text: str) -> None:
    register = tmp_path / "register.jsonl"
    register.write_text(text)
    refusal = run("fuzz", "--target", "reference", "--register", register).refusal
    assert refusal.startswith(f"{register} line 1: no record")
    assert "expected" in refusal


def test_a_register_that_cannot_be_written_is_refused_before_the_search(run: Run) -> None:
    refusal = run("check", "--register", "/no/such/folder/register.jsonl").refusal
    assert refusal.startswith("--register /no/such/folder/register.jsonl: cannot be written")
