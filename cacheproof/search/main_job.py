"""The main job: real releases searched over fixed seeds, one evidence table, one exit code."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from rich.table import Table

from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision.releases import install_all
from cacheproof.differential.provision.versions import parse
from cacheproof.differential.search.gallery.kill_matrix import (
    Killed,
    Killing,
    components_of,
    kill_matrix,
    runnable,
)
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import (
    HOLDS,
    VOID,
    Verdict,
    exit_code_of,
    listed_but_missing,
)
from cacheproof.differential.targets.reference_media_hash import missing_media_libraries
from cacheproof.differential.targets.resolve import resolve
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.progress import telling
from cacheproof.reference.releases import SEARCHED
from cacheproof.search import gallery_verdict
from cacheproof.search import result as searched
from cacheproof.search import verdict as searches
from cacheproof.search.fault_table import print_faults, shown_faults
from cacheproof.search.registering import Register
from cacheproof.search.result import SearchSubject
from cacheproof.search.searching import (
    judge_target,
    print_details,
    print_not_written,
    print_outcome,
    verdict_json,
)
from cacheproof.work.plan import SearchPlan
from cacheproof.work.workplace import Workplace

SEEDS = {"short": range(300), "full": range(1500)}
SEEDS_AT_ONCE = {"short": 60, "full": None}
"""Most listed faults are met within the first sixty seeds of their lanes; the others go on."""


def run(
    output: CommandOutput,
    budget: str,
    releases: Sequence[str] | None,
    known: Sequence[KnownFault],
    folder: Path,
    register: Register,
    place: Workplace,
    part: str | None = None,
    seconds: float | None = None,
) -> int:
    """Search the releases, over all seeds of a budget or a `part` of them, and print what was
    found. Returns the exit code.

    Args:
        seconds: no seeds of a release are begun after its share of them; what is listed need not
            be met then.
    """
    if budget not in SEEDS:
        raise InputError(f"--budget {budget}: expected one of {', '.join(SEEDS)}")
    wanted = [parse(one, "--release ") for one in dict.fromkeys(releases or SEARCHED)]
    is_whole = part is None and seconds is None
    plan = SearchPlan(
        tuple(LANES.values()),
        SEEDS[budget] if part is None else _part_of(SEEDS[budget], part),
        None if seconds is None else seconds / len(wanted),
        with_reference=True,
        kept_per_break=1,
        seeds_at_once=SEEDS_AT_ONCE[budget] if is_whole else None,
        shows_listed=is_whole,
        shrinks_listed=bool(register),
        place=place,
    )
    install_all(wanted, report=output.say)
    verdicts: list[Verdict] = []
    with ExitStack() as stack:
        targets = [
            stack.enter_context(closing(resolve(f"vllm@{release}", report=output.say)))
            for release in wanted
        ]
        for target in targets:
            verdict = judge_target(output, target, plan, known, folder, register)
            verdicts.append(verdict)
            target.close()
            if is_whole and not verdict.interrupted:
                verdict.not_found_again = listed_but_missing(verdict.outcome, known)
            output.found(searched.result_of(verdict, SearchSubject.of(target), known, folder))
            if verdict.interrupted:
                break
    if output.verbose:
        for verdict in verdicts:
            print_details(output, verdict, folder)
        _print_evidence(output, verdicts)
    shown = shown_faults(verdicts, known)
    print_faults(output, shown, [verdict.outcome.target for verdict in verdicts])
    for verdict in verdicts:
        print_outcome(output, verdict)
    code = exit_code_of(verdicts)
    for line in _closing_lines(verdicts):
        output.line(line)
    for verdict in verdicts:
        print_not_written(output, verdict, folder)
    facts = {
        "targets": [verdict_json(verdict) for verdict in verdicts],
        "evidence": [line.to_json() for verdict in verdicts for line in verdict.evidence()],
        "faults": [one.to_json() for one in shown],
        "findings": [one for verdict in verdicts for one in verdict.findings],
        "exit_code": code,
    }
    return output.tell(Conclusion(code, searches.line_of(verdicts, shown, folder), facts))


def _part_of(seeds: range, part: str) -> range:
    """The seeds of a part, K/N. Raises InputError for what is none."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", part, re.ASCII)
    number, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= parts <= len(seeds):
        raise InputError(
            f"--slice {part}: expected K/N with 1 <= K <= N <= {len(seeds)}, such as 1/7"
        )
    return seeds[len(seeds) * (number - 1) // parts : len(seeds) * number // parts]


def gallery(output: CommandOutput, place: Workplace, component: str | None) -> int:
    """Print the kill matrix, of all variants or those of a component. 0: every variant is caught;
    3: one survives, or the reference breaks a contract without a fault.

    Raises:
        InputError: no variant is one of that component.
    """
    if component is not None:
        _require_variants(component)
    with place.joined(), output.live("running faulty variants") as live:

        def results(
            run: Callable[[Killing], Killed], jobs: Sequence[Killing]
        ) -> Iterator[tuple[int, Killed]]:
            abouts = [f"{len(job.places)} variants" for job in jobs]
            expected = [float(len(job.places)) for job in jobs]
            yield from telling(live, place, run, jobs, abouts, expected)

        matrix = kill_matrix(results=results, component=component)
    output.line(matrix.to_markdown().rstrip("\n"))
    missing = missing_media_libraries() if component is None else ()
    if missing:
        output.line(f"not run: variants of the media hash, without {', '.join(missing)}")
    alarms = sorted(matrix.false_alarms)
    survivors = [one.name for one in matrix.survivors]
    line = gallery_verdict.of_gallery(len(matrix.kills), survivors, alarms, missing, component)
    code = VOID if survivors or alarms else HOLDS
    return output.tell(Conclusion(code, line, {"component": component, **matrix.to_json()}))


def _require_variants(component: str) -> None:
    """See whether a component has variants that this interpreter can run. Raises InputError."""
    here = {name for one in runnable() for name in components_of(one)}
    if component not in here:
        raise InputError(
            f"--component {component}: no faulty variant to run; expected one of "
            f"{', '.join(sorted(here))}"
        )


def _print_evidence(output: CommandOutput, verdicts: Sequence[Verdict]) -> None:
    table = Table("contract", *(v.outcome.target for v in verdicts), box=None, pad_edge=False)
    rows: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        for line in verdict.evidence():
            cell = line.verdict if line.known is None else f"{line.verdict} ({line.known})"
            rows.setdefault(line.contract, {})[verdict.outcome.target] = cell
    for contract, cells in rows.items():
        table.add_row(contract, *(cells.get(v.outcome.target, "not promised") for v in verdicts))
    output.report.print(table)


def _closing_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    evidence = [one for verdict in verdicts for one in verdict.evidence()]
    held = sum(one.verdict == "tested" for one in evidence)
    idle = sum(one.verdict == "vacuous" for one in evidence)
    without = f"; {idle} were not judged" if idle else ""
    yield f"{held} of {len(evidence) - idle} judged contracts of targets were not broken{without}"
    for verdict in verdicts:
        for reason in verdict.void_because:
            yield f"void: {verdict.outcome.target}: {reason}"
