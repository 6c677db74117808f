"""The command minimise: a small trace of a break in a record."""

import time
from contextlib import closing
from pathlib import Path

from cacheproof.audit.listing import reads_otherwise
from cacheproof.differential.audit.account import FoundBreak
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.ranking import ranked
from cacheproof.differential.audit.retelling import Retold
from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.findings import finding_file, report
from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import UNLISTED, VOID
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.folders import folder_of
from cacheproof.replay.bisecting import require_contract
from cacheproof.search import compared
from cacheproof.search.lane_choice import require_lanes
from cacheproof.search.verdict import replay_of
from cacheproof.work.plan import lanes_at


def minimise(
    output: CommandOutput,
    where: str,
    contract: str | None,
    target: str | None,
    seconds: float,
    known: Path | None,
    findings: Path | None,
) -> int:
    """Make a small trace of a break in a record, and print it. Returns the exit code."""
    if where == "-":
        raise InputError("minimise reads a record twice; expected a file or a folder, not -")
    require_contract(contract)
    if target is not None:
        require_lanes(lanes_at("scheduler"), target)
    folder, faults = folder_of(findings), fault_folders.load(known)
    audit_of = Audit(where)
    audit_of.look(last=True)
    stem, auditor, found = _chosen(audit_of, where, contract)
    assert auditor.opened is not None
    name = target or _target_of(auditor)
    assert auditor.trace is not None
    retold = Retold(auditor.trace)
    again = Audit(where)
    retold.read(again.parts(stem), found.at.record)
    rule = found.violation.contract.id
    with closing(resolve(name, report=output.say)) as ran:
        for trace in retold.tellings():
            output.say(f"{rule}: {len(trace.events):,} events on {ran.name}")
            try:
                small = found_in(
                    ran,
                    trace,
                    rule,
                    kind=found.violation.kind,
                    until=time.monotonic() + seconds,
                )
            except HarnessError as error:
                output.say(f"{rule}: {error}")
                continue
            if small is not None:
                small = _annotated(small, ran, faults)
                finding_file.save(small, folder)
                file = finding_file.path_of(small, folder)
                report.print_finding(small, output.report, str(file))
                events, replay = len(small.events), replay_of(small, folder)
                line = compared.of_minimised(rule, ran.name, events, small.fault, replay)
                facts = {"finding": small, "file": str(file)}
                return output.tell(Conclusion(UNLISTED, line, facts))
    otherwise = "" if target is not None else reads_otherwise(auditor)
    line = compared.of_lost(rule, ran.name, otherwise)
    return output.tell(Conclusion(VOID, line, {"finding": None, "file": None}))


def _annotated(found: Finding, target: Target, faults: list[KnownFault]) -> Finding:
    """The finding with what is listed of it."""
    with closing(Attribution.of_target(faults, target, reference_for(target))) as attribution:
        return attribution.annotated(found, attribution.of_finding(found, "scheduler"))


def _chosen(audit_of: Audit, where: str, contract: str | None) -> tuple[str, Auditor, FoundBreak]:
    """The break to make small."""
    for stem, auditor in audit_of.auditors.items():
        for found in (broken.first for broken in ranked(auditor)):
            rule = found.violation.contract.id
            if contract == rule and (found.is_of_kv_cache or found.is_of_media):
                of_media = ("caches of processed media", "front_end")
                what, depth = of_media if found.is_of_media else ("a KV cache manager", "kv_cache")
                raise InputError(
                    f"{where}: {rule} is broken by {what}, and a record is told as the trace of a "
                    "scheduler; expected another contract: search for this one with "
                    f"cacheproof fuzz --target {_target_of(auditor)} --depth {depth}"
                )
            if contract == rule and found.is_of_worker:
                raise InputError(
                    f"{where}: {rule} is broken by what a worker held, and not by what its "
                    "scheduler decided, which is all that a trace has; expected another contract"
                )
            if contract in (None, rule) and found.has_trace:
                return stem, auditor, found
    broken = sorted(
        {
            one.violation.contract.id
            for auditor in audit_of.auditors.values()
            for one in auditor.found
            if one.has_trace
        }
    )
    raise InputError(
        f"{where}: no break of {contract or 'any contract'} in it; expected "
        + (f"one of {', '.join(broken)}" if broken else "a record in which audit finds one")
    )


def _target_of(auditor: Auditor) -> str:
    """What was recorded, as a target."""
    assert auditor.opened is not None
    release = auditor.opened.vllm.split("+")[0]
    manager = auditor.opened.manager_class
    if manager.startswith("vllm."):
        return f"vllm@{release}"
    if "<locals>" in manager:
        raise InputError(
            f"the recorded manager {manager} cannot be imported by name; give what to run with "
            "--target"
        )
    return f"{manager}@{release}"
