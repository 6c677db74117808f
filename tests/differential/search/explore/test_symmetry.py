"""States that differ in nothing but names have one key, and no others do."""

from itertools import permutations
from random import Random
from typing import Any

import pytest

from cacheproof.differential.search.explore.symmetry import Renaming, Symmetry
from cacheproof.differential.targets.host.explorer import SET

NAMES = "abc", "xy"
GROUP: list[Renaming] = [
    dict(zip("abcxy", (*requests, *identifiers), strict=True))
    for requests in permutations(NAMES[0])
    for identifiers in permutations(NAMES[1])
]


def tree(random: Random, depth: int = 3) -> Any:
    """A tree of lists, sets, names and numbers."""
    if depth == 0 or random.random() < 0.3:
        leaf: Any = random.choice((*"abcxy", "a#0", 0, 1, None))
        return leaf
    parts = [tree(random, depth - 1) for _ in range(random.randrange(4))]
    return [SET, *parts] if random.random() < 0.5 else parts


def renamed(what: Any, renaming: Renaming) -> Any:
    """The same under other names, and sets in another order."""
    if isinstance(what, list):
        parts = [renamed(part, renaming) for part in what]
        return [SET, *reversed(parts[1:])] if parts and parts[0] == SET else parts
    if isinstance(what, str):
        return renaming.get(what[:1], what[:1]) + what[1:]
    return what


def plain(what: Any) -> Any:
    """A value that is equal for equal trees."""
    if not isinstance(what, list):
        return repr(what)
    parts = [plain(part) for part in what]
    return ("set", *sorted(map(repr, parts[1:]))) if what and what[0] == SET else tuple(parts)


@pytest.mark.parametrize("group", [GROUP, GROUP[:1]], ids=["all", "none"])
def test_the_key_is_equal_exactly_where_a_renaming_turns_one_into_the_other(
    group: list[Renaming],
) -> None:
    symmetry = Symmetry(group)
    random = Random(0)
    keys: dict[bytes, set[Any]] = {}
    for _ in range(300):
        one = tree(random), tree(random)
        orbit = {tuple(plain(renamed(part, renaming)) for part in one) for renaming in group}
        for renaming in random.sample(group, min(3, len(group))):
            same = [renamed(part, renaming) for part in one]
            key = symmetry.key(*map(symmetry.part, same))
            assert keys.setdefault(key, orbit) == orbit
    assert len(keys) > 100


def test_parts_are_renamed_alike() -> None:
    symmetry = Symmetry(GROUP)
    held, other = symmetry.part([["a", 1], ["b", 2]]), symmetry.part([["b", 1], ["a", 2]])
    assert symmetry.key(held, symmetry.part(["a"])) == symmetry.key(other, symmetry.part(["b"]))
    assert symmetry.key(held, symmetry.part(["a"])) != symmetry.key(held, symmetry.part(["b"]))


def test_what_bears_a_name_is_found_in_entries_of_inputs_as_well() -> None:
    names = Symmetry(GROUP).part([SET, ["a#0", 1]]).names
    assert "a" in names
    assert "b" not in names
