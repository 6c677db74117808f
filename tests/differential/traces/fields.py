"""The fields of a depth's traces, from their types."""

from collections.abc import Iterator

import msgspec
from msgspec.inspect import Metadata, NoneType, StructType, Type, UnionType, VarTupleType, type_info

from cacheproof.differential.depths import DEPTHS


def inside(kind: Type) -> Type:
    """A type without None and what is marked."""
    while isinstance(kind, Metadata | UnionType):
        if isinstance(kind, Metadata):
            kind = kind.type
        else:
            kind = next(one for one in kind.types if not isinstance(one, NoneType))
    return kind


def config_of(depth: str) -> type[msgspec.Struct]:
    """The type of a depth's configurations."""
    info = type_info(DEPTHS[depth].header)
    assert isinstance(info, StructType)
    (config,) = (inside(field.type) for field in info.fields if field.name == "config")
    assert isinstance(config, StructType)
    return config.cls


def paths(kind: type[msgspec.Struct]) -> Iterator[tuple[str, ...]]:
    """The fields of a type, and those of what it lists."""
    info = type_info(kind)
    assert isinstance(info, StructType)
    for field in info.fields:
        yield (field.name,)
        of = inside(field.type)
        if isinstance(of, VarTupleType) and isinstance(inside(of.item_type), StructType):
            yield from ((field.name, *rest) for rest in paths(inside(of.item_type).cls))  # type: ignore[union-attr]
