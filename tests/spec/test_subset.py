"""The subset takes what contracts need, and names file and line of anything else."""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import NamedTuple

import pytest

from cacheproof.spec import subset, vocabulary
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call
from cacheproof.spec.vocabulary import total

HERE = __file__


class Cache(NamedTuple):
    capacity: int
    free: int
    size: Mapping[str, int]
    holders: Mapping[str, Set[str]]
    queue: Mapping[str, int]


def adds_up(s: Cache) -> bool:
    return s.free + total(s.size) == s.capacity - 0


def bounds(s: Cache) -> bool:
    return 0 <= s.free <= s.capacity and not s.free > 3


def membership(s: Cache, g: Ghost) -> bool:
    return all(h in g.size and g.size[h] != 0 for h in s.queue if h not in s.holders)


def nested(pre: Cache, post: Cache) -> bool:
    return all(all(a <= b for b in post.size) for a in pre.size) or len(pre.queue) < 1


def text(c: Call) -> bool:
    return c.raised == ""


@pytest.mark.parametrize("predicate", [adds_up, bounds, membership, nested, text])
def test_what_contracts_need_is_inside(predicate: Callable[..., bool]) -> None:
    assert subset.parse(predicate).parameters


def calls_a_builtin(s: Cache) -> bool:
    return sum(s.size) == 0


def calls_a_method(s: Cache) -> bool:
    return s.size.get("h") == 0


def calls_with_a_keyword(s: Cache) -> bool:
    return total(sizes=s.size) == 0


def multiplies(s: Cache) -> bool:
    return s.free * 2 == 0


def divides(s: Cache) -> bool:
    return s.free // 2 == 0


def compares_identity(s: Cache) -> bool:
    return s.free is s.capacity


def has_a_lambda(s: Cache) -> bool:
    return (lambda: True)()


def has_a_conditional(s: Cache) -> bool:
    return True if s.free else False  # noqa: SIM210


def has_a_list(s: Cache) -> bool:
    return s.free in [1, 2]


def has_a_comprehension(s: Cache) -> bool:
    return len([h for h in s.size]) == 0  # noqa: C416


def has_a_walrus(s: Cache) -> bool:
    return (n := s.free) == 0 and n == 0


def has_an_f_string(s: Cache) -> bool:
    return f"{s.free}" == "0"


def has_a_float(s: Cache) -> bool:
    return s.free < 0.5


def has_none(s: Cache) -> bool:
    return s.free == None  # noqa: E711


def has_a_slice(s: Cache) -> bool:
    return s.queue[1:] == s.queue


def unpacks(s: Cache) -> bool:
    return all(size > 0 for _, size in s.size)


def all_of_something_else(s: Cache) -> bool:
    return all(s.size)


def all_of_two(s: Cache) -> bool:
    return all((h in s.size for h in s.queue), s.size)  # type: ignore[call-arg]


def two_statements(s: Cache) -> bool:
    free = s.free
    return free == 0  # type: ignore[no-any-return]


def no_value(s: Cache) -> None:
    return


def with_a_docstring(s: Cache) -> bool:
    """Says what the title says."""
    return s.free == 0


def other_parameter(state: Cache) -> bool:
    return state.free == 0


def keyword_only(s: Cache, *, limit: int) -> bool:
    return s.free == limit


def many(*s: Cache) -> bool:
    return s == 0


def optional(s: Cache = 0) -> bool:
    return s.free == 0


def unknown_name(s: Cache) -> bool:
    return s.free == LIMIT


LIMIT = 3


def word_without_call(s: Cache) -> bool:
    return s.free == total  # type: ignore[comparison-overlap]


def bound_outside_its_generator(s: Cache) -> bool:
    return all(h in s.size for h in s.queue) and h == 0  # noqa: F821  # type: ignore[name-defined]


def binds_a_parameter(s: Cache) -> bool:
    return all(s in s.size for s in s.queue)


def has_true(s: Cache) -> bool:
    return s.free == True  # noqa: E712


async def is_asynchronous(s: Cache) -> bool:
    return s.free == 0  # type: ignore[no-any-return]


def is_a_generator(s: Cache) -> Iterator[bool]:
    yield s.free == 0


OUTSIDE = [
    calls_a_builtin,
    calls_a_method,
    calls_with_a_keyword,
    multiplies,
    divides,
    compares_identity,
    has_a_lambda,
    has_a_conditional,
    has_a_list,
    has_a_comprehension,
    has_a_walrus,
    has_an_f_string,
    has_a_float,
    has_none,
    has_a_slice,
    unpacks,
    all_of_something_else,
    all_of_two,
    two_statements,
    no_value,
    with_a_docstring,
    other_parameter,
    keyword_only,
    many,
    optional,
    unknown_name,
    word_without_call,
    bound_outside_its_generator,
    binds_a_parameter,
    has_true,
    is_asynchronous,
    is_a_generator,
]


@pytest.mark.parametrize("predicate", OUTSIDE, ids=lambda predicate: predicate.__name__)
def test_anything_else_is_refused_with_file_and_line(predicate: Callable[..., bool]) -> None:
    first = predicate.__code__.co_firstlineno
    with pytest.raises(subset.SubsetError, match="outside the subset") as refusal:
        subset.parse(predicate)
    place, line, name, _ = str(refusal.value).split(":", 3)
    assert place == HERE
    assert first <= int(line) <= first + 3
    assert name.strip() == predicate.__name__


def test_a_lambda_is_refused() -> None:
    with pytest.raises(subset.SubsetError, match="outside the subset"):
        subset.parse(lambda s: s.free == 0)


def test_the_words_are_the_functions_of_the_vocabulary() -> None:
    public = {
        name
        for name, value in vars(vocabulary).items()
        if callable(value) and getattr(value, "__module__", "") == vocabulary.__name__
    }
    assert public == vocabulary.WORDS
