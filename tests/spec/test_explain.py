"""A broken contract says which comparison failed and what stood on both sides."""

import itertools
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

import pytest

import cacheproof.spec.encoder_cache  # noqa: F401  (registers its contracts)
from cacheproof.spec import subset
from cacheproof.spec.records import EncoderCacheState
from cacheproof.spec.registry import by_id
from cacheproof.spec.vocabulary import within

EMPTY = EncoderCacheState(10, 10, 10, {}, {}, {}, ())


class Cache(NamedTuple):
    free: int
    size: dict[str, int]
    held: dict[str, frozenset[str]]


def in_bounds(s: Cache) -> bool:
    return s.free >= 0 and s.free <= 5


def either(s: Cache) -> bool:
    return s.free == 0 or s.free == 1


def every_size(s: Cache) -> bool:
    return all(s.size[h] <= 4 for h in s.size if h in s.held)


def every_pair(s: Cache) -> bool:
    return all(s.size[a] <= s.size[b] for a in s.size for b in s.size)


def not_held(s: Cache) -> bool:
    return not s.held["h1"]


def held_by(s: Cache) -> bool:
    return "r9" in s.held["h1"]


def guarded(s: Cache) -> bool:
    return ("h3" not in s.size or s.size["h3"] > 4) and s.free <= 5


def none_there(s: Set[str]) -> bool:
    return all(h not in s for h in s)


def empty(s: int) -> bool:
    return s == 0


def agreeing(s: Cache, g: Mapping[str, int]) -> bool:
    return within(s.size, g)


CACHE = Cache(7, {"h1": 4, "h2": 5}, {"h1": frozenset({"r2", "r1"}), "h2": frozenset()})


@pytest.mark.parametrize(
    ("predicate", "why"),
    [
        (in_bounds, "s.free <= 5 is false: 7 <= 5"),
        (either, "s.free == 0 is false: 7 == 0 and s.free == 1 is false: 7 == 1"),
        (every_size, "for h = 'h2': s.size[h] <= 4 is false: 5 <= 4"),
        (every_pair, "for a = 'h2': for b = 'h1': s.size[a] <= s.size[b] is false: 5 <= 4"),
        (not_held, "not s.held['h1'] is false"),
        (guarded, "s.free <= 5 is false: 7 <= 5"),
        (held_by, "'r9' in s.held['h1'] is false: 'r9' in {'r1', 'r2'}"),
    ],
)
def test_the_failing_comparison_is_shown_with_both_sides(
    predicate: Callable[..., bool], why: str
) -> None:
    assert not predicate(CACHE)
    assert subset.parse(predicate).explain({"s": CACHE}) == why


@pytest.mark.parametrize(
    ("predicate", "why"),
    [
        (none_there, "for h = Cache(free=1, size={}, held={'h': {'a', 'b', 'c'}}): "),
        (empty, "s == 0 is false: {Cache(free=1, size={}, held={'h': {'a', 'b', 'c'}}), Cache("),
    ],
)
def test_sets_are_in_order_whatever_the_seed_of_hashes(
    predicate: Callable[..., bool], why: str
) -> None:
    class Hashed(Cache):
        """Of which any may come first in a set."""

        number = 0

        def __hash__(self) -> int:
            return self.number

    caches = [Hashed(free, {}, {"h": frozenset("abc")}) for free in (1, 2, 10)]
    for numbers in itertools.permutations(range(3)):
        for cache, number in zip(caches, numbers, strict=True):
            cache.number = number
        told = subset.parse(predicate).explain({"s": {*caches}})
        assert told.replace("Hashed", "Cache").startswith(why)


def test_a_contract_that_holds_is_explained_by_its_text() -> None:
    assert subset.parse(in_bounds).explain({"s": CACHE._replace(free=3)}) == (
        "s.free >= 0 and s.free <= 5"
    )


def test_a_registered_contract_explains_itself() -> None:
    leaked = EMPTY._replace(free_slots=8, size={"h": 1}, holders={"h": frozenset()})
    assert by_id("EC-1").explain(s=leaked) == (
        "s.free_slots + total(s.size) == s.capacity is false: 9 == 10"
    )


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        ({"h1": 4, "h2": 6}, "for h = 'h2': s.size[h] == g[h] is false: 5 == 6"),
        ({"h2": 5}, "for h = 'h1': h in g is false: 'h1' in {'h2': 5}"),
    ],
)
def test_maps_that_differ_are_told_apart_by_one_key(whole: dict[str, int], why: str) -> None:
    assert not agreeing(CACHE, whole)
    assert subset.parse(agreeing).explain({"s": CACHE, "g": whole}) == why
