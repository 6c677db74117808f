"""The glossary's names are names: ours of this repository, vLLM's of its newest release."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cacheproof.differential.provision import releases

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reference" / "glossary.md").read_text()
FOLDERS = ("spec", "reference", "gpu_runner", "differential", "proofs", "cacheproof")
NAME = re.compile(r"`([^`]+)`")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| word ")
]


def names_in(column: int) -> list[str]:
    """What stands in backticks in a column, which words that are ours alone may lack."""
    return [name for row in ROWS for cell in row[column:][:1] for name in NAME.findall(cell)]


def defined(tree: ast.Module) -> Iterator[str]:
    """What a module defines: its names, and each class's as CLASS.NAME."""
    for node in tree.body:
        yield from bound(node)
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                yield from (f"{node.name}.{name}" for name in bound(inner))


def bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds, with those of attributes of `self`."""
    match node:
        case ast.ClassDef() | ast.FunctionDef():
            yield node.name
        case ast.Assign(targets=targets):
            yield from (name for one in targets for name in written(one))
        case ast.AnnAssign(target=target):
            yield from written(target)


def written(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            yield name


@cache
def ours() -> frozenset[str]:
    """Every name that the product defines."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return frozenset(name for path in paths for name in defined(ast.parse(path.read_text())))


def missing(names: list[str]) -> list[str]:
    """Those of our names that are neither defined nor the path of a file or folder."""
    return [one for one in names if one not in ours() and not ("/" in one and path_of(one))]


def path_of(name: str) -> bool:
    return (ROOT / name).exists()


def test_each_word_has_its_cells_and_stands_once() -> None:
    assert [row for row in ROWS if len(row) not in {3, 4}] == []
    words = [row[0] for row in ROWS if "---" not in row[0]]
    assert len(words) == len(set(words)) > 50


def test_our_names_are_defined() -> None:
    assert missing(names_in(2)) == []


@pytest.mark.parametrize("name", ["Ghosts", "Ghost.owned", "docs/ghost.md"])
def test_a_name_that_is_gone_is_found(name: str) -> None:
    assert missing([name]) == [name]


def test_names_of_vllm_stand_in_its_newest_release() -> None:
    package = releases.install("0.33.0", report=print).tree / "vllm"
    text = "\n".join(
        path.read_text()
        for part in ("v1", "distributed", "multimodal")
        for path in (package / part).rglob("*.py")
    )
    words = set(re.findall(r"\w+", text))
    assert [name for name in names_in(3) if name not in words] == []
    assert "num_freeable_slot" not in words
