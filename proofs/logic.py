"""Formulas: z3's truth values, and Python's where the answer is plain."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import z3

Formula: TypeAlias = z3.BoolRef | bool


def conjunction(parts: Iterable[Formula]) -> Formula:
    """All of them hold."""
    return _joined(parts, True, z3.And)


def disjunction(parts: Iterable[Formula]) -> Formula:
    """One of them holds."""
    return _joined(parts, False, z3.Or)


def _joined(
    parts: Iterable[Formula], neutral: bool, join: Callable[[list[Formula]], Formula]
) -> Formula:
    """What hangs on no part that is `neutral`; one that is its contrary decides alone."""
    open_ = [one for one in parts if one is not neutral]
    if any(one is (not neutral) for one in open_):
        return not neutral
    if len(open_) < 2:
        return open_[0] if open_ else neutral
    return join(open_)


def negated(formula: Formula) -> Formula:
    return not formula if isinstance(formula, bool) else z3.Not(formula)


def implies(condition: Formula, conclusion: Formula) -> Formula:
    return disjunction((negated(condition), conclusion))


def iff(left: Formula, right: Formula) -> Formula:
    return conjunction((implies(left, right), implies(right, left)))
