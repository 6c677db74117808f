"""Records of `spec/`, drawn by the types of their fields."""

import random
from collections.abc import Iterable, Iterator, Mapping, Set
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

NAMES = ("", "a", "b", "c")


def drawn(hint: Any, draw: random.Random) -> Any:
    """A value of a field of a record."""
    if hint is int:
        return draw.randint(-1, 3)
    if hint is bool:
        return draw.random() < 0.5
    if hint is str:
        return draw.choice(NAMES)
    if get_origin(hint) in (Union, UnionType):
        return drawn(draw.choice(get_args(hint)), draw)
    if get_origin(hint) is None:
        fields = list(get_type_hints(hint).values())
        if draw.random() < 0.1:  # all fields of a type are the same
            same = {str(one): drawn(one, draw) for one in fields}
            return hint(*(same[str(one)] for one in fields))
        return hint(*(drawn(one, draw) for one in fields))
    of, *more = get_args(hint)
    count = range(draw.randint(0, 2))
    if issubclass(get_origin(hint), Mapping):
        return {drawn(of, draw): drawn(*more, draw) for _ in count}
    if more and more != [...]:
        return tuple(drawn(one, draw) for one in (of, *more))
    values = [drawn(of, draw) for _ in count]
    return set(values) if issubclass(get_origin(hint), Set) else tuple(values)


def records(subject: type, seeds: Iterable[int]) -> Iterator[Any]:
    """Records of a type, in which something is wrong more often than not."""
    for seed in seeds:
        yield drawn(subject, random.Random(seed))
