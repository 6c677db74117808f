"""One stream, read in two ways: whether a layout can be told from another, and where it ends.

An encoding is self-delimiting when at any place of any stream at most one value can be read, and
one end of it. Two layouts are read at one place of one stream, of which nothing else is known; z3
is asked for a stream on which both succeed and come to different contents or ends. That values
nested in them can be told apart is the hypothesis of the induction.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import z3

from cacheproof.proofs.keys.paths import satisfiable
from cacheproof.proofs.keys.symbolic import (
    CONTENT,
    BytesRun,
    Decimal,
    Field,
    Nested,
    Piece,
    Repeated,
    SequenceLoop,
    Term,
)

INT = z3.IntSort()
SYMBOL = re.compile(r"(?:\w+: )?[a-z ]+!\d+")
"""How symbols are called, of a side or of none; what is the same on both sides has no number."""
BYTE = z3.Function("byte", INT, INT)
"""The byte at a place of the stream."""
BETWEEN = z3.Function("between", INT, INT, CONTENT)
"""The bytes of the stream from a place on, of a given length."""
VALUE = z3.Function("value", INT, CONTENT)
VALUE_END = z3.Function("end of value", INT, INT)
"""By hypothesis: the one value that a smaller encoding at that place can be, and its end."""


@dataclass(frozen=True)
class Layout:
    """What one kind of value is encoded as.

    Attributes:
        kind: in words.
        constructor: what it is; equal constructors and contents are equal values.
        content: the terms that tell the value from others of its constructor.
        pieces: its encoding.
        conditions: what is known of the terms.
    """

    kind: str
    constructor: str
    content: tuple[Term, ...]
    pieces: tuple[Piece, ...]
    conditions: tuple[z3.BoolRef, ...]

    def named(self, side: str) -> "Layout":
        """The layout of another value: every symbol is named for its side."""
        return _Renaming(side).layout(self)

    @property
    def loops(self) -> list[Repeated]:
        """All repetitions within, the inner ones too."""
        return list(_loops(self.pieces))


class LayoutReading:
    """A layout read at a place of the stream: what must hold for that, and where it ends."""

    def __init__(self, layout: Layout, start: z3.ArithRef, *, by_digits: bool) -> None:
        self._by_digits = by_digits
        self._constraints = list(layout.conditions)
        self.end = start
        for piece in layout.pieces:
            self._read(piece)
        self.holds = z3.And(self._constraints)

    def _read(self, piece: Piece) -> None:
        match piece:
            case bytes():
                self._constraints += [
                    BYTE(self.end + place) == byte for place, byte in enumerate(piece)
                ]
                self.end += len(piece)
            case Field(width=width):
                self._field(piece)
                self.end += width
            case BytesRun(of=of, how=how, length=length):
                if piece.alphabet:
                    first = [BYTE(self.end) == byte for byte in piece.alphabet]
                    self._constraints.append(z3.Or(first))
                if not piece.lossy:
                    written = z3.Function(f"what is written as {how}", CONTENT, of.sort())
                    self._constraints.append(of == written(BETWEEN(self.end, length)))
                self.end += length
            case Decimal(number=number):
                read, digits = (z3.Function(name, INT, INT) for name in ("decimal", "digits"))
                self._constraints.append(number == read(self.end))
                self.end += digits(number)
            case Nested(value=value):
                self._constraints.append(value == VALUE(self.end))
                self.end = VALUE_END(self.end)
            case Repeated(loop=loop):
                body = _anonymous(piece)
                elements = z3.Function(f"elements of {body}", INT, INT, CONTENT)
                end = z3.Function(f"end of {body}", INT, INT, INT)
                self._constraints.append(loop.elements == elements(self.end, loop.count))
                self.end = end(self.end, loop.count)

    def _field(self, field: Field) -> None:
        """A number is what its bytes come to: by their place, and digit by digit if asked."""
        number = z3.Function(f"number of {field.width} bytes, {field.order}", INT, INT)
        self._constraints.append(field.number == number(self.end))
        if not self._by_digits:
            return
        places = range(field.width)
        digits = [z3.Function(f"digit {n}", INT, INT)(field.number) for n in places]
        for n in places:
            place = n if field.order == "little" else field.width - 1 - n
            self._constraints += [digits[n] >= 0, digits[n] <= 255]
            self._constraints.append(BYTE(self.end + place) == digits[n])
        value = z3.Sum([digit * 256**n for n, digit in enumerate(digits)])
        self._constraints.append(field.number == value)


@dataclass(frozen=True)
class Ambiguity:
    """Two kinds of which values can be taken for each other, on the stream of the model."""

    kinds: tuple[str, str]
    model: z3.ModelRef

    def __str__(self) -> str:
        first, second = self.kinds
        return f"two of kind {first}" if first == second else f"{first} and {second}"


class LayoutReader:
    """Looks for ambiguities. What was found of two layouts is kept, since changed texts have most
    of their layouts in common. What is read is the start of a stream, or the `whole` of it."""

    def __init__(self, seed: int = 0, *, whole: bool = False) -> None:
        self._seed = seed
        self._whole = whole
        self._numbers: dict[Layout, int] = {}
        self._known: dict[tuple[int, int], Ambiguity | None] = {}
        self._readings: dict[tuple[int, str, bool], tuple[Layout, LayoutReading]] = {}

    def ambiguity(self, layouts: Sequence[Layout]) -> Ambiguity | None:
        """The first ambiguity of two values, or of two elements of a loop; None when the encoding
        that these layouts are is self-delimiting."""
        rounds: dict[str, list[Layout]] = {}
        for layout in layouts:
            for one in layout.loops:
                name = f"element of {layout.kind}"
                element = Layout(name, "", one.loop.each, one.pieces, layout.conditions)
                rounds.setdefault(_anonymous(one), []).append(element)
        pairs: list[tuple[_Numbered, _Numbered]] = []
        for comparable in (layouts, *rounds.values()):
            numbered = map(self._numbered, comparable)
            pairs += itertools.combinations_with_replacement(numbered, 2)
        pairs.sort(key=lambda pair: pair[0][0] != pair[1][0])
        new = [pair for pair in pairs if _numbers(pair) not in self._known]
        old = [pair for pair in pairs if _numbers(pair) in self._known]
        return next(filter(None, itertools.starmap(self._pair, (*old, *new))), None)

    def between(self, one: Layout, other: Layout) -> Ambiguity | None:
        """A stream on which both can be read at one place, as other values or with other ends."""
        return self._pair(self._numbered(one), self._numbered(other))

    def _numbered(self, layout: Layout) -> "_Numbered":
        return self._numbers.setdefault(layout, len(self._numbers)), layout

    def _pair(self, one: "_Numbered", other: "_Numbered") -> Ambiguity | None:
        numbers = _numbers((one, other))
        if numbers not in self._known:
            self._known[numbers] = self._between(one, other, by_digits=False)
        return self._known[numbers]

    def _between(
        self, one: "_Numbered", other: "_Numbered", *, by_digits: bool
    ) -> Ambiguity | None:
        left, first = self._reading(one, "first", by_digits)
        right, second = self._reading(other, "second", by_digits)
        known = [first.holds, second.holds]
        if self._whole:
            known.append(first.end == second.end)
        # of two constructors any common reading is an ambiguity
        if left.constructor == right.constructor:
            known.append(differing((*left.content, first.end), (*right.content, second.end)))
        model = satisfiable(known, self._seed)
        if model is None:
            return None
        if not by_digits:
            # digits only add constraints: they are asked for where a stream is left without them
            return self._between(one, other, by_digits=True)
        return Ambiguity((left.kind, right.kind), model)

    def _reading(
        self, numbered: "_Numbered", side: str, by_digits: bool
    ) -> tuple[Layout, LayoutReading]:
        number, layout = numbered
        key = number, side, by_digits
        if key not in self._readings:
            named = layout.named(side)
            self._readings[key] = named, LayoutReading(named, z3.Int("start"), by_digits=by_digits)
        return self._readings[key]


_Numbered = tuple[int, Layout]


def _numbers(pair: tuple[_Numbered, _Numbered]) -> tuple[int, int]:
    return pair[0][0], pair[1][0]


def ambiguous_lists(*, determined: bool = True, seed: int = 0) -> str | None:
    """The step that fails of this induction, None when all hold: where every element is
    `determined` by its place, with its end, so is a list of any length.

    The readings of loops rest on it: `LayoutReading` takes the elements for a function of place and
    count once `LayoutReader.ambiguity` found one round of the loop unambiguous.
    """
    for name, (assumed, differ) in _list_cases(determined=determined).items():
        if satisfiable([*assumed, differ], seed) is not None:
            return name
    return None


def impossible_lists() -> str:
    """The steps of that induction of which what is assumed cannot be; or ""."""
    cases = _list_cases(determined=True)
    return ", ".join(name for name, (assumed, _) in cases.items() if satisfiable(assumed) is None)


def _list_cases(*, determined: bool) -> dict[str, tuple[list[z3.BoolRef], z3.BoolRef]]:
    """What is assumed in each step, and what must not be then."""
    lists = z3.Datatype("List")
    lists.declare("nil")
    lists.declare("cons", ("head", CONTENT), ("tail", lists))
    lists = lists.create()
    element, after = z3.Function("element", INT, CONTENT), z3.Function("after", INT, INT)
    whole, end = z3.Function("whole", INT, INT, lists), z3.Function("end", INT, INT, INT)
    start, count = z3.Ints("start count")
    cases: dict[str, list[z3.BoolRef]] = {"base": [], "step": []}
    results = []
    for side in ("first", "second"):
        head, tail = z3.Const(f"{side} head", CONTENT), z3.Const(f"{side} tail", lists)
        there, last = z3.Int(f"{side} place"), z3.Int(f"{side} end")
        read = z3.Const(f"{side} list", lists)
        results.append((read, last))
        cases["base"] += [read == lists.nil, last == start]
        if determined:
            cases["step"] += [head == element(start), there == after(start)]
        cases["step"] += [tail == whole(there, count), last == end(there, count)]
        cases["step"].append(read == lists.cons(head, tail))
    differ = differing(*results)
    return {name: (case, differ) for name, case in cases.items()}


def differing(ones: Sequence[Term], others: Sequence[Term]) -> z3.BoolRef:
    return z3.Or([one != other for one, other in zip(ones, others, strict=True)])


def _loops(pieces: Sequence[object]) -> Iterator[Repeated]:
    for piece in pieces:
        if isinstance(piece, Repeated):
            yield piece
            yield from _loops(piece.pieces)


_constants: dict[int, tuple[Term, list[Term]]] = {}


def constants(term: Term) -> list[Term]:
    """The constants of a term, symbols among them."""
    number = term.get_id()
    if number not in _constants:
        found = {one.get_id(): one for child in term.children() for one in constants(child)}
        if z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[number] = term
        # with the term, whose number is its own while it is there
        _constants[number] = term, list(found.values())
    return _constants[number][1]


class _Renaming:
    """Gives the symbols of a layout the name of their side."""

    def __init__(self, side: str) -> None:
        self._side = side

    def layout(self, layout: Layout) -> Layout:
        return Layout(
            layout.kind,
            layout.constructor,
            tuple(map(self._term, layout.content)),
            tuple(map(self._piece, layout.pieces)),
            tuple(map(self._term, layout.conditions)),
        )

    def _piece(self, piece: Piece) -> Piece:
        match piece:
            case Field():
                return replace(piece, number=self._term(piece.number))
            case BytesRun():
                return replace(piece, of=self._term(piece.of), length=self._term(piece.length))
            case Decimal():
                return Decimal(self._term(piece.number))
            case Nested():
                return Nested(self._term(piece.value))
            case Repeated(loop=loop):
                count, elements = self._term(loop.count), self._term(loop.elements)
                renamed = SequenceLoop(count, elements, tuple(map(self._term, loop.each)))
                return Repeated(renamed, tuple(map(self._piece, piece.pieces)))
            case z3.ExprRef():
                return self._term(piece)
            case _:
                return piece

    def _term(self, term: Term) -> Term:
        pairs = [
            (one, z3.Const(f"{self._side}: {name}", one.sort()))
            for one, name in ((one, one.decl().name()) for one in constants(term))
            if SYMBOL.fullmatch(name)
        ]
        return z3.substitute(term, *pairs)


def _anonymous(repeated: Repeated) -> str:
    """What a round of a loop writes, with its symbols numbered in place of their names."""
    numbers: dict[str, str] = {}

    def rename(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"#{len(numbers)}")

    text = f"{repeated.loop.each} {repeated.pieces}".replace("\n", " ")
    return SYMBOL.sub(rename, text)
