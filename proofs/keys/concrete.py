"""Layouts on concrete values: whether a path admits them, and which bytes it then writes.

What Python's codecs and numbers do is done by Python here; nothing is asked of z3.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import add, eq, ge, gt, le, lt, mul, ne
from typing import Any

import z3

from cacheproof.proofs.keys.ambiguity import Layout
from cacheproof.proofs.keys.hashed_values import LITERAL, VALUE
from cacheproof.proofs.keys.identifiers import CHARACTERS
from cacheproof.proofs.keys.paths import satisfiable
from cacheproof.proofs.keys.symbolic import EMPTY, BytesRun, Decimal, Field, Nested, Repeated


class NotConcrete(Exception):
    """A term says something of what the values do not fix; the message is the term."""


@dataclass(frozen=True)
class ConcreteValues:
    """What symbols stand for.

    Attributes:
        of: the values of symbols, by name.
        functions: what functions make of values, by name.
        rounds: of each loop, by the name of the symbol of its count, the symbols of each round.
        nested: the bytes of a nested value.
    """

    of: Mapping[str, object]
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    rounds: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    nested: Callable[[Any], bytes] = bytes

    def in_round(self, symbols: Mapping[str, object]) -> "ConcreteValues":
        return ConcreteValues({**self.of, **symbols}, self.functions, self.rounds, self.nested)


def admits(layout: Layout, values: ConcreteValues) -> bool:
    """Whether all that is assumed on a path holds of the values, in every round of its loops, and
    can hold of what the values do not fix."""
    of = [values]
    for repeated in layout.loops:
        rounds = values.rounds[repeated.loop.count.decl().name()]
        of = [one.in_round(symbols) for one in of for symbols in rounds] or of
    open_: dict[int, z3.BoolRef] = {}
    for each in of:
        for one in layout.conditions:
            try:
                if not evaluated(one, each):
                    return False
            except NotConcrete:
                open_[one.get_id()] = one
    return not open_ or _can_hold(tuple(open_.values()))


@cache
def _can_hold(conditions: tuple[z3.BoolRef, ...]) -> bool:
    return satisfiable(list(conditions)) is not None


def written(pieces: Sequence[object], values: ConcreteValues) -> bytes:
    """The bytes of pieces.

    Raises:
        NotConcrete: a piece is not fixed by the values.
        OverflowError: a number does not fit.
    """
    return b"".join(_piece(one, values) for one in pieces)


def _piece(piece: object, values: ConcreteValues) -> bytes:
    match piece:
        case bytes():
            return piece
        case Field(number=number, width=width, order=order):
            whole: int = evaluated(number, values)
            return whole.to_bytes(width, order)  # type: ignore[arg-type]
        case BytesRun(of=of, how=how, length=length):
            value, size = evaluated(of, values), evaluated(length, values)
            text = _encoded(value, how, size)
            if len(text) != size:
                raise NotConcrete(f"{len(text)} bytes in place of {size}")
            return text
        case Decimal(number=number):
            return b"%d" % evaluated(number, values)
        case Nested(value=value):
            return values.nested(evaluated(value, values))
        case Repeated(loop=loop, pieces=pieces):
            rounds = values.rounds[loop.count.decl().name()]
            return b"".join(written(pieces, values.in_round(one)) for one in rounds)
    raise NotConcrete(str(piece))


def _encoded(value: Any, how: str, size: int) -> bytes:
    """What `symbolic` names in words, done by Python."""
    if how == "bytes":
        return bytes(value)
    if how == CHARACTERS:
        return str(value).encode("latin-1")
    first, *rest = how.split(", ")
    if first == "int":
        return int(value).to_bytes(size, rest[0], signed=rest[1] == "True")  # type: ignore[arg-type]
    return str(value).encode(first, rest[0])


_OPERATORS: dict[int, Callable[..., object]] = {
    z3.Z3_OP_ADD: lambda *terms: sum(terms),
    z3.Z3_OP_SUB: lambda first, *rest: first - sum(rest),
    z3.Z3_OP_MUL: lambda *terms: reduce(mul, terms),
    z3.Z3_OP_UMINUS: lambda term: -term,
    z3.Z3_OP_IDIV: lambda one, other: one // other,
    z3.Z3_OP_MOD: lambda one, other: one % other,
    z3.Z3_OP_ITE: lambda test, one, other: one if test else other,
    z3.Z3_OP_AND: lambda *terms: all(terms),
    z3.Z3_OP_OR: lambda *terms: any(terms),
    z3.Z3_OP_NOT: lambda term: not term,
    z3.Z3_OP_IMPLIES: lambda one, other: not one or other,
    z3.Z3_OP_TRUE: lambda: True,
    z3.Z3_OP_FALSE: lambda: False,
    z3.Z3_OP_EQ: eq,
    z3.Z3_OP_DISTINCT: ne,
    z3.Z3_OP_LE: le,
    z3.Z3_OP_LT: lt,
    z3.Z3_OP_GE: ge,
    z3.Z3_OP_GT: gt,
}
_MADE: dict[str, Callable[..., object]] = {
    "none": lambda: None,
    "number": int,
    "text": str,
    "data": bytes,
    "digest": bytes,
    "tokens": tuple,
    "extra": lambda extra: extra,
    "end": tuple,
    "row": lambda head, tail: add((head,), tail),
}


Evaluated = Callable[[ConcreteValues], Any]
_EVALUATED: dict[int, tuple[z3.ExprRef, Evaluated]] = {}
"""What was made of a term, by its number; the term is kept with it, so that the number is its."""


def evaluated(term: z3.ExprRef, values: ConcreteValues) -> Any:
    """What a term comes to.

    Raises:
        NotConcrete: a symbol or function in it has no value.
    """
    return _evaluation(term)(values)


def _evaluation(term: z3.ExprRef) -> Evaluated:
    number = term.get_id()
    if number not in _EVALUATED:
        _EVALUATED[number] = term, _new_evaluation(term)
    return _EVALUATED[number][1]


def _new_evaluation(term: z3.ExprRef) -> Evaluated:
    if z3.is_int_value(term):
        whole = term.as_long()
        return lambda values: whole
    name, kind = term.decl().name(), term.decl().kind()
    children = term.children()
    if kind in (z3.Z3_OP_EQ, z3.Z3_OP_DISTINCT) and any(z3.eq(one, EMPTY) for one in children):
        other = _evaluation(next(one for one in children if not z3.eq(one, EMPTY)))
        return lambda values: (len(other(values)) == 0) == (kind == z3.Z3_OP_EQ)
    if not children and kind == z3.Z3_OP_UNINTERPRETED:
        return lambda values: _symbol(name, values)
    given = [_evaluation(one) for one in children]
    if kind == z3.Z3_OP_DT_CONSTRUCTOR and term.sort() == VALUE:
        function = _MADE[name]
    elif kind in _OPERATORS:
        function = _OPERATORS[kind]
    elif name.startswith("size of "):
        how = name.removeprefix("size of ")
        return lambda values: len(_encoded(given[0](values), how, -1))
    else:
        return lambda values: _function(name, values)(*(one(values) for one in given))
    return lambda values: function(*(one(values) for one in given))


def _symbol(name: str, values: ConcreteValues) -> object:
    if name in values.of:
        return values.of[name]
    if name.startswith(LITERAL):
        return name.removeprefix(LITERAL)
    raise NotConcrete(name)


def _function(name: str, values: ConcreteValues) -> Callable[..., object]:
    found = values.functions.get(name) or _KNOWN.get(name)
    if found is None:
        raise NotConcrete(name)
    return found


def _dumps(value: object) -> str:
    text = json.dumps(value)
    _FROM_JSON[text] = value
    return text


_FROM_JSON: dict[str, object] = {}
_KNOWN: dict[str, Callable[..., object]] = {
    "bits": lambda value: int(value).bit_length(),
    "json": _dumps,
    "what is json": _FROM_JSON.__getitem__,
}
