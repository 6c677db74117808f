"""An encoder output as a file: safetensors, with its key and a digest of both in the header.

Written and read here in one pass, with the digest, by several threads, also while rows are written:
the library copies rows once more to write them, and does not look at what it reads. Rows are their
bytes here; whoever has tensors says where those lie.
"""

import json
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple

import xxhash

from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.part import Late, Part

ROWS = "rows"
METADATA = "__metadata__"
DIGEST = "digest"
HEADER_BYTES_MAX = 1 << 16
PART_BYTES = 1 << 20
"""Bytes of a file that are read at a time."""
SEGMENT_BYTES = 4 << 20
"""Bytes of rows with a digest of their own, so that threads can share the check of an entry."""
THREADS = min(8, os.cpu_count() or 1)
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}
_LENGTH = struct.Struct("<Q")
_DIGEST_DIGITS = 32
_SAFETENSORS_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class Torn(ValueError):
    """A file is not the whole entry of a key; a few words say why."""


class EntryRows(NamedTuple):
    """The rows of an encoder output: their dtype as torch names it, [rows, width], and bytes. The
    width is the hidden size, or a multiple of it where the model adds the output to several of its
    layers (Qwen3-VL's deepstack)."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


def parts_of(rows: EntryRows, key: EntryKey) -> list[Part]:
    """The file of an encoder output: its header, which has the digest of the rows and is late, and
    its rows.

    Raises:
        ValueError: the rows are of another dtype than the key says, or of a width that is no
            multiple of its hidden size, or of a dtype that no entry has; or the key is longer than
            a header may be.
    """
    dtype, shape, data = rows
    if len(shape) != 2 or dtype != key.dtype or not _is_width(shape[1], key):
        said = ", ".join(["rows", *map(str, shape[1:])])
        expected = f"{key.dtype} [rows, N * {key.hidden_size}]"
        raise ValueError(f"{dtype} [{said}]; expected {expected}")
    if dtype not in ITEMSIZE:
        raise ValueError(f"{dtype}; expected one of {', '.join(ITEMSIZE)}")

    def header_of(digest: str) -> bytes:
        header = {
            METADATA: {**key.fields, DIGEST: digest},
            ROWS: {
                "dtype": _SAFETENSORS_NAMES[dtype],
                "shape": list(shape),
                "data_offsets": [0, len(data)],
            },
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % _LENGTH.size)
        return _LENGTH.pack(len(text)) + text

    size = len(header_of("0" * _DIGEST_DIGITS))
    if size - _LENGTH.size > HEADER_BYTES_MAX:
        raise ValueError(f"a header that is longer than {HEADER_BYTES_MAX} bytes")
    view = memoryview(data)
    spans = _segments(len(data))
    threads = ThreadPoolExecutor(min(THREADS, len(spans) or 1))
    digests = [
        threads.submit(xxhash.xxh3_128_digest, view[span.start : span.stop]) for span in spans
    ]
    threads.shutdown(wait=False)  # they end when that is done
    header = Late(size, digests, lambda made: header_of(_digest_of(key, shape[1], made)))
    return [header, data]


def fault_of(file: BinaryIO, key: EntryKey) -> str | None:
    """Why a file is not the whole entry of that key, in a few words; None: it is. It is read once,
    in parts.

    Raises:
        OSError: it cannot be read.
    """
    try:
        rows = _described(file, key)
        rows.check(key, _in_segments(rows.size, lambda span: _read_over(file, rows.start, span)))
    except Torn as fault:
        return str(fault)
    return None


def load_into(
    file: BinaryIO, key: EntryKey, room_for: Callable[[int, int], memoryview]
) -> tuple[int, int]:
    """Read the rows of an entry into memory that `room_for` gives for a number of rows and a width;
    returns both.

    Raises:
        Torn: it is not the whole entry of that key.
        OSError: it cannot be read.
    """
    rows = _described(file, key)
    data = room_for(rows.height, rows.width)
    rows.check(key, _in_segments(len(data), lambda span: _read_into(file, rows.start, span, data)))
    return rows.height, rows.width


def load(file: BinaryIO, key: EntryKey) -> EntryRows:
    """The rows of an entry. Raises as `load_into`."""
    data = bytearray()

    def room_for(count: int, width: int) -> memoryview:
        data.extend(bytes(count * width * ITEMSIZE[key.dtype]))
        return memoryview(data)

    shape = load_into(file, key, room_for)
    return EntryRows(key.dtype, shape, bytes(data))


class _Described(NamedTuple):
    """What a header says of the rows that follow it: how many and how wide they are, from which
    byte on, how many bytes, and their digest."""

    height: int
    width: int
    start: int
    size: int
    digest: str

    def check(self, key: EntryKey, digests: list[bytes]) -> None:
        """Raises Torn where the rows that were read have other digests."""
        if _digest_of(key, self.width, digests) != self.digest:
            raise Torn("rows of another digest")


def _described(file: BinaryIO, key: EntryKey) -> _Described:
    """What the header says. Raises Torn where it is not that of an entry of the key, or where other
    bytes follow."""
    try:
        header, start, left = _header(file)
        described, said = header[ROWS], header[METADATA]
        if header.keys() != {ROWS, METADATA} or said.keys() != {*key.fields, DIGEST}:
            raise Torn("a header of other fields")
        other = [name for name, value in key.fields.items() if said[name] != value]
        if other:
            raise Torn(f"the entry of another {other[0]}")
        count, width = described["shape"]
        expected = {
            "dtype": _SAFETENSORS_NAMES[key.dtype],
            "shape": [count, width],
            "data_offsets": [0, left],
        }
        is_shape = type(count) is int and _is_width(width, key)
        if described != expected or not is_shape or count * width * ITEMSIZE[key.dtype] != left:
            raise Torn("a header that speaks of other rows")
    except Torn:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Torn("no header of an entry") from None
    return _Described(count, width, start, left, str(said[DIGEST]))


def _is_width(width: object, key: EntryKey) -> bool:
    return type(width) is int and width > 0 and width % key.hidden_size == 0


def _header(file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """The header, its end, and how many bytes follow it."""
    size = os.fstat(file.fileno()).st_size
    (length,) = _LENGTH.unpack(_read(file, _LENGTH.size))
    if length > HEADER_BYTES_MAX:
        raise ValueError("no length")
    header = json.loads(_read(file, length))
    if not isinstance(header, dict):
        raise ValueError("no mapping")
    end = _LENGTH.size + length
    return header, end, size - end


def _read(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ValueError("too short")
    return data


def _digest_of(key: EntryKey, width: int, digests: list[bytes]) -> str:
    """The digest of an entry's rows, from those of their segments. Key and width are part of it, so
    that a header does not fit the rows of another entry."""
    return xxhash.xxh3_128_hexdigest(f"{key.name} {width} ".encode() + b"".join(digests))


def _in_segments(size: int, digest_of: Callable[[range], bytes]) -> list[bytes]:
    """The digests of the segments of `size` bytes, in order; computed by several threads."""
    spans = _segments(size)
    if len(spans) < 2:
        return list(map(digest_of, spans))
    with ThreadPoolExecutor(min(THREADS, len(spans))) as threads:
        return list(threads.map(digest_of, spans))


def _segments(size: int) -> list[range]:
    return [range(at, min(at + SEGMENT_BYTES, size)) for at in range(0, size, SEGMENT_BYTES)]


def _read_into(file: BinaryIO, start: int, span: range, data: memoryview) -> bytes:
    """Read a segment to its place in the memory of all rows, and say its digest."""
    digest = xxhash.xxh3_128()
    for at in range(span.start, span.stop, PART_BYTES):
        part = data[at : min(at + PART_BYTES, span.stop)]
        _fill(file, start + at, part)
        digest.update(part)
    return digest.digest()


def _read_over(file: BinaryIO, start: int, span: range) -> bytes:
    """Read a segment, keep nothing of it, and say its digest."""
    digest = xxhash.xxh3_128()
    room = memoryview(bytearray(min(PART_BYTES, len(span))))
    for at in range(span.start, span.stop, PART_BYTES):
        part = room[: span.stop - at]
        _fill(file, start + at, part)
        digest.update(part)
    return digest.digest()


def _fill(file: BinaryIO, at: int, part: memoryview) -> None:
    """Read memory full from a place in the file. Raises Torn where it ends before that."""
    while part:
        count = os.preadv(file.fileno(), [part], at)
        if not count:
            raise Torn("an end before its rows are")
        at += count
        part = part[count:]
