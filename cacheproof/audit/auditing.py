"""The command audit: what engines recorded, judged."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import start_http_server

from cacheproof.audit.listing import Listing
from cacheproof.audit.page import drawn
from cacheproof.audit.report import AuditReport
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.metrics import Metrics
from cacheproof.differential.errors import InputError
from cacheproof.differential.search import fault_folders
from cacheproof.output.console import CommandOutput
from cacheproof.output.drawing import Drawings

LOOK_EVERY_SECONDS = 0.2
LOOKS_AFTER_ITS_END = 50
LOOPBACK = "127.0.0.1"


def audit(
    output: CommandOutput,
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
    report = AuditReport(output, Listing(fault_folders.load(known)), where)
    audit_of = Audit(where, waits=follow)
    is_interrupted = False
    try:
        if follow:
            with _served(output, metrics_port) as publish:
                _follow(audit_of, report, publish, until_finding=until_finding)
        audit_of.look(last=True)
    except KeyboardInterrupt:
        if not audit_of.auditors:
            raise
        is_interrupted = True  # and no further record is judged: one may have been left half way
    code = report.end(audit_of, is_interrupted=is_interrupted)
    if drawings.are_asked_for:
        ends = ", until the audit was interrupted" if is_interrupted else ""
        drawings.write(drawn(report.answered(audit_of), where, window, ends=ends))
    return code


@contextmanager
def _served(output: CommandOutput, port: int | None) -> Iterator[Callable[[Audit], None]]:
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
) -> None:
    """Judge what comes, until all engines have ended."""
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
