"""Fills an environment, or a folder: with uv, or with pip where uv is not to be had or fails."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cacheproof.differential.errors import SetupError
from cacheproof.differential.provision import uv
from cacheproof.differential.provision.cache import Cache, Report, Workspace
from cacheproof.differential.provision.child import last_line, run_logged
from cacheproof.differential.provision.pip import described, environment_of_pip, run_pip

Install = Callable[[str, Sequence[str]], None]
"""A function that installs what arguments name, under a title; uv and pip understand both."""

# uv, but gone as soon as the process that waits for it: where the system has a word for that.
_LEASHED_UV = """
import ctypes, os, signal, sys
die_with_parent = getattr(ctypes.CDLL(None), "prctl", None)
if die_with_parent is not None:
    die_with_parent(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Installer:
    """Installs for one interpreter."""

    python: Path
    cache: Cache
    workspace: Workspace
    report: Report
    guard: int

    def fill(self, work: Callable[[Install], None], *, anew: Callable[[], None]) -> None:
        """Do the work with uv; if that fails, call `anew` and do it with pip, which could not go on
        from what uv left half installed.

        Raises:
            SetupError: pip failed too.
        """
        try:
            found = self._uv()
        except (SetupError, ValueError, subprocess.CalledProcessError):
            return work(self._with_pip)
        try:
            return work(lambda title, arguments: self._with_uv(found, title, arguments))
        except SetupError as failure:
            self.report(f"going on with pip, without uv: {failure}")
        anew()
        return work(self._with_pip)

    def _uv(self) -> uv.Uv:
        here = self.python.parent
        program = uv.find(Path(sys.executable).parent, here)
        if program is None:
            self._pip("fetching uv", [*uv.FETCH, "-r", str(uv.LOCK)])
            program = uv.find(here)
        if program is None:
            raise SetupError("pip brought no uv")
        environ = environment_of_pip(self.workspace.path)
        listed = subprocess.run(
            [str(self.python), "-P", "-m", "pip", "config", "list"],
            env=environ,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ).stdout
        return uv.Uv.like_pip(program, listed, environ)

    def _with_pip(self, title: str, arguments: Sequence[str]) -> None:
        self._pip(title, ["install", "--no-compile", "--progress-bar", "off", *arguments])

    def _pip(self, title: str, arguments: Sequence[str]) -> None:
        run_pip(
            self.python,
            arguments,
            title=title,
            cache=self.cache,
            workspace=self.workspace,
            report=self.report,
            inherit=(self.guard,),
        )

    def _with_uv(self, found: uv.Uv, title: str, arguments: Sequence[str]) -> None:
        log = self.cache.logs / f"uv-{self.workspace.path.name}.log"
        try:
            status = run_logged(
                [sys.executable, "-P", "-c", _LEASHED_UV, *found.install(self.python, *arguments)],
                log=log,
                env=found.environ,
                title=title,
                report=self.report,
                describe=described,
                inherit=(self.guard, self.workspace.guard),
            )
            if status != 0:
                raise SetupError(f"{title}: {_said(log)}")
        finally:
            log.unlink(missing_ok=True)


def _said(log: Path) -> str:
    """The line in which uv says what is wrong: it comes first, before what led to it."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line for line in lines if line.startswith("error:")), last_line(log))
