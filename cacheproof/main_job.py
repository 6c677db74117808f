"""The main job: real releases searched over fixed seeds, one evidence table, one exit code."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.table import Table

from cacheproof.console import Output
from cacheproof.differential import finding_file, report
from cacheproof.differential.campaign import LANES
from cacheproof.differential.errors import InputError
from cacheproof.differential.gallery import kill_matrix
from cacheproof.differential.known import KnownFault
from cacheproof.differential.targets.reference import missing_media_libraries
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.verdict import HOLDS, UNLISTED, VOID, Verdict, listed_but_missing
from cacheproof.searching import (
    Plan,
    judge_target,
    print_canaries,
    print_lanes,
    print_listed,
    verdict_json,
)

RELEASES = ("0.33.0", "0.28.0")
SEEDS = {"short": range(300), "full": range(1500)}


def run(
    output: Output,
    budget: str,
    releases: Sequence[str] | None,
    known: Sequence[KnownFault],
    folder: Path,
) -> int:
    """Search the releases and print the evidence. Returns the exit code."""
    if budget not in SEEDS:
        raise InputError(f"--budget {budget}: expected one of {', '.join(SEEDS)}")
    plan = Plan(
        tuple(LANES.values()),
        SEEDS[budget],
        None,
        with_reference=True,
        kept_per_break=1,
        shows_listed=True,
    )
    verdicts = []
    for release in releases or RELEASES:
        with closing(resolve(f"vllm@{release}", report=output.say)) as target:
            verdict = judge_target(output, target, plan, known, folder)
        verdict.not_found_again = listed_but_missing(verdict.campaign, known)
        verdicts.append(verdict)
        _print_target(output, verdict, folder)
    _print_evidence(output, verdicts)
    code = _exit_code(verdicts)
    output.line(_closing_line(verdicts, code))
    output.write_json(
        "check",
        {
            "targets": [verdict_json(verdict) for verdict in verdicts],
            "evidence": [line.to_json() for verdict in verdicts for line in verdict.evidence()],
            "findings": [one for verdict in verdicts for one in verdict.findings],
            "exit_code": code,
        },
    )
    return code


def gallery(output: Output) -> int:
    """Print the kill matrix. 0: every variant is caught; 3: one survives."""
    with output.bar("running faulty variants", None):
        matrix = kill_matrix()
    output.line(matrix.to_markdown())
    if missing := missing_media_libraries():
        output.line(f"not run: variants of the media hash, without {', '.join(missing)}")
    output.write_json("gallery", matrix.to_json())
    return HOLDS if not matrix.survivors else VOID


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    """An unlisted finding before a difference from the model, before void, before all holds."""
    codes = {verdict.exit_code for verdict in verdicts}
    return UNLISTED if UNLISTED in codes else max(codes, default=VOID)


def _print_target(output: Output, verdict: Verdict, folder: Path) -> None:
    """What is new in full, the listed findings in a line each."""
    print_lanes(output, verdict.campaign.lanes, verdict.campaign.seconds)
    print_canaries(output, verdict)
    new = [*verdict.unlisted, *verdict.from_model]
    for one in verdict.findings:
        if one in new:
            report.print_finding(one, output.report, str(finding_file.path_of(one, folder)))
    for one in verdict.findings:
        if one not in new:
            print_listed(output, one, folder)
    output.report.print()


def _print_evidence(output: Output, verdicts: Sequence[Verdict]) -> None:
    table = Table("contract", *(v.campaign.target for v in verdicts), box=None, pad_edge=False)
    rows: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        for line in verdict.evidence():
            cell = line.verdict if line.known is None else f"{line.verdict} ({line.known})"
            rows.setdefault(line.contract, {})[verdict.campaign.target] = cell
    for contract, cells in rows.items():
        table.add_row(contract, *(cells.get(v.campaign.target, "not promised") for v in verdicts))
    output.report.print(table)


def _closing_line(verdicts: Sequence[Verdict], code: int) -> str:
    calls = sum(verdict.campaign.calls for verdict in verdicts)
    found = sum(len(verdict.findings) for verdict in verdicts)
    unlisted = sum(len(verdict.unlisted) for verdict in verdicts)
    lines = [f"{calls:,} calls judged; {found} findings, {unlisted} of them unlisted"]
    if from_model := sum(len(verdict.from_model) for verdict in verdicts):
        lines[0] += f"; differences from the model: {from_model}"
    lines += [
        f"void: {verdict.campaign.target}: {reason}"
        for verdict in verdicts
        for reason in verdict.void_because
    ]
    lines.append(f"exit code {code}")
    return "\n".join(lines)
