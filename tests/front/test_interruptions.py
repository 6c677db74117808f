"""SIGTERM is an interruption like Ctrl-C, heard once, by the process that has something to tell."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cacheproof.work.interruptions import INTERRUPTIONS, between_interruptions, heed

LEAKED = "leaked semaphore"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """As a process begins: a library that another test has used may have set its own."""
    before = {one: signal.getsignal(one) for one in INTERRUPTIONS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.parametrize("one", INTERRUPTIONS)
def test_each_interrupts_a_process_that_heeds_it(one: signal.Signals) -> None:
    heed()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(one)


def test_a_termination_while_an_interruption_is_told_is_not_heard() -> None:
    heed()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_is_set_to_be_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    heed()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize("one", INTERRUPTIONS)
def test_an_interruption_is_heard_after_what_must_not_be_cut(one: signal.Signals) -> None:
    heed()
    done = []

    def work() -> None:
        with between_interruptions():
            signal.raise_signal(one)
            done.append(one)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [one]


WORK = """
import os, signal, sys, time
from contextlib import closing
from cacheproof.work.interruptions import heed
from cacheproof.work.workers import Crew, done_among

def begin(): pass
def wait_for(reply): os.write(1, b"at work\\n"); time.sleep(600)

if __name__ == "__main__":
    signal.alarm(600)  # where the tests were killed
    heed()
    try:
        with closing(Crew(2, begin)) as crew:
            begun = [crew.submit(wait_for, number) for number in range(4)]
            while True:
                done_among(begun)
    except KeyboardInterrupt:
        print("interrupted")
        sys.exit(130)
"""
LEAKS = """
import multiprocessing, os, signal
kept = multiprocessing.get_context("spawn").Lock()
os.kill(os.getpid(), signal.SIGKILL)
"""


def started(program: str, folder: Path) -> "subprocess.Popen[str]":
    (path := folder / "program.py").write_text(program)
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("one", INTERRUPTIONS)
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to it", "to its group"])
def test_a_crew_that_is_interrupted_leaves_nothing(
    one: signal.Signals, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    command = started(WORK, tmp_path)
    assert command.stdout is not None
    assert command.stdout.readline() == "at work\n"
    send(command.pid, one)
    out, err = command.communicate()  # ends when no worker has the pipe any more
    assert command.returncode == 130
    assert out.splitlines()[-1] == "interrupted"
    assert err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_a_leaked_semaphore_is_seen(tmp_path: Path) -> None:
    """The red twin of the test before, which asks for nothing on stderr."""
    _, err = started(LEAKS, tmp_path).communicate()
    assert LEAKED in err
