"""Finding files that people edited: each is refused in one line, or shown without a stumble."""

import copy
import io
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import finding_file, report
from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.semantics import Semantics
from tests.front.conftest import Run

Place = tuple[str | int, ...]
"""The keys that lead to a field or an element."""

JUNK = (None, 3, -1, 1.5, "x", "", [], {}, True, 10**30, 1e300, "a\nb\x1b[2J", "[/red]", [[[]]])
TIMES = 10


@pytest.fixture(scope="module")
def finding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repeated item that is released too early, as a file."""
    target = ReferenceTarget(Semantics.of_vllm("0.28.0"), name="reference@0.28.0", release="0.28.0")
    found = next(
        one for seed in range(50) if (one := found_in(target, manager_trace(seed), "EC-6a"))
    )
    return finding_file.save(found, tmp_path_factory.mktemp("findings"))[0]


def places(content: object, before: Place = ()) -> Iterator[Place]:
    """Every field and every element, as the keys that lead there."""
    inside: Iterable[tuple[str | int, object]] = ()
    if isinstance(content, dict):
        inside = content.items()
    elif isinstance(content, list):
        inside = enumerate(content)
    for key, value in inside:
        yield (*before, key)
        yield from places(value, (*before, key))


def spoiled(content: Any, place: Place, value: object) -> Any:
    result = copy.deepcopy(content)
    inner = result
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return result


def load(path: Path) -> Finding | str:
    """The finding, or the line that refuses it."""
    try:
        found = finding_file.load(path)
    except InputError as error:
        return str(error)
    assert isinstance(found, Finding)
    return found


def test_every_field_may_hold_junk(finding: Path, tmp_path: Path) -> None:
    content, path = json.loads(finding.read_text()), tmp_path / "spoiled.json"
    refused = shown = 0
    for place in places(content):
        for value in random.Random(repr(place)).sample(JUNK, 4):
            path.write_text(json.dumps(spoiled(content, place, value)))
            found = load(path)
            if isinstance(found, Finding):
                report.print_finding(found, Console(file=io.StringIO()))
                shown += 1
            else:
                assert found.startswith(str(path))
                assert "expected" in found or "this cacheproof reads" in found
                assert found.splitlines() == [found]
                refused += 1
    assert refused > 500
    assert shown > 0


def test_a_finding_may_end_anywhere(finding: Path, tmp_path: Path) -> None:
    data, path = finding.read_bytes(), tmp_path / "cut.json"
    for length in range(len(b'{"schema_version"') + 2, len(data) - 2, 37):
        path.write_bytes(data[:length])
        said = load(path)
        assert isinstance(said, str)
        assert said.startswith(f"{path}: not a finding: ")


@pytest.mark.parametrize("depth", [100, 900, 990, 10_000])
def test_records_may_be_deep(finding: Path, tmp_path: Path, depth: int) -> None:
    content, path = json.loads(finding.read_text()), tmp_path / "deep.json"
    content["records"][0][0] = "@"
    path.write_text(json.dumps(content).replace('"@"', "[" * depth + "]" * depth))
    assert isinstance(load(path), str)


def test_a_finding_replays_in_ten_of_ten(run: Run, finding: Path) -> None:
    ran = run("replay", finding, "--times", TIMES, "--json", "-")
    replayed = json.loads(ran.out)
    assert ran.code == 1
    assert replayed["same"] == replayed["broke"] == replayed["times"] == TIMES


def test_a_finding_holds_where_it_is_fixed(run: Run, finding: Path) -> None:
    assert run("replay", finding, "--target", "reference").code == 0
