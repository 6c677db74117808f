"""A plug-in of pytest: after a run, the twenty tests that took the most CPU time.

What a test's own processes take counts, and what a fixture takes counts for the test that asks
first. CPU time hangs less on what else runs on a machine than seconds do.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOWN = 20
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Of this process and all that it started: those that run, and those that were waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(status.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(map(int, fields[11:15]))

    def is_ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_ours(parents[process]))

    return sum(used for process, used in ticks.items() if is_ours(process)) / TICKS


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.user_properties.append(("before", cpu_seconds()))
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    before = dict(item.user_properties)["before"]
    assert isinstance(before, float)
    item.user_properties.append(("cpu_seconds", cpu_seconds() - before))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    took = [
        (seconds, report.nodeid)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
        for name, seconds in report.user_properties
        if name == "cpu_seconds" and isinstance(seconds, float)
    ]
    terminalreporter.section(f"{sum(seconds for seconds, _ in took):,.0f} s of CPU time")
    for seconds, test in sorted(took, reverse=True)[:SHOWN]:
        terminalreporter.write_line(f"{seconds:5.1f} s  {test}")
