"""Identifiers keep items and adapters apart; each flag alone lets two of them meet."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheproof.reference.media_identifier import ItemName, identifier, processor_key
from cacheproof.reference.request import encoder_identifier
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.media_hash import NamedPair, identifiers_apart

IDEAL = MediaSemantics()
TEXTS = st.text("ab1:", min_size=1, max_size=4)
NAMES = st.builds(ItemName, TEXTS, st.just(True)) | st.builds(
    ItemName, st.text("0123456789abcdef", min_size=4, max_size=4)
)
ADAPTERS = st.none() | TEXTS


Named = tuple[ItemName, str | None]


def pair(semantics: MediaSemantics, one: Named, other: Named) -> NamedPair:
    identifiers = [identifier(name, adapter, semantics) for name, adapter in (one, other)]
    return NamedPair(one[0] == other[0], one[1] == other[1], *identifiers)


@given(NAMES, ADAPTERS, NAMES, ADAPTERS)
def test_different_names_or_adapters_have_different_identifiers(
    name: ItemName, adapter: str | None, other: ItemName, other_adapter: str | None
) -> None:
    assert identifiers_apart(pair(IDEAL, (name, adapter), (other, other_adapter)))


@given(NAMES, ADAPTERS)
def test_equal_names_and_adapters_share(name: ItemName, adapter: str | None) -> None:
    both = pair(IDEAL, (name, adapter), (name, adapter))
    assert both.first_identifier == both.second_identifier


DRAW = random.Random("identifiers")


def drawn(count: int) -> list[str]:
    """Short texts, which have much in common."""
    return ["".join(DRAW.choices("ab:", k=DRAW.randint(1, 4))) for _ in range(count)]


ITEMS: list[Named] = [
    (ItemName(text, is_users), adapter)
    for text, is_users, adapter in product(drawn(8), (False, True), (None, *drawn(6)))
]
ABOUT: dict[str, Callable[[Named, Named], bool]] = {
    "identifies_adapters": lambda one, other: one[0] == other[0] and one[1] != other[1],
    "separates_user_ids": lambda one, other: (
        one[0].text == other[0].text and one[0] != other[0] and one[1] == other[1]
    ),
    "measures_adapter_names": lambda one, other: (
        one[0] != other[0] and one[0].is_users and other[0].is_users and one[1] != other[1]
    ),
}
"""Which two items a flag keeps apart."""


@pytest.mark.parametrize("flag", ABOUT)
def test_without_a_flag_two_items_meet(flag: str) -> None:
    """The rest is as in the newest release, but for what the flag's own sake needs."""
    pairs = [two for two in combinations(ITEMS, 2) if ABOUT[flag](*two)]
    without = replace(Semantics.of_vllm("0.33.0").media, **{flag: False})
    assert all(identifiers_apart(pair(IDEAL, *two)) for two in pairs)
    assert not all(identifiers_apart(pair(without, *two)) for two in pairs)


def test_the_newest_release_joins_names_as_the_reference_says() -> None:
    newest = Semantics.of_vllm("0.33.0").media
    assert identifier(ItemName("h"), "a", newest) == encoder_identifier("h", "a") == "a:h"
    assert identifier(ItemName("h"), None, newest) == encoder_identifier("h") == "h"
    assert processor_key(ItemName("mine", is_users=True), newest) == "mine"
