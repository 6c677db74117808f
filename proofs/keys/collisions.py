"""Streams that can be read as two calls, byte by byte, and the calls.

Nothing is nested in these layouts, so a model of z3 is a stream: every byte that a layout speaks of
is fixed by it, every other one can be any, and stands as a letter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import z3

from cacheproof.proofs.keys.ambiguity import BYTE, Layout, differing
from cacheproof.proofs.keys.paths import satisfiable
from cacheproof.proofs.keys.symbolic import BytesRun, Field, Piece

LENGTHS = (40, 200, 2000)
"""The streams that are looked for, shorter ones first, in bytes."""
TEXTS = ("utf-8", "characters")
"""Ways in which texts are written; those of a witness are ASCII."""
FILLER = ord("a")


@dataclass(frozen=True)
class StreamWitness:
    """One stream, and the content of either layout in it: bytes, or a number."""

    stream: bytes
    first: tuple[bytes | int, ...]
    second: tuple[bytes | int, ...]


class _Bytewise:
    """A layout read from the first byte on: what must hold of which bytes."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.end: z3.ArithRef = z3.IntVal(0)
        self.fixed: list[z3.ArithRef] = []
        self.constraints: list[z3.BoolRef] = []
        self.runs: list[tuple[BytesRun, z3.ArithRef]] = []
        for piece in pieces:
            self._read(piece)

    def _read(self, piece: Piece) -> None:
        match piece:
            case bytes():
                self._fix(len(piece))
                self.constraints += [
                    BYTE(self.end + place) == byte for place, byte in enumerate(piece)
                ]
                self.end += len(piece)
            case Field(number=number, width=width, order=order):
                self._fix(width)
                digits = [BYTE(self.end + place) for place in range(width)]
                for digit in digits:
                    self.constraints += [digit >= 0, digit <= 255]
                little = digits if order == "little" else digits[::-1]
                value = z3.Sum([digit * 256**n for n, digit in enumerate(little)])
                self.constraints.append(number == value)
                self.end += width
            case BytesRun(length=length):
                if piece.alphabet:
                    self._fix(1)
                self.runs.append((piece, self.end))
                self.end += length
            case _:
                raise TypeError(f"{piece}; expected a layout in which nothing is nested")

    def _fix(self, width: int) -> None:
        self.fixed += [self.end + place for place in range(width)]


def witness(one_layout: Layout, other_layout: Layout, seed: int = 0) -> StreamWitness | None:
    """A stream that is both, of different measures if of one kind; None up to the last of
    `LENGTHS`."""
    first, second = one_layout.named("first"), other_layout.named("second")
    one, other = _Bytewise(first.pieces), _Bytewise(second.pieces)
    fixed = [*one.fixed, *other.fixed]
    known = [*first.conditions, *second.conditions, *one.constraints, *other.constraints]
    known.append(one.end == other.end)
    if first.kind == second.kind:
        known.append(differing(_measures(first), _measures(second)))
    for run, start in (*one.runs, *other.runs):
        if run.how.startswith(TEXTS):
            alphabet = run.alphabet or bytes(range(128))
            known += [
                z3.Implies(
                    z3.And(start <= place, place < start + run.length), _is_of(alphabet, place)
                )
                for place in fixed
            ]
    for length in LENGTHS:
        model = satisfiable([*known, one.end <= length], seed)
        if model is not None:
            return _written(model, (first, one), (second, other))
    return None


def _is_of(alphabet: bytes, place: z3.ArithRef) -> z3.BoolRef:
    """Whether the byte at a place is of the alphabet, which is taken apart into runs."""
    known = set(alphabet)
    ends = [byte for byte in alphabet if byte + 1 not in known]
    starts = [byte for byte in alphabet if byte - 1 not in known]
    return z3.Or(
        [
            z3.And(first <= BYTE(place), BYTE(place) <= last)
            for first, last in zip(starts, ends, strict=True)
        ]
    )


def _measures(layout: Layout) -> list[z3.ArithRef]:
    """A layout's numbers, and the length of everything else in it."""
    numbers = [term for term in layout.content if z3.is_int(term)]
    return numbers + [piece.length for piece in layout.pieces if isinstance(piece, BytesRun)]


def _written(model: z3.ModelRef, *sides: tuple[Layout, _Bytewise]) -> StreamWitness:
    def value(term: z3.ArithRef) -> int:
        return int(model.eval(term, model_completion=True).as_long())

    stream = bytearray([FILLER]) * value(sides[0][1].end)
    for _, side in sides:
        for place in side.fixed:
            stream[value(place)] = value(BYTE(place))

    def content(layout: Layout, side: _Bytewise) -> Iterator[bytes | int]:
        places = {run.of: (value(start), value(run.length)) for run, start in side.runs}
        for term in layout.content:
            if z3.is_int(term):
                yield value(term)
            else:
                start, length = places.get(term, (0, 0))
                yield bytes(stream[start : start + length])

    first, second = (tuple(content(*side)) for side in sides)
    return StreamWitness(bytes(stream), first, second)
