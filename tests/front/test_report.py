"""Reports of known faults for upstream: what they say and leave out, and when there is none."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cacheproof.differential.findings.finding import of_run, replay
from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.findings.standalone.running import TestOutcome
from cacheproof.differential.provision.releases import find
from cacheproof.differential.targets.named import TargetKind, named
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.texts import mends
from cacheproof.differential.traces.records import Raised, StepRecord, TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed.facts import fault_called
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import NEWEST, within
from cacheproof.reference.semantics import Semantics
from cacheproof.reporting import command, page, showing
from cacheproof.reporting.disclosure import wants_disclosure
from cacheproof.reporting.page import NO_RECIPE, Reported, markdown
from cacheproof.reporting.patch import patch_of
from cacheproof.reporting.showing import FaultShown, Seen
from cacheproof.reporting.subject import ReportSubject, subject_called
from cacheproof.review.page import code
from tests.front.conftest import Run

Play = Callable[..., None]
"""Takes what each run of the script is to come to."""

TARGET = f"vllm@{NEWEST}"
FAILS = Seen(TARGET, "AssertionError", "assert set(store) == set(manager.cached)", 4.2)
PASSES = Seen(f"{TARGET}+mended:phantom-entry", "", "", 4.4)
PATCH = patch_of({"vllm/a.py": ("def a():\n    return 1\n", "def a():\n    return 2\n")})
SECTIONS = [
    "How it shows",
    "Expected, and seen",
    "Why",
    "Who meets it",
    "A change that mends it",
    "What the change does beside that",
    "Threads that are public",
]


def reported(name: str = "phantom-entry", **changed: object) -> Reported:
    """A report as if it had been run."""
    shown = FaultShown(
        "cacheproof replay x", script="def test_it():\n    pass\n", runs=(FAILS, PASSES)
    )
    subject = ReportSubject(fault_called(name), TARGET, name)
    return replace(Reported(subject, shown, PATCH, None), **changed)


def sections(text: str) -> list[str]:
    return [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]


def test_a_report_has_all_that_upstream_is_to_know() -> None:
    text = markdown(reported())
    assert text.startswith("# A cached entry that nobody encoded\n")
    assert sections(text) == SECTIONS
    for part in (
        f"- Reported on: vLLM {NEWEST}",
        "seen in 0.11.1 to 0.33.0",
        "```python\ndef test_it():\n    pass\n```",
        "`pytest test_phantom_entry.py`",
        "passes (4 s)",
        "schedule() may preempt a running request",
        "- `vllm/a.py:2`, in `a`",
        "- Avoid by: --scheduling-policy fcfs (the default)",
        "```diff\n--- a/vllm/a.py\n+++ b/vllm/a.py\n",
        f"cacheproof review --base {TARGET} --head {TARGET}+mended:phantom-entry",
        "None found; the mechanism in PR #53723 (open).",
    ):
        assert part in text
    assert "disclosure" not in text


def test_a_fault_without_a_mend_is_reported_without_a_change() -> None:
    shown = FaultShown("cacheproof replay x", script="pass", runs=(FAILS,))
    text = markdown(reported(shown=shown, patch=None))
    assert f"None is known here for vLLM {NEWEST}." in text
    assert "With the fault mended: not run" in text
    assert "```diff" not in text
    assert "What the change does beside that" not in sections(text)


def test_where_no_script_shows_it_a_command_does() -> None:
    shown = FaultShown("cacheproof replay x", why_none="an engine is more", runs=(FAILS, PASSES))
    text = markdown(reported(shown=shown))
    assert "No script that needs vLLM alone shows it: an engine is more." in text
    assert "```\ncacheproof replay x\n```" in text
    assert "with the change below: breaks nothing of it (4 s)" in text
    assert "```python" not in text


def test_a_change_that_refuses_the_request_says_so() -> None:
    refuses = replace(PASSES, refuses="The prompt contains an item of 10 tokens.")
    shown = FaultShown("cacheproof replay x", why_none="it is refused", runs=(FAILS, refuses))
    text = markdown(reported(shown=shown))
    assert "refuses the request: <code>The prompt contains an item of 10 tokens.</code>" in text


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (Raised("refused: ValueError", "too long"), "too long"),
        (Raised("ValueError", "too long"), ""),
        (None, ""),
    ],
)
def test_a_refusal_is_told_from_a_crash(raised: Raised | None, why: str) -> None:
    """One makes the fault unreachable; the other shows nothing."""
    result = TraceResult([StepRecord(None, [], raised, None)])
    assert showing.refusal_in(result) == why


def test_a_report_of_what_nothing_can_run_says_so() -> None:
    text = markdown(reported(shown=FaultShown("", why_none="no")))
    assert "Nothing was run for this report: neither the fault nor what a change does" in text


def test_what_crosses_a_border_is_for_the_maintainers_alone() -> None:
    text = markdown(reported("uncomputed-hit"))
    assert text.startswith("> **For private disclosure.**")
    assert "SECURITY.md" in text.splitlines()[0]
    assert "```python\ndef test_it()" in text  # the events of a scheduler


@pytest.mark.parametrize("is_mended", [False, True])
def test_what_a_client_would_send_is_in_no_report_of_an_open_fault(
    is_mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are what clients send; the kept trace is of a fault that a release has mended."""
    (release, *_) = within(fault_called("salt-adapter").seen)
    target = ReferenceTarget(Semantics.of_vllm(release), name=TARGET, release=release)
    trace = load(kept_traces()["salt-adapter"])
    assert isinstance(trace, Trace)
    found = of_run(target, trace, replay(trace, target, 1))[0]
    script = "a script with keys"
    words = replace(FAILS, broke=found.sentence, line="assert one == other")
    shown = FaultShown("cacheproof fuzz", finding=found, script=script, runs=(words, PASSES))
    monkeypatch.setattr(page, "wants_disclosure", lambda fault: not is_mended)
    text = markdown(reported(shown=shown))
    assert (script in text) == is_mended
    assert (NO_RECIPE in text) == (not is_mended)
    assert (words.line in text) == is_mended
    assert text.count(code(found.why)[6:-7]) == 2 * is_mended
    assert "Seen: after event" in text


@pytest.mark.parametrize(("kept", "is_told"), [(None, False), ("phantom-entry", True)])
def test_what_a_search_has_made_for_a_border_is_in_no_report(
    kept: str | None, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trace is not kept either: names may lead out of a folder."""
    target = ReferenceTarget(Semantics.of_vllm(NEWEST), name=TARGET, release=NEWEST)
    trace = load(kept_traces()["phantom-entry"])
    assert isinstance(trace, Trace)
    found = of_run(target, trace, replay(trace, target, 1))[0]
    monkeypatch.setattr(page, "wants_disclosure", lambda fault: True)
    shown = FaultShown("cacheproof fuzz", finding=found, script="a script", runs=(FAILS, PASSES))
    subject = ReportSubject(fault_called("phantom-entry"), TARGET, kept)
    text = markdown(reported(shown=shown, subject=subject))
    assert ("a script" in text, code(found.why) in text) == (is_told, is_told)
    assert (NO_RECIPE in text) != is_told


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([FAILS, PASSES], ""),
        ([FAILS], ""),
        ([PASSES], "phantom-entry: its script does not fail on"),
        ([FAILS, FAILS], "phantom-entry: its script fails on .* as well: AssertionError"),
    ],
)
def test_a_script_has_to_fail_on_the_release_and_to_pass_with_the_mend(
    runs: list[Seen], why: str
) -> None:
    told = showing.trouble_of(reported().subject, "its script", runs)
    assert bool(told) == bool(why)
    assert not why or told.endswith("nothing is reported")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Play:
    """The reference in the place of the release, and of the release's interpreter what scripts come
    to in it."""

    def play(*told: TestOutcome) -> None:
        target = ReferenceTarget(Semantics.of_vllm(NEWEST), name=TARGET, release=NEWEST)
        left = iter(told)
        monkeypatch.setattr(showing, "resolve", lambda text, report: target)
        monkeypatch.setattr(showing, "outcomes", lambda files, release: [next(left)])
        monkeypatch.setattr(ReportSubject, "installed", lambda self, report: None)
        monkeypatch.setattr(ReportSubject, "installed_mended", lambda self, report: None)
        monkeypatch.setattr(ReportSubject, "patch", lambda self, report: PATCH)

    return play


PASSED = TestOutcome("", "", 1.0)
FAILED = TestOutcome("AssertionError", "assert set(store) == set(manager.cached)", 1.0)


def test_a_report_is_printed_and_written(run: Run, played: Play, tmp_path: Path) -> None:
    played(FAILED, PASSED)
    ran = run("report", "phantom-entry", "--no-review", "--json", tmp_path / "report.json")
    assert ran.code == 0
    assert "def test_wm_1(tmp_path):" in ran.out
    assert sections(ran.out) == SECTIONS
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["verdict"].startswith(f"phantom-entry: its script fails on {TARGET} and passes on ")
    assert told["script"] in ran.out
    assert told["patch"] == PATCH.text
    assert [one["broke"] for one in told["runs"]] == ["AssertionError", ""]
    assert (told["contract"], told["is_private"], told["exit_code"]) == ("WM-1", False, 0)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([PASSED] * 2, f"its script does not fail on {TARGET}"),
        ([FAILED] * 4, f"its script fails on {TARGET}+mended:phantom-entry as well"),
    ],
)
def test_what_was_not_seen_is_not_reported(
    run: Run, played: Play, told: list[TestOutcome], why: str
) -> None:
    played(*told)
    ran = run("report", "phantom-entry", "--no-review")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines()[-1].startswith(f"cacheproof: phantom-entry: {why}")


def test_a_second_contract_is_shown_where_the_script_of_the_first_shows_nothing(
    run: Run, played: Play
) -> None:
    played(PASSED, FAILED, PASSED)
    ran = run("report", "phantom-entry", "--no-review")
    assert ran.code == 0
    assert "def test_wm_2(tmp_path):" in ran.out


def test_a_trace_that_breaks_nothing_is_not_reported(
    run: Run, played: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    played()
    mended = Semantics.of_vllm(NEWEST).changed({"scheduler.hands_on_encodes": True})
    target = ReferenceTarget(mended, name=TARGET, release=NEWEST)
    monkeypatch.setattr(showing, "resolve", lambda text, report: target)
    ran = run("report", "phantom-entry", "--no-review")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines()[-1] == (
        f"cacheproof: phantom-entry: phantom-entry does not show it on {TARGET}: nothing is "
        "reported"
    )


@pytest.mark.parametrize(
    ("review", "code"), [(None, 0), (0, 0), (4, 0), (1, 1), (3, 3), (130, 130)]
)
def test_a_mend_that_is_worse_or_a_review_that_is_void_is_an_exit_code(
    review: int | None, code: int
) -> None:
    done = None if review is None else SimpleNamespace(exit_code=review)
    assert command.exit_code_of(done) == code  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["phantom-entri"], "phantom-entri: no listed fault; did you mean phantom-entry"),
        (["phantom-entry", "--release", "0.10.2"], "--release 0.10.2: phantom-entry was not seen "),
        (["phantom-entry", "--release", "x"], "'x' is no vLLM version; "),
        (["contains-and-get", "--release", "0.33.0"], "--release 0.33.0: contains-and-get is a "),
        (["phantom-entry", "--seeds", "2"], "--seeds 2"),
    ],
)
def test_words_that_are_no_report_are_refused(run: Run, words: list[str], why: str) -> None:
    assert run("report", *words).refusal.startswith(why)


def test_a_report_is_about_the_newest_release_that_has_the_fault() -> None:
    assert subject_called("phantom-entry", None).target == TARGET
    assert subject_called("repeated-item", None).target == "vllm@0.28.0"
    assert subject_called("another-sound", None).target == "engine@0.33.0"
    assert subject_called("contains-and-get", None).target == "lmcache@0.5.6"
    before = subject_called("phantom-entry", "0.30.0")
    assert (before.trace, before.target) == ("phantom-entry-before", "vllm@0.30.0")
    assert before.mended is None
    assert subject_called("repeated-item", None).mended is None


RUN_BY_HAND = {"embedded-lookup", "kv-event-end", "media-hash-identifiers"}
"""No trace shows these, and no search: their pages say what was run."""


@pytest.mark.full
@pytest.mark.parametrize("name", mends.mended_in(NEWEST))
def test_every_fault_with_a_mend_shows_on_the_release_and_not_with_it(run: Run, name: str) -> None:
    target = named(subject_called(name, None).target)
    if target.kind is TargetKind.ENGINE and find(target.version, kind="engine") is None:
        pytest.skip(f"engine@{target.version} is not installed")
    ran = run("report", name, "--no-review", "--json", "-")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert [bool(one["broke"]) for one in told["runs"]] == (
        [] if name in RUN_BY_HAND else [True, False]
    )
    assert told["is_private"] == wants_disclosure(fault_called(name))


@pytest.mark.full
def test_a_mend_that_mends_another_fault_is_not_reported(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the check: the real release, with the wrong change."""
    wrong = {"phantom-entry": mends.mends()["lost-budget"]}
    monkeypatch.setattr(mends, "mends", lambda: wrong)
    ran = run("report", "phantom-entry", "--no-review")
    assert (ran.code, ran.out) == (3, "")
    assert "fails on vllm@0.33.0+mended:phantom-entry as well" in ran.err


def test_a_saved_finding_that_cannot_be_read_any_more_is_passed_over(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("{}")
    subject = subject_called("phantom-entry", None)
    assert showing._saved(subject, ReferenceTarget(), old) is None
