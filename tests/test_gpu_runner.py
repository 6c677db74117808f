"""The runner's own tests, run where torch and transformers are: in an engine's libraries."""

import os
import subprocess
import sys
from pathlib import Path

from cacheproof.differential.targets import releases

TESTS = Path(__file__).parent / "gpu_runner"


def test_the_runner_passes_its_tests_with_the_libraries_of_an_engine() -> None:
    engine = releases.install("0.32.0", report=print, kind="engine")
    (shared,) = (engine.python.parent.parent / "lib").glob("python*/site-packages")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", str(TESTS)],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(map(str, (*engine.overlays, shared))),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout
    assert "skipped" not in ran.stdout
