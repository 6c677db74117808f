"""Runs a program that takes a while: its output goes to a log, and the user sees that it moves."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cacheproof.differential.provision.cache import Report

POLL_SECONDS = 0.1
REPORT_PAUSE_SECONDS = 1.0
HEARTBEAT_SECONDS = 5.0


def run_logged(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    title: str,
    report: Report,
    describe: Callable[[str], str | None] = lambda line: None,
    inherit: tuple[int, ...] = (),
) -> int:
    """Runs the command and returns its exit status. Its standard input ends when this process does.

    Args:
        log: takes standard output and standard error.
        describe: what is reported about a line of the log; None keeps what was reported last.
        inherit: descriptors of locks. The child keeps them if this process is killed, so that
            nobody works in the same folder while the child still writes.
    """
    with open(log, "wb") as sink:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sink, stderr=sink, env=env, pass_fds=inherit
        )
    try:
        _watch(child, log, title, report, describe)
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()
    return child.returncode


def last_line(log: Path) -> str:
    """The last line of a log that is not blank; "no output" where there is none."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def _watch(
    child: "subprocess.Popen[bytes]",
    log: Path,
    title: str,
    report: Report,
    describe: Callable[[str], str | None],
) -> None:
    started = told = time.monotonic()
    words, news = "", True
    with open(log, errors="replace") as output:
        while child.poll() is None:
            for line in output:
                described = describe(line)
                if described is not None:
                    words, news = f": {described}", True
            quiet = time.monotonic() - told
            if (news and quiet >= REPORT_PAUSE_SECONDS) or quiet >= HEARTBEAT_SECONDS:
                told, news = time.monotonic(), False
                report(f"{title}{words} ({told - started:.0f} s)")
            time.sleep(POLL_SECONDS)
