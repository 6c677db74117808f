"""In how many places a definition differs between two trees: nothing of vLLM is imported."""

import ast
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path

from cacheproof.differential.provision import releases
from cacheproof.differential.targets.base import Target
from cacheproof.differential.texts.modelled import COMPONENTS
from cacheproof.differential.texts.texts import is_docstring


def changed_once_in(target: Target) -> frozenset[str]:
    """Definitions of a target that differ from the nearest release in one place; none where that
    release is not installed, since only digests of it are known then."""
    if target.reading is None or not target.reading.differs or target.tree is None:
        return frozenset()
    nearest = releases.find(target.reading.nearest)
    if nearest is None:
        return frozenset()
    return changed_once(target.tree, nearest.tree, target.reading.differing)


def reads_otherwise(tree: Path, other: Path) -> bool:
    """Whether any Python file of vLLM's differs in two trees, or is in one alone."""
    mine, theirs = (
        {file.relative_to(one) for file in (one / "vllm").rglob("*.py")} for one in (tree, other)
    )
    return mine != theirs or any(
        (tree / file).read_bytes() != (other / file).read_bytes() for file in mine
    )


def changed_once(tree: Path, other: Path, names: Iterable[str]) -> frozenset[str]:
    """The definitions among `names` that differ in one place, of neighbouring lines, between two
    trees: what such a definition decides otherwise has one change as its cause."""
    return frozenset(name for name in names if _places(tree, other, name) == 1)


def _places(tree: Path, other: Path, name: str) -> int:
    return sum(
        tag != "equal"
        for tag, *_ in SequenceMatcher(
            None, _lines(tree, name), _lines(other, name), autojunk=False
        ).get_opcodes()
    )


def _lines(tree: Path, name: str) -> list[str]:
    """A definition as Python writes its syntax: comments and formatting do not count."""
    paths = (tree / "vllm" / path for component in COMPONENTS for path in component.paths)
    for path in dict.fromkeys(paths):
        if path.is_file():
            for node in _called(ast.parse(path.read_bytes()).body, name):
                return ast.unparse(_without_docstrings(node)).splitlines()
    return []


def _without_docstrings(node: ast.AST) -> ast.AST:
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            one.body = [line for line in one.body if not is_docstring(line)] or [ast.Pass()]
    return node


def _called(body: Iterable[ast.AST], name: str) -> Iterator[ast.AST]:
    """The definitions of that qualified name."""
    head, _, rest = name.partition(".")
    for node in body:
        match node:
            case (
                ast.FunctionDef(name=own) | ast.AsyncFunctionDef(name=own) | ast.ClassDef(name=own)
            ):
                if own == head:
                    yield from _called(node.body, rest) if rest else [node]
            case ast.Assign(targets=[ast.Name(id=own)]) | ast.AnnAssign(target=ast.Name(id=own)):
                if own == name:
                    yield node
            case ast.Try():
                yield from _called(node.body, name)
