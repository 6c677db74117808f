"""A folder of entries that processes share: bounded in bytes, whole or absent, pinned by links.

    entries/ab/cdef...      an entry: renamed into place when it is whole, never written again
    owners/NAME/            an owner's entries in the making, and its pins: hard links to entries
    owners/NAME.lock        locked while the owner lives
    lock                    held to make room, to publish and to evict

A pin is a link of the owner's own, so nobody can take the bytes from it; the entry's link count
tells the others. What a killed owner leaves behind lies in its folder, and goes with it when room
is made or the folder is opened next. A folder in memory (/dev/shm) is a tier of CPU memory.
"""

import errno
import fcntl
import logging
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path

from cacheproof.reference.encoder_connector.part import Late, Part

logger = logging.getLogger(__name__)

LOCK_SECONDS = 5.0
"""Seconds to wait for the lock: longer than an engine holds it to move an entry down a tier. One
that was stopped with the lock must not stop the others."""

Evicted = Callable[[str, Path], None]


class DirectoryTier:
    """Entries of bytes by name, at most `bytes_max` of them with what is in the making.

    Every method answers as if there were no entry where the folder cannot be used, and logs one
    line for each reason.

    Args:
        root: the folder; it is made where it is not there.
        bytes_max: of all entries, those that are pinned or being written included.
        syncs: whether an entry is on the medium (fsync) before it is published.
        evicted: called with the name and the file of each entry before it is evicted.
    """

    def __init__(
        self, root: Path, bytes_max: int, *, syncs: bool = False, evicted: Evicted | None = None
    ) -> None:
        self.root, self.bytes_max = root, bytes_max
        self._syncs = syncs
        self._evicted = evicted
        self._own = self._new_owner()
        self._count = 0
        self._told: set[str] = set()
        self._left: set[Path] = set()
        self._alive: int | None = None
        with self._logged("opened"):
            self._open()

    def close(self) -> None:
        """Give the pins back and leave the folder to others."""
        if self._alive is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            with suppress(OSError):
                self._own.with_suffix(".lock").unlink()
            os.close(self._alive)
            self._alive = None

    def contains(self, name: str) -> bool:
        """Whether there is an entry of that name; its bytes are not looked at."""
        with self._logged("found"):
            return _status(self._entry(name)) is not None
        return False

    def put(self, name: str, parts: Iterable[Part], size: int) -> bool:
        """Keep an entry of `size` bytes in parts; the first of a name stays, and no part is asked
        for where it is there. False: there is no room, or no folder."""
        with self._logged("written"):
            self._stay_open()
            made = self._reserve(name, size)
            if made is None:
                return self.contains(name)
            try:
                self._write(made, parts)
                self._publish(name, made)
                return True
            finally:
                with suppress(FileNotFoundError):
                    made.unlink()
        return False

    def pin(self, name: str) -> Path | None:
        """A hard link of this owner to the entry, until `unpin`; None: there is no entry."""
        with self._logged("pinned"):
            self._stay_open()
            self._give_back_left()
            entry, pinned = self._entry(name), self._new_path(name)
            if _status(entry) is None:
                return None
            with suppress(FileNotFoundError):
                os.link(entry, pinned, follow_symlinks=False)
                if _status(pinned) is not None:
                    os.utime(pinned)  # the entry's time of use: both are one file
                    return pinned
                pinned.unlink()
        return None

    def unpin(self, pinned: Path) -> None:
        """Give back a pin, by the path that `pin` returned."""
        with self._logged("unpinned"), suppress(FileNotFoundError):
            pinned.unlink()
            return
        self._left.add(pinned)  # in a folder that is gone, and may come back

    def remove(self, name: str) -> None:
        """Drop an entry that is damaged; a pin of it stays."""
        with self._logged("removed"), self._locked(), suppress(FileNotFoundError):
            self._entry(name).unlink()

    def clear(self) -> None:
        """Drop all entries; pins stay."""
        with self._logged("cleared"), self._locked():
            for entry in list(self._entries()):
                entry.unlink(missing_ok=True)

    def num_bytes(self) -> int:
        """Bytes of all entries, of those that are pinned and those in the making."""
        files = (*self._entries(), *(self.root / "owners").glob("*/*"))
        found = {one.st_ino: one.st_size for one in map(_status, files) if one is not None}
        return sum(found.values())

    def _open(self) -> None:
        (self.root / "entries").mkdir(parents=True, exist_ok=True)
        (self.root / "owners").mkdir(exist_ok=True)
        with self._locked():
            self._alive = os.open(self._own.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._alive, fcntl.LOCK_EX)
            self._own.mkdir()
            self._bury()

    def _stay_open(self) -> None:
        """Open what has taken the folder's place since, or the folder itself once it is there."""
        if not self._own.is_dir() and self.root.is_dir():
            if self._alive is not None:
                os.close(self._alive)
                self._alive = None
            self._own = self._new_owner()
            self._open()

    def _new_owner(self) -> Path:
        return self.root / "owners" / f"{os.getpid()}-{secrets.token_hex(8)}"

    def _bury(self) -> None:
        """Remove what dead owners left. The caller holds the lock."""
        for folder in {path.with_suffix("") for path in (self.root / "owners").iterdir()}:
            lock = folder.with_suffix(".lock")
            if folder != self._own and not _is_locked(lock):
                shutil.rmtree(folder, ignore_errors=True)
                lock.unlink(missing_ok=True)

    def _reserve(self, name: str, size: int) -> Path | None:
        """A file of that size in the making; None: the entry is there, or there is no room."""
        if self.contains(name):
            return None
        if size > self.bytes_max:
            self._say(f"entries larger than {self.bytes_max} bytes are not kept in {self.root}")
            return None
        with self._locked():
            if not self._make_room(size):
                self._say(f"entries are not kept while {self.root} is full of pinned ones")
                return None
            made = self._new_path(name)
            handle = os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                os.truncate(handle, size)
            finally:
                os.close(handle)
            return made

    def _make_room(self, size: int) -> bool:
        """Evict what was not used for longest and is not pinned, until `size` more fit."""
        if self.num_bytes() + size <= self.bytes_max:
            return True
        # before entries: what dead owners left, and pins given back too late, is of use to nobody
        self._bury()
        self._give_back_left()
        excess = self.num_bytes() + size - self.bytes_max
        idle = sorted(self._idle(), key=lambda one: (one[1].st_mtime_ns, one[0]))
        # before the first eviction: entries are not given up for one that cannot fit
        if sum(found.st_size for _, found in idle) < excess:
            return False
        for entry, found in idle:
            if excess <= 0:
                break
            excess -= found.st_size if self._evict(entry) else 0
        return excess <= 0

    def _give_back_left(self) -> None:
        """Remove pins that could not be given back while the folder was gone."""
        for pinned in list(self._left):
            with suppress(FileNotFoundError):
                pinned.unlink()
                self._left.remove(pinned)

    def _evict(self, entry: Path) -> bool:
        """Drop an entry, unless somebody has pinned it meanwhile: out of its place, nobody can. It
        is in its place until `evicted` has returned, since whoever evicts may be killed."""
        name = entry.parent.name + entry.name
        if self._evicted is not None:
            self._evicted(name, entry)
        taken = self._new_path(name)
        entry.rename(taken)
        if os.lstat(taken).st_nlink > 1:
            taken.rename(entry)
            return False
        taken.unlink()
        return True

    def _idle(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Entries that nobody has pinned."""
        for entry in self._entries():
            found = _status(entry)
            if found is not None and found.st_nlink == 1:
                yield entry, found

    def _write(self, made: Path, parts: Iterable[Part]) -> None:
        """Write the parts in order, late ones when all others are written."""
        late: list[tuple[int, Late]] = []
        with made.open("r+b", buffering=0) as file:
            for part in parts:
                if isinstance(part, Late):
                    late.append((file.tell(), part))
                    file.seek(len(part), os.SEEK_CUR)
                else:
                    _write_whole(file, part)
            for at, part in late:
                file.seek(at)
                _write_whole(file, bytes(part))
            if self._syncs:
                os.fsync(file.fileno())

    def _publish(self, name: str, made: Path) -> None:
        entry = self._entry(name)
        with self._locked():
            entry.parent.mkdir(exist_ok=True)
            # another engine was quicker: an entry is never written again
            if entry.exists():
                return
            made.rename(entry)
        if self._syncs:
            folder = os.open(entry.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _entries(self) -> Iterator[Path]:
        return (self.root / "entries").glob("*/*")

    def _entry(self, name: str) -> Path:
        return self.root / "entries" / name[:2] / name[2:]

    def _new_path(self, name: str) -> Path:
        self._count += 1
        return self._own / f"{name}-{self._count}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self.root / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            until = time.monotonic() + LOCK_SECONDS
            while not _try_lock(handle):
                if time.monotonic() > until:
                    raise OSError(errno.EBUSY, "another engine does not give its lock back")
                time.sleep(0.001)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        """Log an error of the file system; the caller goes on without the entry."""
        try:
            yield
        except OSError as error:
            reason = errno.errorcode.get(error.errno or 0, type(error).__name__)
            self._say(f"nothing can be {what} in {self.root}: {reason}")

    def _say(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning("encoder cache: %s", what)


def _status(path: Path) -> os.stat_result | None:
    """The status of a regular file; None: there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _write_whole(file: RawIOBase, part: bytes | memoryview) -> None:
    left = memoryview(part)
    while left:
        left = left[file.write(left) :]


def _is_locked(lock: Path) -> bool:
    """Whether somebody holds the lock file."""
    try:
        handle = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Take a lock, until the file is closed, if nobody has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
