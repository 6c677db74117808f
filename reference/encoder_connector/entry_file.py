"""An encoder output as a file: safetensors, with its key and a digest of both in the header.

Written and read here in one pass, with the digest: the library copies rows once more to write them,
and does not look at what it reads. Rows are their bytes here; whoever has tensors says where those
lie.
"""

import json
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import xxhash

from cacheproof.reference.encoder_connector.entry_key import EntryKey

ROWS = "rows"
METADATA = "__metadata__"
DIGEST = "digest"
HEADER_BYTES_MAX = 1 << 16
PART_BYTES = 1 << 20
"""Of a file, read at a time."""
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}
_LENGTH = struct.Struct("<Q")
_SAFETENSORS_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class Torn(ValueError):
    """A file is not the whole entry of a key; a few words say why."""


class Rows(NamedTuple):
    """The rows of an encoder output: their dtype as torch names it, [rows, hidden], and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


def parts_of(rows: Rows, key: EntryKey) -> list[bytes | memoryview]:
    """The file of an encoder output: its header, and its rows.

    Raises:
        ValueError: the rows are of another dtype or width than the key says, or of a dtype that no
            entry has; or the key is longer than a header may be.
    """
    dtype, shape, data = rows
    if len(shape) != 2 or (dtype, shape[1]) != (key.dtype, key.hidden_size):
        said = ", ".join(["rows", *map(str, shape[1:])])
        raise ValueError(f"{dtype} [{said}]; expected {key.dtype} [rows, {key.hidden_size}]")
    if dtype not in ITEMSIZE:
        raise ValueError(f"{dtype}; expected one of {', '.join(ITEMSIZE)}")
    header = {
        METADATA: {**key.fields, DIGEST: _digest_of(key, data).hexdigest()},
        ROWS: {
            "dtype": _SAFETENSORS_NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [0, len(data)],
        },
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _LENGTH.size)
    if len(text) > HEADER_BYTES_MAX:
        raise ValueError(f"a header that is longer than {HEADER_BYTES_MAX} bytes")
    return [_LENGTH.pack(len(text)) + text, data]


def fault_of(file: BinaryIO, key: EntryKey) -> str | None:
    """Why a file is not the whole entry of that key, in a few words; None: it is. It is read once,
    in parts.

    Raises:
        OSError: it cannot be read.
    """
    try:
        count, digest = _described(file, key)
        size = count * key.hidden_size * ITEMSIZE[key.dtype]
        part = memoryview(bytearray(PART_BYTES))
        _check(file, key, (part[: size - at] for at in range(0, size, PART_BYTES)), digest)
    except Torn as fault:
        return str(fault)
    return None


def load_into(file: BinaryIO, key: EntryKey, room_for: Callable[[int], memoryview]) -> int:
    """Read the rows of an entry into the memory that there is for so many, and say how many.

    Raises:
        Torn: it is not the whole entry of that key.
        OSError: it cannot be read.
    """
    count, digest = _described(file, key)
    data = room_for(count)
    parts = (data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES))
    _check(file, key, parts, digest)
    return count


def load(file: BinaryIO, key: EntryKey) -> Rows:
    """The rows of an entry. Raises as `load_into`."""
    data = bytearray()

    def room_for(count: int) -> memoryview:
        data.extend(bytes(count * key.hidden_size * ITEMSIZE[key.dtype]))
        return memoryview(data)

    count = load_into(file, key, room_for)
    return Rows(key.dtype, (count, key.hidden_size), bytes(data))


def _described(file: BinaryIO, key: EntryKey) -> tuple[int, str]:
    """How many rows follow the header, and their digest. Raises Torn where that is not an entry of
    the key, or where other bytes follow."""
    try:
        header, left = _header(file)
        described, said = header[ROWS], header[METADATA]
        if header.keys() != {ROWS, METADATA} or said.keys() != {*key.fields, DIGEST}:
            raise Torn("a header of other fields")
        other = [name for name, value in key.fields.items() if said[name] != value]
        if other:
            raise Torn(f"the entry of another {other[0]}")
        count, width = described["shape"]
        expected = {
            "dtype": _SAFETENSORS_NAMES[key.dtype],
            "shape": [count, key.hidden_size],
            "data_offsets": [0, left],
        }
        is_count = type(count) is int and count * width * ITEMSIZE[key.dtype] == left
        if described != expected or not is_count:
            raise Torn("a header that speaks of other rows")
    except Torn:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Torn("no header of an entry") from None
    return count, str(said[DIGEST])


def _header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header, and how many bytes follow it."""
    size = os.fstat(file.fileno()).st_size
    (length,) = _LENGTH.unpack(_read(file, _LENGTH.size))
    if length > HEADER_BYTES_MAX:
        raise ValueError("no length")
    header = json.loads(_read(file, length))
    if not isinstance(header, dict):
        raise ValueError("no mapping")
    return header, size - _LENGTH.size - length


def _read(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ValueError("too short")
    return data


def _check(file: BinaryIO, key: EntryKey, parts: Iterator[memoryview], expected: str) -> None:
    """Fill the parts from the file. Raises Torn where it ends before them, or where they are of
    another digest."""
    digest = _digest_of(key)
    for part in parts:
        at = 0
        while at < len(part):
            count = file.readinto(part[at:])  # type: ignore[attr-defined]
            if not count:
                raise Torn("an end before its rows are")
            at += count
        digest.update(part)
    if digest.hexdigest() != expected:
        raise Torn("rows of another digest")


def _digest_of(key: EntryKey, data: bytes | memoryview = b"") -> xxhash.xxh3_128:
    """Of rows that are of that key: one's header before the other's rows has another."""
    digest = xxhash.xxh3_128(key.name.encode())
    digest.update(data)
    return digest
