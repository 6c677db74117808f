"""The list of the slowest tests counts what their processes take, and not what they wait."""

from pathlib import Path

import pytest

PLUG_IN = Path(__file__).parents[2] / "benchmarks" / "slowest_tests.py"
WORK = "import time\nwhile time.process_time() < 0.5: pass"
TESTS = f"""
import subprocess, sys, time

def test_waits():
    time.sleep(0.7)

def test_lets_another_work():
    subprocess.run([sys.executable, "-c", {WORK!r}], check=True)

def test_lets_another_work_that_goes_on():
    other = subprocess.Popen(
        [sys.executable, "-c", {WORK!r} + "\\nprint(flush=True)\\ntime.sleep(60)"],
        stdout=subprocess.PIPE,
    )
    other.stdout.readline()
    test_lets_another_work_that_goes_on.other = other

def test_ends_it():
    test_lets_another_work_that_goes_on.other.kill()
    test_lets_another_work_that_goes_on.other.wait()
"""

pytest_plugins = ["pytester"]


@pytest.mark.full
@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_processes_take_counts_where_it_is_taken(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PLUG_IN.parent))
    pytester.makepyfile(TESTS)
    ran = pytester.runpytest_subprocess("-p", PLUG_IN.stem, "--numprocesses", workers)
    shown = [line.split(" s  ") for line in ran.outlines if " s  " in line]
    seconds = {test.partition("::")[2]: float(took) for took, test in shown}
    assert min(one for name, one in seconds.items() if "lets" in name) >= 0.5
    assert max(one for name, one in seconds.items() if "lets" not in name) < 0.5
    assert [*seconds.values()] == sorted(seconds.values(), reverse=True)
    assert any("s of CPU time" in line for line in ran.outlines)
