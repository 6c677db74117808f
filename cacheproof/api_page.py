"""docs/api.md: spec/ and reference/ from Python, out of their docstrings.

    .venv/bin/python -m cacheproof.api_page

writes it.
"""

import ast
import contextlib
import enum
import importlib
import inspect
import io
import pkgutil
import runpy
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

import cacheproof.reference
import cacheproof.spec
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import CHANGES, Semantics
from cacheproof.reference.semantics.change import Change
from cacheproof.spec.registry import contracts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
EXAMPLE = PAGE.with_name("judge_a_step.py")
WIDTH = 100
PART_OF = {type(getattr(Semantics(), part.name)): part.name for part in fields(Semantics)}
"""The records of flags, each with the component that it is about."""
_HEAD = """# The reference from Python

    .venv/bin/python -m cacheproof.api_page

makes this page from the docstrings of `spec/` and `reference/`. What is not public begins with `_`
and is not here; the predicates of contracts are in [contracts.md](contracts.md).

## Judge a step by yourself

[judge_a_step.py](judge_a_step.py) makes a request, runs a step of it on the reference, judges the
contracts of states on what the step left, and explains one that is broken. The faults of a release
are part of its semantics, so the second run breaks what vLLM 0.28.0 breaks."""
_UNITS = """## Units and errors

A name says its unit, unless its docstring says another one:

| a name with | counts |
|---|---|
| `tokens`, `offset`, `length`, `start`, `end`, `progress`, `interval`, `max_model_len` | tokens |
| `block_size` | tokens of one block |
| `blocks`, `block_ids` | KV blocks, and their numbers in the pool from 0 on |
| `slots`, `embeds`, `encoder_compute_budget` | embeddings |
| `cache_size`, `capacity`, `size`, `need` of an encoder cache | embeddings |
| `input_id` | nothing: the number of an item in its request, from 0 on |
| `group_id` | nothing: the number of a group of layers, from 0 on |

Types are checked by mypy, not when a call is made. `Raises` names what a call raises by itself. An
`assert` that only tells mypy a type is not listed, and neither is `NotImplementedError` of a
method that each subclass has."""


def page() -> str:
    """The page's text."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield from (*_HEAD.splitlines(), "", "```python", *_program(), "```", "", "prints", "")
    yield from ("```", *_printed().splitlines(), "```", "", *_UNITS.splitlines(), "")
    for package in (cacheproof.spec, cacheproof.reference):
        for module in modules_of(package):
            found = list(public(module))
            if found:
                yield from (f"## {module.__name__}", "", *_text(module), "")
            for one in found:
                yield from (f"### {one.__name__}", "", "```python", *_stub(one), "```", "")
                if one in PART_OF:
                    yield from (*_flags(PART_OF[one]), "")


def _program() -> list[str]:
    return EXAMPLE.read_text().strip().splitlines()


def _printed() -> str:
    """What the example prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    return printed.getvalue()


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    """The modules of a package, in the order of their names."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def public(module: ModuleType) -> Iterator[Any]:
    """The classes and functions that a module defines for others, as they stand in it."""
    rules = {rule.predicate for rule in contracts()}
    for name, one in vars(module).items():
        is_defined_here = getattr(one, "__module__", "") == module.__name__
        if name.startswith("_") or not is_defined_here or not isinstance(one, type | FunctionType):
            continue
        if one not in rules:
            yield one


def methods_of(owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class itself defines: name, and function."""
    for name, one in vars(owner).items():
        function = inspect.unwrap(getattr(one, "fget", None) or getattr(one, "__func__", one))
        if is_written(function, owner) and not name.startswith("_"):
            yield name, function


def said_of(owner: type, name: str) -> str:
    """The docstring of a class's method: its own, or what it takes over from a base."""
    return inspect.getdoc(inspect.getattr_static(owner, name)) or _inherited(owner, name)


def _inherited(owner: type, name: str) -> str:
    found = (inspect.getattr_static(base, name, None) for base in owner.__mro__[1:])
    return next(filter(None, (inspect.getdoc(one) for one in found if one is not None)), "")


def _text(module: ModuleType) -> list[str]:
    return (inspect.getdoc(module) or "").splitlines()


def _stub(one: Any) -> Iterator[str]:
    """A class or a function as a stub: signatures and docstrings."""
    if isinstance(one, FunctionType):
        yield from _definition(one.__name__, one, inspect.getdoc(one) or "", "")
        return
    definition = _parsed(one)
    yield from (f"@{ast.unparse(decorator)}" for decorator in definition.decorator_list)
    bases = ", ".join(map(ast.unparse, definition.bases))
    yield f"class {one.__name__}({bases}):" if bases else f"class {one.__name__}:"
    yield from _docstring(_own(one), "    ")
    if one not in PART_OF:
        yield from (f"    {line}" for line in _fields(one, definition))
    initial = vars(one).get("__init__")
    if is_written(initial, one) and not issubclass(one, enum.Enum):
        yield from (
            "",
            *_definition("__init__", initial, inspect.cleandoc(initial.__doc__ or ""), "    "),
        )
    for name, function in methods_of(one):
        yield from ("", *_method(one, name, function))


def _own(owner: type) -> str:
    """A class's docstring; that of a dataclass without one would be made up."""
    written = vars(owner).get("__doc__") or ""
    return inspect.cleandoc(written) if not written.startswith(f"{owner.__name__}(") else ""


def _method(owner: type, name: str, function: FunctionType) -> Iterator[str]:
    kind = inspect.getattr_static(owner, name)
    if isinstance(kind, property | classmethod | staticmethod):
        yield f"    @{type(kind).__name__}"
    yield from _definition(name, function, said_of(owner, name), "    ")


def is_written(one: Any, owner: type) -> TypeGuard[FunctionType]:
    """Whether it is a function that stands in the file of the class, not one that was made."""
    is_function = isinstance(one, FunctionType)
    return is_function and one.__code__.co_filename == inspect.getfile(owner)


def _fields(owner: type, definition: ast.ClassDef) -> Iterator[str]:
    """The fields of a record, or the members of an enumeration, with their defaults."""
    if issubclass(owner, enum.Enum):
        yield from (f"{one.name} = {one.value!r}" for one in owner)
        return
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            yield ast.unparse(node)


def _flags(part: str) -> Iterator[str]:
    """The flags of a component as a table."""
    yield from ("| flag | true of | says | told of in |", "|---|---|---|---|")
    for name, change in CHANGES.items():
        if name.startswith(f"{part}."):
            releases = _releases_with(change)
            yield f"| `{name}` | {releases} | {change.sentence} | {change.source} |"


def _releases_with(change: Change) -> str:
    """The modelled releases of which a flag is true, as ranges."""
    ranges = []
    for is_true, run in groupby(MODELLED, change.is_true_of):
        releases = list(run)
        if is_true:
            until = "on" if releases[-1] == MODELLED[-1] else f"to {releases[-1]}"
            ranges.append(f"{releases[0]} {until}")
    return ", ".join(ranges) or "no release"


def _definition(name: str, function: FunctionType, said: str, indent: str) -> Iterator[str]:
    """A signature, on one line where it fits, and what is said of it."""
    node = _parsed(function)
    arguments = list(_arguments(node.args))
    answer = f" -> {ast.unparse(node.returns)}:" if node.returns else ":"
    whole = f"{indent}def {name}({', '.join(arguments)}){answer}"
    lines = [whole]
    if len(whole) > WIDTH:
        each = (f"{indent}    {one}," for one in arguments)
        lines = [f"{indent}def {name}(", *each, f"{indent}){answer}"]
    yield from (*lines[:-1], lines[-1] if said else f"{lines[-1]} ...")
    yield from _docstring(said, f"{indent}    ")


def _arguments(args: ast.arguments) -> Iterator[str]:
    """Each argument as it is written, `*` and `/` included."""
    places = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(places) - len(args.defaults)) + list(args.defaults)
    for number, (one, default) in enumerate(zip(places, defaults, strict=True), 1):
        yield _argument(one, default)
        if number == len(args.posonlyargs):
            yield "/"
    if args.vararg or args.kwonlyargs:
        yield f"*{ast.unparse(args.vararg) if args.vararg else ''}"
    for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _argument(one, default)
    if args.kwarg:
        yield f"**{ast.unparse(args.kwarg)}"


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(one) + (f" = {ast.unparse(default)}" if default else "")


def _docstring(text: str, indent: str) -> Iterator[str]:
    if not text:
        return
    first, *rest = text.splitlines()
    if not rest:
        yield f'{indent}"""{first}"""'
        return
    yield f'{indent}"""{first}'
    yield from (f"{indent}{line}".rstrip() for line in rest)
    yield f'{indent}"""'


def _parsed(one: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]


if __name__ == "__main__":
    PAGE.write_text(page())
