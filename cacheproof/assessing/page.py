"""docs/how-to/audit.md, docs/evidence/fault-causes.md, and the table of faults/README.md."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from cacheproof.assessing.answer import AuditAnswer, AuditVerdict, Status, status
from cacheproof.assessing.questions import PURPOSES, QUESTIONS, not_looked_at
from cacheproof.assessing.report import elsewhere
from cacheproof.differential.search.known import HARMS, KnownFault
from cacheproof.differential.texts import mends
from cacheproof.listed.facts import lifetime
from cacheproof.reference.releases import MODELLED, NEWEST, within
from cacheproof.reference.semantics import CHANGES

COMMAND = ".venv/bin/python benchmarks/audit_pages.py"
HEADER = (
    "| fault | status upstream | first | mended in | last run | runner | reach | harm | contract |"
)


def audit(faults: Sequence[KnownFault]) -> str:
    """The page docs/how-to/audit.md."""
    answers = [AuditAnswer(one, NEWEST, tuple(faults)) for one in QUESTIONS]
    lines = [
        "# What an auditor asks",
        "",
        f"    {COMMAND}",
        "",
        "makes this page from [the list of faults](../reference/known-faults.md) and from what was",
        "[proved](../evidence/evidence-releases.md), "
        "[searched](../evidence/releases-checked.md) and",
        "[replayed](../evidence/findings-replayed.md). Nothing is run for it. The same for "
        "any modelled",
        "release, with what is not looked at:",
        "",
        "```",
        f"cacheproof assess {NEWEST}",
        *(f"cacheproof assess {NEWEST} --for {one}" for one in PURPOSES),
        "```",
        "",
        "*Yes* means that a run of that release showed it. *As read* means that the lines are",
        "there and were not run. *No known way* is no proof that there is none. *Mended in* names",
        "the release from which on a fault is gone. *Last run* is the newest in which a run showed",
        "a fault that no release mends. Commands are run from a clone. States of public threads",
        "are those of copies, the newest from 2026-09-22.",
        "",
        "## Every release",
        "",
        "In brackets: the known ways, then those as read.",
        "",
        f"| release | {' | '.join(one.id for one in QUESTIONS)} |",
        f"|---|{'---|' * len(QUESTIONS)}",
        *_matrix(faults),
        "",
    ]
    for given in answers:
        lines += _section(given)
    names = ", ".join(_linked(one, one.name) for one in elsewhere(NEWEST, faults))
    lines += [
        "## None of these",
        "",
        f"Faults of {NEWEST} that lose work, or make an answer wrong for its own user alone:",
        f"{names}.",
    ]
    return "\n".join(lines) + "\n"


def causes(faults: Sequence[KnownFault]) -> str:
    """The page docs/evidence/fault-causes.md."""
    alone = [one for one in faults if one.is_told_alone]
    of_vllm = [one for one in alone if not one.product]
    lines = [
        "# What causes each known fault",
        "",
        f"    {COMMAND}",
        "",
        "makes this page from [the list of faults](../reference/known-faults.md). A search "
        "tells a break to be",
        "one of these where the reference, with the flags of its cause turned, no longer shows it.",
        "A flag is a sentence that is not true of a release with the fault. Several flags of one",
        "cause are turned together. Where no flag is the cause, the release with the fault",
        "[mended](../how-to/mends.md) answers in the place of the reference.",
        "",
        "*Mended* are the releases whose text a mend is for. *Met in* are lanes in one of which a",
        "search of a release with the fault must meet it.",
        "",
        "| fault | contracts | cause | mended | met in |",
        "|---|---|---|---|---|",
        *(
            f"| {_linked(one, one.name)} | {' '.join(one.contracts) or 'none'} | {_cause(one)} "
            f"| {_mended(one)} | {', '.join(one.again)} |"
            for one in faults
            if not one.is_told_alone
        ),
        "",
        "## Told by what they break alone",
        "",
        f"{len(alone)} of {len(faults)} faults have no cause that the reference models and no "
        f"mend, {len(of_vllm)} of them of vLLM",
        "itself. In the lanes and kinds that are listed for them another fault would be taken for",
        "one of these, if the target decides as its model does. Those without a contract are shown",
        "by a command, and no search can take a break for one of them.",
        "",
        "| fault | contracts | releases | of |",
        "|---|---|---|---|",
        *(
            f"| {_linked(one, one.name)} | {' '.join(one.contracts) or 'none'} | {lifetime(one)} "
            f"| {one.product or 'vLLM'} |"
            for one in alone
        ),
    ]
    return "\n".join(lines) + "\n"


def _cause(fault: KnownFault) -> str:
    """The flags of its causes, with what they say; or what its mend does."""
    if fault.is_by_symptom:
        return f"mend: {mends.mends()[fault.name].does}"
    several = (
        " and ".join(f"`{flag}`: {CHANGES[flag].sentence}" for flag in cause.flags)
        for cause in fault.cause
    )
    return "; or ".join(several)


def _mended(fault: KnownFault) -> str:
    """The releases that its mend is for; empty where it has none."""
    mend = mends.mends().get(fault.name)
    fit = [one for one in MODELLED if mend is not None and mend.for_release(one) is not None]
    return " to ".join(dict.fromkeys((fit[0], fit[-1]))) if fit else ""


def _matrix(faults: Sequence[KnownFault]) -> Iterator[str]:
    for release in reversed(MODELLED):
        cells = [_cell(AuditAnswer(one, release, tuple(faults))) for one in QUESTIONS]
        yield f"| {release} | {' | '.join(cells)} |"


def _cell(given: AuditAnswer) -> str:
    if given.verdict in (AuditVerdict.NO, AuditVerdict.NOT_KNOWN):
        return given.verdict
    seen, read = len(given.of(Status.SEEN)), len(given.of(Status.AS_READ))
    return f"yes ({seen}{f', {read}' if read else ''})" if seen else f"as read (0, {read})"


def _section(given: AuditAnswer) -> Iterator[str]:
    """A question about the newest release."""
    yield from (f"## {given.question.text}", "")
    yield from (f"`{given.question.id}`, {given.question.purpose}. **{given.words}**", "")
    if given.question.by_design:
        yield from (f"On purpose: {given.question.by_design}", "")
    there = [*given.of(Status.SEEN), *given.of(Status.AS_READ)]
    if there:
        yield "| fault | harm | reachable with | removed by | releases | upstream |"
        yield "|---|---|---|---|---|---|"
        for fault in there:
            is_read = status(fault, given.release) is Status.AS_READ
            title = f"{_linked(fault, fault.title)}{' (as read)' if is_read else ''}"
            cells = (title, fault.harm, fault.needs, fault.avoid, lifetime(fault), fault.upstream)
            yield f"| {' | '.join(cells)} |"
        yield ""
    for label, known in (("Mended", Status.MENDED), ("Neither run nor read", Status.NOT_RUN)):
        if of_release := given.of(known):
            told = (f"{_linked(one, one.name)} ({one.mended_in or one.seen})" for one in of_release)
            yield from (f"{label}: {', '.join(told)}.", "")
    yield from ("```", *_evidence(given), "```", "")
    yield from (f"Not looked at: {'; '.join(not_looked_at(given.question, given.release))}.", "")


def _evidence(given: AuditAnswer) -> Iterator[str]:
    """All evidence, with a command below what it shows."""
    for command, of_command in groupby(given.evidence(), key=lambda one: one.command):
        yield from (f"{one.kind}: {one.text}" for one in of_command)
        if command:
            yield f"    {command}"


def _linked(fault: KnownFault, text: str) -> str:
    return f"[{text}](../../{fault.page})"


def findings(faults: Sequence[KnownFault]) -> list[str]:
    """The table of faults/README.md: the worst first, else as they are listed."""
    rows = map(_row, sorted(faults, key=lambda one: HARMS.index(one.kind_of_harm)))
    return [HEADER, f"|{'---|' * (HEADER.count('|') - 1)}", *rows]


def _row(fault: KnownFault) -> str:
    first, last = (within(fault.seen)[0], within(fault.seen)[-1]) if fault.seen else ("", "")
    if fault.product:
        product, _, versions = fault.product.partition(" ")
        oldest, _, newest = versions.partition(" to ")
        first, last = f"{product} {oldest}", f"{product} {newest or oldest}"
    cells = (
        f"[{fault.title}]({fault.name}/page.md)",
        fault.upstream,
        first,
        fault.mended_in or "",
        "" if fault.mended_in else last,
        fault.runner,
        fault.needs,
        fault.harm,
        ", ".join(fault.contracts) or "none",
    )
    return f"| {' | '.join(cells)} |"
