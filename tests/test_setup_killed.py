"""A set-up killed with SIGKILL at any moment is repaired by the next one; the real thing."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "*.egg-info", "__pycache__", ".*_cache")
KILLS = 8


def set_up(checkout: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["make", "setup"], cwd=checkout, stdout=subprocess.DEVNULL, start_new_session=True
    )


@pytest.mark.slow
def test_the_run_after_a_kill_at_a_random_moment_succeeds(tmp_path: Path) -> None:
    checkout = shutil.copytree(ROOT, tmp_path / "checkout", ignore=NOT_COPIED, symlinks=True)
    stamp = checkout / ".venv" / "cacheproof-setup.stamp"
    began = time.monotonic()
    assert set_up(checkout).wait() == 0
    seconds_whole = time.monotonic() - began
    moments = random.Random(2).sample(range(1000), KILLS)
    unfinished = 0
    for moment in moments:
        stamp.unlink()
        victim = set_up(checkout)
        try:
            victim.wait(timeout=seconds_whole * moment / 1000)
        except subprocess.TimeoutExpired:
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
        unfinished += not stamp.exists()
        assert set_up(checkout).wait() == 0, f"killed at {moment} thousandths of a set-up"
        subprocess.run([checkout / ".venv/bin/python", "-m", "pip", "check"], check=True)
        subprocess.run([checkout / ".venv/bin/python", "-c", "import cacheproof"], check=True)
    assert unfinished >= KILLS // 2, "too few kills landed before the end of a set-up"
