"""A target whose text is no modelled release's is told so before it is run, and what it does
otherwise than the reference is then a difference from the model."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.targets import resolve as resolving
from cacheproof.differential.targets.resolve import reading_of, resolve
from cacheproof.differential.texts import known_texts
from cacheproof.output.console import CommandOutput
from cacheproof.proving import targets as proof_targets
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.search import searching
from cacheproof.tables import text_table
from tests.front.conftest import Ran, Run

Fuzz = Callable[[], tuple[Ran, dict[str, Any]]]
"""Searches, and returns what the command printed and what its JSON says of the model."""

SCHEDULER = "v1/core/sched/scheduler.py"
STEP = "v1/core/sched/output.py"
HASHER = "multimodal/hasher.py"
FIELD = "    skip_drafts: bool = False\n"
SEARCH = "--depth", "media_hash", "--seeds", "3:6"
# Other digests of what few traces hash: of SEARCH's, one does, and no contract breaks behind it.
OTHER_NONE = '_TAG_NONE = b"\\x00"', '_TAG_NONE = b"\\x07"'
# Other digests of nearly all, so listed faults break contracts behind a difference.
OTHER_SEQUENCES = '_TAG_SEQUENCE = b"\\x01"', '_TAG_SEQUENCE = b"\\x07"'
Change = Callable[[str, str, str], None]


@pytest.fixture(scope="session")
def newest() -> InstalledRelease:
    return releases.install(NEWEST, report=print)


@pytest.fixture
def fork(tmp_path: Path, newest: InstalledRelease) -> Path:
    """A checkout of the newest release, of links to its files."""
    folder = tmp_path / "fork"
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(newest.tree / "vllm", folder / "vllm", copy_function=os.symlink, ignore=without)
    return folder


@pytest.fixture
def change(fork: Path) -> Change:
    """Puts a changed file in the place of a link."""

    def put(path: str, old: str, new: str) -> None:
        file = fork / "vllm" / path
        text = file.read_text()
        assert old in text
        file.unlink()
        file.write_text(text.replace(old, new, 1))

    return put


@pytest.fixture
def fuzz(run: Run, fork: Path, tmp_path: Path) -> Fuzz:
    """Searches the fork: what the command printed, and its JSON."""

    def call() -> tuple[Ran, dict[str, Any]]:
        file = tmp_path / "out.json"
        arguments = "--findings", tmp_path / "findings", "--json", file
        ran = run("fuzz", "--target", f"path:{fork}", *SEARCH, *arguments)
        return ran, json.loads(file.read_text())["model"]

    return call


@pytest.mark.full
def test_of_an_unchanged_checkout_there_is_nothing_to_say(fuzz: Fuzz, fork: Path) -> None:
    ran, model = fuzz()
    assert ran.code == 0
    sentence, space, listed, *_ = ran.out.splitlines()
    assert sentence.startswith(f"path:{fork} shows nothing new: 3 traces of ")
    assert (space, listed.split()[:2]) == ("", ["listed", "faults"])
    assert model["announced"] == []
    assert (model["reading"]["nearest"], model["reading"]["differing"]) == (NEWEST, {})


@pytest.mark.full
def test_a_changed_function_and_a_new_field_are_named_before_the_search(
    fuzz: Fuzz, fork: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(
        SCHEDULER,
        "request, i, encoder_compute_budget, num_embeds",
        "request, i, encoder_compute_budget - 1, num_embeds",
    )
    change(STEP, FIELD, f"{FIELD}    made_up: int = 0\n")
    began: list[bool] = []
    search = searching.run_search

    def watched(*arguments: Any, **further: Any) -> Any:
        began.append(bool(said))
        return search(*arguments, **further)

    said: list[str] = []
    line = searching.CommandOutput.line

    def heard(output: CommandOutput, text: str, *, style: str | None = None) -> None:
        said.append(text)
        line(output, text, style=style)

    monkeypatch.setattr(searching.CommandOutput, "line", heard)
    monkeypatch.setattr(searching, "run_search", watched)
    ran, model = fuzz()
    assert began == [True]
    names, unread = model["announced"]
    consequence = f"path:{fork}: where it parts from the reference of {NEWEST}, that is"
    assert f"\n\n{names}\n{unread}\n{consequence}" in ran.out
    assert f"differ from {NEWEST}, the nearest release: 2 of " in names
    assert names.endswith("_try_schedule_encoder_inputs, SchedulerOutput.made_up (new)")
    assert unread.endswith("nothing here reads what is new in it: SchedulerOutput.made_up")
    assert model["reading"]["unread"] == ["SchedulerOutput.made_up"]
    assert ran.code == 0  # the media hash is as it was


@pytest.mark.full
def test_where_a_fork_parts_from_the_reference_is_a_difference_from_the_model(
    fuzz: Fuzz, change: Change, tmp_path: Path
) -> None:
    change(HASHER, *OTHER_NONE)
    ran, model = fuzz()
    assert ran.code == 4
    assert model["reading"]["differing"] == {"_TAG_NONE": "changed"}
    assert " decides otherwise than the reference in " in ran.out.splitlines()[0]
    (file, *_) = (tmp_path / "findings").glob("lockstep_*.json")
    assert json.loads(file.read_text())["harm"] == "difference from the model"


@pytest.mark.full
def test_where_a_contract_breaks_behind_a_difference_nothing_listed_is_its_cause(
    fuzz: Fuzz, change: Change
) -> None:
    change(HASHER, *OTHER_SEQUENCES)
    ran, _ = fuzz()
    assert ran.code == 1
    assert "media-hash-values breaks MH-3 too, but the target decides otherwise" in ran.out


@pytest.mark.full
def test_replays_and_diffs_tell_a_difference_from_the_model_by_their_exit_code(
    fuzz: Fuzz, run: Run, fork: Path, change: Change, tmp_path: Path
) -> None:
    change(HASHER, *OTHER_SEQUENCES)
    fuzz()
    (file, *_) = (tmp_path / "findings").glob("lockstep_*.json")
    assert run("replay", file, "--times", 2).code == 4
    seconds = "--depth", "media_hash", "--seconds", 3
    assert run("diff", f"path:{fork}", f"reference@{NEWEST}", *seconds).code == 4
    assert run("diff", f"path:{fork}", f"vllm@{NEWEST}", *seconds).code == 1


@pytest.mark.full
def test_the_same_differences_of_a_release_that_reads_as_modelled_are_findings(
    run: Run,
    fork: Path,
    change: Change,
    newest: InstalledRelease,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(HASHER, *OTHER_SEQUENCES)
    as_modelled = reading_of(newest)
    monkeypatch.setattr(resolving, "reading_of", lambda release: as_modelled)
    findings = "--findings", tmp_path / "findings"
    assert run("fuzz", "--target", f"path:{fork}", *SEARCH, *findings).code == 1


@pytest.mark.full
def test_the_main_job_tells_an_installed_release_whose_text_was_changed(
    run: Run, fork: Path, change: Change, newest: InstalledRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(HASHER, *OTHER_SEQUENCES)
    changed = replace(newest, tree=fork)
    monkeypatch.setattr(releases, "install", lambda version, **further: changed)
    target = resolve(f"vllm@{NEWEST}", report=print)
    (announced,) = target.announcement
    assert announced.startswith(f"vllm@{NEWEST}: modelled definitions that differ from {NEWEST}")
    said: list[str] = []
    told = proof_targets.announced(proof_targets.Tree(f"vllm@{NEWEST}", changed), said.append)
    assert said == told["announced"] == [announced]


@pytest.mark.full
def test_a_release_that_is_not_modelled_is_told_by_its_number(
    newest: InstalledRelease, fork: Path
) -> None:
    reading = reading_of(replace(newest, version="0.99.0", tree=fork))
    assert reading is not None
    assert reading.announcement("it")[0] == "it: vLLM 0.99.0 is not a release that is modelled"


@pytest.mark.full
def test_the_listed_faults_of_a_fork_go_by_its_number_else_by_the_nearest_release(
    fork: Path,
) -> None:
    target = resolve(f"path:{fork}", report=print)
    assert (target.release, target.model) == (NEWEST, NEWEST)
    version = fork / "vllm" / "_version.py"
    version.unlink()
    target = resolve(f"path:{fork}", report=print)
    assert (target.release, target.model) == (NEWEST, NEWEST)
    assert target.announcement[0] == f"path:{fork}: says of itself no release"
    version.write_text("__version__ = version = '0.28.0+ours'\n")
    target = resolve(f"path:{fork}", report=print)
    assert (target.release, target.model) == ("0.28.0+ours", NEWEST)


def test_a_release_before_all_that_are_modelled_is_not_read(newest: InstalledRelease) -> None:
    assert reading_of(replace(newest, version="0.10.1.1")) is None


def test_a_fork_that_is_no_python_is_the_users_error(run: Run, fork: Path, change: Change) -> None:
    change(SCHEDULER, "class Scheduler(", "class class Scheduler(")
    refusal = run("fuzz", "--target", f"path:{fork}", *SEARCH).refusal
    assert "sched/scheduler.py, line " in refusal
    assert refusal.endswith("expected Python that can be read")


@pytest.mark.full
def test_the_reference_of_a_release_that_is_not_modelled_says_whose_semantics_it_has(
    run_process: Run, tmp_path: Path
) -> None:
    file = tmp_path / "out.json"
    arguments = "--depth", "manager", "--seeds", "0:1", "--json", file, "--findings", tmp_path
    ran = run_process("fuzz", "--target", "reference@0.32.5", *arguments)
    line = (
        "reference@0.32.5: vLLM 0.32.5 is not a release that is modelled; the semantics are those "
        "of 0.32.0"
    )
    assert line in ran.out.splitlines()
    assert "Warning" not in ran.err
    assert json.loads(file.read_text())["model"] == {"announced": [line], "reading": None}


@pytest.mark.full
def test_families_and_what_reads_otherwise_are_printed(
    run: Run, newest: InstalledRelease, fork: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run("vllm", "texts")
    assert ran.code == 0
    assert any(line.startswith("0.11.1, 0.11.2: ") for line in ran.out.splitlines())
    change(HASHER, *OTHER_SEQUENCES)
    changed = replace(newest, tree=fork)
    monkeypatch.setattr(text_table.releases, "list_installed", lambda: [changed])
    ran = run("vllm", "texts")
    assert ran.code == 1
    sentence = f"1 of 1 installed release reads otherwise than the table says: {NEWEST}."
    told = ran.out.splitlines()
    assert told[0] == told[-2] == sentence


def test_a_table_that_would_lack_releases_is_not_written(
    run: Run, newest: InstalledRelease, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(text_table.releases, "list_installed", lambda: [newest])
    refusal = run("vllm", "texts", "--toml", tmp_path / "texts.toml").refusal
    assert f"{len(MODELLED) - 1} of {len(MODELLED)} modelled releases are not installed" in refusal
    assert f"cacheproof vllm install {MODELLED[0]} " in refusal
    assert not (tmp_path / "texts.toml").exists()


@pytest.mark.full
def test_the_table_is_written_anew_from_the_releases_that_are_installed(
    run: Run, newest: InstalledRelease, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "texts.toml"
    installed = {one.version for one in releases.list_installed()}
    there = tuple(release for release in MODELLED if release in installed)
    assert newest.version in there
    monkeypatch.setattr(text_table, "MODELLED", there)  # no other is missed
    assert run("vllm", "texts", "--toml", file).code == 0
    shipped = Path(known_texts.__file__).parent / known_texts.TABLE
    assert file.read_text() == shipped.read_text()


def test_a_table_is_not_written_where_no_file_can_be(run: Run) -> None:
    assert "expected a file in a folder that exists" in run("vllm", "texts", "--toml", "/").refusal
