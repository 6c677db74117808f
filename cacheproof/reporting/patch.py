"""A mend as a patch of the release's own files, made from the two texts; and where it changes them.

Nothing of a release is kept here: both texts are read where they are installed.
"""

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(frozen=True)
class PatchPlace:
    """Where a patch changes a file: the line in the file as it was, and the function around it, as
    Class.function."""

    path: str
    line: int
    function: str


@dataclass(frozen=True)
class Patch:
    """A unified diff that `git apply` and `patch -p1` take, and the functions that it changes, each
    once, at its first changed line. `added` are the functions that it adds to a module."""

    text: str
    places: tuple[PatchPlace, ...]
    added: tuple[str, ...]


def patch_between(tree: Path, mended: Path, paths: Sequence[str]) -> Patch:
    """The patch from the files of a tree to those of another, by their paths in both."""
    texts = {path: ((tree / path).read_text(), (mended / path).read_text()) for path in paths}
    return patch_of(texts)


def patch_of(texts: Mapping[str, tuple[str, str]]) -> Patch:
    """The patch of modules, by path: each as it is and as it is to be."""
    lines: list[str] = []
    places: dict[tuple[str, str], PatchPlace] = {}
    added: list[str] = []
    for path, (old, new) in texts.items():
        lines += _unified(path, old, new)
        for place in _places(path, old, new):
            places.setdefault((path, place.function), place)
        before = {name for name, _, _ in _functions(old)}
        added += [name for name, _, _ in _functions(new) if name not in before]
    return Patch("".join(lines), tuple(places.values()), tuple(added))


def _unified(path: str, old: str, new: str) -> Iterator[str]:
    told = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"a/{path}",
        f"b/{path}",
    )
    for line in told:
        yield from [line] if line.endswith("\n") else [f"{line}\n", _NO_NEWLINE]


def _places(path: str, old: str, new: str) -> Iterator[PatchPlace]:
    """The place of each change that lies in a function of the old text."""
    functions = list(_functions(old))
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    for kind, first, last, _, _ in matcher.get_opcodes():
        if kind == "equal":
            continue
        around = [
            (start, name)
            for name, start, end in functions
            if start <= first + 1 and max(first + 1, last) <= end
        ]
        if around:
            _, name = max(around)
            yield PatchPlace(path, first + 1, name)


def _functions(source: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and last line of each function of a module, from its first line on."""

    def inside(node: ast.AST, owner: str) -> Iterator[tuple[str, int, int]]:
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{owner}{one.name}"
                if not isinstance(one, ast.ClassDef):
                    yield name, one.lineno, one.end_lineno or one.lineno
                yield from inside(one, f"{name}.")
            else:
                yield from inside(one, owner)

    return inside(ast.parse(source), "")
