"""Each contract of the media hash holds of a sound pair and breaks on the pair made for it."""

import pytest

from cacheproof.spec.media_hash import DecodedStream, HashedPair
from cacheproof.spec.registry import by_id

SOUND = HashedPair(
    same_content=True,
    same_form=True,
    same_spelling=True,
    same_but_order=False,
    same_but_pixels=False,
    first_digest="a",
    second_digest="a",
)
ALL = ("MH-2", "MH-3", "MH-3a", "MH-4", "MH-6")
BROKEN = {
    "MH-2": SOUND._replace(same_spelling=False, same_but_order=True, second_digest="b"),
    "MH-3": SOUND._replace(same_content=False, same_spelling=False),
    "MH-3a": SOUND._replace(same_form=False, same_spelling=False),
    "MH-4": SOUND._replace(second_digest="b"),
    "MH-6": SOUND._replace(same_spelling=False, same_but_pixels=True, second_digest="b"),
}


@pytest.mark.parametrize("id", ALL)
def test_equal_values_with_one_digest_are_sound(id: str) -> None:
    assert by_id(id).predicate(SOUND)


@pytest.mark.parametrize("id", ALL)
def test_different_values_with_two_digests_are_sound(id: str) -> None:
    apart = HashedPair(False, False, False, False, False, "a", "b")
    assert by_id(id).predicate(apart)


@pytest.mark.parametrize("id", ALL)
def test_a_pair_breaks_the_contract_that_it_was_made_for_and_no_other(id: str) -> None:
    broken = {other for other in ALL if not by_id(other).predicate(BROKEN[id])}
    assert broken == {id}


def test_a_broken_contract_shows_both_digests() -> None:
    assert by_id("MH-3").explain(p=BROKEN["MH-3"]) == (
        "p.same_content is false and p.first_digest != p.second_digest is false: 'a' != 'a'"
    )


def test_a_stream_that_decodes_to_something_else_is_not_uniquely_decodable() -> None:
    decodable = by_id("MH-1").predicate
    assert decodable(DecodedStream("tree", "tree"))
    assert not decodable(DecodedStream("tree", "other"))
