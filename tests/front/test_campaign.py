"""The campaign's commands: what they print, how they end, and what a kill leaves of them."""

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from cacheproof import campaign_commands, campaign_run
from cacheproof.differential.search.campaigns.schema import FILE
from cacheproof.differential.search.campaigns.store import MadeBy

PLAN = """\
targets = ["reference"]
lanes = ["encoder-decoder"]
seeds = "0:40"
shard_seeds = 5
"""
ONE_WORKER = "--workers", "1"
KILLED = Path(__file__).parent / "killed_campaign.py"
SHARDS = 8


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def digest_of(run, store: Path) -> str:
    ran = run("campaign", "report", "--store", store, "--json", "-")
    return json.loads(ran.out)["digest"]


def test_a_campaign_is_started_reported_and_finished(run, plan: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ran = run("campaign", "start", plan, "--store", store, *ONE_WORKER)
    assert ran.code == 0, ran.err
    assert "reference: 40 traces" in ran.out
    assert "seeds 0:40 of encoder-decoder" in ran.out
    (last,) = ran.out.splitlines()[-1:]
    assert last == f"digest {digest_of(run, store)}"
    again = run("campaign", "resume", "--store", store, *ONE_WORKER)
    assert (again.code, again.out) == (ran.code, ran.out)
    status = run("campaign", "status", "--store", store)
    assert status.code == 0
    assert f"{SHARDS} of {SHARDS}" in status.out
    assert "nobody runs it" in status.out


def ended(store: Path) -> int:
    """Jobs of a store that have ended, as far as there is a store."""
    file = store / FILE
    if not file.exists():
        return 0
    connection = sqlite3.connect(file, timeout=60)
    try:
        query = "SELECT count(*) FROM jobs WHERE state = 'done'"
        (count,) = connection.execute(query).fetchone()
    except sqlite3.OperationalError:  # no table yet
        return 0
    finally:
        connection.close()
    return count


@pytest.mark.parametrize(
    "target", ["reference", pytest.param("vllm@0.28.0", marks=pytest.mark.full)]
)
def test_a_campaign_that_is_killed_several_times_comes_to_the_same_digest(
    run, plan: Path, tmp_path: Path, target: str
) -> None:
    plan.write_text(PLAN.replace("reference", target))
    whole, store = tmp_path / "whole", tmp_path / "killed"
    run("campaign", "start", plan, "--store", whole, *ONE_WORKER)
    command = "start", str(plan)
    for when, kept in ("after", 2), ("before", 1), ("after", 2):
        before = ended(store)
        killed = subprocess.run(
            [sys.executable, KILLED, when, "2", "campaign", *command, "--store", store, *ONE_WORKER]
        )
        assert killed.returncode == -signal.SIGKILL
        assert ended(store) == before + kept
        command = ("resume",)
    left = run("campaign", "report", "--store", store)
    assert left.code == 3
    assert "void: not finished" in left.out
    assert digest_of(run, store) != digest_of(run, whole)
    run("campaign", "resume", "--store", store, *ONE_WORKER)
    assert digest_of(run, store) == digest_of(run, whole)
    files = [{one.name for one in (place / "findings").iterdir()} for place in (store, whole)]
    assert files[0] == files[1]
    assert bool(files[0]) == (target != "reference")


def test_the_findings_that_a_campaign_writes_down_replay(
    run, plan: Path, tmp_path: Path, two_releases: tuple[str, str]
) -> None:
    plan.write_text(
        PLAN.replace("reference", two_releases[1]).replace("encoder-decoder", "scheduler")
    )
    run("campaign", "start", plan, "--store", tmp_path / "store", *ONE_WORKER)
    written = sorted((tmp_path / "store" / "findings").glob("*.json"))
    assert written
    for path in written:
        replayed = run("replay", path)
        assert replayed.code == 1, replayed.err


def test_a_store_that_has_a_campaign_takes_no_other(run, plan: Path, tmp_path: Path) -> None:
    run("campaign", "start", plan, "--store", tmp_path / "store", *ONE_WORKER)
    ran = run("campaign", "start", plan, "--store", tmp_path / "store", *ONE_WORKER)
    assert "holds a campaign already" in ran.refusal


@pytest.mark.parametrize(
    ("made_by", "words"),
    [
        (MadeBy("0.0.9", "code"), "cacheproof was "),
        (MadeBy("0.1.0", "text"), "the digest of cacheproof's text was "),
    ],
)
def test_another_cacheproof_does_not_go_on(
    run,
    plan: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made_by: MadeBy,
    words: str,
) -> None:
    store = tmp_path / "store"
    with monkeypatch.context() as patch:
        patch.setattr(campaign_run, "made_by", lambda: made_by)
        run("campaign", "start", plan, "--store", store, *ONE_WORKER)
    assert words in run("campaign", "resume", "--store", store).refusal
    assert run("campaign", "report", "--store", store).code == 0


def test_a_target_whose_text_changed_is_refused(
    run, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    run("campaign", "start", plan, "--store", store, *ONE_WORKER)
    monkeypatch.setattr(campaign_run, "text_of", lambda target: "another")
    assert "the digest of reference's text" in run("campaign", "resume", "--store", store).refusal


@pytest.mark.parametrize("command", ["resume", "status", "report"])
def test_a_place_without_a_campaign_is_refused(run, tmp_path: Path, command: str) -> None:
    ran = run("campaign", command, "--store", tmp_path / "nothing")
    assert "no campaign; expected one that start has begun" in ran.refusal
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("mysql://user:secret@host/base", "expected a folder or postgresql://"),
        ("postgresql://", "expected a folder or postgresql://"),
        ("postgresql://user:secret@localhost:1/base", "expected a database that works"),
    ],
)
def test_a_database_that_is_none_is_refused_and_no_password_is_shown(
    run, where: str, words: str
) -> None:
    ran = run("campaign", "status", "--store", where)
    assert words in ran.refusal
    assert "secret" not in ran.refusal


@pytest.mark.parametrize("content", [b"no database\n" * 100, b""])
def test_a_file_that_is_no_store_is_refused(run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert "--store" in run("campaign", "status", "--store", tmp_path).refusal


def test_a_plan_with_an_unknown_target_is_refused(run, plan: Path, tmp_path: Path) -> None:
    plan.write_text(PLAN.replace("reference", "nobody"))
    ran = run("campaign", "start", plan, "--store", tmp_path / "store")
    assert f"{plan}: key targets: target 'nobody': expected reference" in ran.refusal
    assert not (tmp_path / "store").exists()


def test_without_its_libraries_the_extra_is_named(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_commands, "find_spec", lambda name: None)
    ran = run("campaign", "status")
    assert "pip install 'cacheproof[campaign]'" in ran.refusal


def test_stores_are_merged_by_the_command(run, plan: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        run("campaign", "start", plan, "--store", tmp_path / name, *ONE_WORKER)
    ran = run("campaign", "merge", tmp_path / "one", tmp_path / "other")
    assert ran.code == 0, ran.err
    assert f"{SHARDS} shards are done, {SHARDS} of them were in both" in ran.out
    assert digest_of(run, tmp_path / "one") == digest_of(run, tmp_path / "other")
