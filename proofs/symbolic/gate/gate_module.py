"""What a module and a class must be for a class's methods to be all that says what a call does.

A check yields refusals; its docstring is a line of docs/reference/language.md.
"""

import ast
import builtins
from collections.abc import Iterator

from cacheproof.proofs.crosshair.episode import METHODS
from cacheproof.proofs.symbolic.gate.gate_import import is_field_default, run_at_import
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.values.language import GUARDED, ORDERED, REACHES_ANYTHING, Refusal
from cacheproof.proofs.text.bindings import (
    at_import,
    beside_body,
    bound_by,
    certainly_bound,
    parsed,
)

_CALLED = frozenset(name for operation, name in METHODS.items() if operation != "embeds")
"""Methods that a scheduler calls, and that every manager is proved of; `embeds` changes nothing."""
_PLAIN_BASES = ("object",)


def of_module(source: Source) -> Iterator[Refusal]:
    """Modules that bind a builtin's name, import `*`, name what reaches anything (`globals`,
    `setattr`, `sys` and the like), set attributes or items outside of methods, or do more when they
    are imported than import, define, and bind names to values; values, bases, defaults and
    annotations that ask what the module defines for an attribute, an item or an operator, or name
    what is not bound by then; classes that bind a builtin's name or have a special method that
    Python runs by itself, and bases from elsewhere but a few that run nothing."""
    tree = parsed(source.module)
    within = {
        id(node)
        for found in ast.walk(tree)
        if isinstance(found, ast.ClassDef)
        for node in ast.walk(found)
    }
    for node in at_import(tree):
        for bound in bound_by(node):
            if bound == "*" or bound in GUARDED:
                yield Refusal(node, f"a module that binds {bound}")
            if bound == ORDERED and not _imports_ordered(node):
                yield Refusal(node, f"an {ORDERED} that is not that of collections")
            if bound == source.name and not isinstance(node, ast.ClassDef):
                yield Refusal(node, f"{source.name} bound to something else")
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in REACHES_ANYTHING:
                yield Refusal(node, f"a module that names {name}")
            case ast.Import(names=names):
                for one in names:
                    if one.name.partition(".")[0] in REACHES_ANYTHING:
                        yield Refusal(node, f"a module that names {one.name}")
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in REACHES_ANYTHING:
                yield Refusal(node, f"a module that names {name}")
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ) if id(node) not in within:
                yield Refusal(node, f"what is set elsewhere: {ast.unparse(node)}")
    yield from run_at_import(tree, source)
    yield from uses_of_class(tree, source.name)


def of_class(source: Source, *, is_record: bool) -> Iterator[Iterator[Refusal]]:
    yield definition(source)
    tree = parsed(source.module)
    for found in _classes(tree, source.name)[:1]:
        yield body(source, found, is_record)


def definition(source: Source) -> Iterator[Refusal]:
    """A class that is not defined once, at the top of its module."""
    tree = parsed(source.module)
    found = _classes(tree, source.name)
    if len(found) != 1 or found[0] not in tree.body:
        yield Refusal(found[-1], f"{source.name} where it is not defined once, by its module")


def unbound(source: Source) -> Iterator[Refusal]:
    """Names that a method reads, and that nothing binds: neither the method, nor Python, nor the
    top of its module whatever happens."""
    tree = parsed(source.module)
    certain = certainly_bound(tree)
    own = {
        one.name
        for found in _classes(tree, source.name)
        for one in found.body
        if isinstance(one, ast.FunctionDef)
    }
    for method in source.methods.values():
        if source.inherits and method.name not in own:
            continue  # read where it stands
        nodes = list(ast.walk(method))
        local = {one.arg for one in nodes if isinstance(one, ast.arg)}
        local |= {name for one in nodes for name in bound_by(one)} - {method.name}
        notes = {id(n) for one in nodes for note in beside_body(one) for n in ast.walk(note)}
        for node in nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Load()) if id(node) not in notes:
                    if name not in {*local, *certain} and not hasattr(builtins, name):
                        yield Refusal(node, f"{name}, which nothing is certain to bind")


def body(source: Source, found: ast.ClassDef, is_record: bool) -> Iterator[Refusal]:
    """Classes with decorators or keywords (`ghost.py`'s records may be dataclasses), with bases
    from elsewhere, that are bound twice or of which a scheduler calls a method that is not read,
    with a body that binds anything but methods, one twice, or a method that begins with two
    underscores, `__init__` aside."""
    tree = parsed(source.module)
    decorators = [ast.unparse(one).partition("(")[0] for one in found.decorator_list]
    if found.keywords or decorators not in ([], ["dataclass"] if is_record else []):
        yield Refusal(found, "a class with decorators or keywords")
    for base in found.bases:
        bases = _classes(tree, ast.unparse(base))
        for node in at_import(tree):
            if bases and not isinstance(node, ast.ClassDef) and bases[0].name in bound_by(node):
                yield Refusal(node, f"the base {bases[0].name} bound to something else")
        if len(bases) != 1 and not source.inherits and ast.unparse(base) not in _PLAIN_BASES:
            yield Refusal(base, f"the base {ast.unparse(base)}, which is not in this module")
        for inherited in bases:
            yield from body(source, inherited, is_record)
            for method in inherited.body:
                if (
                    isinstance(method, ast.FunctionDef)
                    and method.name not in source.methods
                    and method.name in _CALLED
                ):
                    yield Refusal(method, f"{method.name}, which is inherited and not read")
    seen: set[str] = set()
    for one in found.body:
        match one:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                continue
            case ast.FunctionDef(name=name) if name not in seen:
                seen.add(name)
                if name.startswith("__") and name != "__init__":
                    yield Refusal(one, f"the method {name}")
            case ast.AnnAssign(target=ast.Name(), value=value) if is_record and (
                value is None or is_field_default(value)
            ):
                continue
            case _:
                words = ast.unparse(one).splitlines()[0]
                yield Refusal(one, f"a class body with {words}")


def uses_of_class(tree: ast.Module, name: str) -> Iterator[Refusal]:
    """The class may be a base, be called, and stand in annotations; else it may be changed."""
    allowed: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(bases=bases):
                allowed |= {id(one) for one in bases}
            case ast.Call(func=ast.Name() as called):
                allowed.add(id(called))
            case ast.FunctionDef(args=given, returns=returns):
                notes = [one.annotation for one in ast.walk(given) if isinstance(one, ast.arg)]
                allowed |= {id(n) for one in (*notes, returns) if one for n in ast.walk(one)}
            case ast.AnnAssign(annotation=note):
                allowed |= {id(one) for one in ast.walk(note)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and id(node) not in allowed:
            yield Refusal(node, f"{name} where it may be changed")


def _imports_ordered(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module="collections", level=0, names=names):
            return all(one.asname != ORDERED or one.name == ORDERED for one in names)
    return False


def _classes(tree: ast.Module, name: str) -> list[ast.ClassDef]:
    """The classes of that name, wherever they are defined."""
    return [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == name]
