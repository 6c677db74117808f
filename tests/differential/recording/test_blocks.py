"""A block of records is read as it was written, or it is told as a gap and harms no other."""

import io
import struct
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheproof.differential.recording import blocks
from cacheproof.differential.recording.blocks import (
    GARBLED_MAX,
    HEAD,
    MARK,
    RAW_MAX,
    RECORD_MAX,
    BlockReader,
    Garbled,
    RecordBlock,
    framed,
    pack,
)

RECORDS = [[b"first", b""], [b"second" * 40], [bytes(range(256)), MARK, b"\0"], [b"last"]]
"""The records of a file, block by block. One of them looks like the beginning of a block."""


def packed(groups: list[list[bytes]]) -> list[bytes]:
    """A block for each group, numbered through."""
    made, first = [], 0
    for group in groups:
        made.append(pack(list(map(framed, group)), first))
        first += len(group)
    return made


def taken(data: bytes) -> tuple[list[RecordBlock], list[Garbled], int]:
    """The blocks of a whole file, what is garbled between them, and the bytes left at its end."""
    reader = BlockReader(io.BytesIO(data))
    found = [*reader.read(), *reader.end()]
    whole = [one for one in found if isinstance(one, RecordBlock)]
    return whole, [one for one in found if isinstance(one, Garbled)], reader.held


def numbers(found: list[RecordBlock]) -> list[int]:
    return [one.first for one in found]


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=20), max_size=8))
def test_any_records_come_back_as_they_were_written(groups: list[list[bytes]]) -> None:
    whole, garbled, held = taken(b"".join(packed(groups)))
    assert [one.records for one in whole] == groups
    assert numbers(whole) == [sum(map(len, groups[:place])) for place in range(len(groups))]
    assert (garbled, held) == ([], 0)


def test_a_file_cut_at_any_byte_yields_its_whole_blocks_and_what_is_left() -> None:
    parts = packed(RECORDS)
    data = b"".join(parts)
    ends = [sum(map(len, parts[: place + 1])) for place in range(len(parts))]
    for cut in range(len(data) + 1):
        whole, garbled, held = taken(data[:cut])
        count = sum(end <= cut for end in ends)
        assert [one.records for one in whole] == RECORDS[:count]
        assert garbled == []
        assert held == cut - (ends[count - 1] if count else 0)


def test_one_flipped_bit_costs_the_block_that_it_is_in_and_no_other() -> None:
    parts = packed(RECORDS)
    for damaged in range(len(parts)):
        others = [number for number in range(len(parts)) if number != damaged]
        for bit in range(8 * len(parts[damaged])):
            flipped = bytearray(parts[damaged])
            flipped[bit // 8] ^= 1 << bit % 8
            data = b"".join([*parts[:damaged], bytes(flipped), *parts[damaged + 1 :]])
            whole, garbled, held = taken(data)
            assert [one.records for one in whole] == [RECORDS[number] for number in others]
            lost = sum(one.bytes for one in garbled) + held
            assert lost == len(parts[damaged])


def test_without_its_checksum_a_flipped_bit_is_taken_for_what_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "_checksum", lambda *_: 0)
    (part,) = packed([[b"first"]])
    flipped = bytearray(part)
    flipped[HEAD.size - 12] ^= 1  # of the number of its first record
    (block,), _, _ = taken(bytes(flipped))
    assert block.first == 1


@given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_bytes_that_are_no_block_are_skipped_and_counted(before: bytes, after: bytes) -> None:
    (part,) = packed([[b"kept"]])
    whole, garbled, held = taken(before + part + after)
    assert [one.records for one in whole] == [[b"kept"]]
    assert sum(one.bytes for one in garbled) + held == len(before) + len(after)


def forged(raw: bytes, raw_length: int, count: int) -> bytes:
    """A block with a right checksum, whatever its head says of what is in it."""
    return of_payload(zlib.compress(raw), raw_length, count)


def of_payload(payload: bytes, raw_length: int, count: int) -> bytes:
    crc = blocks._checksum(payload, raw_length, 0, count)
    return HEAD.pack(MARK, len(payload), raw_length, crc, 0, count) + payload


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (forged(framed(b"a"), 4, 1), "another length than its head says"),
        (forged(framed(b"a"), 6, 1), "another length than its head says"),
        (forged(framed(b"a"), 5, 2), "another number of records than its head says"),
        (forged(b"\1\0", 2, 1), "a record without its length"),
        (forged(struct.pack("<I", 2) + b"a", 5, 1), "a record longer than its block"),
        (forged(struct.pack("<I", RECORD_MAX + 1), 4, 1), "a record longer than its block"),
        (forged(b"", 0, 0), "a block of an impossible length"),
        (forged(b"a", RAW_MAX + 1, 1), "a block of an impossible length"),
        (HEAD.pack(MARK, RAW_MAX + 1, 5, 0, 0, 1), "a block of an impossible length"),
        (of_payload(b"no stream", 9, 1), "no zlib stream"),
        (of_payload(zlib.compress(framed(b"a"))[:-2], 5, 1), "another length than its head says"),
    ],
)
def test_a_block_that_is_not_what_its_head_says_is_told_and_the_next_is_read(
    block: bytes, why: str
) -> None:
    (after,) = packed([[b"after"]])
    whole, (garbled,), held = taken(block + after)
    assert [one.records for one in whole] == [[b"after"]]
    assert garbled.bytes == len(block)
    assert garbled.why.startswith(why)
    assert held == 0


BOMB = """
import io, resource, sys, zlib
from cacheproof.differential.recording import blocks
GIB = 1 << 30
deflater = zlib.compressobj(9)
zeros = bytes(1 << 20)
payload = b"".join(deflater.compress(zeros) for _ in range(2 << 10)) + deflater.flush()
assert len(payload) < blocks.RAW_MAX
crc = blocks._checksum(payload, blocks.RAW_MAX, 0, 1)
head = blocks.HEAD.pack(blocks.MARK, len(payload), blocks.RAW_MAX, crc, 0, 1)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), size + (64 << 20)))
reader = blocks.BlockReader(io.BytesIO(head + payload))
found = [*reader.read(), *reader.end()]
print(found, reader.held == len(head) + len(payload))
if sys.argv[1:]:
    zlib.decompress(payload)
"""


@pytest.mark.full
def test_a_block_that_inflates_to_gigabytes_is_refused_in_64_mib() -> None:
    ran = subprocess.run([sys.executable, "-c", BOMB], capture_output=True, text=True, check=True)
    assert ran.stdout == "[] True\n"


@pytest.mark.full
def test_the_limit_of_that_test_ends_what_inflates_all() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", BOMB, "all"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "\nMemoryError" in ran.stderr


def test_a_block_that_is_still_being_written_is_read_when_it_is_whole() -> None:
    first, second = packed([[b"a"], [b"b"]])
    stream = io.BytesIO()
    reader = BlockReader(stream)
    read: list[RecordBlock | Garbled] = []
    for byte in first + second:
        place = stream.tell()
        stream.seek(0, io.SEEK_END)
        stream.write(bytes([byte]))
        stream.seek(place)
        read += reader.read()
    assert read == [RecordBlock(0, [b"a"]), RecordBlock(1, [b"b"])]


def test_a_file_of_heads_alone_is_read_to_its_end() -> None:
    head = HEAD.pack(MARK, 1 << 20, 1 << 20, 0, 0, 1)
    reader = BlockReader(io.BytesIO(head * (8 * GARBLED_MAX) + b"\0" * (2 << 20)))
    found = [*reader.read(), *reader.end()]
    assert not any(isinstance(one, RecordBlock) for one in found)
    assert reader.held
