"""Entries of encoder outputs: what is not whole, or another's, is named and never loaded."""

import json
import os
import random
import struct
from contextlib import nullcontext
from dataclasses import replace
from typing import BinaryIO

import pytest
import safetensors.torch
import torch

from cacheproof.gpu_runner.encoder_connector.entry_file import TensorCodec
from cacheproof.reference.encoder_connector import entry_file
from cacheproof.reference.encoder_connector.entry_file import Torn, fault_of
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.part import whole

KEY = EntryKey("a picture", "llava", "main", "3", "float32", 4)
HOSTILE = 1000
CODEC = TensorCodec("cpu")


def entry(key: EntryKey = KEY, count: int = 3) -> tuple[torch.Tensor, bytes]:
    rows = torch.randn(count, key.hidden_size, generator=torch.Generator().manual_seed(count))
    rows = rows.to(getattr(torch, key.dtype))
    return rows, whole(CODEC.parts_of(rows, key))


def file_of(data: bytes) -> BinaryIO:
    """A file of these bytes, in memory."""
    file = os.fdopen(os.memfd_create("entry"), "w+b", buffering=0)
    file.write(data)
    file.seek(0)
    return file


def fault(data: bytes, key: EntryKey = KEY) -> str | None:
    """Why it is not the key's entry, as whoever loads it is told too."""
    with file_of(data) as file, file_of(data) as other:
        found = fault_of(file, key)
        with nullcontext() if found is None else pytest.raises(Torn, match=found):
            CODEC.load(other, key)
        return found


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("count", [0, 1, 300])
def test_rows_come_back_to_the_last_bit(dtype: str, count: int) -> None:
    key = replace(KEY, dtype=dtype)
    rows, data = entry(key, count)
    assert fault(data, key) is None
    with file_of(data) as file:
        assert torch.equal(CODEC.load(file, key), rows)
    assert torch.equal(safetensors.torch.load(data)["rows"], rows)


def test_rows_on_a_device_come_back_one_after_the_other(device: torch.device) -> None:
    """Its codec keeps the memory that they go through."""
    codec = TensorCodec(device)
    entries = []
    for count in (3, 300, 7):
        rows = entry(count=count)[0].to(device)
        entries.append((rows, whole(codec.parts_of(rows, KEY))))
        assert entries[-1][1] == entry(count=count)[1]
    loaded = []
    for _, data in entries:
        with file_of(data) as file:
            loaded.append(codec.load(file, KEY))
    for (rows, _), found in zip(entries, loaded, strict=True):
        assert found.device.type == device.type
        assert torch.equal(found, rows)


def test_of_many_segments_each_byte_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_file, "SEGMENT_BYTES", 64)
    monkeypatch.setattr(entry_file, "PART_BYTES", 24)
    rows, data = entry(count=33)
    assert fault(data) is None
    start = len(data) - rows.nbytes
    for at in range(start, len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        assert fault(bytes(changed)) == "rows of another digest"
    first, second = data[start : start + 64], data[start + 64 : start + 128]
    assert fault(data[:start] + second + first + data[start + 128 :]) == "rows of another digest"


@pytest.mark.parametrize("field", ["identifier", "model", "revision", "weights"])
def test_an_entry_of_another_key_is_named_by_what_differs(field: str) -> None:
    _, data = entry()
    assert fault(data, replace(KEY, **{field: "another"})) == f"the entry of another {field}"


@pytest.mark.parametrize("changed", [{"dtype": "float16"}, {"hidden_size": 3}, {"hidden_size": 8}])
def test_rows_of_another_dtype_or_width_are_neither_kept_nor_served(changed) -> None:
    rows, data = entry()
    other = replace(KEY, **changed)
    assert fault(data, other) is not None
    with pytest.raises(ValueError, match="expected"):
        CODEC.parts_of(rows, other)
    relabelled = data.replace(*(f'"{one}"'.encode() for one in _labels(changed)))
    assert fault(relabelled, other) is not None


def test_rows_of_several_layers_are_kept_with_their_width() -> None:
    rows = torch.randn(5, 3 * KEY.hidden_size)
    data = whole(CODEC.parts_of(rows, KEY))
    with file_of(data) as file:
        assert torch.equal(CODEC.load(file, KEY), rows)
    for height, width in [(15, 4), (3, 20), (1, 60), (5, 8), (10, 6), (5, 0), (5, -12)]:
        assert fault(data.replace(b"[5, 12]", b"[%d, %d]" % (height, width)), KEY) is not None
    narrower = replace(KEY, hidden_size=2)
    assert fault(data, narrower) == "the entry of another hidden_size"


def _labels(changed) -> tuple[str, str]:
    ((field, value),) = changed.items()
    return str(getattr(KEY, field)), str(value)


@pytest.mark.parametrize("count", ["3.0", "true", "-3", "NaN", "Infinity", '"3"', "null", "[3]"])
def test_a_count_of_rows_is_a_whole_number(count: str) -> None:
    for rows in (1, 3):
        _, data = entry(count=rows)
        text = f'"shape": [{rows}, 4]'.encode()
        assert data.count(text) == 1
        other = data.replace(text, f'"shape": [{count}, 4]'.encode())
        length = struct.unpack_from("<Q", data)[0] + len(other) - len(data)
        assert fault(struct.pack("<Q", length) + other[8:]) is not None


def test_a_key_that_is_longer_than_a_header_is_not_kept() -> None:
    rows, _ = entry()
    key = replace(KEY, identifier="x" * (1 << 16))
    with pytest.raises(ValueError, match="longer than 65536 bytes"):
        CODEC.parts_of(rows, key)


def test_no_byte_can_be_missing_added_or_changed() -> None:
    _, data = entry()
    for length in range(len(data)):
        assert fault(data[:length]) is not None, length
    assert fault(data + b"x") is not None
    padding = range(data.rindex(b"}", 0, _start(data)) + 1, _start(data))
    for place in range(len(data)):
        other = bytearray(data)
        other[place] ^= 1
        assert fault(bytes(other)) is not None or place in padding, place


def _start(data: bytes) -> int:
    return 8 + struct.unpack_from("<Q", data)[0]


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 60_000,
        b'{"rows":' * 8_000,
        b"\xff\xfe",
        b'{"rows":{},"__metadata__":{}}',
        b'{"rows":null,"__metadata__":null}',
        json.dumps({"rows": {"shape": [9] * 99}, "__metadata__": KEY.fields}).encode(),
        b'{"rows":{"shape":[' + b"9" * 5000 + b',4]},"__metadata__":{}}',
    ],
)
@pytest.mark.parametrize("length", [None, 0, 1 << 16, 1 << 63, (1 << 64) - 1])
def test_a_hostile_header_is_a_fault(header: bytes, length: int | None) -> None:
    said = len(header) if length is None else length
    assert fault(struct.pack("<Q", said) + header + bytes(48)) is not None


def test_hostile_entries_are_faults_and_never_exceptions() -> None:
    draw = random.Random(11)
    rows, data = entry()
    for _ in range(HOSTILE):
        other = bytearray(data)
        for _ in range(draw.choice([1, 1, 2, 8, 200])):
            place = draw.randrange(len(other) + 1)
            match draw.randrange(4):
                case 0:
                    other[place : place + 1] = bytes([draw.randrange(256)])
                case 1:
                    del other[place : place + draw.randrange(1, 40)]
                case 2:
                    other[place:place] = draw.choice([b'"', b"{", b"}", b"9", b"\\u0000", b"rows"])
                case _:
                    end = draw.randrange(place, len(other) + 1)
                    other[place:end] = bytes(reversed(other[place:end]))
        if fault(bytes(other)) is None:
            assert torch.equal(safetensors.torch.load(bytes(other))["rows"], rows)
