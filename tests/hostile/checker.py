"""What no input may bring a command to, and how it is seen."""

import contextlib
import io
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cacheproof import cli
from cacheproof.differential.targets.host_server import SERVERS

CODES = range(5)
"""130 is said of an interruption, which no input is."""
MAY_WRITE = {"__pycache__"}
"""What Python writes beside a plug-in."""
SECONDS_MAX = 300
"""Guards against what hangs, and against nothing else."""
SECONDS_OF_GRACE = 5.0
"""For a process that was told to end."""
CHILD_BYTES_MAX = 3 << 30
PROGRESS = re.compile(
    r".* so far(;.*)?|(found|proved|explored): .*|.*: host of .*|.*: not as it was kept .*"
)
COMMAND = [sys.executable, "-m", "cacheproof"]


class Hangs(BaseException):
    """It went on and on."""


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code, None without one, what it wrote, and what it left."""

    code: int | None
    out: str
    err: str
    left: tuple[str, ...] = ()


def complaints(ran: Ran) -> list[str]:
    """What is wrong with it."""
    lines = ran.err.splitlines()
    errors = [line for line in lines if line.startswith("cacheproof: ")]
    found = []
    if ran.code not in CODES:
        found.append(f"exit code {ran.code}")
    if "Traceback (most recent call last)" in ran.err:
        found.append(f"a traceback: {lines[-1]}")
    if ran.code == 2 and "Usage: " not in ran.out:
        if len(errors) != 1 or lines[-1] != errors[0]:
            found.append(f"{len(errors)} lines of an error, or not at the end: {lines[-3:]}")
        found += [f"a strange line: {line}" for line in lines[:-1] if not PROGRESS.fullmatch(line)]
    for name, text in (("stdout", ran.out), ("stderr", ran.err)):
        if odd := {one for one in text if not (one.isprintable() or one == "\n")}:
            found.append(f"on {name}: {''.join(sorted(odd))!a}")
    return [*found, *(f"left behind: {one}" for one in ran.left)]


def run_here(words: Sequence[str], folder: Path, home: Path, seconds: int = SECONDS_MAX) -> Ran:
    """The command in this process, in that folder."""
    with _at(words, folder, home), _descriptor_kept(1), _written() as streams:
        before = _files(folder), _processes()
        signal.signal(signal.SIGALRM, _hangs)
        signal.alarm(seconds)
        code: int | None = None
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except Hangs:
            print("it hangs", file=sys.stderr)
        except Exception as error:  # what Python itself would print, and end with 1
            print(f"Traceback (most recent call last)\n{error!r}", file=sys.stderr)
        finally:
            signal.alarm(0)
            SERVERS.close()  # which a process of its own does as it ends
        left = _left(folder, before[0], _processes() - before[1])
    return Ran(
        code, *(stream.buffer.getvalue().decode(errors="replace") for stream in streams), left
    )


def run_apart(words: Sequence[str], folder: Path, home: Path, seconds: int = SECONDS_MAX) -> Ran:
    """The command as a process of its own, in a session of its own."""
    before = _files(folder)
    started = subprocess.Popen(
        [*COMMAND, *words],
        cwd=folder,
        env={**os.environ, **_settings(folder, home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    code: int | None = None
    try:
        out, err = started.communicate(timeout=seconds)
        code = started.returncode
    except subprocess.TimeoutExpired:
        started.kill()
        out, err = started.communicate()
    left = _left(folder, before, _session(started.pid))
    return Ran(code, out.decode(errors="replace"), err.decode(errors="replace"), left)


def memory_complaints() -> list[str]:
    """What is wrong with the memory that the largest child so far has had."""
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    return [f"a child had {most >> 20} MiB"] if most > CHILD_BYTES_MAX else []


def _settings(folder: Path, home: Path) -> Mapping[str, str]:
    """Nothing is fetched, and what is left in passing is seen."""
    own = folder / "home"
    return {
        "CACHEPROOF_HOME": str(own if own.is_dir() else home),
        "TMPDIR": str(folder),
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_RETRIES": "0",
    }


@contextlib.contextmanager
def _at(words: Sequence[str], folder: Path, home: Path) -> Iterator[None]:
    """In that folder, with these words behind the command's name."""
    before = os.getcwd(), sys.argv, dict(os.environ), tempfile.tempdir
    others, SERVERS.servers = SERVERS.servers, {}  # a process of its own begins without any
    handler = signal.getsignal(signal.SIGALRM)
    os.chdir(folder)
    os.environ.update(_settings(folder, home))
    sys.argv, tempfile.tempdir = ["cacheproof", *words], str(folder)
    try:
        yield
    finally:
        SERVERS.servers = others
        signal.signal(signal.SIGALRM, handler)
        os.chdir(before[0])
        sys.argv, tempfile.tempdir = before[1], before[3]
        os.environ.clear()
        os.environ.update(before[2])


@contextlib.contextmanager
def _written() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Takes what is written, as a terminal with UTF-8 would."""
    streams = tuple(
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors, write_through=True)
        for errors in ("strict", "backslashreplace")
    )
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams
    try:
        yield streams
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def _descriptor_kept(number: int) -> Iterator[None]:
    """A command that can say nothing more gives its standard output up."""
    kept = os.dup(number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


def _hangs(*_: object) -> None:
    raise Hangs


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _left(folder: Path, before: set[str], processes: set[int]) -> tuple[str, ...]:
    """Files that nobody asked for, and processes that still run after a moment."""
    until = time.monotonic() + SECONDS_OF_GRACE
    while (running := {one for one in processes if _runs(one)}) and time.monotonic() < until:
        time.sleep(0.05)
    files = _files(folder) - before - MAY_WRITE
    return (*map(repr, sorted(files)), *(f"process {one}" for one in sorted(running)))


def _processes() -> set[int]:
    """Children of this one, but for the one that Python itself keeps to the end."""
    tasks = Path("/proc/self/task").glob("*/children")
    children = {int(one) for several in tasks for one in several.read_text().split()}
    return {one for one in children if b"resource_tracker" not in _command(one)}


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _session(leader: int) -> set[int]:
    """Processes of a session."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[3]) == leader:
                found.add(int(path.parent.name))
    return found


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
