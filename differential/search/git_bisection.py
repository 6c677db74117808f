"""Which commit of a checkout brought a fault, or mended it: `git bisect run` in a worktree of its
own, which is gone afterwards. Of the user's checkout neither files nor branches nor a bisection of
its own are touched.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cacheproof.differential.errors import InputError

HOLDS, BREAKS, SKIP = 0, 1, 125
"""Exit statuses of a step, as `git bisect run` reads them."""
FLIPPED = "--flipped"
_GIT = ("git", "-c", f"core.hooksPath={os.devnull}", "-C")
"""git without hooks: those of the user's checkout are for the user's commits."""
_FIRST = re.compile(r"^([0-9a-f]{40,64}) is the first ", re.MULTILINE)
_PROGRESS = ("Bisecting: ", "[")
"""Beginnings of the lines that are passed on: how many commits are left, and which is checked
out. What else git prints is long."""
_CANDIDATE = re.compile(r"^([0-9a-f]{40,64})$", re.MULTILINE)
_SKIPPED = "only 'skip'ped commits left to test"


@dataclass(frozen=True)
class Commit:
    """A commit, by its hash, the day of its author and its first line."""

    hash: str
    day: str
    subject: str


@dataclass(frozen=True)
class History:
    """From a commit that holds to one that breaks, or the other way round (`is_mended`)."""

    checkout: Path
    good: str
    bad: str
    is_mended: bool

    @property
    def ends(self) -> tuple[str, str]:
        """The older one, then the newer."""
        return (self.bad, self.good) if self.is_mended else (self.good, self.bad)


def history(checkout: Path, good: str, bad: str) -> History:
    """The history between two revisions of a checkout; git says which is the older.

    Raises:
        InputError: it is no git checkout, they are no commits of it, or one commit.
    """
    if not checkout.is_dir() or _git(checkout, "rev-parse", "--git-dir").returncode:
        raise InputError(
            f"--checkout {checkout}: no git checkout; expected the folder of a git history of vLLM"
        )
    holds, breaks = _hash(checkout, "good", good), _hash(checkout, "bad", bad)
    if holds == breaks:
        raise InputError(
            f"--good {good} and --bad {bad} are one commit; expected one that holds and another "
            "that breaks"
        )
    is_mended = _git(checkout, "merge-base", "--is-ancestor", breaks, holds).returncode == 0
    return History(checkout, holds, breaks, is_mended)


def first_commits(
    past: History, step: Callable[[Path], list[str]], say: Callable[[str], None]
) -> list[Commit]:
    """The first commit with the other result; several where commits between cannot be run: it is
    one of them.

    `step` makes the command that judges the tree in a folder: it exits with HOLDS, BREAKS or SKIP;
    with FLIPPED after it, HOLDS and BREAKS change places. `say` takes git's lines of progress.

    Raises:
        InputError: an end of the history is not what it is said to be, or git fails.
    """
    older, newer = past.ends
    with _worktree(past.checkout, newer) as tree:
        # Both ends first: git would bisect all the same, and name any commit.
        for end, holds in ((past.bad, False), (past.good, True)):
            _checked(tree, "checkout", "--quiet", "--detach", end)
            _require(step(tree), end, holds=holds)
        terms = ("--term-old=broken", "--term-new=mended") if past.is_mended else ()
        _checked(tree, "bisect", "start", *terms, newer, older)
        told = _run(tree, [*step(tree), *([FLIPPED] if past.is_mended else [])], say)
        found = (_CANDIDATE if _SKIPPED in told else _FIRST).findall(told)
        if not found:
            raise InputError(f"{past.checkout}: git bisect: {_last_line(told)}")
        return [_commit(past.checkout, one) for one in found]


def _run(tree: Path, step: Sequence[str], say: Callable[[str], None]) -> str:
    """What `git bisect run` says."""
    lines = []
    with subprocess.Popen(
        [*_GIT, str(tree), "bisect", "run", *step],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith(_PROGRESS):
                say(line.rstrip())
    return "".join(lines)


def _require(step: Sequence[str], end: str, *, holds: bool) -> None:
    """Require that an end of the history is what it is said to be.

    Raises:
        InputError: it is not, or it cannot be run.
    """
    ended = subprocess.run(step, capture_output=True, text=True, check=False)
    expected, option = (HOLDS, "--good") if holds else (BREAKS, "--bad")
    if ended.returncode == expected:
        return
    words = {HOLDS: "the trace breaks nothing there", BREAKS: "the trace breaks there"}
    why = words.get(ended.returncode, f"it cannot be run: {_last_line(ended.stderr)}")
    wanted = "holds" if holds else "breaks"
    raise InputError(f"{option} {end[:12]}: {why}; expected a commit that {wanted}")


@contextmanager
def _worktree(checkout: Path, revision: str) -> Iterator[Path]:
    """A worktree of the checkout, gone afterwards."""
    with tempfile.TemporaryDirectory(
        prefix="cacheproof-bisect-", ignore_cleanup_errors=True
    ) as folder:
        tree = Path(folder)
        _checked(checkout, "worktree", "add", "--quiet", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            _git(checkout, "worktree", "remove", "--force", str(tree))


def _hash(checkout: Path, option: str, text: str) -> str:
    revision = f"{text}^{{commit}}"
    found = _git(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", revision)
    if found.returncode:
        raise InputError(f"--{option} {text}: no commit of {checkout}; expected a revision of it")
    return found.stdout.strip()


def _commit(checkout: Path, revision: str) -> Commit:
    shown = _checked(checkout, "show", "--no-patch", "--format=%H%x00%as%x00%s", revision)
    return Commit(*shown.strip().split("\0"))


def _checked(folder: Path, *arguments: str) -> str:
    """What git prints. Raises InputError with its last line where it fails."""
    ended = _git(folder, *arguments)
    if ended.returncode:
        raise InputError(f"{folder}: git {arguments[0]}: {_last_line(ended.stderr)}")
    return ended.stdout


def _git(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [*_GIT, str(folder), *arguments],
            env=_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise InputError(f"git does not start: {error.strerror}; expected it on PATH") from None


def _environment() -> dict[str, str]:
    """The environment without variables that would point git at another repository, and with its
    messages in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "LC_ALL": "C"}


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
