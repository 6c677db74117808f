"""The byte stream of a media hash: nodes with a tag and a length in front, and back again.

A node is a leaf of bytes or a list of nodes. Its encoding is one tag byte, eight bytes of length
(bytes of a leaf, nodes of a list; little end first) and the body. Every node says where it ends, so
that `decode` inverts `chunks`: two different trees never give one stream.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

Body: TypeAlias = "bytes | memoryview | tuple[Node, ...]"

LEAVES = frozenset(b"NBIDSXU")
"""none, bool, int, double, string, bytes, image id"""
LISTS = frozenset(b"lmatpc")
"""sequence, mapping, array, tensor, picture, call"""
LENGTH_BYTES = 8


class Node(NamedTuple):
    """One tag of `LEAVES` or `LISTS` and its body."""

    tag: int
    body: Body


class NotAStream(ValueError):
    """The bytes are not the encoding of one node; the message says where and what was found."""


def chunks(node: Node) -> Iterator[bytes | memoryview]:
    """The encoding, in pieces that need not be copied together."""
    tag, body = node
    yield bytes((tag,)) + _size(body).to_bytes(LENGTH_BYTES, "little")
    if isinstance(body, tuple):
        for child in body:
            yield from chunks(child)
    else:
        yield body


def encode(node: Node) -> bytes:
    """The encoding in one piece."""
    return b"".join(chunks(node))


def decode(stream: bytes) -> Node:
    """The node whose encoding `stream` is.

    Raises:
        NotAStream: there is none.
    """
    node, end = _decode(stream, 0)
    if end != len(stream):
        raise NotAStream(f"byte {end}: {len(stream) - end} bytes after the end; expected none")
    return node


def _decode(stream: bytes, start: int) -> tuple[Node, int]:
    body_start = start + 1 + LENGTH_BYTES
    if body_start > len(stream):
        raise NotAStream(f"byte {start}: ends within a head; expected tag and length")
    tag = stream[start]
    size = int.from_bytes(stream[start + 1 : body_start], "little")
    if tag in LEAVES:
        end = body_start + size
        if end > len(stream):
            raise NotAStream(f"byte {start}: {len(stream) - body_start} bytes; expected {size}")
        return Node(tag, stream[body_start:end]), end
    if tag not in LISTS:
        raise NotAStream(f"byte {start}: tag {tag}; expected one of {sorted(LEAVES | LISTS)}")
    children = []
    end = body_start
    for _ in range(size):
        child, end = _decode(stream, end)
        children.append(child)
    return Node(tag, tuple(children)), end


def _size(body: Body) -> int:
    return body.nbytes if isinstance(body, memoryview) else len(body)
