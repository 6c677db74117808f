"""What tells two values apart has a name."""

import pytest

from cacheproof.differential.media.descriptions import Description, call
from cacheproof.differential.media.differences import kind_of
from cacheproof.differential.media.values import (
    array,
    boolean,
    image,
    integer,
    mapping,
    media,
    none,
    raw,
    real,
    sequence,
    text,
)

SHOWN = image("L", (1, 1), b"a")
OTHER = image("L", (1, 1), b"b")
IDENTIFIED = image("L", (1, 1), b"a", image_id={"uuid": "61" * 16})


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (integer(1), real(5e-324), "types over the same bytes"),
        (integer(2**64 - 1), integer(-1), "types over the same bytes"),
        (text(""), raw(b""), "types over the same bytes"),
        (boolean(True), real(1.0), "bool against float"),
        (integer(1), integer(2), "value of an int"),
        (integer(2**64), integer(2**65), "value of a huge int"),
        (sequence(integer(1)), mapping(("0", integer(1))), "list against map"),
        (sequence(integer(1)), sequence(integer(1), none()), "length of a list"),
        (sequence(), sequence(none()), "kinds of nothing"),
        (none(), raw(b""), "kinds of nothing"),
        (mapping(), sequence(kind="tuple"), "kinds of nothing"),
        (sequence(integer(1), kind="tuple"), mapping(("0", integer(1))), "list against map"),
        (mapping(("1", none())), mapping((integer(1), none())), "type of a key"),
        (mapping(("1", none())), mapping(("2", none())), "keys of a mapping"),
        (array(b"abcd"), array(b"abcd", shape=(2, 2)), "shape of an array"),
        (array(b"ab"), array(b"ab", "|i1"), "dtype of an array"),
        (array(b"ab", [["a", "|u1"]]), array(b"ab", [["b", "|u1"]]), "fields of an array"),
        (SHOWN, OTHER, "pixels of an image"),
        (SHOWN, IDENTIFIED, "image id"),
        (IDENTIFIED, raw(b"a" * 16), "image id over the same bytes"),
        (media(IDENTIFIED, b"f"), text("a" * 16), "image id over the same bytes"),
        (media(SHOWN, b"f"), media(OTHER, b"f"), "picture from one file"),
        (media(SHOWN, b"f"), media(OTHER, b"g"), "fetched bytes + pixels of an image"),
        (media(array(b"a"), b"f"), media(array(b"b"), b"f"), "frames from one file"),
        (
            media(SHOWN, b"f", mapping(("a", none()))),
            media(OTHER, b"f"),
            "decode settings + picture from one file",
        ),
        (sequence(none()), sequence(none(), kind="tuple"), "list or tuple"),
        (array(b"ab"), array(b"ab", layout="strided"), "layout of an array"),
        (media(SHOWN, b"f"), media(SHOWN, b"g"), "origin of a media"),
        (integer(2**64), integer(2**64), "huge int"),
    ],
)
def test_what_tells_two_values_apart_has_a_name(
    one: Description, other: Description, kind: str
) -> None:
    assert kind_of(call(x=one), call(x=other)) == kind
    assert kind_of(call(x=other), call(x=one)) == kind
    nested = (call(a=none(), x=mapping(("k", sequence(value)))) for value in (one, other))
    assert kind_of(*nested) == (f"{kind} + none + str" if one == other else kind)
