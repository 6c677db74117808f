"""Joins paths that differ in what is known, and in numbers and truth values alone.

What is known after the last fact that all paths share becomes one fact: that all of it is so on one
of them, and that each number which differs is what it is there. Nothing is lost and nothing added.
Containers are never joined: what is proved of them is proved by the terms that they are.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import z3

from cacheproof.proofs.logic import conjunction, disjunction
from cacheproof.proofs.symbolic.values.solver import shared_by
from cacheproof.proofs.symbolic.values.state import (
    Fact,
    Operand,
    Place,
    Ref,
    Snapshot,
    State,
    term_of,
)
from cacheproof.proofs.symbolic.values.values import BOOL, INT, Universe, Value

PlaceT = TypeVar("PlaceT", bound=Hashable)
"""A variable, or an attribute with its owner."""


@dataclass(frozen=True)
class Part:
    """One of the paths that were joined: what was known on it alone, and the places that it went
    through."""

    facts: Sequence[Fact]
    ran: frozenset[Place]


class Joins:
    """What was joined of a run, by the fact that stands for it."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[Fact, Sequence[Part]]] = {}

    def keep(self, fact: Fact, parts: Sequence[Part]) -> None:
        """Note that a fact stands for what is known on one of these paths."""
        self._parts[id(fact)] = fact, parts

    def apart(self, state: State) -> Iterator[State]:
        """The paths to a state, each with what is known on it; where paths went through several
        joins, one for each path that a join has."""
        for number, fact in enumerate(state.path):
            if id(fact) not in self._parts:
                continue
            before, behind = state.path[:number], state.path[number + 1 :]
            for part in self._parts[id(fact)][1]:
                yield replace(state, path=(*before, *part.facts, *behind), ran=state.ran | part.ran)
                for inner in self.apart(replace(state, path=tuple(part.facts), ran=part.ran)):
                    path = (*before, *inner.path, *behind)
                    yield replace(state, path=path, ran=state.ran | inner.ran)


def joined(universe: Universe, states: Sequence[State], joins: Joins) -> list[State]:
    """States in which a block may end, with those that can be joined as one; what they were is kept
    by `joins`."""
    groups: dict[Hashable, list[State]] = {}
    for one in states:
        groups.setdefault(_shape(one), []).append(one)
    left: list[State] = []
    for several in groups.values():
        end = _join(universe, several, joins) if len(several) > 1 else None
        left += several if end is None else [end]
    return left


def _join(universe: Universe, several: Sequence[State], joins: Joins) -> State | None:
    """One state for several of one shape; None where more than plain facts set them apart, or a
    container was another one on the way."""
    first = several[0]
    known = min(shared_by(first.path, one.path) for one in several)
    seen = min(shared_by(first.snapshots, one.snapshots) for one in several)
    apart = [one.path[known:] for one in several]
    # a proof may leave out a fact with a mark, which it could not within a disjunction
    if any(fact.mark for facts in apart for fact in facts):
        return None
    if any(not _is_plain(one, first) for state in several for one in state.snapshots[seen:]):
        return None
    there = [list(facts) for facts in apart]
    end = State(
        _merged(universe, [one.attributes for one in several], there),
        first.cells,
        _merged(universe, [one.names for one in several], there),
        first.frames,
        first.path[:known],
        first.snapshots[:seen],
        # only what every path went through; the parts have the rest
        frozenset.intersection(*(one.ran for one in several)),
    )
    of_any = disjunction(conjunction(fact.formula for fact in facts) for facts in there)
    is_known = isinstance(of_any, bool) or z3.is_true(z3.simplify(of_any))
    fact = Fact(True if is_known else of_any)
    joins.keep(fact, [Part(facts, one.ran) for facts, one in zip(there, several, strict=True)])
    end = end.assuming(fact)
    # `Play.sums` takes the last snapshot for the present
    return end.snapshot() if any(len(one.snapshots) > seen for one in several) else end


def _shape(state: State) -> Hashable:
    """A value that is equal for states that differ in numbers, truth values and facts alone."""
    return (
        _shape_of(state.attributes),
        tuple((cell, _of(value)) for cell, value in sorted(state.cells.items())),
        _shape_of(state.names),
        tuple(map(id, state.frames)),
    )


def _shape_of(operands: Mapping[PlaceT, Operand]) -> Hashable:
    return frozenset((place, _of(operand)) for place, operand in operands.items())


def _of(operand: Operand) -> Hashable:
    """A value that is equal for operands that are the same, or of which one symbol can stand for
    both."""
    # before int, since a bool is one
    if isinstance(operand, bool | z3.BoolRef):
        return bool
    if isinstance(operand, int | z3.ArithRef):
        return int
    match operand:
        case Ref(cell, keys, is_frozen):
            return Ref, cell, tuple(map(_of_term, keys)), is_frozen
        case Value(kind=kind, terms=terms):
            return Value, kind, tuple(map(_of_term, terms))
        case z3.ExprRef():
            return _of_term(operand)
        case str() | None:
            return operand
    return id(operand)


def _of_term(term: z3.ExprRef) -> Hashable:
    return z3.ExprRef, term.get_id()


def _is_plain(one: Snapshot, state: State) -> bool:
    """Whether nothing but numbers changed there."""
    return one.key is None and not one.anew and _cells(one.cells) == _cells(state.cells)


def _cells(cells: Mapping[int, Value]) -> dict[int, Hashable]:
    return {cell: _of(value) for cell, value in cells.items()}


def _merged(
    universe: Universe, several: Sequence[Mapping[PlaceT, Operand]], there: Sequence[list[Fact]]
) -> dict[PlaceT, Operand]:
    """What operands are, by their places; what those are that differ is said by what is known
    `there`, on each path."""
    found = dict(several[0])
    for place, first in found.items():
        operands = [one[place] for one in several]
        if isinstance(_of(first), type) and not _are_same(operands):
            found[place] = universe.constant(BOOL if _of(first) is bool else INT, "joined")
            for facts, operand in zip(there, operands, strict=True):
                facts.append(Fact(found[place] == term_of(operand)))
    return found


def _are_same(operands: Iterable[Operand]) -> bool:
    return len({term_of(one).get_id() for one in operands}) == 1
