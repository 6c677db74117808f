"""The campaign's commands: what they print, how they end, and what a kill leaves of them."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from cacheproof.campaign import report as campaign_report
from cacheproof.campaign import run as campaign_run
from cacheproof.commands import campaign as campaign_commands
from cacheproof.differential.search.campaigns.schema import FILE
from cacheproof.differential.search.campaigns.store import CampaignTarget, MadeBy
from cacheproof.formats.writing import ACTIONS
from cacheproof.work.code_digest import code_digest
from tests.front.formats_read import complaints_about_junit, complaints_about_sarif

PLAN = """\
targets = ["reference"]
lanes = ["encoder-decoder"]
seeds = "0:40"
shard_seeds = 5
"""
ONE_WORKER = "--workers", "1"
KILLED = Path(__file__).parent / "killed_campaign.py"
SHARDS = 8
THIS_PROVES_NOTHING = (
    "This search of reference proves nothing, since only 0 of 8 shards are done, and for 1 more "
    "reason"
)


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
    assert f"\ndigest {digest_of(run, store)}\n" in ran.out
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
    assert "void: only " in left.out
    assert digest_of(run, store) != digest_of(run, whole)
    run("campaign", "resume", "--store", store, *ONE_WORKER)
    assert digest_of(run, store) == digest_of(run, whole)
    files = [{one.name for one in (place / "findings").iterdir()} for place in (store, whole)]
    assert files[0] == files[1]
    assert bool(files[0]) == (target != "reference")


@pytest.mark.full
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


@pytest.mark.sample(2)
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
    assert "campaigns need sqlalchemy and psycopg" in ran.refusal
    assert "-m pip install 'psycopg[binary]>=3.2' 'sqlalchemy>=" in ran.refusal


@pytest.mark.parametrize("command", [(), ("start",), ("status",), ("serve",)])
def test_help_needs_no_database(run, monkeypatch, command: tuple[str, ...]) -> None:
    monkeypatch.setattr(campaign_commands, "find_spec", lambda name: None)
    ran = run("campaign", *command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert " ".join(("Usage: cacheproof campaign", *command)) in ran.out


def test_an_interrupted_campaign_says_so_and_can_be_gone_on_with(
    run, plan: Path, tmp_path: Path, monkeypatch
) -> None:
    store, file = tmp_path / "store", tmp_path / "out.json"

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(campaign_run.RunningTarget, "run", stopped)
        ran = run("campaign", "start", plan, "--store", store, "--json", file, *ONE_WORKER)
    assert ran.code == 130
    sentence, *_ = ran.out.splitlines()
    assert sentence.startswith("The search of reference was interrupted and shows nothing new")
    assert "proves nothing" not in sentence
    assert "void: only 0 of 8 shards are done" in ran.out
    assert ran.out.splitlines()[-1] == f"  cacheproof campaign resume --store {store}"
    document = json.loads(file.read_text())
    assert document["exit_code"] == 130
    assert document["digest"] == digest_of(run, store)
    report = run("campaign", "report", "--store", store)
    assert (report.code, report.out.split(":")[0]) == (3, THIS_PROVES_NOTHING)
    assert run("campaign", "resume", "--store", store, *ONE_WORKER).code == 0


@pytest.mark.full
def test_stores_are_merged_by_the_command(run, plan: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        run("campaign", "start", plan, "--store", tmp_path / name, *ONE_WORKER)
    ran = run("campaign", "merge", tmp_path / "one", tmp_path / "other")
    assert ran.code == 0, ran.err
    assert f"holds {SHARDS} shards, of which {SHARDS} were in both stores" in ran.out
    assert digest_of(run, tmp_path / "one") == digest_of(run, tmp_path / "other")


TWO = """\
targets = ["reference@0.28.0", "reference@0.33.0"]
lanes = ["encoder cache"]
seeds = "0:2"
"""


@pytest.fixture
def kept(run, plan: Path, tmp_path: Path) -> Path:
    """A register with what a campaign of two releases has found."""
    plan.write_text(TWO)
    register = tmp_path / "register.jsonl"
    ran = run("campaign", "start", plan, "--store", tmp_path / "first", *ONE_WORKER,
              "--register", register)  # fmt: skip
    assert ran.code == 0, ran.err
    return register


def statuses(register: Path) -> dict[str, str]:
    lines = map(json.loads, register.read_text().splitlines())
    return {one["identity"]: one["status"] for one in lines}


@pytest.mark.full
def test_a_register_goes_from_campaign_to_campaign(run, plan: Path, kept, tmp_path: Path) -> None:
    assert set(statuses(kept).values()) == {"listed"}
    ran = run("campaign", "start", plan, "--store", tmp_path / "second", *ONE_WORKER,
              "--register", kept, "--json", tmp_path / "report.json")  # fmt: skip
    report = json.loads((tmp_path / "report.json").read_text())
    made_small = [one for one in report["faults"] if one["identity"] is not None]
    assert {one["identity"]: one["status"] for one in made_small} == statuses(kept)
    (mended, *_) = [one for one in report["faults"] if one["status"] == "mended"]
    assert mended["was"] == "listed"
    assert [one["breaks"] for one in mended["targets"].values()] == [True, False]
    assert f"mended: {mended['identity']} repeated-item" in ran.out
    assert re.search(rf"{mended['identity']} +mended +listed .*\d +holds", ran.out)
    assert report["seen"][mended["identity"]]["last"]["target"] == "reference@0.28.0"


@pytest.mark.full
def test_a_report_that_is_written_again_changes_neither_register_nor_digest(
    run, kept: Path, tmp_path: Path
) -> None:
    before = kept.read_bytes()
    digest = digest_of(run, tmp_path / "first")
    ran = run("campaign", "report", "--store", tmp_path / "first", "--register", kept)
    assert "; 0 not seen before" in ran.out
    assert kept.read_bytes() == before
    assert digest_of(run, tmp_path / "first") == digest


@pytest.mark.full
def test_what_is_listed_and_was_not_made_small_is_told_without_an_identity(
    run, plan: Path, tmp_path: Path
) -> None:
    plan.write_text(TWO)
    ran = run("campaign", "start", plan, "--store", tmp_path / "store", *ONE_WORKER)
    assert re.search(r"^- +listed +- +EC-6a? ", ran.out, re.MULTILINE)


@pytest.mark.parametrize("command", ["start", "resume", "report"])
def test_a_register_that_is_none_is_refused(run, plan: Path, tmp_path: Path, command: str) -> None:
    register = tmp_path / "register.jsonl"
    register.write_text("{}")
    arguments = ("start", plan) if command == "start" else (command,)
    ran = run("campaign", *arguments, "--store", tmp_path / "store", "--register", register)
    assert ran.refusal.startswith(f"{register} line 1: no record")
    assert not (tmp_path / "store").exists()


@pytest.mark.full
def test_a_report_is_written_for_pipelines_with_the_exit_code_of_a_search(
    run, plan: Path, tmp_path: Path, nothing_known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan.write_text(TWO)
    start = run("campaign", "start", plan, "--store", tmp_path / "store", *ONE_WORKER,
                "--known", nothing_known)  # fmt: skip
    monkeypatch.setenv(ACTIONS, "true")
    junit, sarif = tmp_path / "report.xml", tmp_path / "report.sarif"
    ran = run("campaign", "report", "--store", tmp_path / "store", "--junit", junit,
              "--sarif", sarif)  # fmt: skip
    assert (start.code, ran.code) == (1, 1)
    assert "::error" not in start.out
    assert re.search(r"^::error title=EC-6a%3A .*::reference@0.28.0: EC-6a", ran.out, re.MULTILINE)
    assert complaints_about_junit(junit.read_bytes()) == []
    document = json.loads(sarif.read_text())
    assert complaints_about_sarif(document) == []
    failing = {
        one["automationDetails"]["id"]: {result["ruleId"] for result in one["results"]}
        for one in document["runs"]
    }
    assert "EC-6a" in failing["cacheproof campaign/reference@0.28.0/"]
    assert "EC-6a" not in failing["cacheproof campaign/reference@0.33.0/"]


def test_places_are_named_where_the_text_is_the_one_that_was_searched(tmp_path: Path) -> None:
    file = tmp_path / "vllm" / "a.py"
    file.parent.mkdir()
    file.write_text("a = 1\n")
    about = CampaignTarget(
        f"path:{tmp_path}", None, code_digest(["vllm"], tmp_path), True, False, ()
    )
    assert campaign_report._subject(about).tree == tmp_path
    file.write_text("a = 2\n")
    assert campaign_report._subject(about).tree is None
