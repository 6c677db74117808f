"""Set-up is done once, is done again when it no longer fits, and is never half there."""

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "setup" / "venv.py"
PYPROJECT = (
    '[build-system]\nrequires = []\n[project]\nversion = "1"\n[tool.ruff]\nline-length = 9\n'
)


def load() -> ModuleType:
    module_spec = importlib.util.spec_from_file_location("setup_venv", SCRIPT)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


class Installs:
    """Stands in for the real installation: makes the two files that set-up looks for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, checkout, base_python, runner) -> None:
        self.count += 1
        checkout.clear()
        checkout.python.parent.mkdir(parents=True)
        checkout.python.touch()
        checkout.command.touch()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "setup").mkdir()
    (tmp_path / "setup" / "dev.lock").write_text("rich==1.0\n")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    return tmp_path


@pytest.fixture
def script(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load()
    monkeypatch.setattr(module, "ROOT", checkout)
    monkeypatch.setattr(module, "make", Installs())
    return module


def test_a_second_run_sets_nothing_up_again(script: ModuleType) -> None:
    assert [script.main(), script.main()] == [0, 0]
    assert script.make.count == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [("setup/dev.lock", "rich==2.0\n"), ("pyproject.toml", PYPROJECT.replace('"1"', '"2"'))],
)
def test_a_changed_lock_or_project_table_sets_up_again(
    script: ModuleType, checkout: Path, name: str, text: str
) -> None:
    script.main()
    (checkout / name).write_text(text)
    assert script.main() == 0
    assert script.make.count == 2


def test_a_changed_tool_setting_does_not_set_up_again(script: ModuleType, checkout: Path) -> None:
    script.main()
    (checkout / "pyproject.toml").write_text(PYPROJECT.replace("9", "10"))
    script.main()
    assert script.make.count == 1


@pytest.mark.parametrize("lost", ["bin/python", "bin/cacheproof", "cacheproof-setup.stamp"])
def test_an_environment_that_lost_a_part_is_made_anew(
    script: ModuleType, checkout: Path, lost: str
) -> None:
    script.main()
    (checkout / ".venv" / lost).unlink()
    assert script.main() == 0
    assert script.make.count == 2


def test_an_environment_that_came_with_a_moved_checkout_is_made_anew(
    script: ModuleType, checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script.main()
    script.ROOT = shutil.copytree(checkout, tmp_path_factory.mktemp("moved") / "checkout")
    script.main()
    assert script.make.count == 2


def test_a_stamp_that_was_being_written_does_not_count(script: ModuleType, checkout: Path) -> None:
    script.main()
    stamp = checkout / ".venv" / "cacheproof-setup.stamp"
    stamp.rename(stamp.with_suffix(".draft"))
    script.main()
    assert script.make.count == 2


def test_a_deletion_that_stops_half_way_leaves_no_stamp(
    script: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.main()

    def stop(path: Path) -> None:
        raise OSError("stopped")

    monkeypatch.setattr(script.shutil, "rmtree", stop)
    with pytest.raises(OSError, match="stopped"):
        script.Checkout(checkout).clear()
    assert not (checkout / ".venv" / "cacheproof-setup.stamp").exists()
    assert (checkout / ".venv" / "bin" / "python").exists()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_stands_in_the_place_of_the_environment_is_replaced(
    script: ModuleType, checkout: Path, kind: str
) -> None:
    elsewhere = checkout / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        (checkout / ".venv").symlink_to(elsewhere)
    else:
        (checkout / ".venv").touch()
    assert script.main() == 0
    assert (checkout / ".venv").is_dir()
    assert not (checkout / ".venv").is_symlink()
    assert elsewhere.is_dir()


def test_a_failing_step_ends_in_one_line_that_names_the_log(
    script: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(checkout, base_python, runner) -> None:
        runner.run(sys.executable, "-c", "print('ERROR: no space left'); print('bye'); exit(1)")

    script.make = fail
    assert script.main() == 2
    log = checkout / ".venv-setup.log"
    expected = f"error: set-up failed: ERROR: no space left; output: {log}\n"
    assert capsys.readouterr().err == expected
    assert "bye" in log.read_text()


def test_a_failed_set_up_is_repaired_by_the_next_run(script: ModuleType) -> None:
    installs = script.make

    def half(checkout, base_python, runner) -> None:
        installs(checkout, base_python, runner)
        raise script.SetupError("no network")

    script.make = half
    assert script.main() == 2
    script.make = installs
    assert script.main() == 0
    assert installs.count == 2


def test_a_python_without_venv_is_named_before_anything_is_deleted(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load()
    (checkout / ".venv").mkdir()
    monkeypatch.setattr(script, "ROOT", checkout)
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    assert script.main() == 2
    assert "comes without venv; install it" in capsys.readouterr().err
    assert (checkout / ".venv").exists()


def run_elsewhere(checkout: Path, make: str) -> subprocess.Popen[str]:
    """Runs set-up in a process of its own, with `make` as the body of its installation."""
    program = f"""
import importlib.util, sys
from pathlib import Path
module_spec = importlib.util.spec_from_file_location("setup_venv", {str(SCRIPT)!r})
script = importlib.util.module_from_spec(module_spec)
module_spec.loader.exec_module(script)
script.ROOT = Path({str(checkout)!r})
def make(checkout, base_python, runner):
    {make}
script.make = make
sys.exit(script.main())
"""
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def test_a_second_set_up_waits_for_the_first(checkout: Path) -> None:
    with (checkout / ".venv.lock").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        second = run_elsewhere(checkout, "checkout.venv.mkdir()")
        assert "waiting" in second.stdout.readline()
        assert not (checkout / ".venv").exists()
    second.communicate()
    assert second.returncode == 0
    assert (checkout / ".venv").is_dir()


def test_a_child_that_outlives_a_killed_set_up_keeps_the_next_one_waiting(checkout: Path) -> None:
    started, finish = checkout / "started", checkout / "finish"
    os.mkfifo(started)
    os.mkfifo(finish)
    child = f"open({str(started)!r}, 'w').close(); open({str(finish)!r}).close()"
    first = run_elsewhere(checkout, f'runner.run(sys.executable, "-c", {child!r})')
    started.open().close()
    first.send_signal(signal.SIGKILL)
    first.wait()
    with (checkout / ".venv.lock").open("a") as guard:
        with pytest.raises(BlockingIOError):
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finish.open("w").close()
        fcntl.flock(guard, fcntl.LOCK_EX)


def test_a_python_outside_the_range_is_refused_in_one_line(tmp_path: Path) -> None:
    source = SCRIPT.read_text().replace("(3, 11), (3, 13)", "(2, 7), (3, 10)")
    unfit = tmp_path / "venv.py"
    unfit.write_text(source)
    run = subprocess.run([sys.executable, unfit], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "needs Python 3.11 to 3.13" in run.stderr
