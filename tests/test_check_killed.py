"""`make check` killed with SIGKILL at any moment is repaired by the next run; the real thing.

Every phase from nothing to a verdict is undone in turn, run again, and killed at a random moment
of it: the checkout's own environment, the shared libraries, a release, the search.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "*.egg-info", "__pycache__", ".*_cache")
RELEASE = "0.33.0"
KILLS_OF_EACH_PHASE = 5
SECONDS_FOR_HOSTS_TO_END = 20


class Checkout:
    """A fresh copy of the project with a cache folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = shutil.copytree(ROOT, folder / "checkout", ignore=NOT_COPIED, symlinks=True)
        self.cache = folder / "cache"
        self._output = (folder / "output").open("w+b")

    def check(self) -> subprocess.Popen[bytes]:
        """Start the main job in a session of its own."""
        self._output.truncate(0)
        arguments = f"CHECK_ARGS=--budget short --release {RELEASE}"
        return subprocess.Popen(
            ["make", "check", arguments],
            cwd=self.path,
            env={**os.environ, "CACHEPROOF_HOME": str(self.cache)},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def must_pass(self, when: str) -> None:
        code = self.check().wait()
        self._output.seek(0)
        said = self._output.read().decode(errors="replace")
        assert code == 0, f"{when}: exit code {code}\n{said[-3000:]}"
        assert " nothing new: " in said, said[-3000:]

    def orphans(self) -> list[str]:
        """Command lines of processes that still run this checkout's code."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.path) in command:
                found.append(command)
        return found


def undo_set_up(checkout: Checkout) -> None:
    (checkout.path / ".venv" / "stamp").unlink()


def undo_environment(checkout: Checkout) -> None:
    for stamp in checkout.cache.glob("environments/*/.complete"):
        stamp.unlink()


def undo_release(checkout: Checkout) -> None:
    shutil.rmtree(checkout.cache / "releases" / RELEASE)


def undo_nothing(checkout: Checkout) -> None:
    """What is killed is the search."""


PHASES = [undo_set_up, undo_environment, undo_release, undo_nothing]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    made = Checkout(tmp_path_factory.mktemp("killed"))
    made.must_pass("from nothing")
    return made


@pytest.mark.full
@pytest.mark.parametrize("undo", PHASES)
def test_the_run_after_a_kill_at_a_random_moment_succeeds(
    checkout: Checkout, undo: Callable[[Checkout], None]
) -> None:
    draw = random.Random(undo.__name__)
    assert kills(checkout, undo, draw) >= KILLS_OF_EACH_PHASE - 1


def kills(checkout: Checkout, undo: Callable[[Checkout], None], draw: random.Random) -> int:
    """How many of the phase's kills met a run that had not ended."""
    undo(checkout)
    began = time.monotonic()
    checkout.must_pass(f"after {undo.__name__}")
    seconds_whole = time.monotonic() - began
    landed = 0
    for _ in range(KILLS_OF_EACH_PHASE):
        undo(checkout)
        moment = draw.uniform(0, seconds_whole)
        victim = checkout.check()
        try:
            victim.wait(timeout=moment)
        except subprocess.TimeoutExpired:
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
            landed += 1
        deadline = time.monotonic() + SECONDS_FOR_HOSTS_TO_END
        while (left := checkout.orphans()) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not left, f"killed at {moment:.1f} s of {undo.__name__}: {left}"
        checkout.must_pass(f"killed at {moment:.1f} s of {undo.__name__}")
        print(
            f"{undo.__name__}: killed at {moment:.1f} of {seconds_whole:.1f} s, the next run passed"
        )
    return landed
