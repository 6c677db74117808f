"""Identifiers keep items and adapters apart; each flag alone lets two of them meet."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheproof.reference.media_identifier import (
    ItemName,
    ItemOfRequest,
    NoData,
    Server,
    identifier,
    processor_key,
)
from cacheproof.reference.request import encoder_identifier
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.media_identifier import NamedPair, identifiers_apart

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


CAT, DOG, NAMED = (
    ItemOfRequest("image", 0, None),
    ItemOfRequest("image", 1, None),
    ItemOfRequest("image", 0, "u"),
)
UNCACHED = {
    "digests_uncached": False,
    "keeps_user_ids": True,
    "numbers_requests": True,
    "numbers_servers": True,
}


def server(*without: str, number: int = 0, asks_for_digests: bool = False) -> Server:
    """A server of the newest release's kind, but for these flags."""
    flags = {**UNCACHED, **dict.fromkeys(without, False)}
    semantics = replace(Semantics.of_vllm("0.33.0").media, **flags)
    return Server(semantics, asks_for_digests=asks_for_digests, adapters_reach=False, number=number)


def test_an_item_has_its_digest_for_a_name_where_anything_asks_for_one() -> None:
    one, other = server(asks_for_digests=True), server(asks_for_digests=True)
    (cat,), (dog,) = one.name("a", [CAT], None, 0), one.name("b", [DOG], None, 0)
    assert [cat] == other.name("c", [CAT], None, 0)
    assert len({cat, dog, *one.name("a", [CAT], None, 1)}) == 3
    assert one.name("d", [NAMED], None, 0) == ["u"]


def test_elsewhere_a_server_counts_its_requests_and_says_which_it_is() -> None:
    """`numbers_servers`, since 0.18.0: without it, two servers say the same."""
    one = server(number=1)
    assert one.name("a", [CAT, DOG], None, 0) == [
        "renderer1-mm-1-image-0",
        "renderer1-mm-1-image-1",
    ]
    assert one.name("a", [CAT], None, 0) == ["renderer1-mm-2-image-0"]
    assert server("numbers_servers", number=1).name("a", [CAT], None, 0) == [
        "renderer-mm-1-image-0"
    ]


def test_before_that_the_request_says_how_its_items_are_called() -> None:
    """`numbers_requests`, since 0.17.0."""
    one = server("numbers_requests")
    assert one.name("a", [CAT], None, 0) == one.name("a", [DOG], None, 0) == ["a-image-0"]


def test_an_id_is_kept_since_0_30_0() -> None:
    """`keeps_user_ids`."""
    assert server().name("a", [NAMED, DOG], None, 0) == ["u", "renderer0-mm-1-image-1"]
    assert server("keeps_user_ids").name("a", [NAMED], None, 0) == ["renderer0-mm-1-image-0"]


def test_the_ideal_has_digests_whatever_is_on() -> None:
    """`digests_uncached`."""
    ideal = Server(IDEAL, asks_for_digests=False, adapters_reach=False, number=0)
    on = Server(IDEAL, asks_for_digests=True, adapters_reach=False, number=1)
    assert ideal.name("a", [CAT, NAMED], None, 0) == on.name("b", [CAT, NAMED], None, 0)


def test_the_ideal_names_an_item_by_what_its_engine_tells_the_processor() -> None:
    """Releases name it by a request's options alone."""

    def named(semantics: MediaSemantics, settings: int, options: int) -> list[str]:
        one = Server(
            semantics, asks_for_digests=True, adapters_reach=False, number=0, settings=settings
        )
        return one.name("a", [CAT, NAMED], None, options)

    without = replace(IDEAL, **dict.fromkeys(["digests_settings"], False))
    assert named(IDEAL, 1, 0) == named(IDEAL, 0, 1) == named(IDEAL, 2, 1)
    assert not set(named(IDEAL, 1, 0)) & set(named(IDEAL, 0, 0))
    assert named(without, 1, 0) == named(without, 0, 0)


def test_a_sound_may_come_by_its_id_alone_since_0_30_0() -> None:
    """`takes_sounds_by_id`."""
    alone = [ItemOfRequest("audio", None, "u")]
    assert server().name("a", alone, None, 0) == ["u"]
    with pytest.raises(NoData):
        server("takes_sounds_by_id").name("a", alone, None, 0)


@pytest.mark.parametrize(("alike", "count"), [(1, 2), (2, 3)])
def test_a_picture_has_another_name_among_more_than_its_model_processes_alike(
    alike: int, count: int
) -> None:
    picture = ItemOfRequest("image", 1, None)

    def names(count: int, *without: str) -> set[str]:
        semantics = Semantics.ideal().without(*without).media
        one = Server(semantics, asks_for_digests=True, adapters_reach=False, number=0, alike=alike)
        return {*one.name("r", [picture] * count, None, 0)}

    assert names(1) == names(alike)
    assert names(1) != names(count)
    assert names(1, "media.digests_counts") == names(count, "media.digests_counts")
