"""Texts of the reference, and how they are run on symbolic values.

A text is run as it stands, in a module of its own, in which the names of built-in types and
functions mean the same of symbolic values as they do of Python's own.
"""

import builtins
import inspect
from collections.abc import Callable, Iterable
from functools import cache
from types import CodeType, ModuleType
from typing import Any

from cacheproof.proofs.keys.symbolic import (
    Data,
    Field,
    Number,
    Repeated,
    Symbol,
    collect,
    number,
)

Namespace = dict[str, Any]


def text_of(module: ModuleType) -> str:
    """The source text of a module."""
    return inspect.getsource(module)


def run_text(text: str, module: ModuleType, **meaning: Any) -> Namespace:
    """The names that a text defines, with the built-in ones and those of `meaning` replaced.

    `module` is the one whose text it is, changed or not.
    """
    namespace: Namespace = {"__name__": module.__name__}
    exec(_compiled(text, module.__name__), namespace)
    namespace.update(BUILT_IN)
    namespace.update(meaning)
    return namespace


@cache
def _compiled(text: str, name: str) -> CodeType:
    return compile(text, f"<{name}>", "exec")


class _Type(type):
    """A built-in type to which symbols of its name belong as well."""

    real: type

    def __instancecheck__(cls, value: object) -> bool:
        if isinstance(value, Symbol):
            return cls.__name__ in value.types
        return isinstance(value, cls.real)

    def __call__(cls, *arguments: Any) -> Any:
        return _MADE.get(cls.__name__, cls.real)(*arguments)

    def __getitem__(cls, parameters: Any) -> Any:
        return cls.real[parameters]  # type: ignore[index]


def symbolic_type(real: type) -> type:
    """What takes the place of a type."""
    return _Type(real.__name__, (), {"real": real})


def _make_bytes(value: Any = b"") -> Any:
    match value:
        case Data():
            return Data(*value.pieces)
        case tuple() if any(isinstance(one, Number) for one in value):
            return Data(*(Field(number(one), 1, "big") for one in value))
        case _:
            return bytes(value)


def _make_int(value: Any) -> Any:
    return value if isinstance(value, Number) else int(value)


def _make_str(value: Any) -> Any:
    return value.as_text() if isinstance(value, Symbol) else str(value)


def _make_tuple(parts: Iterable[Any]) -> tuple[Any, ...]:
    return collect(parts)


def length(value: Any) -> Any:
    """`len`, of symbols too."""
    match value:
        case Data():
            return value.nbytes
        case Symbol():
            return Number(value.count)
        case tuple() if any(isinstance(one, Repeated) for one in value):
            return Number(sum(_length_of(one) for one in value))
        case _:
            return len(value)


def _length_of(one: Any) -> Any:
    return one.loop.count * len(one.pieces) if isinstance(one, Repeated) else 1


_MADE: dict[str, Callable[..., Any]] = {
    "bytes": _make_bytes,
    "int": _make_int,
    "str": _make_str,
    "tuple": _make_tuple,
}
_TYPES = (bool, int, float, str, bytes, bytearray, memoryview, list, tuple, dict)
BUILT_IN: Namespace = {
    **{one.__name__: symbolic_type(one) for one in _TYPES},
    "len": length,
    "isinstance": builtins.isinstance,
}
