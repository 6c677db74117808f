"""A register in a file: JSON Lines, one record a line, that anyone may have edited on the way."""

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

import msgspec

from cacheproof.differential import files
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.register import SCHEMA, FaultRecord, merge
from cacheproof.differential.traces.trace_file import dump, parse

BYTES_MAX = 64 << 20
_RECORD = msgspec.json.Decoder(FaultRecord)
_EXPECTED = "expected a register as cacheproof writes it, see docs/explain/identity.md"


def load(path: Path) -> dict[str, FaultRecord]:
    """The records of a file by identity; one that is not there yet has none.

    Raises:
        InputError: it cannot be read, or a line is no record; one line says what, where, what was
            expected and what to do.
    """
    try:
        lines = files.read(path, BYTES_MAX).splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; {_EXPECTED}") from None
    records: dict[str, FaultRecord] = {}
    for number, line in enumerate(lines, start=1):
        where = f"{path} line {number}"
        record = _record(line, where)
        if record.identity in records:
            raise InputError(f"{where}: {record.identity} stands there twice; {_EXPECTED}")
        records[record.identity] = record
    return records


def save(records: Mapping[str, FaultRecord], path: Path) -> None:
    """Put the records in the place of what is there.

    Raises:
        InputError: the file cannot be written.
    """
    in_order = sorted(records.values(), key=lambda one: (one.contract, one.identity))
    text = b"".join(msgspec.json.encode(one) + b"\n" for one in in_order)
    try:
        files.write(path, text)
    except OSError as error:
        raise _unwritable(path, error) from None


def add(records: Iterable[FaultRecord], path: Path) -> dict[str, FaultRecord]:
    """Merge records into a file, as it is by now: of several processes one after the other. Returns
    all that it has then.

    Raises:
        InputError: it cannot be read or written.
    """
    try:
        with files.alone(path):
            together = merge(load(path), records)
            save(together, path)
            return together
    except OSError as error:
        raise _unwritable(path, error) from None


def day_of(moment: float) -> str:
    """The day of a sighting, from its seconds since 1970."""
    return date.fromtimestamp(moment).isoformat()


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"--register {path}: cannot be written: {error.strerror}; expected a file in a folder that "
        "exists"
    )


def _record(line: bytes, where: str) -> FaultRecord:
    try:
        record = _RECORD.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{where}: no record: {reason}; {_EXPECTED}") from None
    if record.schema != SCHEMA:
        raise InputError(
            f"{where}: schema {record.schema}; this cacheproof reads {SCHEMA}: use the cacheproof "
            "that wrote it"
        )
    parse(dump(record.trace).encode().splitlines(), f"{where} (its trace)")
    return record
