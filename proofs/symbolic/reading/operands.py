"""What operators do with operands that a run has evaluated; what has no reading they refuse."""

import ast

import z3

from cacheproof.proofs.logic import Formula, conjunction, implies, negated
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.records import equal, unwrapped
from cacheproof.proofs.symbolic.values.state import Empty, Operand, Ref, State
from cacheproof.proofs.symbolic.values.values import ListOf, MapOf, SetOf, Type, Value, is_ordered

RUNNING = "over "
"""Prefix of the variable that stands for what a loop runs over."""
WHOLE = f"{RUNNING}whole "
"""Prefix of that variable for a loop that takes values along with their keys."""


def number_of(operand: Operand) -> int | z3.ArithRef:
    """A number, as an operator takes it.

    Raises:
        NotTranslated: it may be none.
    """
    term = unwrapped(operand)
    if isinstance(term, int | z3.ArithRef):
        return term
    raise NotTranslated(f"{term} in the place of a number")


def compared(operator: ast.cmpop, left: Operand, right: Operand, state: State) -> Formula:
    """What ==, !=, <, <=, > and >= say of two operands.

    Raises:
        NotTranslated: operands that have no such reading.
    """
    match operator:
        case ast.Eq():
            return _are_equal(left, right, state)
        case ast.NotEq():
            return negated(_are_equal(left, right, state))
    one, other = number_of(left), number_of(right)
    match operator:
        case ast.Lt():
            return one < other  # type: ignore[no-any-return]
        case ast.LtE():
            return one <= other  # type: ignore[no-any-return]
        case ast.Gt():
            return one > other  # type: ignore[no-any-return]
        case ast.GtE():
            return one >= other  # type: ignore[no-any-return]
    raise NotTranslated(f"{type(operator).__name__} has no reading")


def _are_equal(left: Operand, right: Operand, state: State) -> Formula:
    if any(isinstance(one, Ref) and one.is_frozen for one in (left, right)):
        raise NotTranslated("a comparison of what stands for nothing in a get")
    left, right = unwrapped(state.value(left)), unwrapped(state.value(right))
    if left is None or right is None:
        other = right if left is None else left
        if other is None or isinstance(other, int | str | z3.ExprRef | Value):
            return other is None
    if any(isinstance(one, Value) and _has_order(one.kind) for one in (left, right)):
        raise NotTranslated("a comparison of containers by the order of what is in them")
    if _may_be_compared(left, right):
        return equal(left, right)
    raise NotTranslated(f"whether {short(left)} and {short(right)} are equal")


def _has_order(kind: Type) -> bool:
    """Whether two containers of that type may have the same in them and not be equal."""
    inside = isinstance(kind, MapOf) and _has_order(kind.value)
    return inside or is_ordered(kind) or isinstance(kind, ListOf)


def _may_be_compared(left: Operand, right: Operand) -> bool:
    if isinstance(left, Value) and isinstance(right, Value):
        return left.kind == right.kind
    if isinstance(left, z3.ExprRef) and isinstance(right, z3.ExprRef):
        return bool(left.sort() == right.sort())
    for one, other in ((left, right), (right, left)):
        if isinstance(one, z3.BoolRef):
            return type(other) is bool
        if isinstance(one, z3.ArithRef):
            return type(other) is int
    return type(left) is type(right) and isinstance(left, int | str)


def same_place(before: Value, after: Value, name: str) -> Formula:
    """Whether what a loop runs over has the same members in the same order."""
    pairs = list(zip(before.terms, after.terms, strict=True))
    if name.startswith(WHOLE) or not isinstance(before.kind, MapOf | SetOf):
        return conjunction([True if one.eq(other) else one == other for one, other in pairs])
    same = before.all(lambda key: before.has(key) == after.has(key))
    if not is_ordered(before.kind):
        return True if pairs[0][0].eq(pairs[0][1]) else same
    kept = before.all(lambda k: implies(before.has(k), before.place(k) == after.place(k)))
    return conjunction((same, kept))


def short(operand: Operand) -> str:
    """An operand in the words of a refusal: what it is, or of what kind."""
    if isinstance(operand, Value):
        return f"{operand.kind}"
    if isinstance(operand, int | str | tuple | z3.ExprRef) or operand is None:
        return f"{operand}"
    return f"a {type(operand).__name__}"


def refuse_kept(operand: Operand) -> None:
    """Refuse a tuple that is kept while it has what is in another container: what takes its place
    there must not take its place in the tuple.

    Raises:
        NotTranslated: it has such.
    """
    if isinstance(operand, tuple):
        for one in operand:
            refuse_kept(one)
            if isinstance(one, Ref) and one.keys:
                raise NotTranslated("a container of another one in a tuple that is kept")


def refuse_empty(operand: Operand) -> None:
    """Refuse an empty container that a variable has: it is not known which container it is, and so
    not that two places have it, or that it is empty no more.

    Raises:
        NotTranslated: it is one, or a tuple with one.
    """
    if isinstance(operand, Empty):
        raise NotTranslated(f"an empty {operand.name} in a variable")
    if isinstance(operand, tuple):
        for one in operand:
            refuse_empty(one)
