"""The commands about engines that run: record, audit, minimise."""

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer
from prometheus_client import start_http_server

from cacheproof.console import Output
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor, Found
from cacheproof.differential.audit.following import Observed
from cacheproof.differential.audit.metrics import Metrics
from cacheproof.differential.audit.retelling import Retold
from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.findings import finding_file, report
from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.recording import plugin
from cacheproof.differential.search import known as known_faults
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS, UNLISTED, VOID
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.wording import told
from cacheproof.options import A_WEEK, FindingsOption, JsonOption, KnownOption, folder_of
from cacheproof.spec.versions import Versions

LOOK_EVERY_SECONDS = 0.2
LOOPBACK = "127.0.0.1"
GONE_AFTER_LOOKS = 50
EVENTS_SHOWN = 12
LINE_MAX = 160
RecordArgument = Annotated[
    str, typer.Argument(metavar="DIR|FILE|-", help="Records of an engine; - for standard input.")
]


def audit(
    where: RecordArgument,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what the engine writes, until it ends.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="With --follow: metrics for Prometheus there."
        ),
    ] = None,
    until_finding: Annotated[
        bool, typer.Option("--until-finding", help="With --follow: end at the first finding.")
    ] = False,
    known: KnownOption = None,
    json: JsonOption = None,
) -> None:
    """Judge what an engine recorded by every contract that speaks of it."""
    for option, is_given in (("--until-finding", until_finding), ("--metrics-port", metrics_port)):
        if is_given not in (None, False) and not follow:
            raise InputError(f"{option} goes with --follow; expected both")
    output = Output(json)
    report_of = _Report(output, known_faults.load(known), where)
    audit_of = Audit(where)
    if follow:
        with _served(output, metrics_port) as publish:
            _follow(audit_of, report_of, publish, until_finding=until_finding)
    audit_of.look(last=True)
    raise typer.Exit(report_of.end(audit_of))


@contextmanager
def _served(output: Output, port: int | None) -> Iterator[Callable[[Audit], None]]:
    """Yields what publishes an audit's metrics, served on this machine alone while it goes on."""
    if port is None:
        yield lambda audit_of: None
        return
    metrics = Metrics()
    try:
        server, thread = start_http_server(port, LOOPBACK, metrics.registry)
    except OSError as error:
        raise InputError(
            f"--metrics-port {port}: {error.strerror}; expected a port that is free"
        ) from None
    output.say(f"metrics at http://{LOOPBACK}:{server.server_port}/metrics")
    try:
        yield lambda audit_of: metrics.publish(audit_of.auditors)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _follow(
    audit_of: Audit,
    report_of: "_Report",
    publish: Callable[[Audit], None],
    *,
    until_finding: bool,
) -> None:
    """Judge what comes, until all engines have ended."""
    pause, idle = threading.Event(), 0
    while True:
        count = audit_of.look(seen=lambda: publish(audit_of))
        publish(audit_of)
        found = report_of.show_new(audit_of)
        if until_finding and found:
            return
        auditors = audit_of.auditors.values()
        if auditors and all(one.account.closed for one in auditors):
            return
        idle = 0 if count or any(map(_is_alive, auditors)) else idle + 1
        if auditors and idle >= GONE_AFTER_LOOKS:
            return
        pause.wait(LOOK_EVERY_SECONDS)


def _is_alive(auditor: Auditor) -> bool:
    if auditor.opened is None:
        return False
    try:
        os.kill(auditor.opened.process, 0)
    except (OSError, OverflowError):
        return False
    return True


class _Report:
    """Prints what an audit finds, each contract once."""

    def __init__(self, output: Output, faults: Sequence[KnownFault], where: str) -> None:
        self._output = output
        self._faults = faults
        self._where = where
        self._shown = 0
        self._shown_of: dict[str, int] = {}

    def show_new(self, audit_of: Audit) -> bool:
        """Print what was found since the last time; whether anything that counts was."""
        counts = False
        for stem, auditor in audit_of.auditors.items():
            shown = self._shown_of.get(stem, 0)
            for found in auditor.found[shown:]:
                self._show(stem, auditor, found)
                counts = counts or found.violation.contract.harm != "efficiency"
            self._shown_of[stem] = len(auditor.found)
        return counts

    def _show(self, stem: str, auditor: Auditor, found: Found) -> None:
        line, rule = self._output.line, found.violation.contract
        line(
            f"{stem}: {rule.id} broken in step {found.step:,} (record {found.record:,}, "
            f"{_time(found.at)}){_kind(found.violation.kind)}"
        )
        line(f"  {rule.title}")
        line(f"  {rule.harm}; {found.violation.why}")
        for words in _listed(self._faults, auditor, found):
            line(f"  {words}")
        line("  before it")
        for words in _steps_before(found):
            line(f"    {words}")
        if self._where != "-":
            self._output.command(f"  cacheproof minimise {self._where} --contract {rule.id}")

    def end(self, audit_of: Audit) -> int:
        """Print the rest and the account. Returns the exit code."""
        self.show_new(audit_of)
        codes = [self._account(stem, auditor) for stem, auditor in audit_of.auditors.items()]
        self._output.write_json(
            "audit",
            {"engines": [_json(stem, one) for stem, one in audit_of.auditors.items()]},
        )
        return UNLISTED if UNLISTED in codes else max(codes)

    def _account(self, stem: str, auditor: Auditor) -> int:
        line, account, opened = self._output.line, auditor.account, auditor.opened
        if opened is None or account.steps == account.judged_steps == account.records == 0:
            line(f"{stem}: nothing is recorded yet: nothing was judged")
            return VOID
        line(
            f"{stem}: vllm {opened.vllm}, {opened.manager_class.rpartition(':')[2]}, from "
            f"{_time(account.started)} on for {account.seconds:,.0f} s"
            f"{'' if account.closed else '; the record has no end'}"
        )
        line(
            f"  {account.judged_steps:,} of {account.steps:,} steps judged, {account.requests:,} "
            f"requests; a worker's store compared after {account.stores:,} steps"
        )
        for (contract, kind), count in account.broken.items():
            line(f"  broken: {contract}{_kind(kind)}, {count:,} times")
        for what, count in account.raised.items():
            line(f"  the engine raised in {what}, {count:,} times")
        for why in account.gaps:
            line(f"  missing: {why}")
        if account.gap_count > len(account.gaps):
            line(f"  missing: {account.gap_count - len(account.gaps):,} more gaps")
        if account.lost:
            line(f"  missing: {account.lost:,} records that the engine could not write")
        for what in sorted(account.unjudged):
            line(f"  not followed: {what}")
        harms = {found.violation.contract.harm for found in auditor.found}
        if harms & {"safety", "liveness"} or account.raised:
            return UNLISTED
        is_whole = account.judged_steps == account.steps and not account.gap_count
        return HOLDS if is_whole and not account.lost else VOID


def _kind(kind: str) -> str:
    return f", {kind}" if kind else ""


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OSError, OverflowError, ValueError):
        return "no time"


def _listed(faults: Sequence[KnownFault], auditor: Auditor, found: Found) -> Iterator[str]:
    """Listed faults of the release that break the same contract."""
    if auditor.release is None:
        return
    names = dict.fromkeys(
        (one.name, one.page)
        for one in faults
        if one.contract == found.violation.contract.id
        and auditor.release in Versions(one.releases)
        and one.kind in (None, found.violation.kind)
    )
    for name, page in names:
        where = f" (docs/{page})" if page else ""
        yield f"listed for {auditor.release} by this contract: {name}{where}"


def _steps_before(found: Found) -> list[str]:
    """The last events before a break that have to do with what it names."""
    why = found.violation.why
    bound = re.findall(r"for \w+ = '([^']+)'", why) or re.findall(r"'([^']+)'", why)
    names = set(bound) | {
        found.violation.request,
        found.violation.identifier,
    }
    lines = [
        _words(observed)
        for observed in found.window
        if observed is found.window[-1] or _has_to_do_with(observed, names - {""})
    ]
    return [shorten(line, LINE_MAX, placeholder=" ...") for line in lines[-EVENTS_SHOWN:]]


def _has_to_do_with(observed: Observed, names: set[str]) -> bool:
    event, record = observed
    if getattr(event, "request", None) in names:
        return True
    if any(item.identifier in names for item in getattr(event, "items", ())):
        return True
    for call in record.calls:
        if call.delta is not None and not names.isdisjoint(call.delta.entries):
            return True
        if call.request in names and call.input is not None:
            return True
    return isinstance(record.outcome, dict) and not names.isdisjoint(
        record.outcome.get("notices", ())
    )


def _words(observed: Observed) -> str:
    event, record = observed
    words = told(event, record.outcome)
    spans = [
        f"{one.identifier} [{one.offset}, {one.offset + one.length})"
        for one in getattr(event, "items", ())
    ]
    words += f" with {', '.join(spans)}" if spans else ""
    encoded = [f"{one.request}#{one.input}" for one in record.calls if one.operation == "allocate"]
    words += f"; encode {', '.join(encoded)}" if encoded else ""
    if isinstance(record.outcome, dict) and record.outcome.get("notices"):
        words += f"; report {', '.join(record.outcome['notices'])}"
    return words


def _json(stem: str, auditor: Auditor) -> dict[str, Any]:
    account, opened = auditor.account, auditor.opened
    return {
        "engine": stem,
        "vllm": None if opened is None else opened.vllm,
        "manager": None if opened is None else opened.manager_class,
        "started": account.started,
        "seconds": round(account.seconds, 6),
        "steps": account.steps,
        "judged_steps": account.judged_steps,
        "stores_compared": account.stores,
        "requests": account.requests,
        "closed": account.closed,
        "lost": account.lost,
        "gaps": account.gaps,
        "gap_count": account.gap_count,
        "raised": account.raised,
        "not_followed": sorted(account.unjudged),
        "broken": [
            {"contract": contract, "kind": kind or None, "times": count}
            for (contract, kind), count in account.broken.items()
        ],
        "findings": [
            {
                "contract": found.violation.contract.id,
                "harm": found.violation.contract.harm,
                "kind": found.violation.kind or None,
                "step": found.step,
                "record": found.record,
                "at": found.at,
                "request": found.violation.request or None,
                "identifier": found.violation.identifier or None,
                "why": found.violation.why,
                "before": _steps_before(found),
            }
            for found in auditor.found
        ],
    }


def minimise(
    where: RecordArgument,
    contract: Annotated[
        str | None, typer.Option(metavar="ID", help="By default the first that is broken.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="T", help="By default the release that was recorded."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=A_WEEK, help="Stop making it smaller after so long.")
    ] = 600,
    findings: FindingsOption = None,
    json: JsonOption = None,
) -> None:
    """Make a small trace of a break in a record, one that the release alone breaks again."""
    output = Output(json)
    if where == "-":
        raise InputError("minimise reads a record twice; expected a file or a folder, not -")
    folder = folder_of(findings)
    audit_of = Audit(where)
    audit_of.look(last=True)
    stem, auditor, found = _chosen(audit_of, where, contract)
    assert auditor.opened is not None
    name = target or _target_of(auditor)
    assert auditor.trace is not None
    retold = Retold(auditor.trace)
    again = Audit(where)
    retold.read(again.parts(stem), found.record)
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
                finding_file.save(small, folder)
                file = finding_file.path_of(small, folder)
                report.print_finding(small, output.report, str(file))
                output.write_json("minimise", {"finding": small, "file": str(file)})
                raise typer.Exit(UNLISTED)
    output.line(
        f"{rule}: {ran.name} does not break it when the recorded events are run again; what the "
        "record leaves out (the text of prompts, other plug-ins) may be what it takes"
    )
    output.write_json("minimise", {"finding": None, "file": None})
    raise typer.Exit(VOID)


def _chosen(audit_of: Audit, where: str, contract: str | None) -> tuple[str, Auditor, Found]:
    """The break to make small."""
    for stem, auditor in audit_of.auditors.items():
        for found in auditor.found:
            if contract in (None, found.violation.contract.id):
                return stem, auditor, found
    broken = sorted(
        {one.violation.contract.id for a in audit_of.auditors.values() for one in a.found}
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


def record(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where records go.")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="After --.")],
    plain: Annotated[
        bool, typer.Option("--plain", help="Keep identifiers and names of requests as they are.")
    ] = False,
    mib: Annotated[
        int, typer.Option(min=8, metavar="N", help="MiB that a process keeps at most.")
    ] = 1024,
) -> None:
    """Run a command that starts vLLM, with the recorder on."""
    program = shutil.which(command[0])
    if program is None:
        raise InputError(f"{command[0]}: not found; expected a command, e.g. vllm serve MODEL")
    folder_of(folder)
    os.environ |= {
        plugin.FOLDER: str(folder.absolute()),
        plugin.PLAIN: str(int(plain)),
        plugin.LIMITS: str(mib),
    }
    os.execv(program, command)
