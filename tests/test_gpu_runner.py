"""The runner's own tests, run where torch and transformers are: in a release's libraries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.targets import host

TESTS = Path(__file__).parent / "gpu_runner"
HOST = Path(host.__file__).parent
WITHOUT_MODELS = (
    "devices",
    "engine_operations",
    "encoder_store",
    "entry_file",
    "kv_store",
    "rotary",
    "windowed_attention",
)


def passes(release: InstalledRelease, *tests: Path) -> None:
    """Runs these with the libraries of a release."""
    (shared,) = (release.python.parent.parent / "lib").glob("python*/site-packages")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:xdist", *map(str, tests)],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(map(str, (*release.overlays, shared))),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout
    assert "skipped" not in ran.stdout


@pytest.mark.full
def test_what_needs_no_model_passes_its_tests_with_the_libraries_of_a_release() -> None:
    files = [TESTS / f"test_{name}.py" for name in WITHOUT_MODELS]
    passes(releases.install("0.33.0", report=print), *files)


@pytest.mark.full
def test_the_runner_passes_its_tests_with_the_libraries_of_an_engine() -> None:
    passes(releases.install("0.32.0", report=print, kind="engine"), TESTS)


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.31.0", "0.32.0"])
def test_operations_of_ours_do_what_compiled_ones_do(version: str) -> None:
    """In the engine's own interpreter, with the wheel's library loaded."""
    engine = releases.install(version, report=print, kind=releases.WHEEL)
    command, environment = releases.host_command(engine)
    ran = subprocess.run(
        [*command, "-P", str(TESTS / "compiled_operations.py"), str(HOST)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
    assert "compared: 13" in ran.stdout
