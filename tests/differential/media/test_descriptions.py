"""What is no description of a call is refused in one line that names the place in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import finding_file
from cacheproof.differential.generators.media_hash import pair
from cacheproof.differential.media.descriptions import (
    DEPTH_MAX,
    VALUES_MAX,
    Malformed,
    call,
    check_call,
)
from cacheproof.differential.media.values import (
    array,
    double,
    image,
    integer,
    mapping,
    media,
    none,
    raw,
    real,
    sequence,
    tensor,
    text,
)

HEADER = '{"depth":"media_hash","schema":1,"config":{"algorithm":"sha256"}}'
SHOWN = image("L", (1, 1), b"a")


def deep(levels: int) -> Any:
    value = none()
    for _ in range(levels - 1):
        value = sequence(value)
    return value


def test_what_the_generator_makes_is_well_formed() -> None:
    for seed in range(300):
        _, first, second = pair(seed)
        check_call(first)
        check_call(second)


@pytest.mark.parametrize(
    "value",
    [
        deep(DEPTH_MAX),
        sequence(*[none()] * (VALUES_MAX - 1)),
        array(b"", "<f4", (0, 65_535)),
        array(b"ab" * 4, "<U2", (1,)),
        array(bytes(12), [["a", "<f4", [2]], ["b", "<i4"]], ()),
        tensor(b"", "bfloat16", (0,)),
        image("PA", (1, 1), b"ab", palette=b"abcd", palette_mode="RGBA"),
        mapping((integer(0), none()), ("0", none()), (raw(b"0"), none())),
        media(SHOWN, b"", mapping()),
    ],
)
def test_what_is_within_the_limits_is_taken(value: Any) -> None:
    check_call(call(x=value))


@pytest.mark.parametrize(
    ("value", "where", "words"),
    [
        (None, "", "None; expected"),
        ({}, "", "{}; expected"),
        ({"is": "set"}, "", "'set'; expected"),
        ({"is": ["list"]}, "", "expected"),
        ({"is": "call", "arguments": []}, "", "'call'; expected"),
        ({"is": "none", "value": 1}, "", "expected the fields is"),
        ({"is": "bool", "value": 1}, ".value", "1; expected true or false"),
        ({"is": "int", "value": 1}, ".value", "expected decimal digits in a string"),
        ({"is": "int", "value": "-0"}, ".value", "expected decimal digits"),
        ({"is": "int", "value": "9" * 1001}, ".value", "..."),
        ({"is": "int", "value": "\u0661"}, ".value", "expected decimal digits"),
        ({"is": "float", "bits": "00"}, ".bits", "expected 16 hexadecimal digits"),
        ({"is": "str", "text": None}, ".text", "expected a string"),
        ({"is": "bytes", "hex": "0"}, ".hex", "expected pairs"),
        ({"is": "bytes", "hex": "AB"}, ".hex", "expected pairs"),
        ({"is": "list", "items": {}}, ".items", "expected a list"),
        (sequence(none(), {"is": "x"}), ".items[1]", "'x'; expected"),
        (mapping((SHOWN, none())), ".entries[0][0].is", "expected a key"),
        (mapping((integer(1), none()), (real(1.0), none())), ".entries[1][0]", "no other equals"),
        (
            mapping(
                (double(b"\1" * 6 + b"\xf8\x7f"), none()), (double(b"\1" * 6 + b"\xf8\x7f"), none())
            ),
            ".entries[1][0]",
            "no other equals",
        ),
        ({"is": "map", "entries": [[none()]]}, ".entries[0]", "expected a pair"),
        (deep(DEPTH_MAX + 1), ".items[0]" * DEPTH_MAX, "one value too many"),
        (deep(5000), ".items[0]" * DEPTH_MAX, "one value too many"),
        (sequence(*[none()] * VALUES_MAX), f".items[{VALUES_MAX - 1}]", "one value too many"),
        (array(b"ab", "|u1", (3,)), ".hex", "2 bytes; expected 3"),
        (array(b"ab", "u1", (2,)), ".dtype", "as numpy spells it"),
        (array(b"ab", "<u1", (2,)), ".dtype", "as numpy spells it"),
        (array(b"", "|O", (0,)), ".dtype", "as numpy spells it"),
        (array(b"", "|S99999999", (0,)), ".dtype", "as numpy spells it"),
        (array(b"", [], (0,)), ".dtype", "at least one field"),
        (array(b"", [["", "|u1"]], (0,)), ".dtype[0][0]", "a name of its own"),
        (array(b"", [["a", "|u1"], ["a", "|u1"]], (0,)), ".dtype[1][0]", "a name of its own"),
        (array(b"", [["a", [["b", "|u1"]]]], (0,)), ".dtype[0][1]", "as numpy spells it"),
        (array(b"", [["a", "|u1", []]], (0,)), ".dtype[0][2]", "at least one axis"),
        (array(b"", "|u1", (-1,)), ".shape", "sizes from 0"),
        (array(b"", "|u1", (65_536, 0)), ".shape", "sizes from 0"),
        (array(b"", "|u1", (65_535, 65_535, 0)), ".shape", "multiply beyond"),
        (array(b"", "|u1", (0,) * 9), ".shape", "at most 8 sizes"),
        (array(b"", "|u1", (True,)), ".shape", "at most 8 sizes"),
        (array(b"", "|u1", (0,), "K"), ".layout", "one of C, F, strided"),
        (array(b"\2", "|b1"), ".hex", "00 or 01 for each flag"),
        (tensor(b"", "float128", (0,)), ".dtype", "one of bool"),
        (tensor(b"\2", "bool", (1,)), ".hex", "00 or 01 for each flag"),
        (image("1", (8, 1), b"a"), ".mode", "one of L"),
        (image("L", (65_536, 0), b""), ".size", "sizes from 0"),
        (image("L", (65_535, 65_535), b""), ".size", "multiply beyond"),
        (image("RGB", (1, 1), b"a"), ".hex", "1 bytes; expected 3"),
        (image("L", (1, 1), b"a", palette=b"abc"), ".palette", "null unless the mode is P"),
        (image("P", (1, 1), b"a", palette=b"ab"), ".palette.hex", "1 to 256 whole colours"),
        (image("P", (1, 1), b"a", palette=bytes(771)), ".palette.hex", "1 to 256 whole colours"),
        (image("L", (1, 1), b"a", transparency=True), ".transparency", "0 to 255"),
        (image("L", (1, 1), b"a", transparency=256), ".transparency", "0 to 255"),
        (image("L", (1, 1), b"a", image_id={"uuid": "00"}), ".image_id.uuid", "32 hexadecimal"),
        (image("L", (1, 1), b"a", image_id={}), ".image_id", "expected the fields uuid"),
        (media(none(), b""), ".media.is", "one of image, array, tensor"),
        (media(SHOWN, b"", sequence()), ".io_config", 'null or a "map"'),
    ],
)
def test_a_spoiled_description_is_refused_at_its_place(
    value: Any, where: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(Malformed) as caught:
        check_call(call(x=value))
    said = str(caught.value)
    assert said.startswith(f"$.value.arguments[0][1]{where}: ")
    assert words in said
    assert "expected" in said
    assert said.splitlines() == [said]
    assert len(said) < 400


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "not an event: Expected `object`, got `int` - at `$.value`"),
        ({"is": "none"}, "$.value: ['is']; expected the fields is, arguments"),
        ({"is": "list", "arguments": []}, "$.value.is: 'list'; expected \"call\""),
        ({"is": "call", "arguments": [["cls", none()]]}, "arguments[0][0]: 'cls'; expected a name"),
        ({"is": "call", "arguments": [["a", none()]] * 2}, "arguments[1][0]: 'a'; expected a name"),
        ({"is": "call", "arguments": [[3, none()]]}, "arguments[0][0]: 3; expected a name"),
    ],
)
def test_a_trace_file_is_refused_with_its_line(value: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    good = json.dumps({"event": "hash", "value": call(x=text("a"))})
    bad = json.dumps({"event": "hash", "value": value})
    path.write_text(f"{HEADER}\n{good}\n{bad}\n")
    with pytest.raises(InputError) as caught:
        finding_file.load(path)
    assert str(caught.value).startswith(f"{path} line 3: ")
    assert words in str(caught.value)
