"""Texts of the reference, and how they are run on symbolic values.

A text is run as it stands, by Python itself, in a module of its own. Names of built-in types and
functions mean the same of symbolic values there as they do of Python's own; what has no such
meaning raises `Unread` where it is used. What Python decides without asking the value, such as
`is None`, is written as a call.
"""

import ast
import builtins
import inspect
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import cache
from types import CodeType, ModuleType, SimpleNamespace, TracebackType, UnionType
from typing import Any, NoReturn, TypeVar

from cacheproof.proofs.keys import gate
from cacheproof.proofs.keys.key_modules import HELPER, Language
from cacheproof.proofs.keys.loops import cut
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.keys.symbolic import (
    Data,
    Field,
    Laid,
    Number,
    Rest,
    Symbol,
    SymbolicText,
    collect,
    laid,
    number,
)
from cacheproof.proofs.text.bindings import imports, parsed

Namespace = dict[str, Any]
"""What names of a text that was run stand for."""
T = TypeVar("T")


def text_of(module: ModuleType) -> str:
    """The source text of a module."""
    return inspect.getsource(module)


def run_text(text: str, language: Language, **meaning: object) -> Namespace:
    """The names that a text defines. Built-in ones and those of `meaning` are replaced; all that
    is neither read nor given a meaning raises `Unread` where it is used. Loops of functions that
    are cut are one round, from any state in which their invariant holds.

    Raises:
        Unread: the text leaves the language; names the file and the line.
    """
    return _run(text, language, meaning, language.cut)


def run_round_by_round(text: str, language: Language, **meaning: object) -> Namespace:
    """The names that a text defines, as `run_text` has them, with loops that run as they stand.
    Raises as `run_text`."""
    return _run(text, language, meaning, frozenset())


def _run(
    text: str, language: Language, meaning: Mapping[str, object], cutting: frozenset[str]
) -> Namespace:
    gate.refuse_unread(text, language)
    namespace: Namespace = {"__name__": language.module}
    exec(_compiled(text, language.path, cutting), namespace)
    for name in imports(parsed(text)):
        if name not in language.used:
            namespace[name] = _Unreadable(name)
    for name in gate.unread_functions(text, language):
        owner, _, function = name.rpartition(".")
        if owner:
            setattr(namespace[owner], function, _Unreadable(name))
        else:
            namespace[function] = _Unreadable(name)
    namespace.update(BUILT_IN)
    namespace.update(meaning)
    return namespace


def place_of(error: BaseException, languages: tuple[Language, ...]) -> str:
    """File and line of the text in which an error arose; the file's first line where it arose
    outside, from what the text as a whole comes to."""
    paths = {one.path for one in languages}
    found = ", ".join(f"{one.path}:1" for one in languages)
    frame: TracebackType | None = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename in paths:
            found = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"
        frame = frame.tb_next
    return found


@cache
def _compiled(text: str, path: str, cutting: frozenset[str]) -> CodeType:
    tree = _Asked().visit(cut(ast.parse(text), cutting))
    return compile(ast.fix_missing_locations(tree), path, "exec")


class _Asked(ast.NodeTransformer):
    """Writes as calls what Python would decide without asking the value."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Compare(ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                return _call("is_none", node.left)
            case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                return ast.UnaryOp(ast.Not(), _call("is_none", node.left))
        return node

    def visit_Match(self, node: ast.Match) -> ast.Match:
        self.generic_visit(node)
        node.subject = _call("known", node.subject)
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        self.generic_visit(node)
        match node.elts:
            case [*first, ast.Starred(value=last)] if isinstance(node.ctx, ast.Load):
                return _call("starred", ast.Tuple(first, ast.Load()), last)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Constant() as by, attr="join"), args=[of]):
                return _call("joined", by, of)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        self.generic_visit(node)
        return node if node.keys else _call("entries")

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        match node.exc:
            case ast.Call(func=kind):  # what the message says is no part of what is proved
                node.exc = ast.Call(kind, [ast.Constant("")], [])
        return node


def _call(what: str, *given: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(HELPER + what, ast.Load()), list(given), [])


class _Unreadable:
    """A name that has no meaning on symbolic values."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise Unread(f"a call of {self._name}")

    def __getattr__(self, attribute: str) -> NoReturn:
        raise Unread(f"{self._name}.{attribute}")


class _Type(type):
    """A built-in type to which symbols of its name belong as well."""

    real: type

    def __instancecheck__(cls, value: object) -> bool:
        if isinstance(value, Symbol):
            if value.types is None:
                raise Unread("the type of a value of any kind")
            return cls.__name__ in value.types
        return isinstance(value, cls.real)

    def __call__(cls, *arguments: Any) -> Any:
        if cls.__name__ not in _MADE:
            raise Unread(f"a call of {cls.__name__}")
        return _MADE[cls.__name__](*arguments)

    def __getitem__(cls, parameters: object) -> object:
        return cls.real[parameters]  # type: ignore[index]


def symbolic_type(real: type) -> type:
    """What takes the place of a type."""
    return _Type(real.__name__, (), {"real": real})


def _make_bytes(value: object = b"") -> Data | bytes:
    match value:
        case Data():
            return Data(*value.pieces)
        case tuple():
            return Data(*(_byte(one) for one in value))
        case bytes():
            return value
    raise Unread(f"bytes of a {type(value).__name__}")


def _byte(one: Number | int) -> bytes | Field:
    (piece,) = one.to_bytes(1, "big").pieces if isinstance(one, Number) else [bytes((one,))]
    assert isinstance(piece, bytes | Field)
    return piece


def _make_int(value: T) -> T:
    number(value)
    return value


def _make_str(value: str | Symbol) -> str | SymbolicText:
    return value if isinstance(value, str) else value.as_text()


def _make_list(parts: object) -> object:
    if isinstance(parts, Symbol):
        return parts.as_list()
    raise Unread("a list of elements")


def _make_tuple(parts: Symbol | Iterable[object]) -> object:
    return parts.as_tuple() if isinstance(parts, Symbol) else laid(collect(parts))


def length(value: Symbol | Sized) -> Number | int:
    """`len`, of symbols too.

    Raises:
        Unread: of a view of memory, whose elements need not be bytes.
    """
    match value:
        case Data():
            if "memoryview" in (value.types or ()):
                raise Unread("the length of a view of memory")
            return value.nbytes
        case Symbol():
            return Number(value.count)
        case _:
            return len(value)


def _is_instance(value: object, kind: type | UnionType | tuple[type, ...]) -> bool:
    """`isinstance`: symbols are of no other types than those that say so."""
    if isinstance(kind, UnionType | tuple):
        of = kind if isinstance(kind, tuple) else kind.__args__
        return any(_is_instance(value, one) for one in of)
    if isinstance(value, Symbol) and not isinstance(kind, _Type):
        raise Unread("whether a symbol is of a class")
    return isinstance(value, kind)


def _type_of(value: object) -> SimpleNamespace:
    """`type`, for texts that ask it for the name alone."""
    if isinstance(value, Symbol) and value.types is None:
        raise Unread("the type of a value of any kind")
    return SimpleNamespace(__name__=type(value).__name__)


def _is_none(value: object) -> bool:
    """`is None`."""
    return _known(value) is None


def _known(value: T) -> T:
    """A value of which it is known whether it is None."""
    if isinstance(value, Symbol) and value.types is None:
        raise Unread("whether a value of any kind is None")
    return value


def _starred(first: tuple[object, ...], last: Symbol) -> Laid:
    """A tuple that ends in all that there is in another."""
    return Laid((*first, Rest(last.as_tuple())))


def _joined(by: object, parts: object) -> object:
    """`by.join(parts)`."""
    if isinstance(parts, Symbol) and by == b"":
        return parts.joined()
    match parts:
        case (one,) if by == b"":
            return one
    raise Unread("parts that are joined")


_MADE: dict[str, Callable[..., object]] = {
    "bool": bool,
    "bytes": _make_bytes,
    "int": _make_int,
    "list": _make_list,
    "str": _make_str,
    "tuple": _make_tuple,
}
_TYPES = (bool, int, float, str, bytes, bytearray, memoryview, list, tuple, dict)
_AS_THEY_ARE = frozenset({"NotImplemented", "ord", "None", "True", "False"})
BUILT_IN: Namespace = {
    **{
        name: _Unreadable(name)
        for name, one in vars(builtins).items()
        if name.isidentifier()
        and not name.startswith("__")
        and name not in _AS_THEY_ARE
        and not (isinstance(one, type) and issubclass(one, BaseException))
    },
    **{one.__name__: symbolic_type(one) for one in _TYPES},
    "len": length,
    "isinstance": _is_instance,
    "type": _type_of,
    f"{HELPER}is_none": _is_none,
    f"{HELPER}known": _known,
    f"{HELPER}starred": _starred,
    f"{HELPER}joined": _joined,
    f"{HELPER}entries": _Unreadable("an empty mapping"),
}
