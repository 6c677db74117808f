"""What commands found, in the formats that pipelines read."""

import io
import json
import re
from collections import Counter
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import junitparser
import pytest
import typer

from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.findings.finding import MODEL_DIFFERENCE
from cacheproof.differential.search.seeded import SearchOutcome
from cacheproof.differential.search.verdict import Verdict
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.texts.places import SourceFunction, SourcePlace
from cacheproof.formats import github, junit, sarif, writing
from cacheproof.formats.result import Case, Excuse, Problem, Report, Result, Suite, rule_of
from cacheproof.formats.writing import Formats
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import VerdictLine
from cacheproof.proving import proving
from cacheproof.search import main_job, searching
from tests.front.conftest import Run
from tests.front.formats_read import complaints_about_junit, complaints_about_sarif

SEARCH = "fuzz", "--depth", "manager", "--workers", "1", "--seeds"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CAN = SourceFunction("encoder_cache_manager", "EncoderCacheManager", ("can_allocate",))
FREE = SourceFunction("encoder_cache_manager", "EncoderCacheManager", ("free",))
EC_6 = rule_of("EC-6")
BROKEN = Problem(
    "safety",
    "EC-6 at event 6",
    "both sides\n  left\n  right",
    shape="encoder_cache; add a[x]",
    way=(CAN,),
    place=SourcePlace("vllm/v1/core/encoder_cache_manager.py", 131),
)
LISTED = replace(
    BROKEN,
    excuse=Excuse("listed as repeated-item", "repeated-item", "faults/repeated-item/page.md"),
)
SLOW = replace(BROKEN, harm="efficiency", excuse=Excuse("its harm is efficiency"))
PARTS = replace(BROKEN, harm=MODEL_DIFFERENCE, excuse=Excuse("a difference from the model"))
HOSTILE = "]]> & <b> \x00\x1b[2J \ud800 \ufffe 50% a:b,c\r\n::error::no\u2028end"


def result_with(*problems: Problem, void: tuple[str, ...] = ()) -> Result:
    """One of a checkout, with two contracts that were judged."""
    cases = Case(EC_6, "7 calls", problems), Case(rule_of("EC-7"), "7 calls")
    return Result("path:fork", (Suite("manager", cases),), is_own=True, void=void)


def report_with(*problems: Problem, void: tuple[str, ...] = ()) -> Report:
    return Report("fuzz", (result_with(*problems, void=void),))


def junit_of(report: Report) -> list[junitparser.TestSuite]:
    """Its suites, as a library has them that other tools use."""
    return list(junitparser.JUnitXml.fromstring(junit.written(report, NOW)))


def sarif_of(report: Report) -> dict[str, Any]:
    """Its first run."""
    document = json.loads(sarif.written(report))
    assert complaints_about_sarif(document) == []
    return document["runs"][0]


# JUnit


def test_a_break_is_a_failure_with_both_sides() -> None:
    broken, held = next(iter(junit_of(report_with(BROKEN))))
    (failure,) = broken.result
    assert isinstance(failure, junitparser.Failure)
    assert (failure.type, failure.message) == ("safety", "EC-6 at event 6")
    assert "both sides\n  left\n  right" in failure.text
    assert (held.name, held.classname, held.result) == ("EC-7", "path:fork.manager", [])


@pytest.mark.parametrize("excused", [LISTED, SLOW, PARTS])
def test_what_fails_no_command_is_skipped_with_its_reason(excused: Problem) -> None:
    broken, _ = next(iter(junit_of(report_with(excused))))
    (skipped,) = broken.result
    assert isinstance(skipped, junitparser.Skipped)
    assert excused.excuse is not None
    assert skipped.message == excused.excuse.reason


def test_a_contract_that_is_broken_in_a_listed_way_and_in_another_fails() -> None:
    broken, _ = next(iter(junit_of(report_with(LISTED, BROKEN))))
    assert [type(one) for one in broken.result] == [junitparser.Failure]


def test_a_void_campaign_is_an_error_of_the_target_as_a_whole() -> None:
    held, void = (junit_of(report_with(void=reasons))[1] for reasons in ((), ("a canary", "two")))
    assert (held.tests, held.errors, void.tests, void.errors) == (1, 0, 1, 1)
    ((error,),) = [one.result for one in void]
    assert isinstance(error, junitparser.Error)
    assert error.text == "void: a canary\nvoid: two"


def test_nothing_judged_is_skipped_and_what_proves_nothing_is_an_error() -> None:
    vacuous = Case(EC_6, "no call", vacuous="nothing was judged")
    void = Case(EC_6, "unbounded", void="unknown: the solver gave up")
    report = Report("prove", (Result("reference", (Suite("proof A", (vacuous, void)),)),))
    assert [type(one.result[0]) for one in next(iter(junit_of(report)))] == [
        junitparser.Skipped,
        junitparser.Error,
    ]


def test_the_file_keeps_to_the_strictest_schema() -> None:
    report = Report("fuzz", (result_with(BROKEN, LISTED), result_with(void=("one",))), "it ended")
    text = junit.written(report, NOW)
    assert complaints_about_junit(text) == []
    assert b'timestamp="2026-01-02T03:04:05"' in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b' hostname="localhost"', b""),
        (b' errors="0"', b' errors="1"'),
        (b"<properties />", b""),
        (b"<system-out />\n    <system-err />", b"<system-err /><system-out />"),
        (b' type="safety"', b""),
        (b"</failure>", b"</failure><failure message='' type=''/>"),
    ],
)
def test_a_file_that_does_not_is_noticed(old: bytes, new: bytes) -> None:
    text = junit.written(report_with(BROKEN), NOW)
    assert old in text
    assert complaints_about_junit(text.replace(old, new, 1))


# SARIF


def test_a_result_says_what_where_and_of_which_rule() -> None:
    run = sarif_of(report_with(BROKEN))
    (result,) = run["results"]
    (location,) = result["locations"]
    assert (result["ruleId"], result["level"]) == ("EC-6", "error")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "EC-6"
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": BROKEN.place.path, "uriBaseId": "%SRCROOT%"},  # type: ignore[union-attr]
        "region": {"startLine": 131},
    }
    (function,) = location["logicalLocations"]
    assert function["fullyQualifiedName"] == "EncoderCacheManager.can_allocate"
    assert "suppressions" not in result


def test_a_rule_has_its_contracts_sentence_harm_and_page() -> None:
    first, _ = sarif_of(report_with())["tool"]["driver"]["rules"]
    assert first["shortDescription"]["text"] == EC_6.title
    assert first["properties"] == {"tags": ["safety"], "page": "docs/reference/contracts.md"}
    assert first["help"]["text"].startswith("EC-6 on docs/reference/contracts.md of cacheproof")


@pytest.mark.parametrize(
    ("problem", "level"), [(BROKEN, "error"), (PARTS, "warning"), (SLOW, "note")]
)
def test_a_level_is_that_of_the_harm(problem: Problem, level: str) -> None:
    (result,) = sarif_of(report_with(problem))["results"]
    assert result["level"] == level
    assert "suppressions" not in result


def test_what_is_listed_is_suppressed_from_outside_with_its_page() -> None:
    (result,) = sarif_of(report_with(LISTED))["results"]
    assert result["suppressions"] == [
        {
            "kind": "external",
            "status": "accepted",
            "justification": "listed as repeated-item, faults/repeated-item/page.md",
        }
    ]


def test_a_sarif_file_that_is_none_is_noticed() -> None:
    document = json.loads(sarif.written(report_with(BROKEN)))
    assert complaints_about_sarif(document) == []
    document["runs"][0]["results"][0]["level"] = "fatal"
    del document["runs"][0]["tool"]["driver"]["name"]
    assert len(complaints_about_sarif(document)) == 2


def test_a_run_that_proves_nothing_says_so_of_its_invocation() -> None:
    held, void, ended = (
        sarif_of(one)["invocations"][0]
        for one in (report_with(), report_with(void=("a canary",)), Report("fuzz", (), "ended", 3))
    )
    assert (held["executionSuccessful"], held["toolExecutionNotifications"]) == (True, [])
    assert (void["executionSuccessful"], ended["executionSuccessful"]) == (False, False)
    assert [one["message"]["text"] for one in void["toolExecutionNotifications"]] == [
        "void: a canary"
    ]
    assert (ended["toolExecutionNotifications"][0]["message"]["text"], ended["exitCode"]) == (
        "ended",
        3,
    )


def test_no_more_results_than_are_taken_and_it_is_said_how_many_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sarif, "RESULTS_MAX", 2)
    run = sarif_of(report_with(LISTED, SLOW, BROKEN, PARTS))
    assert [one["level"] for one in run["results"]] == ["error", "error"]
    assert ["suppressions" in one for one in run["results"]] == [False, True]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "2 results are left out: 2 are the most"
    assert run["invocations"][0]["executionSuccessful"]


# which fault it is


@pytest.mark.parametrize(
    "other",
    [
        replace(BROKEN, kind="another way"),
        replace(BROKEN, shape="encoder_cache; add a[x y]"),
        replace(BROKEN, way=(FREE,)),
        replace(BROKEN, way=(FREE, CAN)),
        LISTED,
    ],
)
def test_another_fault_has_another_identity(other: Problem) -> None:
    assert other.identity("EC-6") != BROKEN.identity("EC-6")


def test_another_contract_has_another_identity() -> None:
    assert BROKEN.identity("EC-7") != BROKEN.identity("EC-6")


def test_a_fault_keeps_its_identity_wherever_it_stands_and_whatever_shows_it() -> None:
    again = replace(
        BROKEN, sentence="EC-6 at event 9", detail="seed 7", place=SourcePlace("a.py", 1)
    )
    assert again.identity("EC-6") == BROKEN.identity("EC-6")
    larger = replace(LISTED, shape="a larger trace", way=(FREE,))
    assert larger.identity("EC-6") == LISTED.identity("EC-6")
    (result,) = sarif_of(report_with(BROKEN))["results"]
    assert set(result["partialFingerprints"].values()) == {BROKEN.identity("EC-6")}


def fingerprints(file: Path) -> dict[tuple[str, str], int]:
    """Contract and identity of each result, with its line."""
    document = json.loads(file.read_text())
    assert complaints_about_sarif(document) == []
    return {
        (one["ruleId"], one["partialFingerprints"]["cacheproof/v1"]): one["locations"][0][
            "physicalLocation"
        ]["region"]["startLine"]
        for one in document["runs"][0]["results"]
    }


@pytest.mark.full
def test_a_search_of_a_tree_whose_lines_moved_finds_the_same_faults(
    run: Run, two_releases: tuple[str, str], tmp_path: Path, nothing_known: Path
) -> None:
    original = searching.resolve(two_releases[0], report=print).tree
    assert original is not None
    copy = tmp_path / "elsewhere"
    for file in original.rglob("*.py"):
        place = copy / file.relative_to(original)
        place.parent.mkdir(parents=True, exist_ok=True)
        moved = "\n" * 9 if file.name == "encoder_cache_manager.py" else ""
        place.write_text(moved + file.read_text())
    found = []
    for number, tree in enumerate((original, copy)):
        file = tmp_path / f"{number}.sarif"
        words = "--target", f"path:{tree}", "--known", nothing_known, "--sarif", file
        assert run(*SEARCH, "0:1", *words, "--findings", tmp_path / "found").code == 1
        found.append(fingerprints(file))
    assert {contract for contract, _ in found[0]} >= {"EC-6", "EC-6a", "ED-1"}
    assert found[1] == {one: line + 9 for one, line in found[0].items()}


# text that strangers wrote


def test_hostile_text_stays_text_in_every_format() -> None:
    bad = replace(BROKEN, sentence=HOSTILE, detail=HOSTILE, kind=HOSTILE)
    report = Report(HOSTILE, (replace(result_with(bad), target=HOSTILE),), HOSTILE)
    assert complaints_about_junit(junit.written(report, NOW)) == []
    (broken, _), *_ = junit_of(report)
    assert "]]> & <b> \\x00\\x1b[2J \\ud800 \\ufffe 50% a:b,c\\r\n::error" in broken.result[0].text
    (result,) = sarif_of(report)["results"]
    assert result["message"]["text"].startswith("]]> & <b> \\x00")
    lines = github.annotations(report)
    assert len(lines) == 2
    assert all(re.fullmatch(r"::error( [^:]*)?::[ -~]*", line) for line in lines)
    assert "\x00" not in github.summary(report)


def test_hostile_text_that_is_not_made_visible_breaks_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(junit, "visible", str)
    text = junit.written(report_with(replace(BROKEN, detail="\x00")), NOW)
    with pytest.raises(ET.ParseError):
        ET.fromstring(text)


# GitHub Actions


def test_an_annotation_is_escaped_as_github_asks() -> None:
    odd = replace(BROKEN, sentence="50% of a:b,c\nnext", place=SourcePlace("a,b:c.py", 3))
    title = "title=EC-6%3A No entry that a request still needs is evicted"
    assert github.annotations(report_with(odd)) == [
        f"::error file=a%2Cb%3Ac.py,line=3,{title}::path:fork: 50%25 of a:b,c%0Anext"
    ]


def test_a_file_is_named_only_where_it_is_the_users() -> None:
    (line,) = github.annotations(Report("fuzz", (replace(result_with(BROKEN), is_own=False),)))
    assert line.startswith("::error title=")


def test_of_what_is_known_nothing_is_annotated() -> None:
    assert github.annotations(report_with(LISTED, SLOW)) == []
    (line,) = github.annotations(report_with(PARTS))
    assert line.startswith("::warning file=")


def test_what_fails_a_command_is_annotated_whatever_its_harm_the_worst_first() -> None:
    slow = replace(BROKEN, harm="efficiency")
    lines = github.annotations(report_with(slow, PARTS, BROKEN))
    assert [line.split()[0] for line in lines] == ["::error", "::warning", "::notice"]


def test_no_more_annotations_than_github_shows() -> None:
    many = [replace(BROKEN, shape=str(number)) for number in range(12)]
    lines = github.annotations(report_with(*many, *[PARTS] * 12))
    assert [line.split()[0] for line in lines] == ["::error"] * 10 + ["::warning"] * 10


def test_a_summary_has_a_row_for_each_target_and_tells_what_is_not_listed() -> None:
    many = [replace(BROKEN, sentence=f"break_{number}") for number in range(40)]
    verdict = "path:fork shows 40 new faults."
    text = github.summary(Report("fuzz", (result_with(*many, LISTED),), code=1, verdict=verdict))
    assert text.startswith("### cacheproof fuzz\n\n**path:fork shows 40 new faults.**\n\n|")
    assert "| path:fork | 2 | 40 | 1 |  |\n" in text
    assert f"- path:fork: {EC_6.title}: break\\_0\n" in text
    assert text.endswith("- and 10 more\n\n")


def written_by(output: CommandOutput, *results: Result, by: BaseException | None = None) -> str:
    """What is printed when a command hands over results and then ends."""
    with redirect_stdout(io.StringIO()) as printed, output:
        for one in results:
            output.found(one)
        if by is not None:
            raise by
    return printed.getvalue()


def test_annotations_are_printed_in_github_actions_alone(tmp_path: Path) -> None:
    there = {writing.ACTIONS: "true", writing.SUMMARY: str(tmp_path / "summary.md")}
    printed = [
        written_by(
            CommandOutput(to, formats=Formats(environment=where), is_page=page), result_with(BROKEN)
        )
        for to, where, page in (
            (None, there, False),
            ("-", there, False),
            (None, there, True),
            (None, {}, False),
        )
    ]
    assert printed[0].startswith("::error file=vllm/v1/core/encoder_cache_manager.py,line=131")
    assert printed[1:] == ["", "", ""]
    assert (tmp_path / "summary.md").read_text().count("### cacheproof") == 3


def test_a_summary_that_cannot_be_written_is_no_reason_to_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {writing.SUMMARY: str(tmp_path / "no" / "summary.md")}
    written_by(CommandOutput(None, formats=Formats(environment=there)), result_with())
    assert "GITHUB_STEP_SUMMARY: " in capsys.readouterr().err


# how a command ends


@pytest.fixture
def files(tmp_path: Path) -> Formats:
    return Formats(tmp_path / "junit.xml", tmp_path / "found.sarif", environment={})


def read_back(files: Formats) -> tuple[list[str], dict[str, Any]]:
    """The names of the suites, and the invocation of the first run."""
    assert files.junit is not None
    assert files.sarif is not None
    assert complaints_about_junit(files.junit.read_bytes()) == []
    document = json.loads(files.sarif.read_text())
    assert complaints_about_sarif(document) == []
    names = [one.get("name", "") for one in ET.parse(files.junit).getroot()]
    return names, document["runs"][0]["invocations"][0]


@pytest.mark.parametrize(
    ("ending", "code"), [(None, 0), (typer.Exit(1), 1), (InputError("a disk is full"), 2)]
)
def test_what_was_found_is_written_however_a_command_ends(
    files: Formats, ending: BaseException | None, code: int
) -> None:
    with nullcontext() if ending is None else pytest.raises(type(ending)):
        written_by(
            CommandOutput(None, command="fuzz", formats=files), result_with(BROKEN), by=ending
        )
    names, invocation = read_back(files)
    assert names[:2] == ["path:fork manager", "path:fork whole"]
    assert invocation["exitCode"] == code
    assert names[2:] == (["cacheproof fuzz"] if code == 2 else [])


def test_a_host_that_does_not_start_is_an_error_in_every_format(files: Formats) -> None:
    with pytest.raises(HarnessError):
        written_by(
            CommandOutput(None, command="fuzz", formats=files), by=HarnessError("it crashed")
        )
    names, invocation = read_back(files)
    assert names == ["cacheproof fuzz"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (3, False)


def test_every_format_has_the_verdict(files: Formats, tmp_path: Path) -> None:
    said = "path:fork shows nothing new: 4 traces; no rule broke."
    with CommandOutput(None, command="fuzz", formats=files) as output:
        output.tell(Conclusion(0, VerdictLine(said), results=[result_with()]))
    _, invocation = read_back(files)
    assert invocation["toolExecutionNotifications"] == [
        {"level": "note", "message": {"text": said}}
    ]
    assert files.junit is not None
    (whole,) = [
        one for one in ET.parse(files.junit).getroot() if one.get("name", "").endswith("whole")
    ]
    assert whole.findtext("system-out") == said


def test_a_command_that_is_refused_writes_nothing(files: Formats) -> None:
    with pytest.raises(InputError):
        written_by(CommandOutput(None, formats=files), by=InputError("no such target"))
    assert files.junit is not None
    assert list(files.junit.parent.iterdir()) == []


@pytest.mark.parametrize("command", [("fuzz", "--target", "reference"), ("check",), ("prove",)])
@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (
            ("--junit", "no/such/x"),
            "--junit no/such/x: cannot be written: no such folder; expected",
        ),
        (
            ("--sarif", "no/such/x"),
            "--sarif no/such/x: cannot be written: no such folder; expected",
        ),
        (("--sarif", "-"), "--sarif -: expected a file; of all formats JSON alone goes to"),
        (("--sarif", "x", "--junit", "./x"), "--junit and --sarif x: one file for two formats"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_the_start(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    words: tuple[str, ...],
    refusal: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*command, *words).refusal.startswith(refusal)


# commands


@pytest.mark.full
def test_a_search_writes_what_it_found(run: Run, tmp_path: Path, nothing_known: Path) -> None:
    where = "--findings", tmp_path / "found", "--target", "reference@0.28.0"
    seen = []
    for number, known in enumerate(((), ("--known", nothing_known))):
        files = Formats(tmp_path / f"{number}.xml", tmp_path / f"{number}.sarif", environment={})
        asked = "--junit", files.junit, "--sarif", files.sarif
        assert run(*SEARCH, "0:2", *where, *known, *asked).code == number
        names, invocation = read_back(files)
        assert names == ["reference@0.28.0 manager", "reference@0.28.0 whole"]
        assert invocation["exitCode"] == number
        seen.append({one.name: one for one in junitparser.JUnitXml.fromfile(str(files.junit))})
    outcomes = [
        {case.name: [type(one) for one in case.result] for case in one["reference@0.28.0 manager"]}
        for one in seen
    ]
    assert outcomes[0]["EC-6a"] == [junitparser.Skipped]
    assert outcomes[1]["EC-6a"] == [junitparser.Failure]
    assert outcomes[0]["EC-4"] == outcomes[1]["EC-4"] == []
    broken = [name for name, outcome in outcomes[1].items() if outcome]
    assert broken == [name for name, outcome in outcomes[0].items() if outcome]


@pytest.mark.full
def test_a_listed_fault_keeps_its_identity_from_seed_to_seed(run: Run, tmp_path: Path) -> None:
    seen = []
    for seeds in ("0:2", "2:4"):
        file = tmp_path / f"{seeds}.sarif"
        words = "--target", "reference@0.28.0", "--findings", tmp_path / "found"
        assert run(*SEARCH, seeds, *words, "--sarif", file).code == 0
        results = json.loads(file.read_text())["runs"][0]["results"]
        seen.append({one["partialFingerprints"]["cacheproof/v1"]: one["ruleId"] for one in results})
    shared = seen[0].keys() & seen[1].keys()
    assert {"ED-1", "ED-5"} <= {seen[0][one] for one in shared}
    assert {seen[0][one] for one in shared} == {*seen[0].values()} & {*seen[1].values()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "words"), [("Deaf", "planted against EC-1 "), ("Broken", "harness")]
)
def test_a_void_search_is_void_in_every_format(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    odd_targets: ModuleType,
    files: Formats,
    name: str,
    words: str,
) -> None:
    monkeypatch.setattr(searching, "resolve", lambda text, report: getattr(odd_targets, name)())
    asked = "--target", "reference", "--junit", files.junit, "--sarif", files.sarif
    assert files.junit is not None
    ran = run(*SEARCH, "0:1", "--findings", files.junit.parent / "found", *asked)
    assert ran.code == 3
    _, invocation = read_back(files)
    assert not invocation["executionSuccessful"]
    assert words in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_the_main_job_writes_a_run_with_a_category_of_its_own_for_each_release(
    run: Run, monkeypatch: pytest.MonkeyPatch, files: Formats
) -> None:
    monkeypatch.setattr(main_job, "install_all", lambda wanted, report: None)
    monkeypatch.setattr(main_job, "resolve", lambda text, report: ReferenceTarget(name=text))
    empty = Verdict(SearchOutcome("", None, [], [], Counter(), Counter(), [], 0.0), [])
    monkeypatch.setattr(main_job, "judge_target", lambda *_: empty)
    releases = "--release", "0.28.0", "--release", "0.33.0"
    assert files.sarif is not None
    where = "--findings", files.sarif.parent / "found"
    asked = "--junit", files.junit, "--sarif", files.sarif
    assert run("check", *releases, *where, *asked, "--slice", "1/9").code == 3
    assert read_back(files)[0] == ["vllm@0.28.0 whole", "vllm@0.33.0 whole"]
    assert [
        one["automationDetails"]["id"] for one in json.loads(files.sarif.read_text())["runs"]
    ] == ["cacheproof check/vllm@0.28.0/", "cacheproof check/vllm@0.33.0/"]


def test_a_proof_writes_what_is_proved(
    run: Run, files: Formats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving, "jobs_for", lambda wanted, seed, *, fresh: iter(()))
    asked = "--target", "reference", "--junit", files.junit, "--sarif", files.sarif
    assert run("prove", *asked).code == 3
    names, invocation = read_back(files)
    assert names == ["reference whole"]
    assert [one["message"]["text"] for one in invocation["toolExecutionNotifications"]] == [
        "These proofs of reference do not suffice: nothing was proved.",
        "void: nothing was proved",
    ]


def test_an_interrupted_proof_writes_what_was_proved_until_then(
    run: Run, files: Formats, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(proving, "prove_now", interrupted)
    asked = "--target", "reference", "--junit", files.junit, "--sarif", files.sarif
    ran = run("prove", *asked, "--fresh")
    assert (ran.code, ran.err.splitlines()[-1]) == (130, "cacheproof: interrupted")
    _, invocation = read_back(files)
    assert invocation["exitCode"] == 130
    assert [one["message"]["text"] for one in invocation["toolExecutionNotifications"]] == [
        "The proofs of reference were interrupted: nothing was proved; 9 texts were not proved.",
        "interrupted: this is what was found until then",
    ]
