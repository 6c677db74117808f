"""The command audit: what engines recorded, judged."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import start_http_server

from cacheproof.audit_report import AuditReport
from cacheproof.console import Output
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor, Found
from cacheproof.differential.audit.metrics import Metrics
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.timeline.model import Timeline, broken_by, timeline
from cacheproof.differential.search import known as known_faults
from cacheproof.differential.search.verdict import INTERRUPTED
from cacheproof.drawing import Drawings

LOOK_EVERY_SECONDS = 0.2
LOOKS_AFTER_ITS_END = 50
LOOPBACK = "127.0.0.1"


def audit(
    output: Output,
    where: str,
    known: Path | None,
    drawings: Drawings,
    *,
    window: int,
    follow: bool,
    metrics_port: int | None,
    until_finding: bool,
) -> int:
    """Judge a record, print the report, and draw `window` events where that is asked for. Returns
    the exit code."""
    report = AuditReport(output, known_faults.load(known), where)
    audit_of = Audit(where, waits=follow)
    is_interrupted = False
    if follow:
        with _served(output, metrics_port) as publish:
            is_interrupted = _follow(audit_of, report, publish, until_finding=until_finding)
    audit_of.look(last=True)
    code = report.end(audit_of)
    if is_interrupted:
        output.line("interrupted: this is what was recorded until then")
        code = INTERRUPTED
    if drawings.are_asked_for:
        drawings.write(drawn(audit_of, where, window))
    return code


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
    report: AuditReport,
    publish: Callable[[Audit], None],
    *,
    until_finding: bool,
) -> bool:
    """Judge what comes, until all engines have ended. Returns whether somebody wanted no more."""
    try:
        _judge(audit_of, report, publish, until_finding=until_finding)
    except KeyboardInterrupt:
        return True
    return False


def _judge(
    audit_of: Audit,
    report: AuditReport,
    publish: Callable[[Audit], None],
    *,
    until_finding: bool,
) -> None:
    pause, idle = threading.Event(), 0
    while True:
        count = audit_of.look(seen=lambda: publish(audit_of))
        publish(audit_of)
        if report.show_new(audit_of) and until_finding:
            return
        auditors = audit_of.auditors.values()
        if auditors and all(one.account.closed for one in auditors):
            return
        idle = 0 if count or any(map(_is_alive, auditors)) else idle + 1
        if auditors and idle >= LOOKS_AFTER_ITS_END:
            return
        pause.wait(LOOK_EVERY_SECONDS)


def _is_alive(auditor: Auditor) -> bool:
    """Whether the process that writes is one of this machine's."""
    if auditor.opened is None:
        return False
    try:
        os.kill(auditor.opened.process, 0)
    except PermissionError:
        return True  # somebody else's
    except (OSError, OverflowError):
        return False
    return True


def drawn(audit_of: Audit, where: str, window: int) -> Timeline:
    """The last events before the first break, or before the end where nothing is broken.

    Raises:
        InputError: nothing was judged.
    """
    stem, auditor = next(iter(audit_of.auditors.items()))
    found: Found | None = None
    broken_of = [
        (one.violation.contract.harm == "efficiency", number, name)
        for name, by in audit_of.auditors.items()
        for number, one in enumerate(by.found)
    ]
    if broken_of:  # what does harm before what only costs time
        _, number, stem = min(broken_of)
        auditor = audit_of.auditors[stem]
        found = auditor.found[number]
    again = Auditor()
    again.moments = deque(maxlen=window)
    for part in Audit(where).parts(stem):
        again.feed(part)
        if found is not None and again.number >= found.record:
            break
    if auditor.trace is None or not again.moments:
        raise InputError(f"{where}: nothing was judged; expected a record with steps to draw")
    violations = [one.violation for one in again.found[-1:]] if found is not None else []
    broken = broken_by(violations)
    first = again.events - len(again.moments)
    return timeline(auditor.trace.header, again.moments, broken, target=stem, first=first)
