"""What is said of a campaign: how far it is, what it found, and how two become one."""

import shlex
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.table import Table

from cacheproof.board.model import BoardReader
from cacheproof.board.page import page
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.register import FaultRecord
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.campaigns import reporting
from cacheproof.differential.search.campaigns.faults import Fault
from cacheproof.differential.search.campaigns.merging import merge_stores
from cacheproof.differential.search.campaigns.reporting import ReportedTarget
from cacheproof.differential.search.campaigns.store import Beating, CampaignStore, CampaignTarget
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS, exit_code_of, is_unlisted
from cacheproof.differential.targets.resolve import tree_here
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput, require_writable, write_file
from cacheproof.output.folders import folder_for
from cacheproof.search import result as searched
from cacheproof.search import verdict as searches
from cacheproof.search.fault_table import shown_faults
from cacheproof.search.registering import Register
from cacheproof.search.result import SearchSubject
from cacheproof.search.searching import print_listed, print_outcome, print_verdict
from cacheproof.search.told_findings import print_faces
from cacheproof.tables import places
from cacheproof.tables.places import TargetProgress
from cacheproof.work.code_digest import code_digest

RATE_SECONDS = 60.0
REPORT = "campaign report"
"""The command that the JSON of a report names, also where `campaign start` or `resume` ends so."""


def report(
    output: CommandOutput, where: str, findings: Path | None, register: Register, html: str | None
) -> int:
    """Print what a campaign has come to, and write it as a page. Returns the exit code.

    Raises:
        InputError: the page cannot be written.
    """
    if html is not None:
        require_writable("--html", html)
    with closing(CampaignStore(where)) as store:
        known = fault_folders.of_text(store.known, store.where)
        folder = folder_for(where, findings)
        code = print_report(output, store, known, folder, register)
        if html is not None:
            write_file("--html", html, page(BoardReader(folder).read(store)))
        return code


def print_report(
    output: CommandOutput,
    store: CampaignStore,
    known: Sequence[KnownFault],
    folder: Path,
    register: Register,
    *,
    is_interrupted: bool = False,
) -> int:
    """Write the findings into the folder and what is known of their faults into the register, and
    print the report; the digest does not hang on what was interrupted. Returns the exit code."""
    targets = reporting.reported(store, known)
    faults = reporting.faults_in(store, targets)
    content = reporting.document(store, targets, faults)
    for one in targets:
        one.verdict.interrupted = is_interrupted and bool(one.verdict.unfinished)
    for one in targets:
        for found in one.verdict.findings:
            finding_file.save(found, folder)
    _print_faults(output, faults, [one.about.name for one in targets])
    for one in targets:
        _print_target(output, one, folder)
    results = [
        searched.result_of(one.verdict, _subject(one.about), known, folder) for one in targets
    ]
    register.add(output, [record for one in targets for record in one.records])
    output.line(f"digest {content['digest']}")
    verdicts = [one.verdict for one in targets]
    resume = f"cacheproof campaign resume --store {shlex.quote(store.where)}"
    line = searches.line_of(verdicts, shown_faults(verdicts, known), folder, resume)
    code = exit_code_of(verdicts)
    facts = {"command": REPORT, **content, "exit_code": code, "folder": str(folder)}
    return output.tell(Conclusion(code, line, facts, results))


def _subject(about: CampaignTarget) -> SearchSubject:
    """A target as it was searched: with places where its text is here and still the same."""
    tree = tree_here(about.name)
    if tree is not None and code_digest(["vllm"], tree) != about.text:
        tree = None
    return SearchSubject(about.name, tree, about.has_own_text)


def _print_faults(output: CommandOutput, faults: Sequence[Fault], targets: Sequence[str]) -> None:
    """A line for each fault, those of whose traces all have held before only where all is told."""
    shown = [one for one in faults if output.verbose or one.has_changed or any(one.breaks.values())]
    if not shown:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("identity", "status", "was", "contract"):
        table.add_column(title, no_wrap=True)
    for target in targets:
        table.add_column(target.removeprefix("vllm@"), justify="right", overflow="fold")
    table.add_column("listed as", overflow="fold")
    table.add_column("seen", overflow="fold")
    for one in shown:
        table.add_row(
            "-" if one.record is None else one.record.identity,
            one.status,
            one.was or "-",
            one.contract,
            *(_cell(one, target) for target in targets),
            ", ".join(one.listed_as) or "-",
            "-" if one.record is None else _seen(one.record),
        )
    output.report.print(table)
    output.line("numbers are events of the smallest trace; holds: the register's trace holds there")


def _seen(record: FaultRecord) -> str:
    first, last = record.first.date, record.last.date
    return first if first == last else f"{first} to {last}"


def _cell(one: Fault, target: str) -> str:
    """What is known of a fault on a target: + where it has it and no trace was written down."""
    if target not in one.breaks:
        return "-"
    small = one.smallest(target)
    if small is not None:
        return str(len(small.events))
    return "+" if one.breaks[target] else "holds"


def _print_target(output: CommandOutput, one: ReportedTarget, folder: Path) -> None:
    for cause in one.verdict.causes:
        if is_unlisted(found := cause.head):
            output.line(f"unlisted: {found.sentence} ({len(found.events)} events)")
            output.command(f"  cacheproof replay {finding_file.path_of(found, folder)}")
            print_faces(output, one.verdict, cause, folder)
    for found in one.verdict.findings if output.verbose else ():
        if not is_unlisted(found):
            print_listed(output, found, folder)
    print_outcome(output, one.verdict)
    for seeds, lanes in _by_seeds(one).items():
        output.line(f"  seeds {seeds} of {', '.join(lanes)}")
    print_verdict(output, one.verdict, folder)


def _by_seeds(one: ReportedTarget) -> dict[str, list[str]]:
    """The lanes that were searched over the same seeds."""
    found: dict[str, list[str]] = {}
    for lane, seeds in one.seeds.items():
        found.setdefault(", ".join(seeds), []).append(lane)
    return found


def status(output: CommandOutput, where: str) -> None:
    """Print how far a campaign is, in a screen."""
    now = time.time()
    with closing(CampaignStore(where)) as store:
        known = fault_folders.of_text(store.known, store.where)
        rows = [_row(store, number, known, now) for number in range(len(store.targets))]
        runners = store.beating()
    table = Table("target", box=None, pad_edge=False)
    for title in ("shards", "events", "events/s", "findings", "unlisted"):
        table.add_column(title, justify="right")
    for row in rows:
        of = f" of {row.of:,}" if row.of is not None else ""
        counts = (row.events, row.events_per_s, row.findings, row.unlisted)
        table.add_row(row.target, f"{row.shards:,}{of}", *(f"{count:,}" for count in counts))
    output.report.print(table)
    for runner in runners:
        output.line(_told(runner, now))
    if not runners:
        output.line("nobody runs it")
    line = places.of_status(shlex.quote(where), rows, len(runners))
    facts = {"targets": rows, "runners": [_runner_json(one, now) for one in runners]}
    output.tell(Conclusion(HOLDS, line, facts))


def _row(
    store: CampaignStore, number: int, known: Sequence[KnownFault], now: float
) -> TargetProgress:
    verdict = (one := ReportedTarget(store, number, known)).verdict
    events, _ = store.spent(number)
    lately, _ = store.spent(number, now - RATE_SECONDS)
    return TargetProgress(
        one.about.name,
        one.shards_done,
        one.shards_total,
        events,
        round(lately / RATE_SECONDS),
        len(verdict.findings),
        len(verdict.unlisted),
        verdict.unfinished,
    )


def _told(runner: Beating, now: float) -> str:
    heard = f"heard of {max(0, now - runner.beat):.0f} s ago"
    state = "has ended without a word" if runner.is_dead(now) else f"{runner.jobs} jobs"
    return f"{runner.who.host} process {runner.who.pid}: {runner.workers} workers, {state}, {heard}"


def _runner_json(runner: Beating, now: float) -> dict[str, object]:
    return {
        "host": runner.who.host,
        "pid": runner.who.pid,
        "workers": runner.workers,
        "jobs": runner.jobs,
        "is_dead": runner.is_dead(now),
    }


def merge(output: CommandOutput, first: str, second: str, into: str | None) -> None:
    """Merge two stores, and say what the one holds."""
    merged = merge_stores(first, second, into, time.time())
    report = f"cacheproof campaign report --store {shlex.quote(into or first)}"
    line = places.of_merged(merged.where, merged.shards, merged.both, report)
    output.tell(Conclusion(HOLDS, line))
