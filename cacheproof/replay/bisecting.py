"""The command bisect: the release, or the commit, that brought a fault or mended it."""

import shlex
import sys
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.question import Question
from cacheproof.differential.judges.examination import LOCKSTEP
from cacheproof.differential.provision import releases
from cacheproof.differential.search import git_bisection as git
from cacheproof.differential.search.bisection import ReleaseAnswer, ask, bisections, remarks
from cacheproof.differential.search.verdict import HOLDS, VOID
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.trace import Trace
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.replay import bisect_step
from cacheproof.replay.replaying import load_what
from cacheproof.search import compared
from cacheproof.spec.registry import contracts

NEITHER_ENGINE = "expected a finding or a trace that a release runs without an engine"


def bisect(
    output: CommandOutput,
    what: str,
    folder: Path,
    contract: str | None,
    checkout: Path | None,
    good: str | None,
    bad: str | None,
    *,
    every: bool,
) -> int:
    """Ask releases, all of them with `every`, or the commits of a checkout between two. Returns the
    exit code.

    Raises:
        InputError: what is asked cannot be.
    """
    file, found, _ = load_what(what, folder)
    question = _question(found, contract, file)
    if checkout is None and good is None and bad is None:
        return _over_releases(output, file, question, every=every)
    if checkout is None or good is None or bad is None or every:
        raise InputError(
            "--checkout, --good and --bad belong together, and --all does not go with them; "
            "expected all three, or none to ask releases"
        )
    return _over_commits(output, file, contract, git.history(checkout, good, bad))


def require_contract(contract: str | None) -> None:
    """See whether there is a contract of that id, where one is named. Raises InputError."""
    if contract is not None and contract not in {rule.id for rule in contracts()}:
        raise InputError(
            f"--contract {contract}: no contract id; expected one of cacheproof contracts"
        )


def _question(found: Finding | Trace, contract: str | None, file: Path) -> Question:
    """What is to be asked of releases.

    Raises:
        InputError: its trace needs an engine, or there is no such contract.
    """
    require_contract(contract)
    question = Question.of(found, contract)
    if question.trace.depth == "engine":
        raise InputError(f"{file}: the trace of an engine; {NEITHER_ENGINE}")
    return question


def _over_releases(output: CommandOutput, file: Path, question: Question, *, every: bool) -> int:
    """Ask the releases from old to new and say where it breaks. Returns the exit code."""
    answers = _answers(output, question, _releases(output, every=every))
    found = bisections(question, answers)
    for one in found:
        for line in one.lines():
            output.line(line)
    for line in remarks(answers):
        output.line(line)
    if all(one.broken is None for one in answers):
        raise InputError(f"{file}: no release takes the trace; {NEITHER_ENGINE}")
    refused = sum(one.broken is None for one in answers)
    replay = f"cacheproof replay {shlex.quote(str(file))}"
    ran = len(answers) - refused
    verdict = compared.of_releases(found, ran, refused, question.contract, replay)
    facts = {
        "releases": [
            {
                "release": one.release,
                "broken": None if one.broken is None else sorted(one.broken),
                "without": list(one.without),
                "refusal": one.refusal or None,
            }
            for one in answers
        ],
        "bisections": [one.to_json() for one in found],
    }
    return output.tell(Conclusion(HOLDS, verdict, facts))


def _over_commits(
    output: CommandOutput, file: Path, contract: str | None, past: git.History
) -> int:
    """Have git bisect the history and say which commit it is. Returns the exit code."""
    module = [sys.executable, "-P", "-m", bisect_step.__name__, str(file.absolute())]
    asked = [] if contract is None else [bisect_step.CONTRACT, contract]
    found = git.first_commits(past, lambda tree: [*module, str(tree), *asked], output.say)
    verb = "mended" if past.is_mended else "brought"
    for one in found if found[1:] else ():
        output.line(f"{one.hash[:12]} of {one.day}: {one.subject}")
    commits = [(one.hash, one.day, one.subject) for one in found]
    facts = {
        "checkout": str(past.checkout),
        "good": past.good,
        "bad": past.bad,
        "verb": verb,
        "commits": [asdict(one) for one in found],
    }
    code = VOID if found[1:] else HOLDS
    return output.tell(Conclusion(code, compared.of_commits(verb, commits), facts))


def _releases(output: CommandOutput, *, every: bool) -> list[str]:
    """The releases to be asked, from old to new.

    Raises:
        InputError: none is installed.
    """
    if every:
        releases.install_all(MODELLED, report=output.say)
        return list(MODELLED)
    here = {one.version for one in releases.list_installed()}
    found = [release for release in MODELLED if release in here]
    if not found:
        raise InputError(
            "no modelled release is installed; expected some: run cacheproof vllm install "
            f"{NEWEST}, or give --all"
        )
    return found


def _answers(output: CommandOutput, question: Question, asked: list[str]) -> list[ReleaseAnswer]:
    """What each release does with the trace; the next one starts while one is asked."""
    answers = []
    targets = (resolve(f"vllm@{release}", report=output.say) for release in asked)
    with output.live("asking releases") as live:
        advance = live.counter(len(asked))
        following = next(targets, None)
        for release in asked:
            target, following = following, next(targets, None)
            for one in (target, following):
                if isinstance(one, HostTarget):
                    one.prepare()
            assert target is not None
            with closing(target):
                wanted = reference_for(target) if question.contract == LOCKSTEP else None
                with closing(wanted) if wanted is not None else nullcontext() as reference:
                    answers.append(ask(target, release, question, reference))
            advance()
    return answers
