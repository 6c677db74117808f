"""Spoiled trace files: each is refused in one line that names the place."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import finding_file
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.traces.base import MAX_BLOCKS
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import MAX_LINE, dump, parse

EVENTS = 12
SEEDS = range(40)
Lines = list[bytes]
Spoil = Callable[[Lines, random.Random], int]
"""Spoils the lines of a trace in place; returns the number of the line that is at fault."""


def lines_of(seed: int) -> Lines:
    """A short trace: of a manager, of an encoder-decoder manager, or of a scheduler."""
    kinds = (manager_trace, lambda s: manager_trace(s, "encoder_decoder"), scheduler_trace)
    trace = kinds[seed % 3](seed)
    return dump(trace.with_events(trace.events[:EVENTS])).encode().splitlines()


def load(lines: Lines, path: Path) -> Trace:
    path.write_bytes(b"\n".join(lines))
    loaded = finding_file.load(path)
    assert isinstance(loaded, Trace)
    return loaded


def changed(line: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode()


def without(line: bytes, field: str) -> bytes:
    return json.dumps({k: v for k, v in json.loads(line).items() if k != field}).encode()


def in_config(**fields: Any) -> Spoil:
    def spoil(lines: Lines, rng: random.Random) -> int:
        config = json.loads(lines[0])["config"]
        lines[0] = changed(lines[0], config={**config, **fields})
        return 1

    return spoil


def header(**fields: Any) -> Spoil:
    def spoil(lines: Lines, rng: random.Random) -> int:
        lines[0] = changed(lines[0], **fields)
        return 1

    return spoil


def headless(field: str) -> Spoil:
    def spoil(lines: Lines, rng: random.Random) -> int:
        lines[0] = without(lines[0], field)
        return 1

    return spoil


def some_line(raw: bytes) -> Spoil:
    """In place of any line, the header too."""

    def spoil(lines: Lines, rng: random.Random) -> int:
        number = rng.randrange(len(lines))
        lines[number] = raw
        return number + 1

    return spoil


def some_event(raw: bytes) -> Spoil:
    def spoil(lines: Lines, rng: random.Random) -> int:
        number = rng.randrange(1, len(lines))
        lines[number] = raw
        return number + 1

    return spoil


def some_event_with(**fields: Any) -> Spoil:
    def spoil(lines: Lines, rng: random.Random) -> int:
        number = rng.randrange(1, len(lines))
        lines[number] = changed(lines[number], **fields)
        return number + 1

    return spoil


def truncated(lines: Lines, rng: random.Random) -> int:
    number = rng.randrange(len(lines))
    lines[number] = lines[number][: rng.randrange(1, len(lines[number]))]
    del lines[number + 1 :]
    return number + 1


def with_prefix(prefix: bytes) -> Spoil:
    def spoil(lines: Lines, rng: random.Random) -> int:
        lines[0] = prefix + lines[0]
        return 1

    return spoil


def two_in_one_line(lines: Lines, rng: random.Random) -> int:
    number = rng.randrange(len(lines) - 1)
    lines[number : number + 2] = [lines[number] + lines[number + 1]]
    return number + 1


def header_twice(lines: Lines, rng: random.Random) -> int:
    lines.insert(1, lines[0])
    return 2


def no_header(lines: Lines, rng: random.Random) -> int:
    del lines[0]
    return 1


def nothing(lines: Lines, rng: random.Random) -> int:
    lines[:] = rng.choice([[], [b""], [b" ", b"\t", b""]])
    return 1


def other_depth(lines: Lines, rng: random.Random) -> int:
    at_manager_depth = json.loads(lines[0])["depth"] == "manager"
    return some_event(
        rng.choice(
            [b'{"event":"schedule"}', b'{"event":"abort","request":"a"}']
            if at_manager_depth
            else [b'{"event":"notices"}', b'{"event":"walk","request":"a","tokens":1}']
        )
    )(lines, rng)


def added(**fields: Any) -> Spoil:
    """A well-formed request with one thing wrong, at the end."""
    item = {"identifier": "x", "offset": 0, "length": 4}
    add = {"event": "add", "request": "spoiled", "prompt": 8, "items": [item]}

    def spoil(lines: Lines, rng: random.Random) -> int:
        lines.append(json.dumps({**add, **fields}).encode())
        return len(lines)

    return spoil


def item(**fields: Any) -> Spoil:
    return added(items=[{"identifier": "x", "offset": 0, "length": 4, **fields}])


def overlapping(lines: Lines, rng: random.Random) -> int:
    one = {"identifier": "x", "offset": 0, "length": 4}
    return added(items=[one, {**one, "offset": rng.randrange(4)}])(lines, rng)


def same_request_twice(lines: Lines, rng: random.Random) -> int:
    added()(lines, rng)
    return added()(lines, rng)


DEEP = 10_000
HUGE = 10**400
SPOILED: dict[str, Spoil] = {
    "truncated": truncated,
    "two in one line": two_in_one_line,
    "header twice": header_twice,
    "header missing": no_header,
    "empty": nothing,
    "byte order mark": with_prefix(b"\xef\xbb\xbf"),
    "UTF-16": with_prefix(b"\xff\xfe"),
    "binary": some_line(bytes(range(14, 256))),
    "zeros": some_line(b"\0" * 64),
    "invalid UTF-8": some_line(b'{"event":"finish","request":"\xff\xc3("}'),
    "lone surrogate": some_event(b'{"event":"finish","request":"\\ud800"}'),
    "NaN": some_event(b'{"event":"walk","request":"a","tokens":NaN}'),
    "Infinity": some_event(b'{"event":"walk","request":"a","tokens":-Infinity}'),
    "a word": some_line(b"hello"),
    "null": some_line(b"null"),
    "a number": some_line(b"17"),
    "a string": some_line(b'"add"'),
    "a list": some_line(b"[1, 2]"),
    "empty object": some_line(b"{}"),
    "unclosed string": some_line(b'{"event":"add'),
    "comment": some_line(b"# a comment"),
    "deep brackets": some_line(b"[" * DEEP),
    "deep closed brackets": some_line(b"[" * DEEP + b"]" * DEEP),
    "deep objects": some_line(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "deep items": some_event(b'{"event":"add","request":"a","prompt":1,"items":' + b"[" * DEEP),
    "unknown event": some_event(b'{"event":"explode"}'),
    "event of a wrong type": some_event(b'{"event":3}'),
    "event without a tag": some_event(b'{"request":"a"}'),
    "unknown field": some_event_with(colour="red"),
    "unknown header field": header(colour="red"),
    "unknown configuration field": in_config(colour="red"),
    "event of the other depth": other_depth,
    "newer schema": header(schema=2, config={"of": "the future"}),
    "schema zero": header(schema=0),
    "schema as a word": header(schema="1"),
    "schema as a truth value": header(schema=True),
    "schema missing": headless("schema"),
    "depth missing": headless("depth"),
    "configuration missing": headless("config"),
    "unknown depth": header(depth="kernel"),
    "unknown manager": header(manager="block_pool"),
    "seed as a word": header(seed="first"),
    "generator with a line break": header(generator="a\nb"),
    "capacity zero": in_config(capacity=0),
    "capacity huge": in_config(capacity=HUGE),
    "capacity fractional": in_config(capacity=4.5),
    "budget negative": in_config(compute_budget=-1),
    "budget null": in_config(compute_budget=None),
    "prompt zero": added(prompt=0),
    "prompt huge": added(prompt=HUGE),
    "prompt as a word": added(prompt="8"),
    "request empty": added(request=""),
    "request a number": added(request=7),
    "request too long": added(request="a" * 257),
    "request with a line break": added(request="a\nb"),
    "request with an escape": added(request="\x1b[2J"),
    "request added twice": same_request_twice,
    "items a number": added(items=3),
    "item a word": added(items=["x"]),
    "item without a length": added(items=[{"identifier": "x", "offset": 0}]),
    "items overlap": overlapping,
    "item past the prompt": item(offset=5),
    "offset negative": item(offset=-1),
    "length zero": item(length=0),
    "mask shorter": item(is_embed=[True]),
    "mask empty": item(is_embed=[]),
    "mask longer": item(is_embed=[True] * 5),
    "mask of numbers": item(is_embed=[1, 0, 1, 1]),
    "identifier with a line separator": item(identifier="a\u2028b"),
    "hash with a line break": item(mm_hash="a\r"),
}


def refusal(lines: Lines, path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(lines, path)
    return str(caught.value)


def attempt(path: Path) -> tuple[Any, str]:
    try:
        return finding_file.load(path), ""
    except InputError as error:
        return None, str(error)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SPOILED)
def test_garbage_is_refused_in_one_line_that_names_the_place(name: str, tmp_path: Path) -> None:
    """With every seed: 1,000 files and more in all."""
    path = tmp_path / "spoiled.jsonl"
    for seed in SEEDS:
        lines = lines_of(seed)
        number = SPOILED[name](lines, random.Random(seed))
        said = refusal(lines, path)
        assert said.startswith(f"{path} line {number}: ")
        assert "expected" in said
        assert said.splitlines() == [said]
        assert len(said) < 500 + len(str(path))


def test_the_garbage_is_a_thousand_files_and_more() -> None:
    assert len(SPOILED) * len(SEEDS) >= 1000


def test_a_line_of_nine_megabytes_is_refused(tmp_path: Path) -> None:
    lines = [*lines_of(0), b'{"event":"finish","request":"' + b"a" * 9 * 2**20 + b'"}']
    said = refusal(lines, tmp_path / "spoiled.jsonl")
    assert f"line {len(lines)}: " in said
    assert f"expected at most {MAX_LINE}" in said


def test_a_file_too_large_to_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spoiled.jsonl"
    with path.open("wb") as file:
        file.truncate(finding_file.MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger than 64 MiB"):
        finding_file.load(path)


def test_more_blocks_than_memory_holds_are_refused() -> None:
    lines = lines_of(2)
    in_config(num_blocks=MAX_BLOCKS + 1)(lines, random.Random(0))
    with pytest.raises(InputError, match="num_blocks"):
        parse(lines, "trace")


@pytest.mark.parametrize("kind", ["sliding_window", "chunked_local"])
def test_a_window_of_no_tokens_is_refused(kind: str) -> None:
    lines = lines_of(2)
    group = {"kind": kind, "block_size": 16, "window": 0}
    in_config(groups=[group])(lines, random.Random(0))
    with pytest.raises(InputError, match=f"group 0 is {kind} with a window of 0 tokens; expected"):
        parse(lines, "trace")
    in_config(groups=[{**group, "window": 1}])(lines, random.Random(0))
    assert parse(lines, "trace")


def test_another_schema_version_is_named_before_anything_else_in_the_header() -> None:
    lines = lines_of(0)
    header(schema=2, config={"of": "the future"})(lines, random.Random(0))
    with pytest.raises(InputError, match="schema version 2; expected 1"):
        parse(lines, "trace")


@pytest.mark.parametrize("seed", range(9))
def test_what_was_dumped_comes_back(seed: int) -> None:
    lines = lines_of(seed)
    assert dump(parse(lines, "trace")).encode().splitlines() == lines


def test_blank_lines_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    lines = lines_of(0)
    spaced = [part for line in lines for part in (line + b"\r", b"")]
    assert load(spaced, tmp_path / "spaced.jsonl") == parse(lines, "trace")


@pytest.mark.full
def test_random_damage_is_refused_in_one_line_or_leaves_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "damaged.jsonl"
    refused = 0
    for seed in range(2000):
        rng = random.Random(seed)
        data = bytearray(b"\n".join(lines_of(seed % 30)))
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data))
            damage = rng.choice((b"", bytes([rng.randrange(256)]), b'"', b"]", b"9", b"\n", b"\\"))
            data[at : at + rng.choice((0, 1, 1, 5))] = damage
        path.write_bytes(data)
        loaded, said = attempt(path)
        if loaded is None:
            refused += 1
            assert said.startswith(f"{path} line ")
            assert said.splitlines() == [said]
        else:
            assert parse(dump(loaded).encode().splitlines(), "again") == loaded
    assert 500 < refused < 2000


@pytest.mark.parametrize(("name", "content"), [("y", 0), ("x", 1)])
def test_an_item_that_the_header_does_not_have_is_refused(name: str, content: int) -> None:
    lines = (
        b'{"depth":"front_end","schema":1,"config":{"items":[{"name":"x","sizes":[1]}],"capacity":4}}',
        f'{{"event":"process","request":"a","items":[{{"name":"{name}","content":{content}}}]}}'.encode(),
    )
    with pytest.raises(
        InputError, match=rf"line 2: item '{name}' with content {content}; expected"
    ):
        parse(lines, "trace")


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"modality": "image_embeds", "content": None, "uuid": "u"}], "rows without content"),
        ([{"modality": "image_embeds"}, {}], "pictures and rows of pictures in one request"),
        ([{"content": None}], "without content and uuid"),
    ],
)
def test_an_item_that_no_client_can_send_is_refused(
    items: list[dict[str, object]], said: str
) -> None:
    header = {"depth": "media_identifier", "schema": 1, "config": {}}
    event = {"event": "name", "request": "r", "items": items}
    lines = [json.dumps(one).encode() for one in (header, event)]
    with pytest.raises(InputError, match=said):
        parse(lines, "trace")
