"""An auditor's questions: what a release answers, on what evidence, and when it says no."""

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from msgspec import structs
from typer.core import TyperGroup

from cacheproof import cli
from cacheproof.assessing import page, report
from cacheproof.assessing.answer import AuditAnswer, AuditVerdict, EvidenceKind, Status, shown
from cacheproof.assessing.questions import QUESTIONS, AuditQuestion
from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.listed import kept
from cacheproof.reference.releases import MODELLED, NEWEST, spans, within
from cacheproof.spec.evidence import Outcome
from cacheproof.spec.registry import by_id

ROOT = Path(__file__).parents[2]
FAULTS = tuple(load())
MEDIA = QUESTIONS[0]
MOST_WITHOUT_A_CAUSE = 8


def given(release: str, *faults: KnownFault, question: AuditQuestion = MEDIA) -> AuditAnswer:
    return AuditAnswer(question, release, faults)


def answers() -> Iterator[AuditAnswer]:
    """Every question about every modelled release."""
    yield from (AuditAnswer(one, release, FAULTS) for release in MODELLED for one in QUESTIONS)


def test_the_page_is_made_from_the_list_of_faults() -> None:
    assert (ROOT / "docs" / "how-to" / "audit.md").read_text() == page.audit(FAULTS)
    assert page.audit(FAULTS) != page.audit(FAULTS[:-1])
    assert (ROOT / "docs" / "evidence" / "fault-causes.md").read_text() == page.causes(FAULTS)


def test_no_more_faults_are_told_by_what_they_break_alone_than_were() -> None:
    """A fault that is added has a cause or a mend; one that gets either is counted out here."""
    alone = [one for one in FAULTS if one.is_told_alone and one.symptom]
    assert len(alone) <= MOST_WITHOUT_A_CAUSE


@pytest.mark.parametrize(
    ("facts", "release", "verdict"),
    [
        ({"seen": "0.20.0 to 0.33.0"}, "0.33.0", AuditVerdict.YES),
        ({"seen": "0.20.0 to 0.33.0"}, "0.19.1", AuditVerdict.NO),
        ({"seen": "0.20.0 to 0.32.0", "mended_in": "0.33.0"}, "0.33.0", AuditVerdict.NO),
        ({"seen": "0.20.0 to 0.32.0"}, "0.33.0", AuditVerdict.NOT_KNOWN),
        ({"seen": "0.20.0 to 0.32.0", "as_read": "0.33.0"}, "0.33.0", AuditVerdict.AS_READ),
        ({"seen": "0.33.0", "not_run": "0.10.2 to 0.32.0"}, "0.20.0", AuditVerdict.NOT_KNOWN),
        ({"seen": "0.15.0, 0.17.0", "mended_in": "0.17.1"}, "0.16.0", AuditVerdict.NO),
        ({"seen": "0.15.0 to 0.17.0", "only": {"media": "0.17.0"}}, "0.16.0", AuditVerdict.NO),
        ({"seen": "0.15.0 to 0.17.0", "only": {"stop": "0.17.0"}}, "0.16.0", AuditVerdict.YES),
        ({"mended_in": "0.9.0"}, "0.10.2", AuditVerdict.NO),
    ],
)
def test_a_fault_that_was_last_run_is_not_taken_for_one_that_is_mended(
    facts: dict[str, Any], release: str, verdict: AuditVerdict
) -> None:
    fault = structs.replace(KnownFault("it", "a title", "safety", questions=("media",)), **facts)
    assert given(release, fault).verdict is verdict


def test_no_question_is_answered_with_no_while_a_fault_of_it_is_listed_and_not_mended() -> None:
    for one in answers():
        bearing = [
            fault
            for fault in one.faults
            if one.release in within(fault.only.get(one.question.id, fault.seen))
        ]
        assert (one.verdict is AuditVerdict.YES) == bool(bearing), (one.release, one.question.id)
        unmended = [fault for fault in one.faults if not fault.mended_in and not fault.only]
        later = [fault for fault in unmended if one.release > NEWEST or one.release == NEWEST]
        assert not later or one.verdict is not AuditVerdict.NO


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.id)
def test_a_fault_that_is_taken_out_of_the_list_changes_the_answer(question: AuditQuestion) -> None:
    before = AuditAnswer(question, NEWEST, FAULTS)
    there = before.of(Status.SEEN, Status.AS_READ)
    assert there
    for fault in there:
        rest = tuple(one for one in FAULTS if one is not fault)
        assert AuditAnswer(question, NEWEST, rest).words != before.words
    unlisted = tuple(one for one in FAULTS if one not in before.faults)
    assert AuditAnswer(question, NEWEST, unlisted).verdict is AuditVerdict.NO


def test_each_fault_bears_on_a_question_or_says_that_it_bears_on_none() -> None:
    ids = {one.id for one in QUESTIONS}
    assert [one.name for one in FAULTS if one.questions is None] == []
    assert {name for one in FAULTS for name in (*(one.questions or ()), *one.only)} <= ids


HARMS = {
    "the engine dies": "stop",
    "the engine stops": "stop",
    "waits for ever": "stall",
    "memory": "memory",
    "another user": "media prompt",
    "KV of another": "kv",
    "nobody computed": "kv",
    "wrong KV": "kv",
}
"""What a fault is said to do -> the questions, of which it must answer one."""


def silent(fault: KnownFault) -> list[str]:
    """What a fault is said to do, and answers no question about."""
    return [
        words
        for words, ids in HARMS.items()
        if words in fault.harm and not set(ids.split()) & set(fault.questions or ())
    ]


def test_a_fault_answers_the_question_about_what_it_does() -> None:
    assert {one.name: silent(one) for one in FAULTS if silent(one)} == {}
    assert silent(KnownFault("it", "a title", "safety: the engine dies", questions=("kv",)))


def runs(fault: KnownFault) -> set[str]:
    """The releases in which a kept run of a trace showed a fault."""
    on_engines = {one for releases in fault.engines.values() for one in within(releases)}
    replayed = {
        release
        for trace in fault.traces
        for one in kept.replays()[trace]
        if one.contract in fault.contracts
        for release in one.first | one.second
    }
    return on_engines | replayed


def is_anothers(fault: KnownFault, release: str) -> bool:
    """Whether another fault of the same contract is there, which the same trace may show."""
    others = (
        one for one in FAULTS if one is not fault and set(one.contracts) & set(fault.contracts)
    )
    return any(release in within(one.seen) for one in others)


def in_doubt(fault: KnownFault) -> set[str]:
    """The releases in which runs and the list disagree: a trace shows what is not listed; or what
    is listed was shown by no trace, search or proof."""
    seen, shown = set(within(fault.seen)), runs(fault)
    strange = {one for one in shown - seen if not is_anothers(fault, one)}
    if fault.search or fault.command or fault.product or not fault.contracts:
        return strange
    broken = {one for one in MODELLED if kept.met(one) & set(fault.contracts)}
    refuted = {one for one in MODELLED if refuted_in(one) & set(fault.contracts)}
    return strange | (seen - shown - broken - refuted)


def refuted_in(release: str) -> set[str]:
    proofs = kept.proofs(release)
    return {one for proof in proofs if proof.outcome is Outcome.REFUTED for one in proof.contracts}


def test_a_fault_was_seen_where_a_run_showed_it() -> None:
    assert {one.name: in_doubt(one) for one in FAULTS if in_doubt(one)} == {}


@pytest.mark.parametrize(
    ("facts", "release"),
    [
        ({"seen": "0.33.0", "traces": ("overtaken",), "breaks": ("SC-7",)}, "0.33.0"),
        ({"seen": "0.10.2", "traces": ("session-length",), "breaks": ("SC-17",)}, "0.10.2"),
        ({"seen": "0.32.0", "engines": {"it": "0.31.0"}, "breaks": ("TB-7",)}, "0.31.0"),
    ],
)
def test_a_release_that_no_run_showed_or_that_is_not_listed_is_seen(
    facts: dict[str, Any], release: str
) -> None:
    assert release in in_doubt(KnownFault("it", "a title", "safety", **facts))


def test_what_a_page_of_runs_says_is_read() -> None:
    assert kept.searches("0.33.0")[0] == kept.KeptSearch(
        "scheduler", "scheduler steps", 25_826, 0, 0
    )
    assert kept.searches("0.10.2")[1].compared == 0
    assert "SC-15" in kept.met("0.32.0")
    assert (replay := kept.replays()["no-progress"][0]).contract == "LV-1"
    assert (replay.first, replay.second) == ({"0.33.0"}, {"0.33.0"})
    proof = next(one for one in kept.proofs("0.27.1") if "EC-9" in one.contracts)
    assert (proof.subject, proof.outcome) == ("EncoderCacheManager", Outcome.REFUTED)
    assert {one.scope for one in kept.proofs("0.33.0") if one.outcome is Outcome.HOLDS} == {
        "unbounded; any caller",
        "unbounded, under an ideal hash",
        "any number of items of one modality; each message looked up, and taken once, in order",
    }


def test_every_contract_of_a_question_is_proved_or_refuted_of_the_newest_release() -> None:
    for question in QUESTIONS:
        assert all(by_id(one) for one in question.contracts)
        proved = {one for proof in kept.proofs(NEWEST) for one in proof.contracts}
        assert set(question.contracts) - proved <= {"BK-2"}


def test_evidence_stands_in_the_order_of_its_strength() -> None:
    for one in answers():
        kinds = [list(EvidenceKind).index(line.kind) for line in one.evidence()]
        assert kinds == sorted(kinds)
        assert kinds


@cache
def whole_command() -> TyperGroup:
    command = typer.main.get_command(cli.app)
    assert isinstance(command, TyperGroup)
    return command


@pytest.mark.parametrize(
    ("release", "said"),
    [("0.33.0", "broke CP-4 (docs"), ("0.13.0", "broke CP-4, CP-5 (docs"), ("0.26.0", "CP-4")],
)
def test_a_proof_says_what_it_assumes_and_whether_that_was_seen_to_break(
    release: str, said: str
) -> None:
    memory = next(one for one in QUESTIONS if one.id == "memory")
    proved = [
        one
        for one in AuditAnswer(memory, release, FAULTS).evidence()
        if one.kind is EvidenceKind.PROVED
    ]
    assert said in proved[-1].text
    keys = [one for one in given(NEWEST).evidence() if one.kind is EvidenceKind.PROVED]
    assert keys[-1].text.startswith("of keys this reads the reference's text")


def told_twice(lines: list[str]) -> list[str]:
    """What a contract is said to do of one thing, and not to do of the same."""
    spoken: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        if found := re.match(r"(\S+) (holds|refuted) of (.*?): ", line):
            spoken.setdefault((found[1], found[3]), set()).add(found[2])
    return [contract for (contract, _), outcomes in spoken.items() if len(outcomes) > 1]


def test_a_contract_that_holds_of_some_values_alone_says_of_which() -> None:
    for one in answers():
        assert told_twice([line.text for line in one.evidence()]) == []
    rules = [one.text for one in given(NEWEST).evidence() if one.text.startswith("MH-3 ")]
    assert [rule.partition(": ")[0] for rule in rules] == [
        "MH-3 refuted of MultiModalHasher, given values of any kind",
        "MH-3 holds of MultiModalHasher, given only None, texts, lists, and mappings from texts",
    ]
    in_order = [one.text.split()[0] for one in given(NEWEST).evidence()]
    assert in_order.index("MH-3") + 1 == len(in_order) - 1 - in_order[::-1].index("MH-3")


def test_a_contract_that_is_said_to_hold_and_not_to_hold_is_seen() -> None:
    assert told_twice(["MH-3 refuted of it: so", "MH-3 holds of it: None: so"]) == ["MH-3"]


def test_each_trace_that_is_named_breaks_a_contract_that_those_before_it_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = frozenset({NEWEST})
    runs = {
        name: [kept.KeptReplay(rule, there, there) for rule in rules]
        for name, rules in {
            "null-block": ("X-1",),
            "overtaken": ("X-1",),
            "no-progress": ("X-1", "X-2"),
            "orphan-load": (),
        }.items()
    }
    monkeypatch.setattr(kept, "replays", lambda: runs)
    fault = KnownFault(
        "it", "a title", "safety", seen=NEWEST, traces=tuple(runs), breaks=("X-1", "X-2")
    )
    assert [line.text for line in shown(fault, NEWEST)] == [
        "it: breaks X-1",
        "it: breaks X-1, X-2",
    ]


def refusal(command: str) -> str:
    """Why a command that is named as evidence would be refused; nothing where it would run."""
    program, *words = shlex.split(command)
    gone = [
        one
        for one in words
        if one.endswith((".jsonl", ".md", ".py")) and not (ROOT / one).is_file()
    ]
    if gone or program != "cacheproof":
        return ", ".join(gone)
    root = whole_command()
    try:
        outer = root.make_context("cacheproof", list(words))
        name, found, rest = root.resolve_command(outer, words)
        inner = found.make_context(name, rest, parent=outer)
    except Exception as error:  # what typer says of words that are wrong
        return str(error) or type(error).__name__
    depth = inner.params.get("depth")
    return f"no depth {depth}" if depth and depth not in DEPTHS else ""


def test_every_command_that_is_named_as_evidence_would_run() -> None:
    commands = {line.command for one in answers() for line in one.evidence() if line.command}
    commands |= {report.verdict([one]).command for one in answers()} - {""}
    assert len(commands) > 500
    assert {one: refusal(one) for one in commands if refusal(one)} == {}


@pytest.mark.parametrize(
    "command",
    [
        "cacheproof reply faults/no-progress/trace.jsonl",
        "cacheproof replay faults/gone/trace.jsonl",
        "cacheproof fuzz --target vllm@0.33.0 --deep manager",
        "cacheproof fuzz --target vllm@0.33.0 --depth managers",
        ".venv/bin/python benchmarks/gone.py",
    ],
)
def test_a_command_that_would_not_run_is_seen(command: str) -> None:
    assert refusal(command)


WITHOUT_A_COMMAND = {
    "orphan-load": "0.11.1 to 0.18.1",
    "pruned-videos": "0.20.0, 0.26.0 to 0.31.0",
    "media-without-end": "0.12.0 to 0.23.0",
    "lmcache-drafts": "0.33.0",
}
"""Releases of faults whose page says what was run."""


def test_every_fault_that_was_seen_has_evidence_with_a_command() -> None:
    bare: dict[str, list[str]] = {}
    for one in answers():
        for fault in one.of(Status.SEEN):
            lines = [line for line in one.evidence() if fault.name in line.text]
            assert lines, (fault.name, one.release)
            if not any(line.command for line in lines):
                bare.setdefault(fault.name, []).append(one.release)
    assert {name: spans(releases) for name, releases in bare.items()} == WITHOUT_A_COMMAND


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0.33"], "0.33: not a release that is modelled; expected one of the 36 stable releases "
         "from 0.10.2 to 0.33.0; did you mean 0.33.0?"),
        (["0.9.0"], "0.9.0: not a release that is modelled"),
        (["latest"], "latest: not a release that is modelled"),
        (["0.33.0", "--for", "isolatoin"], "--for isolatoin: expected one of isolation, "
         "availability, memory; did you mean isolation?"),
    ],
)  # fmt: skip
def test_a_release_or_a_purpose_that_is_none_is_refused_in_one_line(run, words, said) -> None:
    assert run("assess", *words).refusal.startswith(said)


def test_the_answer_stands_in_the_first_line_and_the_last(run) -> None:
    ran = run("assess", "vllm@0.33.0", "--for", "isolation")
    assert ran.code == 0
    first, *rest = ran.out.splitlines()
    assert first.startswith("Yes: in vLLM 0.33.0 one user's media can reach another's answer (")
    assert first in rest
    command = rest[-1].strip()
    assert command.startswith("cacheproof replay ")
    assert refusal(command) == ""


def test_a_report_fits_80_columns_and_breaks_no_command(run) -> None:
    _, *lines = run("assess", "0.28.0").out.splitlines()
    of_release = [AuditAnswer(one, "0.28.0", FAULTS) for one in QUESTIONS]
    commands = {line.command for one in of_release for line in one.evidence()}
    commands.add(report.verdict(of_release).command)
    long = [one for one in lines if len(one) > 80]
    sentence = report.verdict(of_release).sentence
    assert {one for one in long if one.strip() not in commands} <= {sentence}
    assert commands - {""} <= {one.strip() for one in lines}


def test_the_json_has_what_the_report_says(run) -> None:
    told = json.loads(run("assess", "0.33.0", "--for", "memory", "--json", "-").out)
    assert (told["command"], told["release"]) == ("assess", "0.33.0")
    (question,) = told["questions"]
    assert (question["question"], question["answer"]) == ("memory", "yes")
    by_name = {one["name"]: one for one in question["faults"]}
    assert by_name["encoder-batch-memory"]["status"] == "seen"
    assert by_name["reused-media-id"]["status"] == "mended"
    assert by_name["orphan-load"]["shown_by"][0]["command"].startswith("cacheproof replay ")
    assert question["not_looked_at"]
    assert told["verdict"].startswith("Yes: ")


def test_a_release_of_which_nothing_is_known_is_not_called_safe() -> None:
    question = next(one for one in QUESTIONS if one.id == "prompt")
    one = AuditAnswer(question, "0.12.0", FAULTS)
    assert one.verdict is AuditVerdict.NOT_KNOWN
    assert report.verdict([one]).sentence == (
        "Of vLLM 0.12.0 it is not known whether what one user asks can reach another's answer."
    )
    safe = AuditAnswer(question, "0.12.0", ())
    assert report.verdict([safe]).sentence == (
        "Of vLLM 0.12.0 no way is known in which what one user asks can reach another's answer."
    )
