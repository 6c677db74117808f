"""The commands that search and replay: fuzz, diff, replay."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.table import Table

from cacheproof.differential.findings import finding_file, report
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.search.diff import ExplainedParting, Partings, find_partings
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import (
    FROM_MODEL,
    HOLDS,
    INTERRUPTED,
    UNLISTED,
    VOID,
    Verdict,
)
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.changes import changed_once_in
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.output.announcing import announce, has_text_of_its_own, start
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.reference.semantics import CHANGES
from cacheproof.search import result as searched
from cacheproof.search import verdict as searches
from cacheproof.search.compared import Compared
from cacheproof.search.fault_table import print_faults, shown_faults
from cacheproof.search.lane_choice import lanes_for, left_out, require_lanes
from cacheproof.search.lane_order import in_order
from cacheproof.search.registering import Register
from cacheproof.search.result import SearchSubject
from cacheproof.search.search_run import run_search
from cacheproof.search.told_findings import causes_json, print_causes, told_count
from cacheproof.search.two_targets import two_targets
from cacheproof.work.plan import SearchPlan


def judge_target(
    output: CommandOutput,
    target: Target,
    plan: SearchPlan,
    known: Sequence[KnownFault],
    folder: Path,
    register: Register,
) -> Verdict:
    """Search a target by a plan with all workers, plant its faults, and print by cause
    what was found and is not listed. The traces of the register are run before, and it takes what
    is found. Raises HarnessError when the target does not start."""
    start(output, target)
    lanes = in_order(output, target, lanes_for(plan.lanes, target, output))
    told = announce(output, target, compared=plan.with_reference)
    verdict, records = run_search(output, target, lanes, plan, known, folder, register.records)
    verdict.told = told
    verdict.left_out = left_out(plan.lanes, target)
    verdict.changed_once = changed_once_in(target)
    print_causes(output, verdict, folder)
    register.add(output, records)
    return verdict


def fuzz(
    output: CommandOutput,
    target_text: str,
    plan: SearchPlan,
    known: Sequence[KnownFault],
    folder: Path,
    register: Register,
) -> int:
    """Search one target and print what was found. Returns the exit code."""
    require_lanes(plan.lanes, target_text)
    with closing(resolve(target_text, report=output.say)) as target:
        verdict = judge_target(output, target, plan, known, folder, register)
    if output.verbose:
        print_details(output, verdict, folder)
    shown = shown_faults([verdict], known)
    print_faults(output, shown, [verdict.outcome.target])
    print_outcome(output, verdict)
    print_verdict(output, verdict, folder)
    return output.tell(
        Conclusion(
            verdict.exit_code,
            searches.line_of([verdict], shown, folder),
            {**verdict_json(verdict), "faults": [one.to_json() for one in shown]},
            [searched.result_of(verdict, SearchSubject.of(target), known, folder)],
        )
    )


def verdict_json(verdict: Verdict) -> dict[str, object]:
    """A verdict as the JSON of fuzz and check."""
    outcome = verdict.outcome
    return {
        "target": outcome.target,
        "model": verdict.told,
        "seconds": round(outcome.seconds, 1),
        "lanes": [
            {
                "name": lane.lane.name,
                "traces": lane.traces,
                "events": lane.events,
                "calls": lane.calls,
                "illegal": dict(lane.illegal),
                "rare_states": dict(lane.reach.met),
                "never_met": lane.never_met,
            }
            for lane in outcome.lanes
        ],
        "broken": [
            {
                "contract": contract,
                "lane": lane,
                "kind": kind or None,
                "traces": traces,
                "listed": outcome.listed_in(contract, lane, kind),
            }
            for (contract, lane, kind), traces in outcome.kinds.most_common()
        ],
        "canaries": verdict.canaries,
        "void_because": verdict.void_because,
        "left_undone": verdict.left_undone,
        "findings": verdict.findings,
        "causes": causes_json(verdict),
    }


def print_details(output: CommandOutput, verdict: Verdict, folder: Path) -> None:
    """What `--verbose` adds: the lanes, how contracts were broken, every listed finding."""
    table = Table("lane", "traces", "events", "calls", "illegal", box=None, pad_edge=False)
    for lane in verdict.outcome.lanes:
        illegal = sum(lane.illegal.values())
        counts = (lane.traces, lane.events, lane.calls, illegal)
        table.add_row(lane.lane.name, *(f"{count:,}" for count in counts))
    output.report.print(table)
    table = Table("broken", "in lane", "by", "traces", "listed", box=None, pad_edge=False)
    for place, traces in verdict.outcome.kinds.most_common():
        listed = verdict.outcome.listed_in(*place).items()
        table.add_row(*place, f"{traces:,}", ", ".join(f"{name} {n:,}" for name, n in listed))
    output.report.print(table)
    for one in verdict.findings:
        if one.known_note is not None or one.harm == "efficiency":
            print_listed(output, one, folder)


def print_outcome(output: CommandOutput, verdict: Verdict) -> None:
    """How much was run, which planted faults were found, and which rare states were never met."""
    outcome = verdict.outcome
    traces = sum(lane.traces for lane in outcome.lanes)
    found = sum(verdict.canaries.values())
    output.line(
        f"{outcome.target}: {traces:,} traces, {outcome.calls:,} calls judged in "
        f"{outcome.seconds:.0f} s; {found} of {len(verdict.canaries)} planted faults found"
    )
    for contract, met in verdict.canaries.items():
        if not met:
            output.line(
                f"MISSED: the fault planted against {contract}; if nothing here can break it, "
                "differential/search/canary.py or the lane's silent_on says why"
            )
    for lane in outcome.lanes:
        if lane.never_met:
            output.line(f'  lane "{lane.lane.name}" never reached: {"; ".join(lane.never_met)}')


def print_verdict(output: CommandOutput, verdict: Verdict, folder: Path) -> None:
    """Where the findings lie, what is not written down, and what the search is void for."""
    if verdict.findings:
        output.line(f"{told_count(verdict)} in {folder}")
    for reason in verdict.void_because:
        output.line(f"void: {reason}")
    print_not_written(output, verdict, folder)


def print_not_written(output: CommandOutput, verdict: Verdict, folder: Path) -> None:
    """What broke and is no finding yet, for want of time or of a host."""
    for fault, broken in verdict.not_written:
        if fault is None:
            file = finding_file.trace_path(broken, verdict.outcome.target, folder)
            output.line(f"not small yet: {broken.contract} in lane {broken.lane}")
            output.command(f"  cacheproof replay {file} --target {verdict.outcome.target}")


def print_listed(output: CommandOutput, finding: Finding, folder: Path) -> None:
    """A finding that the known list covers, in a line, and where it can be replayed from."""
    thread = finding.known or "no thread listed"
    about = f"{len(finding.events)} events, replays {finding.replays}, {thread}"
    file = finding_file.path_of(finding, folder)
    output.line(f"known: {finding.sentence} ({about})\n       {file}")


def diff(
    output: CommandOutput, left_text: str, right_text: str, depth: str | None, seconds: float
) -> int:
    """Run the same traces on two targets and show where they part. 0: they agree; 1: they part; 4:
    a target whose text is no release's parts from the reference."""
    with two_targets(output, left_text, right_text, depth) as (left, right, lanes, _):
        with_reference = any(isinstance(target, ReferenceTarget) for target in (left, right))
        told = {
            target.name: announce(output, target, compared=with_reference)
            for target in (left, right)
        }
        with output.live(f"comparing {left.name} and {right.name}") as live:
            began = time.monotonic()

            def tell(found: Partings) -> None:
                words = f"{found.traces:,} traces, {found.apart:,} of them part"
                spent = time.monotonic() - began
                live.show(words, min(1.0, spent / seconds), max(0.0, seconds - spent))

            found = find_partings(left, right, lanes, seconds, tell)
    for parting in found.partings:
        output.line(f"in lane {parting.lane} at {parting.difference.sentence}")
        for line in _explanation(parting, found):
            output.line(line)
        report.print_events(parting.trace, output.report)
    for flag in found.unseen:
        output.line(f"not seen: {_told(flag)}")
    of_its_own = any(has_text_of_its_own(target) for target in (left, right))
    code = FROM_MODEL if with_reference and of_its_own else UNLISTED
    if found.is_interrupted:
        code = INTERRUPTED
    elif not found.apart:
        code = HOLDS if found.traces else VOID
    explained = sum(bool(parting.flags) for parting in found.partings)
    compared = Compared(
        left.name,
        right.name,
        code,
        found.traces,
        found.apart,
        len(found.lanes),
        len(found.partings),
        explained,
        len(found.unseen),
    )
    facts = {
        "targets": [left.name, right.name],
        "models": told,
        "traces": found.traces,
        "apart": found.apart,
        "partings": [
            {
                "lane": parting.lane,
                "flags": sorted(parting.flags),
                "sentence": parting.difference.sentence,
                "configuration": parting.trace.header,
                "events": parting.trace.events,
            }
            for parting in found.partings
        ],
        "unseen": found.unseen,
        "interrupted": found.is_interrupted,
    }
    return output.tell(Conclusion(code, compared.line, facts))


def _explanation(parting: ExplainedParting, found: Partings) -> list[str]:
    if found.flags and not parting.flags:
        return ["explained by no change alone that is known between the two"]
    return [f"explained by {_told(flag)}" for flag in sorted(parting.flags)]


def _told(flag: str) -> str:
    change = CHANGES[flag]
    return f"{flag}: {change.sentence} ({change.source})"
