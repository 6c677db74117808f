"""Which release, or which commit, brought a fault and which mended it."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.findings.finding import LOCKSTEP, found_in
from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.findings.question import Question
from cacheproof.differential.findings.register import FaultRecord, record_of
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.search import corpus
from cacheproof.differential.search import git_bisection as git
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.bisection import (
    Bisection,
    ReleaseAnswer,
    ask,
    bisections,
    remarks,
    tellings,
)
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.semantics import Semantics

BROKEN = frozenset({"EC-6"})

NONE = Attribution([], None, None)


def answers(breaking: str) -> list[ReleaseAnswer]:
    """Releases 0.0, 0.1, ...: x breaks, - holds, ? refuses."""
    of = {"x": BROKEN, "-": frozenset(), "?": None}
    return [ReleaseAnswer(f"0.{number}", of[one]) for number, one in enumerate(breaking)]


def bisection(breaking: str) -> Bisection:
    (found,) = bisections(Question(trace()), answers(breaking))
    return found


def trace() -> Trace:
    found = load(kept_traces()["reused-media-id"])
    assert isinstance(found, Trace)
    return found


def of_release(release: str) -> ReferenceTarget:
    return ReferenceTarget(Semantics.of_vllm(release), name=f"vllm@{release}", release=release)


@pytest.mark.parametrize(
    ("breaking", "brought", "mended"),
    [
        ("-xx-", "0.1", "0.3"),
        ("xx-", None, "0.2"),
        ("--x", "0.2", None),
        ("-?x?-", "0.2", "0.4"),
        ("x", None, None),
    ],
)
def test_the_first_that_breaks_brought_it_and_the_next_that_holds_mended_it(
    breaking: str, brought: str | None, mended: str | None
) -> None:
    found = bisection(breaking)
    assert found.is_monotone
    assert (found.brought, found.mended) == (brought, mended)


def test_an_order_that_is_not_monotone_is_said_and_listed() -> None:
    found = bisection("x-xx-x")
    assert not found.is_monotone
    assert list(found.lines()) == [
        "EC-6 breaks in 0.0, 0.2 to 0.3, 0.5",
        "  the order is not monotone: it came more than once",
        "  came with 0.0, was mended by 0.1",
        "  came with 0.2, was mended by 0.4",
        "  came with 0.5, and is there still",
    ]
    assert found.to_json()["brought"] is None


def test_what_holds_everywhere_has_no_bisection() -> None:
    assert bisections(Question(trace()), answers("--?")) == []


def test_releases_that_refuse_the_trace_are_named_with_the_reason() -> None:
    refused = [ReleaseAnswer("0.1", None, refusal="why"), ReleaseAnswer("0.2", None, refusal="why")]
    without = ReleaseAnswer("0.3", BROKEN, ("drafter",))
    assert list(remarks([*refused, without])) == [
        "0.1 to 0.2: not run: why",
        "0.3: run without drafter, which the release lacks",
    ]


def test_a_setting_that_a_release_lacks_is_left_out_and_named() -> None:
    second = trace().under_runner("second")
    told = dict(tellings(second))
    assert list(told)[:2] == [(), ("v2_model_runner",)]
    assert told["v2_model_runner",] == trace().under_runner("first")


class Forgetful(ReferenceTarget):
    """Takes a trace in the first run alone."""

    def run(self, traces, fault=None):
        results = super().run(traces)
        return [
            results[0],
            *(msgspec.structs.replace(results[0], illegal="no") for _ in traces[1:]),
        ]


def test_runs_that_differ_are_no_answer() -> None:
    target = Forgetful(Semantics.of_vllm("0.28.0"), name="odd", release="0.28.0")
    question = Question(_record().trace)
    with pytest.raises(HarnessError, match="differ"):
        ask(target, "0.28.0", question, None)


def _record() -> FaultRecord:
    """Of a fault of 0.28.0 that 0.33.0 does not have."""
    found = found_in(of_release("0.28.0"), manager_trace(0, "encoder_cache"), "EC-6a", times=1)
    assert found is not None
    return record_of(found, "encoder cache", "2026-01-30")


def test_a_release_is_asked_for_the_contract_alone() -> None:
    small = _record().trace
    old, new = (ask(of_release(v), v, Question(small, "EC-6a"), None) for v in ("0.28.0", "0.33.0"))
    assert old.broken == {"EC-6a"}
    assert new.broken == frozenset()
    assert ask(of_release("0.28.0"), "0.28.0", Question(small, "EC-9"), None).broken == frozenset()


def test_a_corpus_says_where_it_breaks_and_where_it_is_mended() -> None:
    record = _record()
    old = corpus.ask(of_release("0.28.0"), record, None, NONE)
    assert old.broken is not None
    assert (old.broken.contract, old.broken.lane) == ("EC-6a", "encoder cache")
    new = corpus.ask(of_release("0.33.0"), record, None, NONE)
    assert new.broken is None
    said = new.recorded(record, "vllm@0.33.0", "0.33.0", "2026-02-01")
    assert [one.status for one in said] == ["mended"]


def test_a_corpus_asks_what_the_lanes_of_the_search_have_alone() -> None:
    record = _record()
    assert corpus.asked([record], {"scheduler"}, compared=True) == []
    assert corpus.asked([record], {"encoder cache"}, compared=False) == [record]
    parting = msgspec.structs.replace(record, contract=LOCKSTEP)
    assert corpus.asked([parting], {"encoder cache"}, compared=False) == []


# a history in which the file `state` says what a step ends with

STEP = (
    "import pathlib, sys; code = int(pathlib.Path(sys.argv[1], 'state').read_text()); "
    "sys.exit(1 - code if '--flipped' in sys.argv and code in (0, 1) else code)"
)


def step(tree: Path) -> list[str]:
    return [sys.executable, "-c", STEP, str(tree)]


@pytest.fixture
def checkout(tmp_path: Path):
    """Makes a git history in which commit number n says that."""

    def make(*states: int) -> Path:
        folder = tmp_path / "checkout"
        folder.mkdir()
        _git(folder, "init", "--quiet", "--initial-branch=main")
        for number, state in enumerate(states):
            (folder / "state").write_text(f"{state}\n")
            (folder / "noise").write_text(f"{number}\n")
            _git(folder, "add", ".")
            _git(folder, "commit", "--quiet", f"--message=number {number}")
            _git(folder, "tag", f"n{number}")
        return folder

    return make


def _git(folder: Path, *arguments: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    ended = subprocess.run(
        ["git", "-C", str(folder), *own, *arguments], capture_output=True, text=True, check=True
    )
    return ended.stdout


def bisected(folder: Path, good: str, bad: str) -> str:
    past = git.history(folder, good, bad)
    return ", ".join(one.subject for one in git.first_commits(past, step, lambda line: None))


def test_the_commit_that_brought_a_fault_is_named(checkout) -> None:
    folder = checkout(0, 0, 0, 1, 1, 1)
    assert bisected(folder, "n0", "main") == "number 3"


def test_the_commit_that_mended_a_fault_is_named(checkout) -> None:
    folder = checkout(1, 1, 0, 0, 0)
    assert bisected(folder, "main", "n0") == "number 2"


def test_commits_that_cannot_be_run_are_passed_over(checkout) -> None:
    assert bisected(checkout(0, 125, 125, 0, 1, 1), "n0", "main") == "number 4"


def test_a_fault_among_commits_that_cannot_be_run_is_of_one_of_them(checkout) -> None:
    found = bisected(checkout(0, 0, 125, 125, 1), "n0", "main")
    assert set(found.split(", ")) == {"number 2", "number 3", "number 4"}


def test_nothing_of_the_checkout_is_touched(checkout) -> None:
    folder = checkout(0, 1, 1)
    (folder / "state").write_text("mine\n")
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {folder}/hooked\n")
    hook.chmod(0o755)
    before = _git(folder, "for-each-ref"), _git(folder, "status", "--short")
    assert bisected(folder, "n0", "main") == "number 1"
    assert (_git(folder, "for-each-ref"), _git(folder, "status", "--short")) == before
    assert len(_git(folder, "worktree", "list").splitlines()) == 1
    assert not (folder / ".git" / "BISECT_LOG").exists()


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ((1, 1, 1), "--good .*: the trace breaks there"),
        ((0, 0, 0), "--bad .*: the trace breaks nothing there"),
        ((0, 0, 125), "--bad .*: it cannot be run"),
    ],
)
def test_an_end_that_is_not_what_it_is_said_to_be_is_refused(checkout, states, words) -> None:
    with pytest.raises(InputError, match=words):
        bisected(checkout(*states), "n0", "main")


def test_revisions_and_folders_that_are_none_are_refused(checkout, tmp_path: Path) -> None:
    folder = checkout(0, 1)
    for good, bad, words in (("no", "main", "--good no"), ("main", "main", "one commit")):
        with pytest.raises(InputError, match=words):
            git.history(folder, good, bad)
    with pytest.raises(InputError, match="no git checkout"):
        git.history(tmp_path / "nowhere", "a", "b")
