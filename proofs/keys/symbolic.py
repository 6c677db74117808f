"""Symbolic values for the functions that encode: run on these, they write down a layout.

A layout is what a stream consists of, piece by piece. It comes from the text of the encoding
function; here stands only what Python and its libraries do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import z3

from cacheproof.proofs.keys import paths
from cacheproof.proofs.keys.paths import SequenceLoop, Unread

CONTENT = z3.DeclareSort("Content")
"""What a text, bytes, a nested value or a list of them hold."""
EMPTY = z3.Const("empty", CONTENT)
Term: TypeAlias = z3.ExprRef
T = TypeVar("T")


def size(how: str) -> z3.FuncDeclRef:
    """Bytes of a content when written in that way."""
    return z3.Function(f"size of {how}", CONTENT, z3.IntSort())


@dataclass(frozen=True)
class Field:
    """A number in `width` bytes. Writing it raises where the number does not fit."""

    number: z3.ArithRef
    width: int
    order: str


@dataclass(frozen=True)
class BytesRun:
    """`length` bytes that `of` is written in; `how` names the way. No two have one writing, given
    its length, unless the way is `lossy`. They are all in the `alphabet`, where one is given."""

    of: Term
    how: str
    length: z3.ArithRef
    lossy: bool = False
    alphabet: bytes = b""


@dataclass(frozen=True)
class Decimal:
    """A number in decimal digits, and after them something that is no digit."""

    number: z3.ArithRef


@dataclass(frozen=True)
class Nested:
    """The encoding of a value of any kind."""

    value: Term


@dataclass(frozen=True)
class Repeated:
    """Pieces that are written once for each element of a loop."""

    loop: SequenceLoop
    pieces: tuple[Any, ...]


@dataclass(frozen=True)
class Rest:
    """All elements of a sequence, in a tuple: how many they are is not known."""

    value: object


Piece: TypeAlias = "bytes | Field | BytesRun | Decimal | Nested | Repeated"


def collect(parts: Iterable[T]) -> tuple[T | Repeated, ...]:
    """All parts in their order; what is made within a loop is in a `Repeated`."""
    outside = len(paths.open_loops())
    open_: list[_Open[T]] = [(None, [])]
    for part in parts:
        loops = paths.open_loops()[outside:]
        shared = 0
        while shared < min(len(loops), len(open_) - 1) and open_[shared + 1][0] is loops[shared]:
            shared += 1
        _close(open_, shared + 1)
        open_ += [(loop, []) for loop in loops[shared:]]
        open_[-1][1].append(part)
    _close(open_, 1)
    return tuple(open_[0][1])


_Open: TypeAlias = tuple[SequenceLoop | None, list[T | Repeated]]


def _close(open_: list[_Open[T]], left: int) -> None:
    while len(open_) > left:
        loop, parts = open_.pop()
        assert loop is not None
        open_[-1][1].append(Repeated(loop, tuple(parts)))


def spread(parts: Iterable[object]) -> Iterator[object]:
    """The parts of a tuple again, those in a `Repeated` within its loop."""
    for part in parts:
        match part:
            case Repeated():
                with paths.within(part.loop):
                    yield from spread(part.pieces)
            case Rest():
                raise Unread("the elements of a sequence one by one")
            case _:
                yield part


class Symbol:
    """A value of which no more is known than of which built-in types it is an instance, which
    terms tell it from another and, if it is a container, the count of its elements.

    What Python makes of any object by default (that it is true, equal to itself alone, has a hash
    and a text) would be a wrong answer here, so each kind of symbol says what can be asked of it.
    """

    types: frozenset[str] | None = frozenset()
    """None: it may be of any type."""
    content: tuple[Term, ...] = ()
    count: z3.ArithRef

    def as_text(self) -> "SymbolicText":
        """What `str` makes of it."""
        raise self._unread("str of")

    def as_tuple(self) -> object:
        """What `tuple` makes of it."""
        raise self._unread("a tuple of")

    def as_list(self) -> object:
        """What `list` makes of it."""
        raise self._unread("a list of")

    def joined(self) -> object:
        """What its elements are end to end."""
        raise self._unread("what is joined of")

    def __bool__(self) -> bool:
        raise self._unread("the truth of")

    def __eq__(self, other: object) -> Any:
        raise self._unread("a comparison with")

    def __hash__(self) -> int:
        raise self._unread("the hash of")

    def __iter__(self) -> Iterator[object]:
        raise self._unread("a loop over")

    def __str__(self) -> str:
        raise self._unread("the text of")

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        raise self._unread("the text of")

    def _unread(self, what: str) -> Unread:
        return Unread(f"{what} a {type(self).__name__}, of which nothing is known")


class Truth:
    """A condition that both may hold and not."""

    def __init__(self, condition: z3.BoolRef) -> None:
        self.condition = condition

    def __bool__(self) -> bool:
        return paths.holds(self.condition)

    def __eq__(self, other: object) -> bool:
        raise Unread("a comparison with a condition")

    def __hash__(self) -> int:
        raise Unread("the hash of a condition")


class Number(Symbol):
    """An int of any size."""

    types = frozenset({"int"})

    def __init__(self, term: z3.ArithRef) -> None:
        self.term = term
        self.content = (term,)

    def __add__(self, other: "int | Number") -> "Number":
        return Number(self.term + number(other))

    __radd__ = __add__

    def __sub__(self, other: "int | Number") -> "Number":
        return Number(self.term - number(other))

    def __mul__(self, other: "int | Number") -> "Number":
        return Number(self.term * number(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: "int | Number") -> "Number":
        _positive(other)
        if isinstance(other, int):
            return Number(self.term / other)
        quotient = z3.Int(fresh("quotient"))
        whole = quotient * other.term
        paths.assume(whole <= self.term, self.term < whole + other.term)
        return Number(quotient)

    def __mod__(self, other: int) -> "Number":
        _positive(other)
        return Number(self.term % other)

    def __lt__(self, other: "int | Number") -> Truth:
        return Truth(self.term < number(other))

    def __le__(self, other: "int | Number") -> Truth:
        return Truth(self.term <= number(other))

    def __gt__(self, other: "int | Number") -> Truth:
        return Truth(self.term > number(other))

    def __ge__(self, other: "int | Number") -> Truth:
        return Truth(self.term >= number(other))

    def __eq__(self, other: object) -> Any:
        return Truth(self.term == number(other))

    __hash__ = Symbol.__hash__

    def __bool__(self) -> bool:
        return paths.holds(self.term != 0)

    def bit_length(self) -> "Number":
        bits = z3.Function("bits", z3.IntSort(), z3.IntSort())(self.term)
        paths.assume(bits >= 0)
        return Number(bits)

    def to_bytes(self, width: "int | Number", order: str, *, signed: bool = False) -> "Data":
        if isinstance(width, int):
            limit = 256**width
            # where the number does not fit Python raises, and nothing is written
            paths.assume(self.term >= (-limit // 2 if signed else 0))
            paths.assume(self.term < (limit // 2 if signed else limit))
            written = self.term % limit if signed else self.term
            return Data(Field(z3.simplify(written), width, order))
        return Data(BytesRun(self.term, f"int, {order}, {signed}", width.term))


class SymbolicText(Symbol):
    """A str."""

    types = frozenset({"str"})

    def __init__(self, of: Term) -> None:
        self.of = of
        self.content = (of,)

    def __bool__(self) -> bool:
        return paths.holds(self.of != EMPTY)

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> "Data":
        """Strictly, or with surrogates as they are: an encoding that can be decoded.

        Raises:
            Unread: another encoding.
        """
        if encoding != "utf-8":
            raise Unread(f"the encoding {encoding}")
        lossy = errors not in ("strict", "surrogatepass")
        return Data(_run(self.of, f"{encoding}, {errors}", lossy))

    def as_text(self) -> "SymbolicText":
        return self


class Data(Symbol):
    """Bytes, piece by piece."""

    types = frozenset({"bytes"})

    def __init__(
        self, *pieces: bytes | Field | BytesRun, types: frozenset[str] | None = None
    ) -> None:
        self.pieces = pieces
        self.types = types or type(self).types
        self.content = tuple(piece.of for piece in pieces if isinstance(piece, BytesRun))

    def __add__(self, other: "Data | bytes") -> "Data":
        return Data(*self.pieces, *pieces_of(other))

    def __radd__(self, other: bytes) -> "Data":
        return Data(other, *self.pieces)

    @property
    def nbytes(self) -> Number:
        return Number(z3.simplify(z3.Sum(*map(_length, self.pieces), z3.IntVal(0))))

    def __bool__(self) -> bool:
        return bool(self.nbytes)

    def tobytes(self) -> "Data":
        return self


class Many(Symbol, Generic[T]):
    """A list, a tuple or a set of entries; `element` makes what stands for any one of it."""

    def __init__(self, element: T, content: tuple[Term, ...], types: Iterable[str]) -> None:
        self.types = frozenset(types)
        self.element = element
        self.count = z3.Int(fresh("count"))
        self.elements = z3.Const(fresh("elements"), CONTENT)
        self.content = (self.count, self.elements)
        self.each = content
        paths.assume(self.count >= 0)

    def __iter__(self) -> Iterator[T]:
        with paths.within(SequenceLoop(self.count, self.elements, self.each)):
            yield self.element

    def __bool__(self) -> bool:
        return paths.holds(self.count > 0)

    def as_tuple(self) -> "Laid":
        return Laid(collect(self))


class Laid(Symbol):
    """A tuple, some parts of which are repeated, or are of a length that is not known."""

    types = frozenset({"tuple"})

    def __init__(self, parts: tuple[object, ...]) -> None:
        self.parts = parts

    @property
    def count(self) -> z3.ArithRef:  # type: ignore[override]
        """Raises Unread: a part is of a length that is not known."""
        return z3.Sum([_parts_of(one) for one in self.parts] + [z3.IntVal(0)])

    def __iter__(self) -> Iterator[object]:
        return spread(self.parts)

    def __add__(self, other: object) -> "Laid":
        return Laid(self.parts + _parts(other))

    def __radd__(self, other: object) -> "Laid":
        return Laid(_parts(other) + self.parts)

    def __bool__(self) -> bool:
        return bool(Truth(self.count > 0))

    def as_tuple(self) -> "Laid":
        return self


def laid(parts: tuple[object, ...]) -> "tuple[object, ...] | Laid":
    """A tuple of these parts, Python's own where each is one element."""
    return Laid(parts) if any(isinstance(one, Repeated) for one in parts) else parts


def _parts(value: object) -> tuple[object, ...]:
    match value:
        case Laid():
            return value.parts
        case tuple():
            return value
    raise Unread("a tuple put together with something else")


def _parts_of(part: object) -> z3.ArithRef | int:
    if isinstance(part, Rest):
        raise Unread("the length of a tuple that holds all of a sequence")
    return part.loop.count * len(part.pieces) if isinstance(part, Repeated) else 1


def fresh(name: str) -> str:
    """A name that no other symbol of the run has."""
    return f"{name}!{paths.next_number()}"


def content_of(name: str) -> Term:
    """A content that nothing is known of."""
    return z3.Const(fresh(name), CONTENT)


def number(value: object) -> z3.ArithRef | int:
    """The term of a number, or Python's own.

    Raises:
        Unread: it is no number.
    """
    match value:
        case Number():
            return value.term
        case int():
            return int(value)
    raise Unread(f"a number in the place of which stands a {type(value).__name__}")


def _positive(divisor: "int | Number") -> None:
    # Python rounds down, z3 leaves no negative remainder: they agree on positive divisors
    if not Truth(z3.simplify(z3.IntVal(0) + number(divisor) > 0)):
        raise Unread("a division by what may not be positive")


def data(name: str, *types: str) -> Data:
    """Bytes that nothing is known of."""
    return Data(_run(content_of(name), "bytes", False), types=frozenset(types or ("bytes",)))


def pieces_of(value: "Data | bytes") -> tuple[bytes | Field | BytesRun, ...]:
    return value.pieces if isinstance(value, Data) else (value,)


def _run(of: Term, how: str, lossy: bool) -> BytesRun:
    length = size(how)(of)
    paths.assume(length >= 0)
    if not lossy:
        # a lossy way may leave all of a content out
        paths.assume((length == 0) == (of == EMPTY))
    return BytesRun(of, how, length, lossy)


def _length(piece: bytes | Field | BytesRun) -> z3.ArithRef | int:
    match piece:
        case bytes():
            return len(piece)
        case Field():
            return piece.width
        case BytesRun():
            return piece.length
