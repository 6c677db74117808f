"""Of faults that cross a border and that no release mends, nothing is committed that makes a
running server do it: docs/reference/known-faults.md, "What is not in this repository"."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.listed.pages import FOLDER, kept_traces, plain
from cacheproof.reporting.disclosure import OF_CONTENTS, wants_disclosure

ROOT = Path(__file__).resolve().parent.parent
MAKES_KEYS = re.compile(
    r"MultiModal|hash_kwargs|MediaConnector|ChatCompletionRequest|ProcessorInputs|mm_identifier"
    r"|uuid|prompt_embeds|cache_salt|lora_|LoRARequest|ec_connector|base64"
)
OUTSIDE = re.compile(
    r"(?:^|[\s\"'`(=])(?:\.\.[/\\]|/(?!tmp\b)\w|\w:\\)|[/\\]\.\.(?:[/\\]|$)|data:\w+/"
)
"""A path that is absolute or leads upwards, or an URL that holds data."""
OF_THE_SYSTEM = re.compile(r"/etc/(?!systemd/)|/root/|passwd|\.ssh\b")
MEDIA = re.compile(
    r"\.(?:png|jpe?g|gif|webp|tiff?|bmp|wav|mp3|ogg|flac|mp4|webm|avi|npy|npz|pt|pth|bin|pkl|safetensors)$"
)
A_REQUEST = re.compile(r"\"messages\"\s*:|\bcurl\b.*(?:-d\b|--data)")
TARGET_OF_LINK = re.compile(r"\]\([^)]*\)")
PYTHON = re.compile(r"^```python.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


FAULTS = load()
OPEN = [fault for fault in FAULTS if wants_disclosure(fault)]


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts_in(one)


def wrong_in_trace(text: str) -> list[str]:
    """What a trace of such a fault holds and may not."""
    records = [msgspec.json.decode(line) for line in text.splitlines()]
    depth = records[0]["depth"]
    paths = [one for one in texts_in(records) if OUTSIDE.search(one)]
    return [f"depth {depth}"] * (depth in OF_CONTENTS) + paths


def wrong_in_page(text: str, avoid: str) -> list[str]:
    """What the page of such a fault holds and may not, and what it lacks."""
    found = [key for block in PYTHON.findall(text) for key in MAKES_KEYS.findall(block)]
    found += [line for line in TARGET_OF_LINK.sub("]", text).splitlines() if OUTSIDE.search(line)]
    safe = plain(text.partition("**To be safe**: ")[2])
    return found if plain(avoid) in safe else [*found, "how to be safe"]


def page_of(fault: KnownFault) -> str:
    return (FOLDER / fault.name / "page.md").read_text()


def test_faults_that_cross_a_border_are_told_from_others() -> None:
    names = {one.name for one in OPEN}
    assert names >= {"named-by-identifier", "media-hash-identifiers", "another-sound"}
    assert not names & {"salt-adapter", "phantom-entry", "window-hit"}


@pytest.mark.parametrize("fault", OPEN, ids=lambda one: one.name)
def test_a_page_says_how_to_be_safe_and_holds_no_recipe(fault: KnownFault) -> None:
    assert wrong_in_page(page_of(fault), fault.avoid) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("A name.\n\n**To be safe**: drop `it`.", []),
        ("A name.", ["how to be safe"]),
        ("**To be safe**: keep it.", ["how to be safe"]),
        ("`../x`\n\n**To be safe**: drop it.", ["`../x`"]),
        ("[a page](../x.md)\n\n**To be safe**: drop it.", []),
        ("**To be safe**: drop it.\n```python\nh = hash_kwargs\n```\n", ["hash_kwargs"]),
        ("**To be safe**: drop it.\n```python on 0.30.0\nx = base64\n```\n", ["base64"]),
        ("**To be safe**: drop it.\n`data:image/x`", ["`data:image/x`"]),
    ],
)
def test_a_recipe_in_a_page_is_seen(text: str, wrong: list[str]) -> None:
    assert wrong_in_page(text, "drop it") == wrong


@pytest.mark.parametrize("fault", OPEN, ids=lambda one: one.name)
def test_a_trace_states_events_of_a_scheduler_or_of_a_connector(fault: KnownFault) -> None:
    traces = {name: kept_traces()[name].read_text() for name in (*fault.traces, *fault.engines)}
    found = {name: wrong_in_trace(text) for name, text in traces.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_a_trace_of_contents_is_of_a_fault_that_is_mended() -> None:
    mended = {name for one in FAULTS if one.mended_in for name in one.traces}
    unmended = [
        name
        for name, path in kept_traces().items()
        if wrong_in_trace(path.read_text()) and name not in mended
    ]
    assert unmended == []
    assert "salt-adapter" in mended
    assert wrong_in_trace(kept_traces()["salt-adapter"].read_text())


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"depth":"scheduler","items":[{"identifier":"sound 1"}]}', []),
        ('{"depth":"block_hash"}', ["depth block_hash"]),
        ('{"depth":"engine","items":[{"identifier":"x/../y"}]}', ["x/../y"]),
        ('{"depth":"encoder_connector","items":["/x"]}', ["/x"]),
    ],
)
def test_a_recipe_in_a_trace_is_seen(line: str, wrong: list[str]) -> None:
    assert wrong_in_trace(line) == wrong


def named_of_the_system(text: str) -> list[str]:
    return OF_THE_SYSTEM.findall(text)


def test_no_test_names_a_file_of_the_system() -> None:
    """A check that fails would reach it."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    found = {str(path): named_of_the_system(path.read_text()) for path in files}
    assert files
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert named_of_the_system(Path(__file__).read_text())


def told_by_requests_or_media(files: Iterable[tuple[str, str]]) -> list[str]:
    """Names of files that are media, or hold what is posted to a server; each with its text."""
    return [name for name, text in files if MEDIA.search(name) or A_REQUEST.search(text)]


def test_no_request_and_no_picture_lies_beside_the_events_of_a_fault() -> None:
    """What a server is posted, and what it is shown, is made by a seed when it is asked."""
    kept = [path for name in ("docs", "faults") for path in (ROOT / name).rglob("*")]
    kept = [path for path in kept if path.is_file()]
    files = [(path.name, "" if MEDIA.search(path.name) else path.read_text()) for path in kept]
    assert files
    assert told_by_requests_or_media(files) == []
    wrong = [("x.png", ""), ("x.md", '{"messages": []}'), ("x.jsonl", "curl x -d y"), ("y.md", "")]
    assert told_by_requests_or_media(wrong) == ["x.png", "x.md", "x.jsonl"]
