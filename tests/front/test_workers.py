"""Work on every core ends with its command, however that ends."""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.work.interruptions import INTERRUPTIONS
from cacheproof.work.workers import done_among, results

TICKS_OF_START_MAX = 5 * os.sysconf("SC_CLK_TCK")
"""A process that has used more is at work: none takes so much to begin."""
MILLISECONDS_TO_END = 60_000
Command = tuple["subprocess.Popen[str]", list[int]]


def explores_a_release(worker: int) -> bool:
    return bool(children(worker))


def proves(worker: int) -> bool:
    """Whether it has used processor time beyond its start."""
    used = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[11]
    return int(used) > TICKS_OF_START_MAX


@pytest.fixture(params=["explore", "prove"])
def command(
    request: pytest.FixtureRequest,
    start: Callable[..., "subprocess.Popen[str]"],
    two_releases: tuple[str, str],
    tmp_path: Path,
) -> Iterator[Command]:
    """A long command one of whose workers is at work, and descriptors of all its processes."""
    if request.param == "explore":
        started = start("explore", "--target", two_releases[1], "--findings", str(tmp_path))
        at_work = explores_a_release
    else:
        started, at_work = start("prove", "--target", "reference", "--fresh"), proves
    while not any(at_work(worker) for worker in children(started.pid)):
        assert started.poll() is None, "it ended before it was at work"
    left = [os.pidfd_open(one) for one in descendants(started.pid)]
    yield started, left
    for one in left:
        os.close(one)


def children(process: int) -> list[int]:
    try:
        lists = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:  # it has just ended
        return []
    return [int(child) for one in lists for child in one.split()]


def descendants(process: int) -> list[int]:
    return [one for child in children(process) for one in (child, *descendants(child))]


def all_end(processes: list[int]) -> bool:
    return all(select.select([one], [], [], MILLISECONDS_TO_END / 1000)[0] for one in processes)


@pytest.mark.full
@pytest.mark.parametrize("by", INTERRUPTIONS)
def test_an_interruption_is_said_and_ends_the_workers(command: Command, by: signal.Signals) -> None:
    started, workers = command
    started.send_signal(by)
    out, err = started.communicate()
    assert started.returncode == 130
    assert err.splitlines()[-1] == "cacheproof: interrupted"
    assert "Traceback" not in err
    assert "leaked" not in err
    assert "interrupted" in out
    assert all_end(workers)


@pytest.mark.full
def test_workers_end_with_a_command_that_is_killed(command: Command) -> None:
    started, workers = command
    started.kill()
    assert all_end(workers)
    assert started.wait() == -signal.SIGKILL


def test_a_worker_that_is_killed_makes_the_run_void() -> None:
    with pytest.raises(HarnessError, match="ended before its work was done"):
        list(results(os._exit, [1]))


def test_each_task_has_a_process_of_its_own() -> None:
    processes = dict(results(eval, ["__import__('os').getpid()"] * 5))
    assert len({*processes.values()}) == len(processes) == 5


class InterruptedInTheMidst(Future[None]):
    """Hears Ctrl-C while somebody who waits for it takes its lock."""

    def __init__(self) -> None:
        super().__init__()
        self.was_looked_at_to_the_end = False

    def __hash__(self) -> int:
        signal.raise_signal(signal.SIGINT)
        self.was_looked_at_to_the_end = True
        return id(self)


def test_an_interruption_waits_until_no_lock_is_held() -> None:
    future = InterruptedInTheMidst()
    future.set_result(None)
    with pytest.raises(KeyboardInterrupt):
        done_among([future])
    assert future.was_looked_at_to_the_end
