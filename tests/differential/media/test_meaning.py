"""Described values mean what their objects hold."""

import pytest

from cacheproof.differential.generators.media_hash import pair
from cacheproof.differential.media.descriptions import Description
from cacheproof.differential.media.meaning import content, spelling
from cacheproof.differential.media.values import (
    array,
    boolean,
    image,
    integer,
    mapping,
    media,
    sequence,
    text,
)
from cacheproof.differential.targets.host.managers.media_values import Builder, Unbuildable, limited
from cacheproof.reference import media_content
from cacheproof.reference.media_hash import MediaWithBytes

SEEDS = range(300)
WRAPPER = limited(MediaWithBytes, {"image", "array"}, takes_settings=True)


def buildable(value: Description) -> bool:
    try:
        Builder(WRAPPER).arguments(value)
    except Unbuildable:  # torch is not among the tests' libraries
        return False
    return True


def test_descriptions_and_objects_have_equal_contents_at_the_same_seeds() -> None:
    """Two workings of one policy: from the description, and from the object that it stands for."""
    compared = 0
    for seed in SEEDS:
        one = pair(seed)
        if not (buildable(one.first) and buildable(one.second)):
            continue
        try:
            trees = [
                media_content.call(Builder(WRAPPER).arguments(value))
                for value in (one.first, one.second)
            ]
        except media_content.Refused:
            continue
        compared += 1
        encoded = [media_content.encode(tree) for tree in trees]
        assert (encoded[0] == encoded[1]) == (content(one.first) == content(one.second)), one
    assert compared > len(SEEDS) * 2 // 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (integer(1), boolean(True)),
        (sequence(integer(1)), mapping(("0", integer(1)))),
        (mapping((integer(1), text("a"))), mapping(("1", text("a")))),
        (array(b"abcd"), array(b"abcd", "<i4", (1,))),
        (image("L", (1, 1), b"a"), image("L", (1, 1), b"a", transparency=0)),
        (media(array(b"a"), b"file"), media(array(b"b"), b"file")),
    ],
)
def test_these_contents_differ(one: Description, other: Description) -> None:
    assert content(one) != content(other)
    assert spelling(one) != spelling(other)


@pytest.mark.parametrize(
    ("one", "other", "spelled_alike"),
    [
        (sequence(integer(1)), sequence(integer(1), kind="tuple"), True),
        (array(b"abcd", shape=(2, 2)), array(b"abcd", shape=(2, 2), layout="F"), True),
        (
            mapping(("a", text("")), ("b", text(""))),
            mapping(("b", text("")), ("a", text(""))),
            False,
        ),
        (media(array(b"a"), b"file"), media(array(b"a"), b"other file"), False),
        (media(array(b"a"), b"file"), array(b"a"), False),
    ],
)
def test_these_contents_are_equal(
    one: Description, other: Description, spelled_alike: bool
) -> None:
    assert content(one) == content(other)
    assert (spelling(one) == spelling(other)) is spelled_alike
