"""Identifiers keep items and adapters apart; each flag alone lets two of them meet."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheproof.reference.media_identifier import ItemName, identifier, processor_key
from cacheproof.reference.request import encoder_identifier
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.media_hash import NamedPair, identifiers_apart

IDEAL = MediaSemantics()
DIGEST = "af13"
TEXTS = st.text("ab1:", min_size=1, max_size=4)
NAMES = st.builds(ItemName, TEXTS, st.just(True)) | st.builds(
    ItemName, st.text("0123456789abcdef", min_size=4, max_size=4)
)
ADAPTERS = st.none() | TEXTS


def pair(
    semantics: MediaSemantics,
    one: tuple[ItemName, str | None],
    other: tuple[ItemName, str | None],
) -> NamedPair:
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


MEETS = {
    "identifies_adapters": ((ItemName(DIGEST), "a"), (ItemName(DIGEST), "b")),
    "separates_user_ids": ((ItemName(DIGEST), None), (ItemName(DIGEST, is_users=True), None)),
    "measures_adapter_names": (
        (ItemName(DIGEST), "a:b"),
        (ItemName(f"b:{DIGEST}", is_users=True), "a"),
    ),
}


@pytest.mark.parametrize("flag", MEETS)
def test_without_a_flag_two_items_meet(flag: str) -> None:
    """The rest is as in the newest release, but for what the flag's own sake needs."""
    one, other = MEETS[flag]
    newest = Semantics.of_vllm("0.33.0").media
    assert identifiers_apart(pair(IDEAL, one, other))
    assert not identifiers_apart(pair(replace(newest, **{flag: False}), one, other))


def test_the_newest_release_joins_names_as_the_reference_says() -> None:
    newest = Semantics.of_vllm("0.33.0").media
    assert identifier(ItemName("h"), "a", newest) == encoder_identifier("h", "a") == "a:h"
    assert identifier(ItemName("h"), None, newest) == encoder_identifier("h") == "h"
    assert processor_key(ItemName("mine", is_users=True), newest) == "mine"
