"""Records in which something is not as it was written."""

import io
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.streams import Numbered, Part, RecordStream, folder_or_file
from cacheproof.differential.recording.blocks import MAGIC, framed, pack
from cacheproof.differential.recording.messages import Opened, Raised, Stored, Text

NUMBERS = (-1, 0, 1, 2, 7, 1 << 20, 1 << 40, (1 << 63) - 1)
JUNK = (None, True, -1, 1 << 40, 1.5, float("nan"), "r1", "", b"x", [], [1], [[]], {}, {1: 2})
RECORDS_A_BLOCK = 8


def records_of(folder: Path) -> list[Any]:
    """The records of a scheduler's folder, as arrays and numbers."""
    where = folder_or_file(str(folder))
    (stream,) = where.streams.values()
    parts = list(stream.end())
    assert all(isinstance(part, Numbered) for part in parts)
    return [msgspec.to_builtins(part.message, builtin_types=(bytes,)) for part in parts]


def file_of(records: Sequence[Any], missing: int | None = None) -> bytes:
    """A file of records, without the block that begins with record `missing`."""
    data = MAGIC
    for first in range(0, len(records), RECORDS_A_BLOCK):
        some = records[first : first + RECORDS_A_BLOCK]
        if first != missing:
            data += pack([framed(msgspec.msgpack.encode(one)) for one in some], first)
    return data


def copied(source: Path, folder: Path, text: Text | None, *, is_older: bool = False) -> Path:
    """A scheduler's record that says so of the text of vLLM; one that `is_older` has no such field.
    Returns the folder."""
    (file,) = source.glob("*.cprec")
    opened, *records = records_of(source)
    *before, _ = opened
    opened = before if is_older else [*before, msgspec.to_builtins(text)]
    folder.mkdir()
    (folder / file.name).write_bytes(file_of([opened, *records]))
    return folder


MISS = Raised(
    7, "execute_model", "RuntimeError", "Encoder cache miss for h0", [], "vllm/a.py:3 (b)"
)


def die(folder: Path, step: int, raised: Raised = MISS) -> Path:
    """Beside a scheduler's record that of a worker which raises in a step. Returns the folder."""
    return beside(folder, msgspec.structs.replace(raised, step=step))


def beside(folder: Path, said: Raised | Stored) -> Path:
    """Beside a scheduler's record that of a worker which says that. Returns the folder."""
    (stream,) = folder_or_file(str(folder)).streams.values()
    opened = next(iter(stream.end())).message
    assert isinstance(opened, Opened)
    worker = msgspec.structs.replace(opened, role="worker", manager="", manager_class="")
    records = [worker, said]
    name = f"worker-0-{worker.process}-9-000001.cprec"
    (folder / name).write_bytes(file_of([msgspec.to_builtins(one) for one in records]))
    return folder


def parts_of(data: bytes) -> list[Part]:
    return list(RecordStream("a record", [io.BytesIO(data)]).end())


def audit(parts: Sequence[Part], *, skips: bool) -> Auditor:
    """The audit of them, with or without the short way for steps that say nothing new."""
    auditor = Auditor()
    auditor.skips = skips
    for part in parts:
        auditor.feed(part)
    return auditor


def spoil(records: Sequence[Any], draw: random.Random) -> list[Any]:
    """The records with one to three changes: in one, or among several. The first stays."""
    spoiled = [msgspec.msgpack.decode(msgspec.msgpack.encode(one), strict=False) for one in records]
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(1, len(spoiled) - 1)
        change = draw.choice(("value", "value", "value", "junk", "missing", "swapped", "again"))
        if change == "missing":
            del spoiled[at]
        elif change == "swapped":
            spoiled[at], spoiled[at + 1] = spoiled[at + 1], spoiled[at]
        elif change == "again":
            spoiled.insert(at, spoiled[at])
        else:
            _change(spoiled[at], draw, junk=change == "junk")
    return spoiled


def _change(record: Any, draw: random.Random, *, junk: bool) -> None:
    """Change one value somewhere in a record; its kind, where `junk` is asked for."""
    places = list(_places(record))
    if not places:
        return
    holder, key = draw.choice(places)
    value = holder[key]
    if junk:
        holder[key] = draw.choice(JUNK)
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = draw.choice((value + 1, value - 1, draw.choice(NUMBERS)))
    elif isinstance(value, str):
        holder[key] = draw.choice(("h0", "h1", "h9", "no such name", ""))
    elif isinstance(value, list) and value:
        change = draw.choice((value.pop, value.reverse, lambda: value.append(value[0])))
        change()
    elif isinstance(value, dict) and value:
        value.popitem()
    elif value is None:
        holder[key] = draw.choice(([], 0))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place of a value in it; not the tag of a record."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            if number or not isinstance(one, str) or len(one) > 1:
                yield value, number
                yield from _places(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield value, key
            yield from _places(one)
