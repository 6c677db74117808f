"""Runs pip in a given interpreter and explains what went wrong in one line."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cacheproof.differential.errors import SetupError
from cacheproof.differential.provision.cache import Cache, Report, Workspace
from cacheproof.differential.provision.child import run_logged

TAIL_LINES = 3

# pip, but gone as soon as its standard input ends. Were we killed, it would otherwise finish a
# work of minutes that the next process, waiting for the lock, has to throw away.
_LEASHED_PIP = """
import os, runpy, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

# Settings of the user that would send the packages elsewhere. Indexes, mirrors, proxies and
# certificates stay the user's.
_MISLEADING = (
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV", "PIP_QUIET"),
    *(
        "PIP_DRY_RUN",
        "PIP_NO_DEPS",
        "PIP_NO_BINARY",
        "PIP_ONLY_BINARY",
        "PIP_CONSTRAINT",
        "PIP_LOG",
    ),
)
_UNREACHABLE = re.compile(
    r"connection broken by|Max retries exceeded|Temporary failure in name resolution|"
    r"Read timed out|ReadTimeoutError|ProxyError|Network is unreachable|Connection refused"
)
_MISSING = re.compile(r"No matching distribution found for (\S+)")
_CANDIDATES = re.compile(r"\(from versions: ([^)]*)\)")
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_STEP = re.compile(r"(Collecting|Downloading|Using cached|Installing|Preparing) +(\S+)")


class NoSuchPackage(SetupError):
    """The index was reached and has no such version; says which it has."""

    def __init__(self, message: str, available: tuple[str, ...]) -> None:
        super().__init__(message)
        self.available = available


class Unreachable(SetupError):
    """The package index was not reached, so nothing is known about what it has."""


def run_pip(
    python: Path,
    arguments: Sequence[str],
    *,
    title: str,
    cache: Cache,
    workspace: Workspace,
    report: Report,
    inherit: tuple[int, ...],
    extra_env: Mapping[str, str] | None = None,
) -> None:
    """Runs pip with the arguments, and with its temporary files in the workspace.

    Raises:
        NoSuchPackage: the index has no such version.
        Unreachable: the index was not reached.
        SetupError: the disk is full, or pip failed otherwise; says where pip's log is.
    """
    log = cache.logs / f"pip-{workspace.path.name}.log"
    status = run_logged(
        [
            *(str(python), "-P", "-c", _LEASHED_PIP),
            *(*arguments, "--no-input", "--disable-pip-version-check"),
        ],
        log=log,
        env=environment_of_pip(workspace.path) | dict(extra_env or {}),
        title=title,
        report=report,
        describe=described,
        inherit=(*inherit, workspace.guard),
    )
    if status != 0:
        raise _explain(log, status, title, cache)
    log.unlink()


def environment_of_pip(tmp: Path) -> dict[str, str]:
    """The user's environment without settings that would send packages elsewhere."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _MISLEADING and not name.startswith("PYTHON")
    }
    return kept | {"TMPDIR": str(tmp), "PYTHONNOUSERSITE": "1"}


def described(line: str) -> str | None:
    """What is reported about a line of pip, or of uv; None where it is no step."""
    step = _STEP.match(line.strip())
    return None if step is None else f"{step[1].lower()} {step[2].rpartition('/')[2]}"


def _explain(log: Path, status: int, title: str, cache: Cache) -> SetupError:
    text = log.read_text(errors="replace")
    if _FULL.search(text):
        return cache.full()
    if _UNREACHABLE.search(text):
        return Unreachable(
            f"{title}: the package index cannot be reached; check the network, or name a mirror "
            f"with PIP_INDEX_URL (pip's log: {log})"
        )
    if missing := _MISSING.search(text):
        listed = _CANDIDATES.search(text)
        names = [] if listed is None else [name.strip() for name in listed[1].split(",")]
        available = tuple(name for name in names if name not in ("", "none"))
        return NoSuchPackage(
            f"{title}: the package index has no {missing[1]} for this Python (pip's log: {log})",
            available,
        )
    said = [line.strip() for line in text.splitlines() if line.strip()][-TAIL_LINES:]
    return SetupError(f"{title}: pip failed with status {status}: {' | '.join(said)} (log: {log})")
