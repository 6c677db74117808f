"""The command assess: an auditor's questions about a release, on the screen and as JSON."""

import textwrap
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import groupby

from cacheproof.assessing.answer import (
    AuditAnswer,
    AuditVerdict,
    EvidenceLine,
    Status,
    shown,
    status,
)
from cacheproof.assessing.questions import PURPOSES, QUESTIONS, not_looked_at
from cacheproof.differential.errors import InputError
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS
from cacheproof.listed.facts import fault_rows
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import VerdictLine, counted
from cacheproof.reference.releases import MODELLED, NEWEST

WIDTH = 79
LABEL = 14
NOTE = (
    "Nothing was run for this answer. It tells what proofs, searches and replays came to. As read "
    "means that the lines of the fault are in that release and were not run. The "
    "command below them runs them again, from a clone of the repository; cacheproof explain FAULT "
    "tells all of one fault. States of public threads are those of copies, the newest from "
    "2026-09-22."
)


def release_of(word: str) -> str:
    """The modelled release that is meant.

    Raises:
        InputError: there is none of that name.
    """
    release = word.removeprefix("vllm@")
    if release in MODELLED:
        return release
    near = [one for one in reversed(MODELLED) if one.startswith(f"{release}.")]
    near = near or get_close_matches(release, MODELLED, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"{word}: not a release that is modelled; expected one of the {len(MODELLED)} stable "
        f"releases from {MODELLED[0]} to {NEWEST}{meant}"
    )


def purposes_of(word: str | None) -> Sequence[str]:
    """The purposes that are meant: all where none is named.

    Raises:
        InputError: there is none of that name.
    """
    if word is None or word in PURPOSES:
        return PURPOSES if word is None else (word,)
    near = get_close_matches(word, PURPOSES, n=1, cutoff=0.4)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise InputError(f"--for {word}: expected one of {', '.join(PURPOSES)}{meant}")


def assess(output: CommandOutput, word: str, purpose: str | None) -> int:
    """Answer the questions of a purpose about a release.

    Raises:
        InputError: the release is not modelled, or nobody asks for such a purpose.
    """
    release, purposes = release_of(word), purposes_of(purpose)
    faults = load()
    answers = [
        AuditAnswer(one, release, tuple(faults)) for one in QUESTIONS if one.purpose in purposes
    ]
    for line in _report(answers, faults):
        if line.lstrip().startswith(("cacheproof ", ".venv/")):
            output.command(line)
        else:
            output.report.print(line, soft_wrap=True)
    return output.tell(Conclusion(HOLDS, verdict(answers), as_json(answers, faults)))


def verdict(answers: Sequence[AuditAnswer]) -> VerdictLine:
    """All answers in one sentence, and the first command that shows one of them."""
    release = answers[0].release
    yes = [
        _claimed(one) for one in answers if one.verdict in (AuditVerdict.YES, AuditVerdict.AS_READ)
    ]
    no = [one.question.claim for one in answers if one.verdict is AuditVerdict.NO]
    unknown = [one.question.claim for one in answers if one.verdict is AuditVerdict.NOT_KNOWN]
    parts = [f"Yes: in vLLM {release} {'; '.join(yes)}"] if yes else [f"Of vLLM {release}"]
    parts += [f"it is not known whether {'; '.join(unknown)}"] if unknown else []
    parts += [f"no way is known in which {'; '.join(no)}"] if no else []
    sentence = f"{'; '.join(parts)}." if yes else f"{parts[0]} {'; '.join(parts[1:])}."
    commands = [one.command for given in answers for one in given.evidence() if one.command]
    quick = [one for one in commands if " replay " in one] or commands
    step = "see the first of them happen" if yes else "run the first of the searches again"
    return VerdictLine(sentence, step if quick else "", (quick or [""])[0])


def _claimed(given: AuditAnswer) -> str:
    seen, read = len(given.of(Status.SEEN)), len(given.of(Status.AS_READ))
    ways = counted(seen, "known way") if seen else counted(read, "way as read", "ways as read")
    return f"{given.question.claim} ({ways}{f', {read} more as read' if seen and read else ''})"


def _wrapped(text: str, first: str = "", rest: str | None = None) -> str:
    indent = first if rest is None else rest
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _report(answers: Sequence[AuditAnswer], faults: Sequence[KnownFault]) -> Iterator[str]:
    """The report, block by block: a command has a line of its own."""
    yield _wrapped(NOTE)
    for given in answers:
        yield from ("", given.question.text, _wrapped(given.words, "  "))
        if given.question.by_design:
            yield _wrapped(f"On purpose: {given.question.by_design}", "  ")
        for fault in (*given.of(Status.SEEN), *given.of(Status.AS_READ)):
            is_read = status(fault, given.release) is Status.AS_READ
            name = f"{fault.name} (as read)" if is_read else fault.name
            yield from ("", _wrapped(f"{name}: {fault.title}", "  ", "    "))
            for label, text in fault_rows(fault):
                yield _wrapped(text, f"    {label:<{LABEL}}", " " * (LABEL + 4))
        yield from _others(given)
        for kind, of_kind in groupby(given.evidence(), key=lambda one: one.kind):
            yield from ("", f"  Evidence, {kind}")
            yield from _evidence(list(of_kind))
        yield from ("", "  Not looked at")
        for text in not_looked_at(given.question, given.release):
            yield _wrapped(text, "    - ", "      ")
    if none := [one.name for one in elsewhere(answers[0].release, faults)]:
        yield from ("", "Known faults of this release that answer none of an audit's questions")
        yield _wrapped(", ".join(none), "  ")


def _others(given: AuditAnswer) -> Iterator[str]:
    """The question's faults that this release does not show."""
    mended = [f"{one.name} (in {one.mended_in})" for one in given.of(Status.MENDED)]
    not_run = [f"{one.name} (seen in {one.seen})" for one in given.of(Status.NOT_RUN)]
    for label, names in (("Mended", mended), ("Neither run nor read on this release", not_run)):
        if names:
            yield from ("", _wrapped(f"{label}: {', '.join(names)}", "  ", "    "))


def _evidence(lines: Sequence[EvidenceLine]) -> Iterator[str]:
    """Evidence of one kind; what one command shows stands above it."""
    for command, of_command in groupby(lines, key=lambda one: one.command):
        yield from (_wrapped(one.text, "    ", "      ") for one in of_command)
        if command:
            yield f"      {command}"


def elsewhere(release: str, faults: Sequence[KnownFault]) -> list[KnownFault]:
    """The faults of a release that bear on no question: lost work, or answers wrong for their own
    user alone."""
    return [
        one
        for one in faults
        if one.questions == () and status(one, release) in (Status.SEEN, Status.AS_READ)
    ]


def as_json(answers: Sequence[AuditAnswer], faults: Sequence[KnownFault]) -> dict[str, object]:
    """The answers with all that they rest on."""
    release = answers[0].release
    return {
        "release": release,
        "questions": [
            {
                "question": given.question.id,
                "purpose": given.question.purpose,
                "text": given.question.text,
                "answer": given.verdict,
                "by_design": given.question.by_design,
                "faults": [_fault_json(one, given) for one in given.faults],
                "evidence": [one._asdict() for one in given.evidence()],
                "not_looked_at": not_looked_at(given.question, release),
            }
            for given in answers
        ],
        "other_faults": [one.name for one in elsewhere(release, faults)],
    }


def _fault_json(fault: KnownFault, given: AuditAnswer) -> dict[str, object]:
    known = status(fault, given.release, given.question.id)
    return {
        "name": fault.name,
        "title": fault.title,
        "status": known,
        "harm": fault.harm,
        "needs": fault.needs,
        "avoid": fault.avoid,
        "seen": fault.seen,
        "as_read": fault.as_read,
        "mended_in": fault.mended_in,
        "upstream": fault.upstream,
        "page": fault.page,
        "shown_by": [one._asdict() for one in shown(fault, given.release)]
        if known is Status.SEEN
        else [],
    }
