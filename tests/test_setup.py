"""`make setup` is done once, is done again when it no longer fits, and is never half there."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parent.parent / "Makefile"
PYPROJECT = '[project]\nversion = "1"\n[tool.ruff]\nline-length = 9\n'
PYTHON = """#!/bin/sh
echo "$@" >> ../calls
case "$*" in
-VV) cat ../version ;;
-V) echo "Python 3.10.1" ;;
*version_info*) [ ! -e ../unfit ] ;;
*venv*) rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
*--require-hashes*) [ ! -e ../offline ] ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout, and beside it a Python that notes its calls."""
    folder = tmp_path / "checkout"
    (folder / "setup").mkdir(parents=True)
    (folder / "setup" / "dev.lock").write_text("rich==1.0\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    shutil.copy(MAKEFILE, folder)
    (tmp_path / "version").write_text("Python 3.11.7\n")
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return folder


def set_up(checkout: Path) -> tuple[int, str]:
    """The exit code of `make setup`, and how it ends on standard error."""
    command = ["make", "setup", f"PYTHON={checkout.parent / 'python'}"]
    ran = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


def installations(checkout: Path) -> int:
    return (checkout.parent / "calls").read_text().count("--require-hashes")


def test_a_second_run_sets_nothing_up_again(checkout: Path) -> None:
    assert [set_up(checkout)[0], set_up(checkout)[0]] == [0, 0]
    assert installations(checkout) == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "times"),
    [
        ("setup/dev.lock", "1.0", "1.1", 2),
        ("pyproject.toml", '"1"', '"2"', 2),
        ("pyproject.toml", "9", "10", 1),
        ("../version", "3.11", "3.12", 2),
    ],
)
def test_what_the_environment_is_made_of_and_nothing_else_sets_up_again(
    checkout: Path, file: str, old: str, new: str, times: int
) -> None:
    set_up(checkout)
    (checkout / file).write_text((checkout / file).read_text().replace(old, new))
    set_up(checkout)
    assert installations(checkout) == times


def test_a_moved_checkout_is_set_up_again(checkout: Path) -> None:
    set_up(checkout)
    moved = checkout.rename(checkout.with_name("moved"))
    set_up(moved)
    assert installations(moved) == 2


def test_an_environment_whose_python_is_gone_is_set_up_again(checkout: Path) -> None:
    set_up(checkout)
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(checkout.parent / "gone")
    set_up(checkout)
    assert installations(checkout) == 2


def test_a_set_up_that_fails_leaves_no_stamp_and_is_done_again(checkout: Path) -> None:
    (checkout.parent / "offline").touch()
    assert set_up(checkout)[0] == 2
    assert not (checkout / ".venv" / "stamp").exists()
    (checkout.parent / "offline").unlink()
    assert set_up(checkout)[0] == 0
    assert installations(checkout) == 2


def test_a_python_outside_the_range_is_refused_in_one_line(checkout: Path) -> None:
    (checkout.parent / "unfit").touch()
    code, said = set_up(checkout)
    assert code == 2
    assert "error: cacheproof needs Python 3.11 to 3.13" in said
    assert "is Python 3.10.1; name another one: make PYTHON=python3.12" in said
    assert not (checkout / ".venv").exists()
