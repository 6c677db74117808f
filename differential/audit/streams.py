"""The records of one process, in order, out of its files; what is missing is said in its place."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from cacheproof.differential import files
from cacheproof.differential.errors import InputError
from cacheproof.differential.recording.blocks import MAGIC, BlockReader, Garbled, RecordBlock
from cacheproof.differential.recording.messages import SCHEMA, AnyMessage, Opened
from cacheproof.differential.recording.writer import SUFFIX

_NAME = re.compile(r"(?P<stem>[a-z]+(?:-\d+)*)-(?P<number>\d{6})" + re.escape(SUFFIX))
EXPECTED = (
    f"expected a folder or a file (*{SUFFIX}) that an engine wrote; to have one written: "
    "cacheproof record DIR -- vllm serve MODEL"
)
_decoder = msgspec.msgpack.Decoder(AnyMessage)


class Gap(NamedTuple):
    """Something is missing of a record, and what."""

    why: str


class Numbered(NamedTuple):
    """A record, and its number among those of its process."""

    number: int
    message: AnyMessage


_numbered: Callable[[tuple[int, AnyMessage]], Numbered] = partial(tuple.__new__, Numbered)
"""Makes one without a call of Python: there are many."""
Part = Numbered | Gap


class RecordStream:
    """The records of one process, out of one file or several that follow each other. `read` may be
    asked again where more has come; `end` is asked once, when nothing more will."""

    def __init__(self, name: str, sources: Iterable[BinaryIO]) -> None:
        self.name = name
        self._sources = list(sources)
        self._reader: BlockReader | None = None
        self._source: BinaryIO | None = None
        self._begin = b""
        self._next: int | None = None
        self.opened: Opened | None = None

    def add(self, source: BinaryIO) -> None:
        """Another file follows."""
        self._sources.append(source)

    def read(self) -> Iterator[Part]:
        """The records up to the end of what is there now."""
        while True:
            if self._source is None:
                if not self._sources:
                    return
                self._source = self._sources.pop(0)
            if self._reader is None:
                self._open(self._source)
            if self._reader is not None:
                for found in self._reader.read():
                    yield from self._parts(found)
            if not self._sources:
                return
            yield from self._leave()

    def end(self) -> Iterator[Part]:
        """What is left when nothing more comes."""
        yield from self.read()
        if self._source is not None:
            yield from self._leave()

    def _open(self, source: BinaryIO) -> None:
        """Read the magic line, as far as it is written yet."""
        begin = self._begin = self._begin + source.read(len(MAGIC) - len(self._begin))
        if begin != MAGIC:
            if MAGIC.startswith(begin):
                return
            kind = MAGIC.rsplit(b" ", 1)[0]
            if begin.startswith(kind + b" "):
                version = begin[len(kind) :].split(b"\n")[0].decode("ascii", "replace").strip()
                expected = MAGIC[len(kind) :].decode().strip()
                raise InputError(
                    f"{self.name}: a record in format {version}; expected format {expected}: audit "
                    "it with the version of cacheproof that wrote it"
                )
            raise InputError(f"{self.name}: not a record of an engine; {EXPECTED}")
        self._reader = BlockReader(source)

    def _leave(self) -> Iterator[Part]:
        assert self._source is not None
        if self._reader is None:
            yield Gap("a file ends in its first line")
        else:
            for found in self._reader.end():
                yield from self._parts(found)
            if self._reader.held:
                yield Gap(f"{self._reader.held} bytes at the end of a file are no whole block")
        self._source.close()
        self._source = self._reader = None
        self._begin = b""

    def _parts(self, found: RecordBlock | Garbled) -> Iterator[Part]:
        if isinstance(found, Garbled):
            yield Gap(f"{found.bytes} bytes are no block of records: {found.why}")
            return
        if self._next is not None and found.first != self._next:
            missing = found.first - self._next
            yield Gap(
                f"{missing} records are missing"
                if missing > 0
                else f"records {found.first} to {self._next} come again"
            )
        self._next = found.first + len(found.records)
        for number, data in enumerate(found.records, found.first):
            try:
                message = _decoder.decode(data)
            except (msgspec.MsgspecError, RecursionError) as error:
                yield Gap(f"record {number} is none: {error}")
                continue
            if type(message) is Opened:
                self._check(message)
            yield _numbered((number, message))

    def _check(self, opened: Opened) -> None:
        if opened.schema != SCHEMA:
            raise InputError(
                f"{self.name}: records of schema {opened.schema}; expected {SCHEMA}: audit it with "
                "the version of cacheproof that wrote it"
            )
        self.opened = opened


class Folder:
    """The streams of a folder. `look` finds files that have come since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[Path] = set()
        self.streams: dict[str, RecordStream] = {}

    def look(self) -> None:
        """Take in files that have come. Raises InputError where one cannot be read."""
        for path in sorted(self._path.glob(f"*{SUFFIX}")):
            name = _NAME.fullmatch(path.name)
            if path in self._seen or name is None:
                continue
            self._seen.add(path)
            source = _open(path)
            stem = name["stem"]
            if stem in self.streams:
                self.streams[stem].add(source)
            else:
                self.streams[stem] = RecordStream(str(path), [source])


def folder_or_file(where: str, *, waits: bool = False) -> Folder | RecordStream:
    """What to audit: a folder's records, a file's, or those on standard input ("-"). One that
    `waits` takes a folder too that is yet to come, or to be filled.

    Raises:
        InputError: there is nothing of the kind.
    """
    if where == "-":
        return RecordStream("standard input", [sys.stdin.buffer])
    path = Path(where)
    if path.is_dir() or (waits and not path.exists()):
        folder = Folder(path)
        folder.look()
        if not folder.streams and not waits:
            raise InputError(f"{where}: no records of an engine there; {EXPECTED}")
        return folder
    return RecordStream(where, [_open(path)])


def _open(path: Path) -> BinaryIO:
    try:
        files.require_regular(path)  # a pipe would have whoever opens it wait for a writer
        return path.open("rb")
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; expected a record that can be read, or - for standard input"
        ) from None
