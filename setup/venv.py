"""Makes .venv in the checkout: the locked packages and cacheproof itself, editable.

Run as `python3 setup/venv.py`, with nothing but the standard library and pip. uv installs where it
is to be had, pip otherwise; both check the hashes of the lock. A finished set-up leaves a stamp
that names everything the environment was made from; while the stamp matches, nothing is done.
Without a matching stamp the environment is deleted and made anew in place (environments cannot be
moved), so one that was killed half-way never reaches a user.
"""

import sys

OLDEST, NEWEST = (3, 11), (3, 13)

# Before anything that an older Python could stumble over: what follows only has to parse there.
if not OLDEST <= sys.version_info[:2] <= NEWEST:
    sys.stderr.write(
        "error: cacheproof needs Python 3.11 to 3.13, but {} is Python {}.{}; "
        "name another one: make PYTHON=python3.12\n".format(sys.executable, *sys.version_info)
    )
    sys.exit(2)

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent
LOCK = Path("setup/dev.lock")
UV = ROOT / "differential" / "provision" / "uv.py"
LOCKED = re.compile(r"^[A-Za-z0-9][\w.-]*==", re.MULTILINE)
FETCHED = re.compile(r"^(?:(?:Collecting|Processing) (?:\S*/)?| \+ )(\S+)")
RESOLVED = re.compile(r"^Resolved (\d+) packages?\b")
UNPACKED = re.compile(r"^(?:Installing collected packages|Prepared \d+ packages?)\b")


class SetupError(Exception):
    """One line: what could not be done and why."""


class Checkout:
    """The paths of one checkout that set-up reads and writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.python = self.venv / "bin" / "python"
        self.command = self.venv / "bin" / "cacheproof"
        self.stamp = self.venv / "cacheproof-setup.stamp"
        self.guard = root / ".venv.lock"
        self.log = root / ".venv-setup.log"

    def fingerprint(self, base_python: Path) -> str:
        """Everything that the environment depends on, as one digest."""
        digest = hashlib.sha256()
        for part in (sys.version, str(base_python), str(self.venv)):
            digest.update(part.encode() + b"\0")
        for source in (self.root / LOCK, Path(__file__), UV, UV.with_suffix(".lock")):
            digest.update(source.read_bytes() + b"\0")
        settings = tomllib.loads((self.root / "pyproject.toml").read_text())
        digest.update(json.dumps([settings["build-system"], settings["project"]]).encode())
        return digest.hexdigest()

    def is_ready(self, fingerprint: str) -> bool:
        try:
            finished = self.stamp.read_text()
        except OSError:
            return False
        return finished == fingerprint and self.python.exists() and self.command.exists()

    def mark_ready(self, fingerprint: str) -> None:
        """The last act of a set-up; atomic, so a stamp is there whole or not at all."""
        draft = self.stamp.with_suffix(".draft")
        draft.write_text(fingerprint)
        draft.replace(self.stamp)

    def clear(self) -> None:
        """Deletes the environment, the stamp first: a kill in between leaves it unfinished."""
        if self.venv.is_symlink() or self.venv.is_file():
            self.venv.unlink()
        elif self.venv.exists():
            self.stamp.unlink(missing_ok=True)
            shutil.rmtree(self.venv)


class Runner:
    """Runs the steps of one set-up; all of their output goes to the log."""

    def __init__(self, log: TextIO, guard_fd: int) -> None:
        self.log = log
        self.guard_fd = guard_fd

    def lines(self, *command: str | Path, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
        """Yields the output of `command` line by line; raises SetupError if it fails.

        Children share the guard: one that outlives a killed set-up keeps the next one waiting
        until it stops writing into .venv.
        """
        words = [str(word) for word in command]
        self.log.write(f"$ {' '.join(words)}\n")
        last_error = ""
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(self.guard_fd,),
            env={**environ, "PIP_USER": "0"},
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self.log.write(line)
                self.log.flush()
                is_error = line.upper().startswith("ERROR:")
                if line.strip() and (is_error or not last_error.upper().startswith("ERROR:")):
                    last_error = line.strip()
                yield line
        if process.returncode != 0:
            raise SetupError(last_error or f"{words[0]} ended with {process.returncode}")

    def run(self, *command: str | Path, environ: Mapping[str, str] = os.environ) -> str:
        """All of the output."""
        return "".join(self.lines(*command, environ=environ))


class Progress:
    """One line a package; on a terminal the line is rewritten in place."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.unanswered = 0
        self.in_place = sys.stdout.isatty()

    def report(self, line: str) -> None:
        found = FETCHED.match(line)
        if found:
            self.done += 1
            if line.startswith(" + ") and not self.in_place:
                return  # uv names them all at its end
            self.say(f"[{self.done:2}/{self.total}] {found[1]}")
        elif resolved := RESOLVED.match(line):
            self.total = int(resolved[1])
        elif line.startswith("Ignoring "):
            self.total -= 1
        elif line.startswith("Downloading "):
            self.say(f"downloading {line.removeprefix('Downloading ').strip()}")
        elif UNPACKED.match(line):
            self.say(f"unpacking {self.total} packages")
        elif line.startswith("WARNING: Retrying"):
            self.unanswered += 1
            self.say("the package index does not answer; trying again")

    def say(self, text: str) -> None:
        if self.in_place:
            print(f"\r\033[K  {text}", end="", flush=True)
        else:
            print(f"  {text}", flush=True)

    def close(self) -> None:
        if self.in_place:
            print("\r\033[K", end="", flush=True)


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[int]:
    """Holds the checkout's set-up guard; the kernel lets go of it when its holders end."""
    with path.open("a") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another set-up of this checkout is running; waiting for it", flush=True)
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield guard.fileno()


def make(checkout: Checkout, base_python: Path, runner: Runner) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{base_python} comes without venv; install it (Debian and Ubuntu: python3-venv)"
        )
    if os.path.lexists(checkout.venv):
        print("  .venv is unfinished or out of date: making it anew", flush=True)
        checkout.clear()
    make_venv = (base_python, "-I", "-m", "venv", checkout.venv)
    runner.run(*make_venv)
    pip = (checkout.python, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input")
    try:
        uv = uv_like_pip(checkout, runner, pip)
    except (SetupError, ValueError) as failure:
        print(f"  going on with pip, without uv: {failure}", flush=True)
        return install_with_pip(checkout, runner, pip)
    try:
        return install_with_uv(checkout, runner, uv)
    except SetupError as failure:
        print(f"  going on with pip, without uv: {failure}", flush=True)
    checkout.clear()  # what uv left half installed is nothing that pip could go on from
    runner.run(*make_venv)
    return install_with_pip(checkout, runner, pip)


def uv_like_pip(checkout: Checkout, runner: Runner, pip: tuple[str | Path, ...]) -> Any:
    """uv, told what pip was told; pip fetches it into the environment if it is not there.

    Raises:
        SetupError: pip cannot have it.
        ValueError: pip has a setting that uv has no word for.
    """
    uv = load(UV)
    program = uv.find()
    if program is None:
        runner.run(*pip, *uv.FETCH, "-r", uv.LOCK)
        program = str(checkout.python.with_name("uv"))
    return uv.Uv.like_pip(program, runner.run(*pip, "config", "list"), os.environ)


def install_with_uv(checkout: Checkout, runner: Runner, uv: Any) -> None:
    """What `install_with_pip` does, several times as fast."""
    locked = ("--no-deps", "--only-binary=:all:", "-r", checkout.root / LOCK)
    if uv.constraints:  # they have no hashes, so they are asked beforehand whether they agree
        runner.run(*uv.install(checkout.python, "--dry-run", *locked), environ=uv.environ)
    with progress_of(checkout) as progress:
        for line in runner.lines(
            *uv.install(
                checkout.python,
                *("--require-hashes", "--compile-bytecode", *locked),
                is_constrained=False,
            ),
            environ=uv.environ,
        ):
            progress.report(line)
    runner.run(
        *uv.install(
            checkout.python,
            *("--no-deps", "--offline", "--no-build-isolation", "-e", checkout.root),
            is_constrained=False,
        ),
        environ=uv.environ,
    )
    runner.run(*uv.check(checkout.python), environ=uv.environ)


def install_with_pip(checkout: Checkout, runner: Runner, pip: tuple[str | Path, ...]) -> None:
    with progress_of(checkout) as progress:
        try:
            for line in runner.lines(
                *(*pip, "install", "--no-deps", "--require-hashes", "--only-binary=:all:"),
                *("-r", checkout.root / LOCK),
            ):
                progress.report(line)
        except SetupError as failure:
            if progress.unanswered:
                raise SetupError("the package index cannot be reached") from failure
            raise
    runner.run(
        *pip, "install", "--no-deps", "--no-index", "--no-build-isolation", "-e", checkout.root
    )
    runner.run(*pip, "check")


@contextlib.contextmanager
def progress_of(checkout: Checkout) -> Iterator[Progress]:
    progress = Progress(total=len(LOCKED.findall((checkout.root / LOCK).read_text())))
    try:
        yield progress
    finally:
        progress.close()


def load(path: Path) -> ModuleType:
    """A module of cacheproof, which cannot be imported by its name before it is installed."""
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    module_spec.loader.exec_module(module)
    return module


def main() -> int:
    checkout = Checkout(ROOT)
    base_python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    try:
        fingerprint = checkout.fingerprint(base_python)
        if checkout.is_ready(fingerprint):
            return 0
        with only_one(checkout.guard) as guard_fd, checkout.log.open("w") as log:
            if checkout.is_ready(fingerprint):
                return 0
            print(f"setting up .venv with Python {sys.version.split()[0]}", flush=True)
            make(checkout, base_python, Runner(log, guard_fd))
            checkout.mark_ready(fingerprint)
            print("set-up done", flush=True)
    except (SetupError, OSError, tomllib.TOMLDecodeError) as failure:
        print(f"error: set-up failed: {failure}; output: {checkout.log}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("set-up interrupted; the next run starts it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
