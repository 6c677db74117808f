"""What keys of blocks are hashes of, as terms, and the ideal hash, which keeps values apart."""

from collections.abc import Sequence

import z3

from cacheproof.proofs.keys import paths
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.keys.symbolic import (
    CONTENT,
    BytesRun,
    Data,
    Laid,
    Number,
    Rest,
    Symbol,
    SymbolicText,
    Term,
)

DIGEST = z3.DeclareSort("Digest")
LITERAL = "literal "


def _values() -> z3.DatatypeSortRef:
    values = z3.Datatype("Value")
    values.declare("none")
    values.declare("number", ("number_of", z3.IntSort()))
    values.declare("text", ("text_of", CONTENT))
    values.declare("data", ("data_of", CONTENT))
    values.declare("digest", ("digest_of", DIGEST))
    values.declare("tokens", ("tokens_of", CONTENT))
    values.declare("extra", ("extra_of", CONTENT))
    values.declare("end")
    values.declare("row", ("head", values), ("tail", values))
    return values.create()


VALUE = _values()
"""Python's None, int, str and bytes, a digest, tokens and extra keys as a whole, and tuples of
these (`row` after `row`, up to `end`)."""
HASH, UNHASHED = z3.Function("hash", VALUE, DIGEST), z3.Function("hashed", DIGEST, VALUE)


class Whole(Symbol):
    """A value of which only equality matters, such as all elements of a sequence, or None."""

    types = None

    def __init__(self, value: Term) -> None:
        self.value = value

    def as_tuple(self) -> "Whole":
        return self


def value_of(one: object) -> Term:
    """The term that stands for a value that is hashed."""
    match one:
        case None:
            return VALUE.none
        case Whole():
            return one.value
        case SymbolicText():
            return VALUE.text(one.of)
        case str():
            return VALUE.text(z3.Const(f"{LITERAL}{one}", CONTENT))
        case Number():
            return VALUE.number(one.term)
        case int():
            return VALUE.number(z3.IntVal(int(one)))
        case Data(pieces=(BytesRun(of=of),)):
            return VALUE.data(of)
        case tuple():
            return _row(one, VALUE.end)
        case Laid(parts=(*first, Rest(value=Whole(value=rest)))) if rest.decl() == VALUE.tokens:
            return _row(first, rest)
    raise Unread(f"a {type(one).__name__} in a key")


def _row(parts: Sequence[object], row: Term) -> Term:
    for part in reversed(parts):
        row = VALUE.row(value_of(part), row)
    return row


def hash_of(one: object) -> Whole:
    """The ideal hash."""
    digest = HASH(value_of(one))
    paths.assume(*invertible(digest))
    return Whole(VALUE.digest(digest))


def invertible(digest: Term) -> list[z3.BoolRef]:
    """The assumption that this digest is the hash of one value."""
    return [UNHASHED(digest) == digest.arg(0)]
