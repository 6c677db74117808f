"""The command prove: what is proved of which text, in one evidence table."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, MutableMapping, Sequence, Set
from dataclasses import asdict
from functools import cache
from importlib import metadata

from rich.table import Table

from cacheproof.differential.search.known import KnownFault, may_be
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.progress import telling
from cacheproof.proving import page as evidence_page
from cacheproof.proving import result as proved
from cacheproof.proving import verdict as proofs
from cacheproof.proving.halves import METHOD as EVERY_SCRIPT
from cacheproof.proving.jobs import Piece, ProofJob, jobs_for
from cacheproof.proving.kept import KeptProofs
from cacheproof.proving.targets import (
    REFERENCE,
    Beside,
    announced,
    listing_release,
    refuse_all_changed,
    wanted_trees,
)
from cacheproof.spec.evidence import Evidence, Outcome
from cacheproof.work.workplace import Workplace

TOOLS = ("z3-solver", "crosshair-tool")
LOOKING = "importing checkouts, to see that what is proved is what runs"
NOT_SEEN = "interrupted before it was seen whether what is proved of a checkout is what runs there"


def prove(
    output: CommandOutput,
    targets: Sequence[str] | None,
    known: Sequence[KnownFault],
    *,
    seed: int,
    markdown: bool,
    fresh: bool = False,
    place: Workplace,
) -> int:
    """Prove targets by their text and print the evidence; what was proved before of the same text
    is told again, unless all is to be proved afresh. The work is done at `place`. Returns
    the exit code.

    Raises:
        InputError: no such target; another text runs than is proved; or a library that proofs need
            is missing.
    """
    wanted = wanted_trees(targets, output)
    say = output.say if markdown else output.line
    told = {one.name: announced(one, say) for one in wanted if one is not None}
    looking = Beside(lambda: refuse_all_changed(wanted))
    trees = {one.name: one for one in wanted if one is not None}
    names = {REFERENCE, *trees} if None in wanted else {*trees}
    jobs = list(jobs_for(wanted, seed, fresh=fresh))
    kept = KeptProofs.locate(output.say)
    found = {} if fresh else proved_before(jobs, kept)
    before = sum(len(rows) for rows in found.values())
    is_interrupted = False
    try:
        prove_now(jobs, found, kept, output, place, looking.check)
        with output.live(LOOKING):
            looking.end()
    except KeyboardInterrupt:
        is_interrupted = True
        looking.check()
    rows = [
        row
        for job in jobs
        for piece in job.pieces
        for row in piece.told(found.get(piece, ()))
        if row.target in names
    ]
    release_of = cache(lambda target, subject: listing_release(trees.get(target), subject))
    listings = ((row, listing(row, known, release_of(row.target, row.subject))) for row in rows)
    listed = {row: fault for row, fault in listings if fault is not None}
    code = INTERRUPTED if is_interrupted else exit_code(rows, listed.keys())
    if markdown:
        output.line(evidence_page.markdown(rows, _tools()))
    else:
        _print(output, rows, listed)
        if rows:
            output.line(_closing_line(rows, before))
    if is_interrupted:
        say(f"interrupted: {left_out(jobs, found)}")
        if not looking.has_ended:
            say(NOT_SEEN)
    unproved = sum(piece not in found for job in jobs for piece in job.pieces)
    targets_told = [REFERENCE if one is None else one.name for one in wanted]
    line = proofs.line_of(targets_told, code, rows, listed, unproved)
    facts = {
        "tools": _tools(),
        "models": told,
        "evidence": [asdict(row) for row in rows],
        "proved_before": before,
        "exit_code": code,
    }
    results = [proved.result_of(one, rows, listed, is_interrupted=is_interrupted) for one in wanted]
    return output.tell(Conclusion(code, line, facts, results))


def proved_before(jobs: Iterable[ProofJob], kept: KeptProofs) -> dict[Piece, list[Evidence]]:
    """The pieces whose proofs are kept, with their rows."""
    found = {piece: kept.rows(piece.digest) for job in jobs for piece in job.pieces}
    return {piece: rows for piece, rows in found.items() if rows is not None}


def prove_now(
    jobs: Iterable[ProofJob],
    found: MutableMapping[Piece, list[Evidence]],
    kept: KeptProofs,
    output: CommandOutput,
    place: Workplace,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Prove the pieces that are not found, the longest jobs first. What comes of a job is found,
    kept and told as soon as it ends, so an interruption costs no more than what is under way.
    Meanwhile one may `watch` for what makes it end."""
    due = [one for one in (job.without(found) for job in jobs) if one.pieces]
    due.sort(key=lambda job: -job.seconds)
    abouts, expected = [job.about for job in due], [float(job.seconds) for job in due]
    with output.live("proving") as live:
        ended = telling(live, place, ProofJob.evidence, due, abouts, expected, watch)
        for number, evidence in ended:
            for piece, rows in due[number].by_piece(evidence):
                kept.keep(piece.digest, rows)
                found[piece] = rows
            live.say(f"proved: {abouts[number]}: {_counted(evidence)}")


def _counted(rows: Sequence[Evidence]) -> str:
    """How many rows came out how."""
    counts = Counter(row.outcome for row in rows)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no row"


def left_out(jobs: Iterable[ProofJob], found: Container[Piece]) -> str:
    """What is left unproved."""
    pieces = [piece for job in jobs for piece in job.pieces]
    left = [job.about for job in jobs if any(piece not in found for piece in job.pieces)]
    return (
        f"{len(pieces) - sum(one not in found for one in pieces)} of {len(pieces)} "
        f"texts were proved until then, and are kept; not proved: {', '.join(left)}"
    )


# what came of it


def listing(row: Evidence, known: Sequence[KnownFault], promised: str | None) -> KnownFault | None:
    """The first fault that is known of the row's contract in the `promised` release, in whatever
    lane or kind. None of both halves of the media cache: what parts them in releases lies outside
    what is proved of them, and the proof holds of all."""
    if row.method == EVERY_SCRIPT:
        return None
    return next(iter(may_be(known, row.contract, None, promised)), None)


def exit_code(rows: Sequence[Evidence], listed: Set[Evidence]) -> int:
    """0 where all holds but what is listed, 1 where something unlisted is refuted, else 3."""
    if any(row.outcome is Outcome.REFUTED and row not in listed for row in rows):
        return UNLISTED
    said = (Outcome.HOLDS, Outcome.REFUTED)
    if not rows or any(row.outcome not in said or _is_hollow(row) for row in rows):
        return VOID
    return HOLDS


def _is_hollow(row: Evidence) -> bool:
    """Whether a check that passed is not known to be able to fail."""
    return row.outcome is Outcome.HOLDS and not row.counts


def _closing_line(rows: Sequence[Evidence], before: int) -> str:
    return (
        f"the hardest condition took {_work(*rows) or 'nothing'} of the solver's limit; "
        f"{before} rows were proved before (--fresh proves all)"
    )


def _print(
    output: CommandOutput, rows: Sequence[Evidence], listed: Mapping[Evidence, KnownFault]
) -> None:
    """What holds, in a line for each class of a target and method, or whole where that is asked
    for; and all that does not."""
    if rows:
        (_print_all if output.verbose else _print_sums)(output, rows)
    for row in rows:
        if row.outcome is not Outcome.HOLDS:
            for line in proofs.told(row, listed.get(row)):
                output.line(line)


def _print_sums(output: CommandOutput, rows: Sequence[Evidence]) -> None:
    table = Table("target", "of", "method", box=None, pad_edge=False)
    for name in ("hold", "of", "twins", "work"):
        table.add_column(name, justify="right", no_wrap=True)
    groups: dict[tuple[str, str, str], list[Evidence]] = {}
    for row in rows:
        groups.setdefault((row.target, row.subject, row.method), []).append(row)
    for (target, subject, method), several in groups.items():
        held = sum(row.outcome is Outcome.HOLDS and row.counts for row in several)
        twins = sum(twin.refuted for row in several for twin in row.twins)
        cells = (held, len(several), twins)
        table.add_row(target, subject, method, *map(str, cells), _work(*several))
    output.report.print(table)


def _print_all(output: CommandOutput, rows: Sequence[Evidence]) -> None:
    table = Table(
        "contract",
        "target",
        "method",
        "outcome",
        "scope",
        "twins",
        "work",
        box=None,
        pad_edge=False,
    )
    for contracts, targets, row in evidence_page.together(rows):
        twins = f"{sum(twin.refuted for twin in row.twins)} of {len(row.twins)}"
        table.add_row(contracts, targets, row.method, row.outcome, row.scope, twins, _work(row))
    output.report.print(table)


def _work(*rows: Evidence) -> str:
    """What the hardest condition took of the solver's limit, where that was measured."""
    measured = [row.work_max for row in rows if row.work_max is not None]
    return f"{max(measured):.2%}" if measured else ""


def _tools() -> dict[str, str]:
    return {tool: metadata.version(tool) for tool in TOOLS}
