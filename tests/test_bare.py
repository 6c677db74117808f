"""`setup/bare.sh` hides from a command what the README does not ask for, and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no Debian")


def bare(*command: str, path: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command as on a fresh machine; `path` stands before what is on PATH here."""
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    script = str(ROOT / "setup" / "bare.sh")
    return subprocess.run(
        [script, *command], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def redis(tmp_path: Path) -> str:
    """A folder for PATH with a program of that name."""
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(tmp_path)


def test_a_program_that_the_readme_does_not_ask_for_is_not_found(redis: str) -> None:
    look = "command -v redis-server"
    assert subprocess.run(["bash", "-c", look], env={"PATH": f"{redis}:/bin"}, check=True)
    assert bare("bash", "-c", look, path=redis).returncode == 1


def test_what_the_readme_asks_for_is_found() -> None:
    ran = bare("bash", "-c", "python3 -m pip --version && git --version && make --version")
    assert ran.returncode == 0, ran.stderr


def test_the_home_is_empty_and_gone_afterwards() -> None:
    ran = bare("bash", "-c", "echo $HOME && ls -A $HOME")
    (home,) = ran.stdout.splitlines()
    assert not Path(home).exists()


def test_an_environment_that_is_made_there_can_be_used_afterwards(tmp_path: Path) -> None:
    bare("python3", "-m", "venv", "--without-pip", str(tmp_path))
    assert subprocess.run([tmp_path / "bin" / "python", "-c", ""], check=False).returncode == 0


def test_the_exit_code_is_that_of_the_command() -> None:
    assert bare("bash", "-c", "exit 7").returncode == 7


def test_a_machine_that_would_not_be_bare_is_refused(tmp_path: Path) -> None:
    """A changed script that links one program too many runs nothing."""
    script = tmp_path / "bare.sh"
    text = (ROOT / "setup" / "bare.sh").read_text()
    asked_for = '"$(command -v git)"'
    assert asked_for in text
    script.write_text(text.replace(asked_for, f"{asked_for} {tmp_path}/jq"))
    script.chmod(0o755)
    (tmp_path / "jq").write_text("#!/bin/sh\n")
    (tmp_path / "jq").chmod(0o755)
    ran = subprocess.run([script, "echo", "ran"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "jq is on the PATH of a fresh machine" in ran.stderr
