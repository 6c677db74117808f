"""The decoder inverts the encoder: a node that is read where its encoding lies is that node.

By induction over nodes: what is nested is decoded to what it is, up to where its encoding ends.
Before and after it the stream may hold anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import z3

from cacheproof.proofs.keys import key_modules, paths
from cacheproof.proofs.keys.ambiguity import BYTE, INT, VALUE, VALUE_END, Layout, LayoutReading
from cacheproof.proofs.keys.loops import HELPER, LoopClaims, Loops
from cacheproof.proofs.keys.media import pieces
from cacheproof.proofs.keys.media_values import Open
from cacheproof.proofs.keys.symbolic import (
    Many,
    Nested,
    Number,
    Repeated,
    Symbol,
    Truth,
    collect,
    data,
    fresh,
    number,
)
from cacheproof.proofs.keys.texts import Namespace, run_text
from cacheproof.reference import media_stream

START, LENGTH, ROUND, TAG = z3.Ints("start length round tag")
PLACE = z3.Function("place", INT, INT)
"""Where each child of a list begins; where the last ends, at the count of children."""

Decoding = tuple[z3.ArithRef | int, ...]
"""The tag and the end of what was decoded, and what its body is, in numbers."""


class Stream(Symbol):
    """Bytes of which only what an encoding fixes is known."""

    types = frozenset({"bytes"})
    count = LENGTH

    def __getitem__(self, part: slice | int | Number) -> "BytesPart | Number":
        if isinstance(part, slice):
            assert part.step is None
            return BytesPart(number(part.start), number(part.stop))
        return Number(BYTE(number(part)))


@dataclass(frozen=True)
class BytesPart:
    """Bytes of the stream from one place to another."""

    start: z3.ArithRef | int
    end: z3.ArithRef | int


def _from_bytes(part: BytesPart, order: str) -> Number:
    """The number that they come to; of any number of bytes nothing is known."""
    width = z3.simplify(z3.IntVal(0) + part.end - part.start)
    if not z3.is_int_value(width):
        return Number(z3.Int(fresh("number")))
    return Number(z3.Function(f"number of {width} bytes, {order}", INT, INT)(part.start))


class _Tags(frozenset[int]):
    """Tags of nodes, of which it can be asked whether one is among them."""

    def __contains__(self, tag: object) -> bool:
        assert isinstance(tag, Number)
        return bool(Truth(z3.Or([tag.term == one for one in self])))


class _Children(Symbol):
    """The children decoded so far."""

    def __init__(self, claims: LoopClaims, count: z3.ArithRef) -> None:
        self._claims, self.count = claims, count

    def append(self, child: Open) -> None:
        there = child.value == VALUE(PLACE(self.count))
        self._claims.claim("children are decoded one after the other", there)
        self.count = self.count + 1

    def as_tuple(self) -> "_Decoded":
        return _Decoded(self)


@dataclass(frozen=True)
class _Decoded:
    """A tuple of all children."""

    children: _Children


class _Rounds:
    """The invariant: as many children are decoded as there were rounds, up to where the next
    begins."""

    def __init__(self, claims: LoopClaims) -> None:
        self._claims = claims

    def entered(self, children: "list[Open] | _Children", end: Number) -> tuple[_Children, Number]:
        begun = _Children(self._claims, z3.IntVal(0)) if isinstance(children, list) else children
        paths.assume(PLACE(0) == START + 1 + media_stream.LENGTH_BYTES)
        self._claim(begun, z3.IntVal(0), end)
        paths.assume(ROUND >= 0)
        return _Children(self._claims, ROUND), Number(PLACE(ROUND))

    def element(self, rounds: Number) -> tuple[Truth, None]:
        paths.assume(z3.If(rounds.term >= 0, rounds.term, 0) >= ROUND)
        return Truth(rounds.term > ROUND), None

    def repeated(self, children: _Children, end: Number) -> None:
        paths.assume(PLACE(ROUND + 1) == VALUE_END(PLACE(ROUND)))
        self._claim(children, ROUND + 1, end)

    def _claim(self, children: _Children, rounds: z3.ArithRef, end: Number) -> None:
        self._claims.claim("each round decodes a child", children.count == rounds)
        self._claims.claim("a round ends where its child does", number(end) == PLACE(rounds))


def failures(text: str, seed: int = 0) -> list[str]:
    """What fails of decoding leaves and lists."""
    claims = LoopClaims(seed)
    for is_list in (False, True):
        decoding_paths(text, claims, is_list=is_list)
    return list(dict.fromkeys(claims.failed))


def decoding_paths(text: str, claims: LoopClaims, *, is_list: bool) -> list[paths.Path[Decoding]]:
    """Every way to decode a leaf, or a list. The result is the tag, the end, and the body: where a
    leaf begins and ends, or how many children a list has."""
    return paths.all_paths(partial(_decodes, text, claims, is_list))


def _decodes(text: str, claims: LoopClaims, is_list: bool) -> Decoding:
    names = run_text(
        text,
        key_modules.MEDIA_STREAM,
        int=SimpleNamespace(from_bytes=_from_bytes),
        range=lambda count: count,
        **{HELPER: Loops({"_decode 1": _Rounds(claims)})},
    )
    tags = names["LISTS"] if is_list else names["LEAVES"]
    paths.assume(z3.Or([tag == TAG for tag in tags]))
    names.update(LEAVES=_Tags(names["LEAVES"]), LISTS=_Tags(names["LISTS"]))
    body, size = _body(is_list)
    end = _lies_in_stream(names, body, size)
    decode, names["_decode"] = names["_decode"], _nested
    try:
        node, decoded_end = decode(Stream(), Number(START))
    except names["NotAStream"]:
        claims.claim("an encoding is not refused", z3.BoolVal(False))
        raise paths.PathEnded from None
    claims.claim("the tag is decoded", number(node.tag) == TAG)
    claims.claim("decoding ends where the encoding does", number(decoded_end) == end)
    match node.body:
        case BytesPart(start=first, end=last) if not is_list:
            claims.claim("the body is decoded", z3.And(first == end - size, last == end))
            body_found: tuple[z3.ArithRef | int, ...] = (first, last)
        case _Decoded(children) if is_list:
            claims.claim("all children are decoded", children.count == size)
            body_found = (children.count,)
        case _:
            claims.claim("leaves and lists are told apart", z3.BoolVal(False))
            raise paths.PathEnded
    return number(node.tag), number(decoded_end), *body_found


def _body(is_list: bool) -> tuple[Symbol, z3.ArithRef]:
    """A body, and how many bytes or nodes it has."""
    if not is_list:
        leaf = data("body")
        return leaf, leaf.nbytes.term
    element = Open("child")
    many = Many(element, element.content, ())
    return many.as_tuple(), many.count


def _lies_in_stream(names: Namespace, body: Symbol, size: z3.ArithRef) -> z3.ArithRef:
    """Lays the encoding of a node of this body from the start on; returns where it ends."""
    chunks = names["chunks"]
    names["chunks"] = partial(_chunks, chunks)
    written = pieces(collect(chunks(names["Node"](Number(TAG), body))))
    reading, head = (
        LayoutReading(Layout("", "", (), tuple(read), ()), START, by_digits=True)
        for read in (written, (piece for piece in written if not isinstance(piece, Repeated)))
    )
    paths.assume(reading.holds, reading.end <= LENGTH, head.end <= LENGTH)
    for piece in written:
        if isinstance(piece, Repeated) and piece.pieces == (Nested(*piece.loop.each),):
            paths.assume(reading.end == PLACE(size))
    return reading.end


def _chunks(chunks: Callable[[object], Iterator[object]], node: object) -> Iterator[object]:
    match node:
        case Open():
            yield Nested(node.value)
        case _:
            yield from chunks(node)


def _nested(_: Stream, start: Number) -> tuple[Open, Number]:
    """Reads a nested value: by hypothesis it is the one value there, up to its one end."""
    child = Open("decoded")
    paths.assume(child.value == VALUE(start.term))
    return child, Number(VALUE_END(start.term))
