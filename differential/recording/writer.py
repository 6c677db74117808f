"""Appends records to files from a thread of its own, and never makes the engine wait.

The engine's thread leaves a record in a queue; this one encodes it, too. What cannot be written is
lost and counted: records are numbered before anything can happen to them. A file is left for the
next one where it has grown to its size; the oldest are deleted before their process would keep more
than its share.
"""

import contextlib
import os
import threading
import time
from collections import deque
from io import FileIO
from pathlib import Path
from typing import Protocol

import msgspec

from cacheproof.differential.recording.blocks import MAGIC, RECORD_MAX, framed, pack
from cacheproof.differential.recording.messages import Message

FLUSH_SECONDS = 0.25
RETRY_SECONDS = 1.0
BLOCK_BYTES = 1 << 20
HURRY_RECORDS = 1024
"""Waiting records above which the thread is woken at once, before its next turn."""
SUFFIX = ".cprec"
_encode_at_once = msgspec.msgpack.Encoder().encode


class Limits(msgspec.Struct, frozen=True):
    """What a process may take: bytes of a file and of all its files, and records that wait in
    memory to be written."""

    file_bytes: int = 64 << 20
    total_bytes: int = 1 << 30
    waiting_records: int = 1 << 15


class Records(Protocol):
    """What takes the records of a scheduler; `lost` counts those that it could not keep, and
    `wants_file` says that those with which a file begins are due again."""

    @property
    def lost(self) -> int: ...

    @property
    def wants_file(self) -> bool: ...

    def begin(self, *messages: Message) -> None: ...

    def put(self, message: Message, *, at_once: bool = False) -> None: ...

    def flush(self, seconds: float) -> bool: ...

    def close(self) -> None: ...


class Writer:
    """The files of one process. `put` and `begin` are called by one thread, the engine's. Nothing
    that a record holds may change afterwards, unless it is encoded `at_once`.

    Every file begins with the records that `begin` is given; `wants_file` says that a new one is
    due, because the last is full, or because something was lost.
    """

    def __init__(self, folder: Path, stem: str, limits: Limits) -> None:
        self.lost = 0
        self._wants_file = True
        self._not_before = 0.0
        self._folder = folder
        self._stem = stem
        self._limits = limits
        self._waiting_max = limits.waiting_records
        self._encoder = msgspec.msgpack.Encoder()
        self._number = 0
        self._waiting: deque[tuple[int, Message | bytes, bool]] = deque()
        self._queued = 0
        self._handled = 0
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._idle = threading.Condition(self._lock)
        self._ends = False
        self._begun = 0
        self._files: deque[tuple[Path, int]] = deque()
        self._kept_bytes = 0
        self._file: FileIO | None = None
        self._file_size = 0
        self._file_number = 0
        self._thread = threading.Thread(target=self._run, name="cacheproof-record", daemon=True)
        self._thread.start()

    @property
    def wants_file(self) -> bool:
        """Whether a new file is due; after a loss not at once, so that a full disk costs little."""
        return self._wants_file and time.monotonic() >= self._not_before

    def put(self, message: Message, *, at_once: bool = False) -> None:
        """Append a record, or count it as lost.

        Raises:
            Exception: what kept an earlier record from being encoded.
        """
        self._append(_encode_at_once(message) if at_once else message)

    def begin(self, *messages: Message) -> None:
        """Begin a file with these records."""
        self._wants_file = False
        for place, message in enumerate(messages):
            self._append(message, is_first=place == 0)

    def flush(self, seconds: float) -> bool:
        """Have all that was put written, within about so many seconds; whether it was, or was lost
        and counted. A thread that has ended writes nothing more."""
        end = time.monotonic() + seconds
        queued = self._queued
        with self._lock:
            while self._handled < queued and self._thread.is_alive():
                self._wake.set()
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._idle.wait(min(left, FLUSH_SECONDS))
            return self._handled >= queued

    def close(self, seconds: float = 2.0) -> None:
        """Write what is left and end the thread."""
        self.flush(seconds)
        self._ends = True
        self._wake.set()
        self._thread.join(seconds)

    def _append(self, message: Message | bytes, *, is_first: bool = False) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        number, queue = self._number, self._waiting
        self._number = number + 1
        waiting = len(queue)
        if waiting >= self._waiting_max:
            self._lose(1)
            return
        if is_first:
            with self._lock:
                self._begun += 1
        self._queued += 1
        queue.append((number, message, is_first))
        if waiting > HURRY_RECORDS:
            self._wake.set()

    def _lose(self, count: int) -> None:
        with self._lock:
            self.lost += count
            self._not_before = time.monotonic() + RETRY_SECONDS
            self._wants_file = True

    # the thread

    def _run(self) -> None:
        while True:
            self._wake.wait(FLUSH_SECONDS)
            self._wake.clear()
            self._write_waiting()
            if self._ends and not self._waiting:
                self._leave_file()
                return

    def _write_waiting(self) -> None:
        while self._waiting:
            first, frames, is_first, taken = self._take_block()
            try:
                if frames:
                    self._write(pack(frames, first), is_first=is_first)
            except OSError:
                self._lose(len(frames))
            with self._lock:
                self._handled += taken
                self._idle.notify_all()

    def _take_block(self) -> tuple[int, list[bytes], bool, int]:
        """Records that follow each other, up to a block's size and up to the next file: the number
        of the first, their frames, whether they begin a file, and how many left the queue."""
        first, begins_file, size, taken = 0, False, 0, 0
        frames: list[bytes] = []
        while self._waiting and size < BLOCK_BYTES:
            number, message, is_first = self._waiting[0]
            if frames and (is_first or number != first + len(frames)):
                break
            self._waiting.popleft()
            taken += 1
            frame = self._encoded(message)
            if frame is None:
                self._lose(1)
                with self._lock:
                    self._begun -= is_first
                continue
            if not frames:
                first, begins_file = number, is_first
            frames.append(frame)
            size += len(frame)
        return first, frames, begins_file, taken

    def _encoded(self, message: Message | bytes) -> bytes | None:
        """A record as it stands in a block; None for one that cannot stand there."""
        try:
            record = message if isinstance(message, bytes) else self._encoder.encode(message)
            frame = framed(record)
        except Exception as error:  # told to whoever puts the next
            self._failure = error
            return None
        return frame if len(frame) <= RECORD_MAX else None

    def _write(self, block: bytes, *, is_first: bool) -> None:
        data = MAGIC + block if is_first else block
        self._make_room(len(data))
        if is_first:
            self._open_next()
        if self._file is None:
            raise OSError("no file")
        self._write_bytes(self._file, data)
        if self._file_size > self._limits.file_bytes and self._begun == self._file_number:
            self._wants_file = True

    def _make_room(self, count: int) -> None:
        """Delete the oldest files, but never the last, until `count` bytes more are allowed."""
        while self._kept_bytes + count > self._limits.total_bytes and len(self._files) > 1:
            path, size = self._files.popleft()
            path.unlink(missing_ok=True)
            self._kept_bytes -= size

    def _open_next(self) -> None:
        self._leave_file()
        self._file_number += 1
        path = self._folder / f"{self._stem}-{self._file_number:06}{SUFFIX}"
        self._file = path.open("xb", buffering=0)
        self._files.append((path, 0))
        self._file_size = 0

    def _write_bytes(self, file: FileIO, data: bytes) -> None:
        """All of it or nothing: a full disk may take a part. A file that stays empty is deleted."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file.fileno(), self._file_size)
            self._leave_file()
            if not self._file_size:
                path, _ = self._files.pop()
                path.unlink(missing_ok=True)
            raise
        self._file_size += len(data)
        self._kept_bytes += len(data)
        self._files[-1] = self._files[-1][0], self._file_size

    def _leave_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
