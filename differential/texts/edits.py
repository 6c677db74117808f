"""Edits of a module's text: an expression or a statement of one function, replaced or added to."""

import ast
from collections.abc import Iterator
from functools import lru_cache

import msgspec


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expression or a statement of a function, as Python writes it, and what stands `instead`;
    or lines that go `before` or `after` a statement, which stays. A statement of several lines is
    named by its first one, a long one by how it begins, with `...` behind it. A function is named
    alone, or behind its class's name. Where it has the expression `of` times, `which` of them, from
    1."""

    path: str
    function: str
    expression: str
    instead: str | None = None
    before: str | None = None
    after: str | None = None
    which: int = 1
    of: int = 1


def edited(source: str, edit: Edit) -> str:
    """A module's text with the edit.

    Raises:
        ValueError: the function does not have the expression exactly as often as the edit says, or
            the edit says not one thing to be done.
    """
    beside = edit.before is not None or edit.after is not None
    if sum(one is not None for one in (edit.instead, edit.before, edit.after)) != 1:
        raise ValueError(f"{edit.path}: expected one of instead, before and after")
    found = [
        node
        for node, line in _lines_of(source, edit.function)
        if _is_called(line, edit.expression)
        if isinstance(node, ast.stmt) or not beside
        if beside or not isinstance(node, ast.Expr)
    ]
    if len(found) != edit.of:
        often = "once" if edit.of == 1 else f"{edit.of} times"
        raise ValueError(
            f"{edit.path}: {edit.function} has {edit.expression!r} {len(found)} times, not {often}"
        )
    node = sorted(found, key=lambda one: (one.lineno, one.col_offset))[edit.which - 1]
    return _with(source, node, edit)


@lru_cache(maxsize=8)
def _lines_of(source: str, function: str) -> list[tuple[ast.expr | ast.stmt, str]]:
    """The expressions and statements of a function, and how Python writes the first line of each:
    several edits look for theirs in one text."""
    return [
        (node, ast.unparse(node).partition("\n")[0])
        for one in _functions(ast.parse(source), function)
        for node in ast.walk(one)
        if isinstance(node, ast.expr | ast.stmt)
    ]


def _is_called(line: str, expression: str) -> bool:
    begins, dots, _ = expression.rpartition("...")
    is_cut = bool(dots) and expression.endswith(dots)
    return line.startswith(begins) if is_cut else line == expression


def _with(source: str, node: ast.expr | ast.stmt, edit: Edit) -> str:
    segment = ast.get_source_segment(source, node)
    assert segment is not None
    indented = "\n" + " " * node.col_offset if isinstance(node, ast.stmt) else "\n"
    lines = (edit.instead or edit.before or edit.after or "").strip("\n").splitlines()
    written = indented.join(lines)
    if edit.before is not None:
        written = f"{written}{indented}{segment}"
    elif edit.after is not None:
        written = f"{segment}{indented}{written}"
    above = source.splitlines(keepends=True)
    start = sum(len(line.encode()) for line in above[: node.lineno - 1]) + node.col_offset
    data = source.encode()
    return (data[:start] + written.encode() + data[start + len(segment.encode()) :]).decode()


def _functions(module: ast.Module, name: str) -> Iterator[ast.FunctionDef]:
    """The functions of a module, or of its classes, with that name, alone or after their
    class's."""
    owners: list[ast.Module | ast.ClassDef] = [module]
    owners += [one for one in ast.walk(module) if isinstance(one, ast.ClassDef)]
    for owner in owners:
        of_class = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
        for one in owner.body:
            if isinstance(one, ast.FunctionDef) and name in (one.name, f"{of_class}{one.name}"):
                yield one
