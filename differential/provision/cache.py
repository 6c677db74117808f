"""The user's cache folder: where it is, who is writing to it, and what a killed process left there.

Every change is prepared in a folder of its own under tmp/ and renamed into place, and every writer
holds a file lock while it lives. The kernel drops the lock with the process, so a lock that can be
had belongs to nobody, and what lies beside it is swept.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cacheproof.differential.errors import SetupError

Report = Callable[[str], None]
"""A function that takes one line of progress."""

MIB = 1 << 20


def disk_free(folder: Path) -> int:
    """Bytes free on the disk that holds the folder."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Workspace:
    """A private folder under tmp/, gone when its process is done or dead."""

    path: Path
    guard: int
    """Descriptor of the lock. Child processes inherit it: one that outlives us keeps its folder."""


@dataclass(frozen=True)
class Cache:
    """The cache folder. Nothing is created before the first write."""

    root: Path
    free_bytes: Callable[[Path], int] = disk_free

    @classmethod
    def locate(cls, environ: Mapping[str, str] = os.environ) -> "Cache":
        """The cache at CACHEPROOF_HOME, else in cacheproof under XDG_CACHE_HOME or ~/.cache."""
        named = environ.get("CACHEPROOF_HOME")
        if named:
            return cls(Path(named).expanduser().absolute())
        base = environ.get("XDG_CACHE_HOME")
        return cls((Path(base) if base else Path.home() / ".cache").absolute() / "cacheproof")

    @property
    def releases(self) -> Path:
        return self.root / "releases"

    @property
    def engines(self) -> Path:
        return self.root / "engines"

    @property
    def wheels(self) -> Path:
        """Engines with compiled parts."""
        return self.root / "wheels"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def environments(self) -> Path:
        return self.root / "environments"

    @property
    def checkouts(self) -> Path:
        return self.root / "checkouts"

    @property
    def mended(self) -> Path:
        return self.root / "mended"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def proofs(self) -> Path:
        return self.root / "proofs"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def _tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def _locks(self) -> Path:
        return self.root / "locks"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Open the folder for writing; what the disk refuses is raised as one line.

        Raises:
            SetupError: the folder cannot be made or written, or the disk is full.
        """
        try:
            for folder in (
                self.releases,
                self.engines,
                self.wheels,
                self.environments,
                self.checkouts,
                self.mended,
                self.logs,
                self.scratch,
                self._tmp,
                self._locks,
            ):
                folder.mkdir(parents=True, exist_ok=True)
            self._sweep()  # every writer sweeps: a process that was killed could not
            yield
        except OSError as refusal:
            if refusal.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self.full() from refusal
            if refusal.errno in (
                errno.EACCES,
                errno.EPERM,
                errno.EROFS,
                errno.ENOTDIR,
                errno.EEXIST,  # a file lies where a folder is to be
            ):
                raise SetupError(
                    f"cannot write to the cache folder {self.root}: {refusal.strerror} "
                    f"({refusal.filename}); set CACHEPROOF_HOME to a folder you can write to"
                ) from refusal
            raise

    def full(self) -> SetupError:
        return SetupError(
            f"the disk that holds {self.root} is full; free some space there, "
            "or set CACHEPROOF_HOME to a folder on another disk"
        )

    def require(self, need_mib: int, purpose: str) -> None:
        """Refuse early what would fill the disk.

        Raises:
            SetupError: less than `need_mib` is free.
        """
        free_mib = self.free_bytes(self.root) // MIB
        if free_mib < need_mib:
            raise SetupError(
                f"{purpose} needs {need_mib} MiB, but the disk that holds {self.root} has "
                f"{free_mib} MiB left; free some space there, or set CACHEPROOF_HOME to a folder "
                "on another disk"
            )

    @contextlib.contextmanager
    def alone(self, name: str, report: Report) -> Iterator[int]:
        """Hold the named lock, waiting for whoever has it; yields its descriptor."""
        with open(self._locks / f"{name}.lock", "a") as handle:
            try:  # first without waiting, so that a wait is reported
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report(f"waiting for another process that sets up {name}")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle.fileno()

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Workspace]:
        """A folder to prepare something in, on the disk where it will end up."""
        with self._guarding_tmp():  # no sweep may see the folder before its lock is held
            path = Path(tempfile.mkdtemp(dir=self._tmp))
            guard = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
            fcntl.flock(guard, fcntl.LOCK_EX)
        try:
            yield Workspace(path, guard)
        finally:
            shutil.rmtree(path, ignore_errors=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
            os.close(guard)  # last: a sweep takes the folder once its lock can be had

    def discard(self, folder: Path) -> None:
        """Remove a folder as a whole: it is out of sight before its first file goes."""
        if folder.exists():
            with self.workspace() as workspace:
                folder.rename(workspace.path / "discarded")

    @contextlib.contextmanager
    def _guarding_tmp(self) -> Iterator[None]:
        with open(self._locks / "tmp.lock", "a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _sweep(self) -> None:
        """Remove what dead processes left under tmp/."""
        with self._guarding_tmp():
            for name in {path.stem for path in self._tmp.iterdir()}:
                folder, guard = self._tmp / name, self._tmp / f"{name}.lock"
                with open(guard, "a") as handle, contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                    if not folder.exists():  # what could not be removed is left to the next sweep
                        guard.unlink()
