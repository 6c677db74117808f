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


FAKE_PYTHON = """#!/bin/sh
case "$*" in
    "-I -m venv "*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; echo "venv made" >> "$STEPS";;
    *" config list") echo "$PIP_LISTS";;
    *uv.lock) if [ -n "$UV" ]; then cp "$UV" "${0%python}uv"; else exit 1; fi;;
    *"dev.lock") echo "pip $*" >> "$STEPS"; eval "$PIP_SAYS";;
esac
"""
FAKE_UV = """#!/bin/sh
echo "uv $*" >> "$STEPS"
eval "$SAYS_OF_UV"
"""


class TestInstallers:
    """What is run, with stand-ins for Python and uv that note how they were called."""

    @pytest.fixture(autouse=True)
    def stand_ins(self, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, text in (("python", FAKE_PYTHON), ("uv", FAKE_UV)):
            (checkout / name).write_text(text)
            (checkout / name).chmod(0o755)
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.setenv("STEPS", str(checkout / "steps"))
        monkeypatch.setenv("UV", str(checkout / "uv"))
        monkeypatch.setenv("PIP_LISTS", "")
        monkeypatch.setenv("PIP_SAYS", "true")
        monkeypatch.setenv("SAYS_OF_UV", "true")

    def set_up(self, checkout: Path) -> list[str]:
        script = load()
        script.ROOT = checkout
        with (checkout / "log").open("w") as log, (checkout / "guard").open("w") as guard:
            runner = script.Runner(log, guard.fileno())
            try:
                script.make(script.Checkout(checkout), checkout / "python", runner)
            except script.SetupError as failure:
                return [f"failed: {failure}"]
        return (checkout / "steps").read_text().splitlines()

    def test_uv_that_pip_fetched_by_its_hashes_installs_by_hashes(self, checkout: Path) -> None:
        made, locked, editable, check = self.set_up(checkout)
        assert made == "venv made"
        assert locked.startswith(f"uv pip install --python {checkout}/.venv/bin/python ")
        assert "--require-hashes" in locked
        assert locked.endswith(f"-r {checkout}/setup/dev.lock")
        assert editable.endswith(f"-e {checkout}")
        assert check.startswith("uv pip check ")
        assert "install --no-deps --require-hashes" in (checkout / "log").read_text()

    def test_uv_on_the_path_is_not_fetched(
        self, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (checkout / "on-path").mkdir()
        shutil.copy(checkout / "uv", checkout / "on-path")
        monkeypatch.setenv("PATH", f"{checkout / 'on-path'}:/usr/bin:/bin")
        monkeypatch.setenv("UV", "")
        assert [step.split()[0] for step in self.set_up(checkout)] == ["venv", "uv", "uv", "uv"]

    @pytest.mark.parametrize("reason", ["not to be had", "fails", "has no word for a setting"])
    def test_pip_installs_by_hashes_into_a_new_environment_where_uv_cannot(
        self, reason: str, checkout: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        if reason == "not to be had":
            monkeypatch.setenv("UV", "")
        elif reason == "fails":
            monkeypatch.setenv("SAYS_OF_UV", "echo error: no such wheel; echo cause; exit 1")
        else:
            monkeypatch.setenv("PIP_LISTS", "global.prefer-binary='1'")
        *before, installed = self.set_up(checkout)
        assert before.count("venv made") == 1 + (reason == "fails")
        assert before[-1] == "venv made"
        assert installed.startswith("pip ")
        assert "install --no-deps --require-hashes --only-binary=:all:" in installed
        told = capsys.readouterr().out
        assert told.count("going on with pip, without uv: ") == 1
        assert ("error: no such wheel" in told) == (reason == "fails")

    def test_constraints_are_asked_before_an_install_that_allows_none_without_hashes(
        self, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_LISTS", "global.constraint='/c.txt'")
        _, asked, locked, *_ = self.set_up(checkout)
        assert ("--dry-run" in asked, "/c.txt" in asked) == (True, True)
        assert ("--require-hashes" in locked, "/c.txt" in locked) == (True, False)

    @pytest.mark.parametrize("has_uv", [True, False])
    def test_an_index_that_does_not_answer_is_told_the_same_with_uv_and_without(
        self, has_uv: bool, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_SAYS", "echo 'WARNING: Retrying (Retry(total=4'; exit 1")
        monkeypatch.setenv("SAYS_OF_UV", "echo 'error: Failed to fetch'; exit 2")
        if not has_uv:
            monkeypatch.setenv("UV", "")
        assert self.set_up(checkout) == ["failed: the package index cannot be reached"]

    def test_a_wrong_hash_is_refused_with_uv_too(
        self, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SAYS_OF_UV", "echo 'error: Hash mismatch'; exit 1")
        monkeypatch.setenv("PIP_SAYS", "echo 'ERROR: THESE PACKAGES DO NOT MATCH'; exit 1")
        assert self.set_up(checkout) == ["failed: ERROR: THESE PACKAGES DO NOT MATCH"]


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
