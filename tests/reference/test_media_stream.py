"""The stream of a media hash is inverted by its decoder, which refuses everything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheproof.reference.media_stream import LEAVES, LISTS, Node, NotAStream, decode, encode
from cacheproof.spec.media_hash import DecodedStream, uniquely_decodable

LEAF = st.builds(Node, st.sampled_from(sorted(LEAVES)), st.binary(max_size=20))
NODES = st.recursive(
    LEAF,
    lambda child: st.builds(
        Node, st.sampled_from(sorted(LISTS)), st.lists(child, max_size=4).map(tuple)
    ),
    max_leaves=12,
)


@given(NODES)
def test_decoding_inverts_encoding(node: Node) -> None:
    assert uniquely_decodable(DecodedStream(node, decode(encode(node))))


@given(NODES, NODES)
def test_no_stream_begins_another(one: Node, other: Node) -> None:
    if one != other:
        assert not encode(other).startswith(encode(one))


@given(NODES, st.data())
def test_a_stream_cut_short_is_refused(node: Node, data: st.DataObject) -> None:
    stream = encode(node)
    cut = data.draw(st.integers(0, len(stream) - 1))
    with pytest.raises(NotAStream):
        decode(stream[:cut])


@given(st.binary(max_size=64))
def test_what_decodes_is_the_encoding_of_what_it_decodes_to(stream: bytes) -> None:
    try:
        node = decode(stream)
    except NotAStream:
        return
    assert encode(node) == stream


def test_a_memoryview_of_any_item_size_is_as_long_as_its_bytes() -> None:
    view = memoryview(bytes(8)).cast("d")
    assert decode(encode(Node(ord("X"), view))) == Node(ord("X"), bytes(8))


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"", r"byte 0: ends within a head"),
        (b"X" + bytes(8) + b"rest", r"byte 9: 4 bytes after the end; expected none"),
        (b"X" + b"\5" + bytes(7) + b"ab", r"byte 0: 2 bytes; expected 5"),
        (b"?" + bytes(8), r"byte 0: tag 63; expected one of"),
        (b"l" + b"\1" + bytes(7), r"byte 9: ends within a head"),
    ],
)
def test_a_refusal_says_where_and_what(stream: bytes, message: str) -> None:
    with pytest.raises(NotAStream, match=message):
        decode(stream)
