"""Runs the command line, in this process or as a process of its own."""

import importlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from cacheproof import cli
from cacheproof.differential.provision import releases
from cacheproof.formats.writing import ACTIONS, SUMMARY

COMMAND = [sys.executable, "-m", "cacheproof"]


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The one line of a command that refused its input, and nothing else of it."""
        assert self.code == 2, (self.code, self.err)
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("cacheproof: ")
        return line.removeprefix("cacheproof: ")


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _outside_of_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print the same wherever the tests run."""
    for name in (ACTIONS, SUMMARY):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in this process."""

    def call(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["cacheproof", *map(str, arguments)])
        monkeypatch.setattr(cli, "heed", lambda: None)  # what ends the tests is not for it
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code or 0
        assert isinstance(code, int)
        written = capsys.readouterr()
        return Ran(code, written.out, written.err)

    return call


@pytest.fixture
def run_process() -> Run:
    """The command line as a process of its own."""

    def call(*arguments: str | Path) -> Ran:
        ended = subprocess.run(
            [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return call


@pytest.fixture(scope="session")
def two_releases() -> tuple[str, str]:
    """vllm@0.28.0 and vllm@0.33.0, provisioned."""
    names = "0.28.0", "0.33.0"
    for name in names:
        releases.install(name, report=print)
    return f"vllm@{names[0]}", f"vllm@{names[1]}"


@pytest.fixture
def odd_targets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of that name, where worker processes find it too."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("odd_targets")


@pytest.fixture
def nothing_known(tmp_path: Path) -> Path:
    """An empty list of known faults."""
    path = tmp_path / "nothing"
    path.mkdir()
    return path


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts commands beside the test, which end with it."""
    with ExitStack() as running:

        def command(*arguments: str) -> "subprocess.Popen[str]":
            started = running.enter_context(
                subprocess.Popen(
                    [*COMMAND, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    # a shell's background jobs are started with interruptions ignored
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                )
            )
            running.callback(started.kill)
            return started

        yield command
