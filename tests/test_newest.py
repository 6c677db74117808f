"""The newest release, where none is named, is said in one place."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cacheproof.reference.releases import MODELLED, NEWEST, SEARCHED

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    *("spec", "reference", "gpu_runner", "differential", "proofs", "cacheproof"),
    *("setup", "benchmarks"),
)
THE_PLACE = "reference/releases.py"


def fixed(source: str) -> list[int]:
    """Lines of defaults of arguments and options, and of constants, that name the newest release.
    Calls within a constant are rows of facts, such as the flags that a release set."""
    return sorted(
        one.lineno
        for node in ast.walk(ast.parse(source))
        for value in _values(node)
        for one in _literals(value)
        if str(one.value).rpartition("@")[2] == NEWEST
    )


def _values(node: ast.AST) -> Iterator[ast.expr | None]:
    match node:
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            yield value
        case ast.arguments(defaults=defaults, kw_defaults=by_name):
            yield from (*defaults, *by_name)
        case ast.keyword(arg="default", value=value):
            yield value


def _literals(value: ast.expr | None) -> Iterator[ast.Constant]:
    match value:
        case ast.Constant():
            yield value
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            for part in parts:
                yield from _literals(part)


def test_the_newest_release_is_the_last_that_is_modelled() -> None:
    assert MODELLED[-1] == NEWEST == SEARCHED[0]
    assert set(SEARCHED) <= set(MODELLED)


def miscounted(page: str) -> list[str]:
    """What a page calls the number of releases, and the newest of them, where that is another."""
    counts = re.findall(r"\b(\d+)\s+(?:stable\s+)?releases\b", page)
    ends = re.findall(r"\breleases,?\s+(?:from\s+)?0\.10\.2\s+to\s+(\d[\d.]*\d)", page)
    return [
        *(one for one in counts if int(one) != len(MODELLED)),
        *(one for one in ends if one != NEWEST),
    ]


def test_pages_count_the_releases_that_are_modelled() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {str(page.relative_to(ROOT)): miscounted(page.read_text()) for page in pages}
    assert {name: what for name, what in found.items() if what} == {}


def test_a_page_that_counts_fewer_is_seen() -> None:
    assert miscounted("of 35 stable releases, 0.10.2 to 0.32.0,") == ["35", "0.32.0"]
    assert miscounted("all 35\nreleases from 0.10.2\nto 0.32.0.") == ["35", "0.32.0"]


@pytest.mark.full
def test_no_default_and_no_list_names_it_elsewhere() -> None:
    files = [
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert [one for one in files if fixed((ROOT / one).read_text())] == [THE_PLACE]
    assert NEWEST not in (ROOT / "Makefile").read_text()
    assert NEWEST not in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    "source",
    [
        "RELEASE = '{}'",
        "RELEASES: tuple[str, ...] = ('0.28.0', '{}')",
        "TARGETS = ['reference', 'vllm@{}']",
        "def search(release='{}'): ...",
        "def search(*, target='vllm@{}'): ...",
        "parser.add_argument('--release', default='{}')",
    ],
)
def test_one_that_does_is_seen(source: str) -> None:
    assert fixed(source.format(NEWEST)) == [1]
    assert fixed(source.format("0.28.0")) == []


@pytest.mark.parametrize(
    "source",
    ["flag = change('{}', 'a thread', 'a sentence')", "REASONS = (Reason('a', before='{}'),)"],
)
def test_a_row_of_facts_may(source: str) -> None:
    assert fixed(source.format(NEWEST)) == []
