"""What the types of traces say of their fields, for the shrinker: the plain value of each, the
lowest number, what it holds. A field that a type gains is shrunk without a word here.
"""

from functools import cache
from typing import Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import (
    IntType,
    Metadata,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from cacheproof.differential.findings.shrinking.descriptions import weight
from cacheproof.differential.traces.base import IS_CONTENT


class TraceField(NamedTuple):
    """A field of a type of traces.

    Attributes:
        plain: its default; NODEFAULT where it has none.
        lowest: of a number, the least that it may be; None of anything else, and of a number that
            is content: what depends on it, its depth alone knows.
        choices: of one that has no default, the values that it may have, plainest first.
        holds: what it is a list of: "structs", "names", "numbers" or "content"; "" is no list.
    """

    name: str
    plain: object
    lowest: int | None
    choices: tuple[object, ...]
    holds: str


class Measure(NamedTuple):
    """How much there is in an event or a configuration: structs and names that it lists, fields
    that are not plain, and the sum of its numbers."""

    listed: int
    extras: int
    numbers: int


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[TraceField, ...]:
    """The fields of a type, in order."""
    info = type_info(kind)
    assert isinstance(info, StructType)
    written = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return tuple(
        TraceField(
            field.name,
            field.default,
            _lowest(field.type),
            _choices(written[field.name]) if field.required else (),
            _holds(field.type),
        )
        for field in info.fields
    )


def extras_of(holder: msgspec.Struct) -> dict[str, object]:
    """The fields that are not plain, each with what it would be; lists that would be empty, and
    that become so one by one, are none of them."""
    return {
        field.name: field.plain
        for field in fields_of(type(holder))
        if field.plain is not NODEFAULT
        and field.plain != ()
        and getattr(holder, field.name) != field.plain
    }


def measure(holder: msgspec.Struct) -> Measure:
    """How much there is in it and in what it holds; what is plain counts for nothing."""
    listed = extras = numbers = 0
    for field in fields_of(type(holder)):
        value = getattr(holder, field.name)
        if value == field.plain:
            continue
        extras += field.plain is not NODEFAULT and field.plain != ()
        if field.choices:
            numbers += field.choices.index(value)
        if field.holds in ("structs", "names"):
            listed += len(value)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, msgspec.Struct):
                inner = measure(part)
                listed += inner.listed
                extras += inner.extras
                numbers += inner.numbers
            elif not isinstance(part, str) or field.holds == "content":
                numbers += _size(part, field.holds)
    return Measure(listed, extras, numbers)


def _size(value: object, holds: str) -> int:
    """The size of a value: a number's own; in a list one more, for being there; of a row, whether
    it differs from zeros."""
    is_there = holds in ("numbers", "content")
    match value:
        case bool():
            return int(is_there)
        case int():
            return is_there + abs(value)
        case tuple():
            return is_there + sum(_size(part, "") for part in value)
        case dict():
            return weight(value)
        case str() if holds == "content":
            return int(value.strip("0") != "")
        case _:
            return int(is_there)


def _lowest(kind: Type) -> int | None:
    match _plainest(kind):
        case IntType(ge=lowest), False:
            return lowest or 0
        case _:
            return None


def _choices(kind: object) -> tuple[object, ...]:
    """The values that a type names, in its order, which `type_info` does not keep."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return (True, False) if kind is bool else ()


def _holds(kind: Type) -> str:
    match _plainest(kind):
        case VarTupleType(item_type=of), _:
            match _plainest(of):
                case _, True:
                    return "content"
                case StructType(), _:
                    return "structs"
                case StrType(), _:
                    return "names"
                case IntType(), _:
                    return "numbers"
                case _:
                    return "content"
        case _:
            return ""


def _plainest(kind: Type) -> tuple[Type, bool]:
    """A type without None, and whether it is marked as content."""
    is_content = False
    while isinstance(kind, Metadata | UnionType):
        if isinstance(kind, Metadata):
            is_content |= bool((kind.extra or {}).get(IS_CONTENT))
            kind = kind.type
        else:
            kind = next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType))
    return kind, is_content
