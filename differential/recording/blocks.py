"""The file of a record: a magic line, then blocks of records, each compressed and checked.

A block is a head of 28 bytes, little-endian: the mark, the length of its compressed payload, the
length of what is in it, a CRC-32, the number of its first record, and how many it has. The checksum
is that of the other numbers, and of the payload after them.
The payload is a zlib stream of records, each after its length in four bytes. Records are numbered
through all files of a process, those too that were lost: a jump is a loss. A reader finds the next
block by its mark.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MAGIC = b"cacheproof-record 1\n"
MARK = b"\xc5\x9bCP"
HEAD = struct.Struct("<4sIIIQI")
_NUMBERS = struct.Struct("<IIQI")
_LENGTH = struct.Struct("<I")
RAW_MAX = 8 << 20
"""Bytes of records in a block, at most."""
RECORD_MAX = 4 << 20
GARBLED_MAX = 500
"""Blocks that are searched for others within them; of a file with more, each is passed over whole,
so that one made of heads alone takes no time without end."""
_CHUNK = 1 << 16


class RecordBlock(NamedTuple):
    """Records that follow each other, the first of number `first`."""

    first: int
    records: list[bytes]


class Garbled(NamedTuple):
    """A number of bytes that are no block, and why the first of them is none."""

    bytes: int
    why: str


def framed(record: bytes) -> bytes:
    """A record as it stands in a payload."""
    return _LENGTH.pack(len(record)) + record


def pack(frames: list[bytes], first: int) -> bytes:
    """A block of framed records."""
    raw = b"".join(frames)
    payload = zlib.compress(raw, 1)
    crc = _checksum(payload, len(raw), first, len(frames))
    return HEAD.pack(MARK, len(payload), len(raw), crc, first, len(frames)) + payload


def _checksum(payload: bytes, raw_length: int, first: int, count: int) -> int:
    return zlib.crc32(payload, zlib.crc32(_NUMBERS.pack(len(payload), raw_length, first, count)))


def unpack(payload: bytes, raw_length: int, count: int) -> list[bytes]:
    """The records of a payload whose checksum is right.

    Raises:
        ValueError: it is not what its head says.
    """
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(payload, raw_length + 1)
    except zlib.error as error:
        raise ValueError(f"no zlib stream: {error}") from None
    if len(raw) != raw_length or not inflater.eof:
        raise ValueError("another length than its head says")
    records = []
    at = 0
    while at < raw_length:
        if at + _LENGTH.size > raw_length:
            raise ValueError("a record without its length")
        (length,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        if length > RECORD_MAX or at + length > raw_length:
            raise ValueError("a record longer than its block")
        records.append(raw[at : at + length])
        at += length
    if len(records) != count:
        raise ValueError("another number of records than its head says")
    return records


class BlockReader:
    """Blocks of a stream, as far as it has come. `held` is what no block has been made of yet: a
    block that is still being written, or the torn end of a file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._skipped = 0
        self._why = ""
        self._garbled = 0

    @property
    def held(self) -> int:
        """Bytes after the last whole block."""
        return len(self._buffer) + self._skipped

    def read(self) -> Iterator[RecordBlock | Garbled]:
        """Whole blocks up to the end of what is there now; may be asked again for more."""
        while True:
            chunk = self._stream.read(_CHUNK)
            self._buffer += chunk
            yield from self._take()
            if not chunk:
                return

    def end(self) -> Iterator[RecordBlock | Garbled]:
        """Nothing more will come: what is left is read without waiting for the rest of a block."""
        while len(self._buffer) >= HEAD.size:
            self._skip(1, "a block that is torn off")
            yield from self._take()

    def _take(self) -> Iterator[RecordBlock | Garbled]:
        while True:
            at = self._buffer.find(MARK)
            if at < 0:
                self._skip(max(0, len(self._buffer) - len(MARK) + 1), "no block begins there")
                return
            self._skip(at, "no block begins there")
            if len(self._buffer) < HEAD.size:
                return
            _, length, raw_length, crc, first, count = HEAD.unpack_from(self._buffer)
            if not 0 < raw_length <= RAW_MAX or not 0 < length <= RAW_MAX:
                self._skip(len(MARK), "a block of an impossible length")
                continue
            if len(self._buffer) < HEAD.size + length:
                return
            payload = bytes(self._buffer[HEAD.size : HEAD.size + length])
            try:
                if _checksum(payload, raw_length, first, count) != crc:
                    raise ValueError("another checksum than its head says")
                records = unpack(payload, raw_length, count)
            except ValueError as error:
                self._garbled += 1
                is_usual = self._garbled <= GARBLED_MAX
                self._skip(len(MARK) if is_usual else HEAD.size + length, str(error))
                continue
            if self._skipped:
                yield Garbled(self._skipped, self._why)
                self._skipped = 0
            del self._buffer[: HEAD.size + length]
            yield RecordBlock(first, records)

    def _skip(self, count: int, why: str) -> None:
        if count > 0:
            if not self._skipped:
                self._why = why
            del self._buffer[:count]
            self._skipped += count
