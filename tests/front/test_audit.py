"""`audit` ends with an account of what an engine recorded, whatever became of the record; and
`minimise` with a finding that the release alone shows again."""

import json
import random
import re
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

from cacheproof.audit import page as audit_page
from cacheproof.audit.answer import Answered
from cacheproof.audit.listing import Listing, reads_otherwise
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.findings import leading
from cacheproof.differential.provision import releases
from cacheproof.differential.recording.messages import Stored, Text
from cacheproof.differential.targets.changed import ChangedText, write_tree
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import CallRecord
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import parse
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import NEWEST
from tests.differential import scheduler_traces
from tests.differential.audit.spoiled import beside, copied, die, file_of, records_of, spoil
from tests.differential.recording.driven import Driven, long_trace, run_recorded
from tests.differential.recording.made import OPENED
from tests.front.conftest import Run

PLANTED = "drops_what_is_encoded"
ROOT = Path(__file__).resolve().parents[2]


def finding(name: str) -> Trace:
    with kept_traces()[name].open("rb") as lines:
        return parse(lines, name)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Driven]:
    """Records of a right scheduler, of one with a fault, and of one that shows a listed fault."""
    trace = long_trace(6)
    return run_recorded(
        NEWEST,
        [(trace, None), (trace, PLANTED), (finding("stripped-item"), None)],
        tmp_path_factory.mktemp("records"),
        7,
        with_kv=True,
    )


@pytest.fixture(scope="module")
def driven(recorded: list[Driven]) -> tuple[Driven, Driven]:
    """The record of the right one, and of the one with a fault."""
    right, wrong, _ = recorded
    return right, wrong


@pytest.fixture
def dead(recorded: list[Driven], tmp_path: Path) -> Path:
    """The record of an engine that died where it broke SC-9, as a listed fault does."""
    shutil.copytree(recorded[2].folder, tmp_path / "dead")
    return die(tmp_path / "dead", step_of(recorded[2]))


def step_of(driven: Driven) -> int:
    """The step in which it broke SC-9 last."""
    return driven.audited().last["SC-9", "after a preemption"].at.step


def test_a_right_record_and_a_wrong_one(run: Run, driven: tuple[Driven, Driven]) -> None:
    right, wrong = (run("audit", one.folder) for one in driven)
    assert (right.code, right.err) == (0, "")
    assert "72 of 72 steps judged, 6 requests" in right.out
    assert "96 of 96 calls of its KV cache judged" in right.out
    assert (wrong.code, wrong.err) == (1, "")
    assert re.search(r"broken +SC-9.*, safety, in step ", wrong.out)


def test_a_gap_is_named_and_voids(run: Run, driven: tuple[Driven, Driven], tmp_path: Path) -> None:
    file = tmp_path / "record.cprec"
    file.write_bytes(file_of(records_of(driven[0].folder), missing=64))
    ran = run("audit", file)
    assert (ran.code, ran.err) == (3, "")
    assert "missing: 8 records are missing" in ran.out


@pytest.mark.parametrize("which", [0, 1])
def test_an_audit_that_is_interrupted_says_so_and_draws_no_more_than_it_judged(
    run: Run,
    driven: tuple[Driven, Driven],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    which: int,
) -> None:
    fed, feed, last = count(), Auditor.feed, len(records_of(driven[which].folder)) - 5

    def interrupted(auditor: Auditor, part: object) -> None:
        if next(fed) == last:
            raise KeyboardInterrupt
        feed(auditor, part)

    monkeypatch.setattr(Auditor, "feed", interrupted)
    files = {name: tmp_path / f"out.{name}" for name in ("json", "junit", "html")}
    folder = driven[which].folder
    ran = run("audit", folder, *(f"--{name}={file}" for name, file in files.items()))
    assert (ran.code, ran.err) == (130, "cacheproof: interrupted\n")
    what = "broke no contract" if which == 0 else "broke SC-9 in step"
    assert ran.out.startswith(
        f"The audit of {folder} was interrupted, and until then vllm {NEWEST} {what} "
    )
    assert "what comes after that was not read" in ran.out
    assert json.loads(files["json"].read_text())["exit_code"] == 130
    assert "interrupted" in files["junit"].read_text()
    page = drawn_on(files["html"])
    assert page["title"].endswith(" steps were judged, until the audit was interrupted")
    assert max(one["number"] for one in page["events"]) <= last


@pytest.mark.parametrize("window", [1, 20, 500])
def test_what_is_drawn_does_not_hang_on_steps_that_were_passed_over(
    driven: tuple[Driven, Driven], monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    audit_of = Audit(str(driven[0].folder))
    audit_of.look(last=True)
    ((stem, auditor),) = audit_of.auditors.items()
    answered = [Answered.of(stem, auditor, Listing([]))]
    some = audit_page.drawn(answered, str(driven[0].folder), window)
    monkeypatch.setattr(audit_page, "AHEAD", 10**9)
    assert audit_page.drawn(answered, str(driven[0].folder), window) == some


@pytest.mark.sample(4)
@pytest.mark.parametrize("part", range(4))
def test_no_change_of_a_record_ends_in_a_traceback(
    run: Run, driven: tuple[Driven, Driven], tmp_path: Path, part: int
) -> None:
    file = tmp_path / "record.cprec"
    records = records_of(driven[part % 2].folder)
    codes = set()
    for seed in range(25):
        draw = random.Random(100 * part + seed)
        data = bytearray(file_of(spoil(records, draw)))
        if draw.random() < 0.5:
            for _ in range(draw.randint(1, 20)):
                data[draw.randrange(len(data))] = draw.getrandbits(8)
        file.write_bytes(data)
        ran = run("audit", file, "--json", tmp_path / "audit.json")
        assert ran.code in (0, 1, 2, 3), seed
        assert len(ran.err.splitlines()) == (ran.code == 2), (seed, ran.err)
        codes.add(ran.code)
    assert codes & {1, 3}


@pytest.mark.full
def test_a_break_in_a_record_becomes_a_finding_that_replays(
    run: Run, recorded: list[Driven], tmp_path: Path
) -> None:
    found = tmp_path / "found"
    ran = run(
        "minimise", recorded[2].folder, "--contract", "SC-9", "--findings", found, "--seconds", 60
    )
    assert ran.code == 1, ran.err
    assert "SC-9" in ran.out
    (file,) = found.glob("*.json")
    again = run("replay", file)
    assert (again.code, again.err) == (1, "")
    assert "SC-9" in again.out


@pytest.mark.full
def test_a_break_of_the_kv_cache_is_told_and_is_nothing_to_minimise(
    run: Run, tmp_path: Path
) -> None:
    (driven,) = run_recorded(NEWEST, [(long_trace(4), "kv: leaks_a_block")], tmp_path, with_kv=True)
    ran = run("audit", driven.folder)
    assert (ran.code, ran.err) == (1, "")
    assert re.search(r"broken +BP-3, safety, in step ", ran.out)
    assert "minimise" not in ran.out
    refusal = run("minimise", driven.folder, "--contract", "BP-3", "--findings", tmp_path).refusal
    assert refusal == (
        f"{driven.folder}: BP-3 is broken by a KV cache manager, and a record is told as the trace "
        "of a scheduler; expected another contract: search for this one with cacheproof fuzz "
        f"--target vllm@{NEWEST} --depth kv_cache"
    )
    refusal = run("minimise", driven.folder, "--findings", tmp_path).refusal
    assert refusal.startswith(f"{driven.folder}: no break of any contract in it; expected ")


def test_a_record_without_a_break_is_nothing_to_minimise(
    run: Run, driven: tuple[Driven, Driven], tmp_path: Path
) -> None:
    folder = driven[0].folder
    refusal = run("minimise", folder, "--findings", tmp_path).refusal
    assert refusal == (
        f"{folder}: no break of any contract in it; expected a record in which audit finds one"
    )
    refusal = run(
        "minimise", driven[1].folder, "--contract", "BK-1", "--findings", tmp_path
    ).refusal
    assert refusal.startswith(f"{driven[1].folder}: no break of BK-1 in it; expected one of ")


def test_a_call_that_raised_is_no_call_that_did_what_it_was_for() -> None:
    raised = CallRecord("allocate", "r1", 0, None, None, {"raises": "KeyError"}, None)
    assert leading._call(raised, {"r1"}) is None
    took_in = raised._replace(answer=None)
    assert leading._call(took_in, {"r1"}) == "r1 takes in #0"


def labelled(out: str) -> dict[str, str]:
    """The first words of each label on screen."""
    found: dict[str, str] = {}
    for label, words in re.findall(r"^  (\w+(?: \w+)*?) {2,}(\S.*)$", out, re.MULTILINE):
        found.setdefault(label, words)
    return found


def drawn_on(page: Path) -> dict[str, Any]:
    """What a page draws."""
    data = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    return json.loads(data)


def audited_in_every_format(run: Run, folder: Path, *more: str | Path) -> dict[str, Any]:
    """What an audit says: on screen, in JSON, as JUnit, as SARIF, and on its page."""
    files = {name: folder.parent / f"audit.{name}" for name in ("json", "junit", "sarif", "html")}
    ran = run("audit", folder, *(f"--{name}={file}" for name, file in files.items()), *more)
    assert (ran.code, ran.err) == (1, "")
    return {
        "screen": ran.out,
        "json": json.loads(files["json"].read_text()),
        "junit": ET.fromstring(files["junit"].read_bytes()),
        "sarif": json.loads(files["sarif"].read_text()),
        "page": drawn_on(files["html"]),
    }


def test_of_a_server_that_died_the_first_screen_says_why_and_what_to_do(
    run: Run, dead: Path
) -> None:
    ran = run("audit", dead)
    assert ran.code == 1
    first, *_ = ran.out.splitlines()
    assert re.fullmatch(
        rf"vllm {NEWEST} died in step \d+, [-\d]+ [:\d]+ UTC, of a known fault, stripped-item: "
        r"RuntimeError: Encoder cache miss for h0\.",
        first,
    )
    said = labelled(ran.out)
    assert said["exception"] == "RuntimeError: Encoder cache miss for h0"
    assert said["raised in"] == "execute_model, vllm/a.py:3 (b)"
    assert said["known"].startswith("yes, stripped-item: ")
    assert "second model runner" in said["avoid by"]
    assert said["releases"].endswith(f"last run {NEWEST}, not mended")
    assert "PR #52041" in said["public"]
    assert said["broken"].startswith("SC-9 (after a preemption), safety, in that step")
    labels = list(said)
    order = [labels.index(one) for one in ("exception", "known", "broken", "formula", "letters")]
    assert order == sorted(order)
    assert "r: a request" in said["letters"]
    assert ran.out.index("what led to it") < ran.out.index("  formula")


def test_the_next_step_is_first_an_operators_and_then_a_developers(run: Run, dead: Path) -> None:
    *_, step, command = run("audit", dead).out.splitlines()
    assert step.startswith(
        "Next: restart with the second model runner (VLLM_USE_V2_MODEL_RUNNER=1)"
    )
    assert step.endswith(". A developer makes a small trace of it with:")
    assert command == f"  cacheproof minimise {dead} --contract SC-9"


def test_what_no_list_knows_is_made_small_and_reported(
    run: Run, dead: Path, nothing_known: Path
) -> None:
    *_, step, _ = run("audit", dead, "--known", nothing_known).out.splitlines()
    assert step == "Next: make a small trace of it, and report it:"


def test_what_another_text_broke_is_made_small_on_that_text(
    run: Run, recorded_as: Callable[..., Path]
) -> None:
    folder = recorded_as(CHANGED)
    ran = run("audit", folder)
    first, *_, step, command = ran.out.splitlines()
    assert f", where it broke SC-9, {MAY_BE}" in first.replace(" ...", "")
    assert OTHERWISE in labelled(ran.out)["known"]
    assert step.startswith("Next: make a small trace of it on the vLLM that ran")
    assert command == f"  cacheproof minimise {folder} --contract SC-9 --target path:DIR"


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        (Text(NEWEST, 589, {}), ""),
        (Text("0.32.0", 576, {}), "the vLLM that ran reads as 0.32.0, and not as what it says "),
        (Text("0.32.0", 576, {"Request": "gone"}), "otherwise than 0.32.0 in Request (gone)"),
        (
            Text(NEWEST, 589, dict.fromkeys("abcde", "changed")),
            f"otherwise than {NEWEST} in a, b, c and 2 more",
        ),
        (
            Text(NEWEST, 1, {"a\nb": "a\x1bway"}),
            f"otherwise than {NEWEST} in a\\nb (a\\x1bway)",
        ),
    ],
)
def test_only_the_text_of_the_release_itself_has_its_faults(
    run: Run, recorded_as: Callable[..., Path], text: Text, clause: str
) -> None:
    out = run("audit", recorded_as(text)).out
    assert clause in out
    assert labelled(out)["known"].startswith("no: it is new" if clause else "yes, stripped-item: ")


OF_A_WORKER = """
title = "A worker that forgets"
harm = "safety"
seen = "0.33.0"
"""


@pytest.mark.parametrize(
    ("cause", "word"),
    [
        (
            '[[cause]]\nflags = ["scheduler.hands_on_encodes"]\ncontracts = ["WM-1"]',
            "no: the step keeps WM-1 as the scheduler decided it, ",
        ),
        ('[[symptom]]\ncontract = "WM-1"\nreleases = "all"', "yes, listed: A worker that forgets"),
    ],
)
def test_what_a_worker_alone_broke_is_no_fault_of_schedulers(
    run: Run, driven: tuple[Driven, Driven], tmp_path: Path, cause: str, word: str
) -> None:
    judge = driven[0].audited().judge
    assert judge is not None
    number, tokens = next((one, tokens) for one, tokens, step, _ in judge.steps if step.store)
    folder, known = tmp_path / "records", tmp_path / "listed"
    shutil.copytree(driven[0].folder, folder)
    beside(folder, Stored(7, number, tokens, {}))
    known.mkdir()
    (known / "fault.toml").write_text(OF_A_WORKER + cause)
    ran = run("audit", folder, "--known", known)
    assert ran.code == 1
    assert labelled(ran.out)["known"].startswith(word)
    assert labelled(ran.out)["broken"].startswith(
        f"WM-1 (held by a worker), safety, in step {number} "
    )
    assert "minimise" not in ran.out
    refusal = run("minimise", folder, "--contract", "WM-1", "--findings", tmp_path).refusal
    assert refusal.startswith(f"{folder}: WM-1 is broken by what a worker held, and not by what ")


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_step_excuses_a_worker_of_what_it_breaks_itself_alone(
    driven: tuple[Driven, Driven], *, is_decided: bool
) -> None:
    judge = driven[0].audited().judge
    assert judge is not None
    number, tokens, step = next((*one[:2], one[2]) for one in judge.steps if one[2].store)
    judge.steps.clear()
    held = step._replace(store={}) if is_decided else step
    judge.steps.append((number, tokens, held, False))  # it broke something
    assert judge.judge_store(number, tokens, {})
    assert "WM-1" in judge.violations
    assert ("WM-1" in judge.decided_broken) == is_decided


def test_what_a_later_version_adds_to_a_record_is_passed_over(
    run: Run, recorded: list[Driven], tmp_path: Path
) -> None:
    opened, *records = records_of(recorded[2].folder)
    later = tmp_path / "later.cprec"
    later.write_bytes(file_of([[*opened, ["of a later version"]], *records]))
    ran = run("audit", later)
    assert labelled(ran.out)["known"].startswith("yes, stripped-item: ")
    assert labelled(ran.out)["told by"] == TOLD_BY["listed"]


@pytest.mark.parametrize("release", [None, NEWEST])
def test_a_version_that_is_no_release_may_read_as_one(release: str | None) -> None:
    auditor = Auditor()
    auditor.release = release
    auditor.opened = structs.replace(OPENED, text=Text(NEWEST, 589, {}))
    assert reads_otherwise(auditor) == ""
    auditor.opened = structs.replace(OPENED, text=CHANGED)
    assert reads_otherwise(auditor) == OTHERWISE


@pytest.mark.full
def test_a_record_of_a_changed_scheduler_shows_no_listed_fault(run: Run, tmp_path: Path) -> None:
    release = releases.install(NEWEST, report=print)
    path = "vllm/v1/core/sched/scheduler.py"
    statement = "scheduled_encoder_inputs[request_id] = encoder_inputs_to_schedule"
    before, found, after = (release.tree / path).read_text().rpartition(statement)
    assert found
    changed = ChangedText(path, "Scheduler.schedule", f"{before}{statement}[:2]{after}")
    write_tree(release, changed, tmp_path / "tree")
    items = tuple(Item(f"h{number}", 8 * number, 4) for number in range(3))
    trace = scheduler_traces.trace(
        Add("q", prompt=24, items=items, max_tokens=1),
        Schedule(),
        Update(),
        capacity=12,
        compute_budget=12,
        max_num_batched_tokens=24,
    )
    told = {}
    for name, tree in (("own", None), ("changed", tmp_path / "tree")):
        (tmp_path / name).mkdir()
        (driven,) = run_recorded(NEWEST, [(trace, None)], tmp_path / name, tree=tree)
        ran = run("audit", driven.folder)
        told[name] = ran.code, labelled(ran.out).get("known", "")
    assert told["own"] == (0, "")
    code, known = told["changed"]
    assert code == 1
    assert known.startswith("no: it is new, or phantom-entry")
    assert known.endswith(OTHERWISE)


def test_an_engine_that_lives_has_not_died(run: Run, recorded: list[Driven]) -> None:
    ran = run("audit", recorded[2].folder)
    assert ran.code == 1
    assert "died" not in ran.out
    assert ran.out.startswith(f"vllm {NEWEST} broke SC-9 in step ")


def test_of_an_exception_that_no_break_explains_only_that_is_said(
    run: Run, recorded: list[Driven], tmp_path: Path
) -> None:
    shutil.copytree(recorded[0].folder, tmp_path / "dead")
    ran = run("audit", die(tmp_path / "dead", 40))
    assert ran.code == 1
    assert "of what breaks no contract: RuntimeError: Encoder cache miss for h0." in ran.out
    assert labelled(ran.out)["broken"] == "no contract that is judged was broken in that step"


def test_a_record_that_ends_before_the_engine_died_says_so(
    run: Run, recorded: list[Driven], tmp_path: Path
) -> None:
    """The server may be killed before the scheduler's last records are written."""
    shutil.copytree(recorded[0].folder, tmp_path / "dead")
    ran = run("audit", die(tmp_path / "dead", 1_000_000))
    assert ran.code == 1
    assert "and its record ends before that: RuntimeError: Encoder cache miss for h0." in ran.out
    assert "breaks no contract" not in ran.out
    assert labelled(ran.out)["broken"].startswith("not known: the record ends before the step")


def test_one_moment_has_one_number(run: Run, dead: Path) -> None:
    said = audited_in_every_format(run, dead)
    (engine,) = said["json"]["engines"]
    record, step = engine["died"]["record"], engine["died"]["step"]
    assert (engine["findings"][0]["record"], engine["findings"][0]["step"]) == (record, step)
    assert f"in step {step:,} (record {record:,}, " in labelled(said["screen"])["died"]
    page = said["page"]
    (broken,) = page["broken"]
    assert page["unit"] == "record"
    assert page["events"][broken["event"] - page["first"]]["number"] == record
    assert f"in step {step:,} (record {record:,}, " in broken["sentence"]
    assert dict(page["answer"])["died"] == labelled(said["screen"])["died"]


CHANGED = Text(NEWEST, 589, {"Scheduler.schedule": "changed"})
OTHERWISE = f"the vLLM that ran reads otherwise than {NEWEST} in Scheduler.schedule"
MAY_BE = f"new, or stripped-item in another form, since {OTHERWISE}"
TOLD_BY = {
    "listed": f"what it breaks, in a vLLM that reads as {NEWEST}",
    "of an older record": "what it breaks alone: the record does not say which text of vLLM ran",
}


@pytest.fixture
def recorded_as(recorded: list[Driven], tmp_path: Path) -> Callable[..., Path]:
    """The dead engine's record, as a vLLM of another text would have written it."""

    def written(text: Text | None, *, is_older: bool = False) -> Path:
        folder = copied(recorded[2].folder, tmp_path / "other", text, is_older=is_older)
        return die(folder, step_of(recorded[2]))

    return written


@pytest.mark.parametrize("case", ["listed", "not listed", "of another text", "of an older record"])
def test_whether_it_is_known_is_said_alike_everywhere(
    run: Run,
    dead: Path,
    recorded_as: Callable[..., Path],
    nothing_known: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    is_known = case in ("listed", "of an older record")
    if case == "of another text":
        dead = recorded_as(CHANGED)
    elif case == "of an older record":
        dead = recorded_as(None, is_older=True)
    said = audited_in_every_format(
        run, dead, *(("--known", nothing_known) if case == "not listed" else ())
    )
    word = "yes, stripped-item: " if is_known else "no: no listed fault"
    if case == "of another text":
        word = f"no: it is {MAY_BE}"
    assert labelled(said["screen"]).get("told by") == TOLD_BY.get(case)
    assert labelled(said["screen"])["known"].startswith(word)
    assert dict(said["page"]["answer"])["known"].startswith(word)
    (engine,) = said["json"]["engines"]
    fatal = engine["findings"][0]
    assert (fatal["contract"], fatal["fatal"]) == ("SC-9", True)
    assert fatal["listed"] == ["stripped-item"] * is_known
    assert fatal["by_symptom"] == (case == "of an older record")
    assert fatal["akin"] == MAY_BE * (case == "of another text")
    (row,) = re.findall(r"^\| scheduler.* \|$", summary.read_text(), re.MULTILINE)
    unlisted = int(row.split("|")[3])
    results = {one["ruleId"]: one for one in said["sarif"]["runs"][0]["results"]}
    failures = {
        case.get("name"): case.find("failure")
        for case in said["junit"].iter("testcase")
        if case.find("failure") is not None
    }
    for rule in ("goes-on", "SC-9"):
        assert ("suppressions" in results[rule]) == is_known, rule
        message = failures[rule].get("message") or ""
        assert ("; listed as stripped-item" in message) == is_known, rule
        assert (", by what it breaks alone" in message) == fatal["by_symptom"], rule
        assert message.endswith(f"; {MAY_BE}") == bool(fatal["akin"]), rule
    assert unlisted == (0 if is_known else 2)
    title = "What a step encodes, the workers have been given"
    (broken,) = said["page"]["broken"]
    assert broken["sentence"].endswith(f"): {title}")
    assert f": {title}" in (failures["SC-9"].get("message") or "")
    assert (failures["SC-9"].text or "").endswith(broken["why"])
