"""What a vLLM tree's modelled definitions read, by their text: nothing of vLLM is imported.

A definition is a function, a method, a class without its members, a field of a class, or a constant
of a module. Its digest is of its syntax: comments, docstrings and formatting do not count, and
every Python that cacheproof runs on gives the same.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.texts.modelled import COMPONENTS, LEFT_OUT, WATCHED, ModelledComponent

DIGITS = 10
_OF_POSITION = frozenset({"ctx", "kind", "type_comment", "type_params"})
"""Fields of syntax that say nothing, or that only some Pythons have."""
_BITS_OF_DECIMAL = 4_300
"""Bits of a number above which Python may refuse to write its decimal digits."""


@dataclass(frozen=True)
class TreeText:
    """What a tree reads: digests by name (`component:Class.method`), and the `members` of watched
    classes (`Class.member`): fields, methods, and what methods assign to the instance."""

    digests: Mapping[str, str]
    members: frozenset[str]


def read(tree: Path) -> TreeText:
    """The modelled definitions of the package vllm in a folder; what it lacks is absent.

    Raises:
        InputError: a file that holds some is no Python that can be read here.
    """
    digests: dict[str, str] = {}
    members: set[str] = set()
    for component in COMPONENTS:
        for path in component.paths:
            if (file := tree / "vllm" / path).is_file():
                try:
                    module = _parsed(file)
                    digests = _digests(component, module) | digests
                    members.update(_members(module))
                except (MemoryError, RecursionError):
                    raise InputError(
                        f"{file}: nested too deeply; expected Python that can be read"
                    ) from None
    return TreeText(digests, frozenset(members))


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), file)
    except SyntaxError as error:
        where = f"{file}, line {error.lineno}" if error.lineno else f"{file}"
        raise InputError(f"{where}: {error.msg}; expected Python that can be read") from None
    except ValueError as error:
        raise InputError(f"{file}: {error}; expected Python that can be read") from None


def _digests(component: ModelledComponent, module: ast.Module) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    for name, text in _definitions(module.body, "", component.only):
        if not is_left_out(full := f"{component.name}:{name}"):
            texts.setdefault(full, []).append(text)  # a property and its setter, overloads
    return {
        name: hashlib.sha256("\n".join(several).encode()).hexdigest()[:DIGITS]
        for name, several in texts.items()
    }


def is_left_out(name: str) -> bool:
    """Whether a change of the definition is no difference of the model."""
    return any(fnmatchcase(name, pattern) for one in LEFT_OUT for pattern in one.names)


def _definitions(
    body: Iterable[ast.stmt], owner: str, only: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Names and texts, of the names `only` where there are some."""
    for node in body:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Try(body=tried, handlers=handlers, orelse=otherwise):
                further = [*tried, *(one for each in handlers for one in each.body), *otherwise]
                yield from _definitions(further, owner, only)
                continue
            case _:
                continue
        for name in names:
            of_class = tuple(one[len(name) + 1 :] for one in only if one.startswith(f"{name}."))
            if not only or name in only or of_class:
                yield from _definition(node, f"{owner}{name}", of_class)


def _definition(node: ast.stmt, name: str, only: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ClassDef):
        if not only:
            yield name, written([node.bases, node.keywords, node.decorator_list])
        yield from _definitions(node.body, f"{name}.", only)
    else:
        yield name, written(node)


def _members(module: ast.Module) -> Iterator[str]:
    for owner in module.body:
        if isinstance(owner, ast.ClassDef) and owner.name in WATCHED:
            names = [name for name, _ in _definitions(owner.body, "")]
            yield from (f"{owner.name}.{name}" for name in [*names, *_assigned(owner)])


def _assigned(owner: ast.ClassDef) -> Iterator[str]:
    """Attributes that a class's methods assign to their own instance."""
    for node in ast.walk(owner):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def written(value: object) -> str:
    """The syntax of a node as text, without docstrings and what says nothing."""
    match value:
        case ast.JoinedStr(values=parts):  # some Pythons end a format with an empty piece of text
            return f"JoinedStr({_written_list(one for one in parts if not _is_empty(one))})"
        case ast.AST():
            fields = (
                f"{name}={written(field)}"
                for name, field in ast.iter_fields(value)
                if name not in _OF_POSITION
            )
            return f"{type(value).__name__}({','.join(fields)})"
        case list():
            return _written_list(one for one in value if not is_docstring(one))
        case int() if not isinstance(value, bool) and value.bit_length() > _BITS_OF_DECIMAL:
            return hex(value)
        case _:
            return ascii(value)


def _written_list(values: Iterable[object]) -> str:
    return f"[{','.join(map(written, values))}]"


def is_docstring(node: object) -> bool:
    """Whether it is a string that stands alone, which does nothing."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""
