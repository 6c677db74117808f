"""Which names a module binds and reads, and where."""

import ast
from collections.abc import Iterator
from functools import lru_cache


@lru_cache(maxsize=8)
def parsed(module: str) -> ast.Module:
    """A module's tree, which checks look at and do not change."""
    return ast.parse(module)


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What a module runs when it is imported; of functions and classes their definitions alone,
    but for names that functions bind in the module."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from (one for one in ast.walk(child) if isinstance(one, ast.Global))
        else:
            yield from at_import(child)


def bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node binds, by itself."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            for one in names:
                yield one.asname or one.name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.Global(names=named):
            yield from named


def certainly_bound(tree: ast.Module) -> frozenset[str]:
    """The names that a module binds at its top, whatever happens."""
    return frozenset(
        name
        for statement in tree.body
        if not isinstance(statement, ast.If)
        for node in at_import(ast.Module([statement], []))
        for name in bound_by(node)
    )


UNKNOWN = "?"
"""Where a name comes from that is bound more than once, or from a place relative to the module."""


def imports(tree: ast.Module) -> dict[str, str]:
    """The names that a module has from others, each with what it is there, such as
    `collections.OrderedDict`, or with the module that it is."""
    bound = [name for node in at_import(tree) for name in bound_by(node)]
    return {
        name: origin if bound.count(name) == 1 else UNKNOWN
        for node in at_import(tree)
        for name, origin in _origins(node)
    }


def _origins(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Import(names=names):
            for one in names:
                whole = one.name.partition(".")[0]
                yield (one.asname, one.name) if one.asname else (whole, whole)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for one in names:
                yield one.asname or one.name, f"{module}.{one.name}"
        case ast.ImportFrom(names=names):
            for one in names:
                yield one.asname or one.name, UNKNOWN


def beside_body(scope: ast.AST) -> list[ast.expr]:
    """What Python evaluates of a definition beside its body: defaults, bases and annotations."""
    match scope:
        case (
            ast.FunctionDef(args=given, returns=returns)
            | ast.AsyncFunctionDef(args=given, returns=returns)
        ):
            notes = [one.annotation for one in ast.walk(given) if isinstance(one, ast.arg)]
            found = [*given.defaults, *given.kw_defaults, *notes, returns]
        case ast.ClassDef(bases=bases):
            found = [*bases]
        case ast.AnnAssign(annotation=note):
            found = [note]
        case _:
            found = []
    return [one for one in found if one is not None]


def root_of(node: ast.expr) -> str:
    """The name that an expression of attributes and items begins with; "" where it has none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def named_beside(text: str, module: str) -> frozenset[str]:
    """The statements of a module that bind what the body of a class of that text, and what these,
    name; annotations, which nothing evaluates, aside."""
    binding: dict[str, list[ast.stmt]] = {}
    for statement in parsed(module).body:
        for one in _one_by_one(statement):
            for node in at_import(ast.Module([one], [])):
                for name in bound_by(node):
                    binding.setdefault(name, []).append(one)
    found: set[ast.stmt] = set()
    to_do = [one for of in ast.parse(text).body for one in getattr(of, "body", ())]
    while to_do:
        for name in _named(to_do.pop()):
            new = [one for one in binding.get(name, ()) if one not in found]
            found.update(new)
            to_do += new
    return frozenset(map(ast.unparse, found))


def _one_by_one(statement: ast.stmt) -> list[ast.stmt]:
    """A statement; an import once for each name."""
    match statement:
        case ast.Import(names=names):
            return [ast.Import([one]) for one in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            return [ast.ImportFrom(module, [one], level) for one in names]
    return [statement]


def _named(statement: ast.stmt) -> set[str]:
    """The names that a statement reads, but for annotations."""
    notes = [
        note
        for node in ast.walk(statement)
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(note, ast.expr)
    ]
    aside = {id(node) for note in notes for node in ast.walk(note)}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and id(node) not in aside
    }
