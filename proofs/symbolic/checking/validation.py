"""Whether the translator reads a text as CPython runs it.

A call that was made, with the state before it and the state after, is put to the symbolic paths of
the same operation among a few elements: one of them must admit all of it, and none may admit the
state after with one thing changed.
"""

import copy
import itertools
import random
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property, partial
from typing import Any

import z3

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import CallEnd
from cacheproof.proofs.symbolic.values.solver import ToldSolver, models, shared_by
from cacheproof.proofs.symbolic.values.state import Fact, Place, State
from cacheproof.proofs.symbolic.values.values import (
    BLOCK,
    BOOL,
    DEBIT,
    IDENTIFIER,
    INPUT,
    INT,
    KEY,
    PARTS,
    REQUEST,
    EventsOf,
    Leaf,
    ListOf,
    MapOf,
    SequenceOf,
    SetOf,
    Type,
    Universe,
    Value,
    is_ordered,
)
from cacheproof.proofs.witness.recorded import Found

WORK = 1_000_000
"""What a solver may spend on one question, in its own measure; most take a thousandth of it."""
SEEDS = range(1, 5)
"""Seeds of the solvers that are asked after one that cannot tell."""


class UnadmittedCall(Enum):
    """Why no path was seen to admit a call."""

    BY_ALL = "by all paths"
    UNDECIDED = "a solver cannot tell"


class Paths:
    """The paths of one operation among a few elements."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self._told: dict[tuple[int, tuple[str, str], str], list[Formula]] = {}
        self._paths: dict[frozenset[str], list[list[Fact]]] = {}

    def models(
        self, without: Collection[str] = (), through: Collection[Place] | None = None
    ) -> Iterator[tuple[CallEnd, z3.ModelRef]]:
        """The ends that can be reached at all, `without` what some rules say, each with one way to
        reach it; only those `through` some places, if any are named."""
        for end, path in zip(self.play.ends, self._paths_without(without), strict=True):
            if through is not None and end.after.ran.isdisjoint(through):
                continue
            found = next(models(path, False, ()), None)
            if found is not None:
                yield end, found

    def admitting(
        self,
        before: Found,
        given: Iterable[Formula],
        afters: Sequence[Found],
        answered: Callable[[CallEnd], Formula],
        without: Collection[str] = (),
    ) -> list["CallEnd | UnadmittedCall"]:
        """For each state after, the first end by which a call leads there from the state before,
        with what it is given and what it `answered`; or why none does. `without` what some rules
        say."""
        play = self.play
        solver = _simple_solver()
        if not play.operation.begins:
            solver.add(*self._is_state(self._first, before))
        solver.add(*given)
        found: list[CallEnd | UnadmittedCall] = [UnadmittedCall.BY_ALL] * len(afters)
        begins = solver.check()
        if begins != z3.sat:
            return found if begins == z3.unsat else [UnadmittedCall.UNDECIDED] * len(afters)
        gone = _Gone(solver)
        for end, path in zip(play.ends, self._paths_without(without), strict=True):
            if not gone.to(path):
                continue
            for number, after in enumerate(afters):
                if isinstance(found[number], UnadmittedCall):
                    facts = [*self._is_state(end.after, after), answered(end)]
                    is_there = _is_there(solver, facts)
                    if is_there == z3.sat:
                        found[number] = end
                    elif is_there == z3.unknown:
                        # a later path may still admit it
                        found[number] = UnadmittedCall.UNDECIDED
        return found

    def _paths_without(self, rules: Collection[str]) -> list[list[Fact]]:
        """For each end, the facts of its path, without what these rules say."""
        asked = frozenset(rules)
        if asked not in self._paths:
            self._paths[asked] = [
                [one for one in end.after.path if one.rules.isdisjoint(asked)]
                for end in self.play.ends
            ]
        return self._paths[asked]

    @cached_property
    def _first(self) -> State:
        """The state in which all paths begin."""
        first = self.play.ends[0].after.snapshots[0]
        return State(first.attributes, first.cells, {})

    def _is_state(self, state: State, found: Found) -> Iterator[Formula]:
        """The conditions that a state is what was found; those of an attribute and a value are made
        once."""
        for place, one in found.items():
            asked = id(state), place, repr(one)
            if asked not in self._told:
                value = state.attribute(*place)
                self._told[asked] = list(is_value(self.play.universe, value, one))
            yield from self._told[asked]


class _Gone:
    """Says which paths of a call can be gone from one state, which the solver was told of. It goes
    what paths have in common once, and what cannot be gone no further than to where that shows."""

    def __init__(self, solver: z3.Solver) -> None:
        self._told = ToldSolver(solver, lambda fact: fact.formula)
        self._begun = solver.model()
        self._is_false: dict[int, bool] = {}
        self._dead: Sequence[Fact] = ()
        self._open: Sequence[Fact] = ()
        self._closed: Sequence[Fact] = ()

    def to(self, path: Sequence[Fact]) -> bool:
        """Whether a path can be gone; one of which a solver cannot tell may be."""
        if self._dead and shared_by(self._dead, path) == len(self._dead):
            return False
        for number, fact in enumerate(path, start=1):
            if self._cannot_hold(fact):
                self._dead = path[:number]
                return False
        shared = shared_by(self._closed, path)
        # the start shared with a path that cannot be gone, if not known to be open, may be why
        if shared > shared_by(self._open, path):
            if not self._may_be_gone(path[:shared]):
                self._dead = path[:shared]
                return False
            self._open = path[:shared]
        if not self._may_be_gone(path):
            self._closed = path
            return False
        self._open = path
        return True

    def _may_be_gone(self, path: Sequence[Fact]) -> bool:
        self._told.tell(path)
        return bool(self._told.solver.check() != z3.unsat)

    def _cannot_hold(self, fact: Fact) -> bool:
        """Whether a fact is false in any case, by a look at the state and what is given, which
        decide most facts; the solver is not asked."""
        if id(fact) not in self._is_false:
            formula = fact.formula
            decided = formula if isinstance(formula, bool) else self._begun.eval(formula)
            self._is_false[id(fact)] = decided is False or z3.is_false(decided)
        return self._is_false[id(fact)]


def _is_there(solver: z3.Solver, facts: Sequence[Formula]) -> z3.CheckSatResult:
    """Whether what a solver was told can be so with these facts."""
    solver.push()
    solver.add(*facts)
    is_there = solver.check()
    others = _others()
    while is_there == z3.unknown and (other := next(others, None)) is not None:
        other.add(solver.assertions())
        is_there = other.check()
    solver.pop()
    return is_there


def _simple_solver(seed: int = 0) -> z3.Solver:
    solver = z3.SimpleSolver()
    solver.set(rlimit=WORK, random_seed=seed)
    return solver


def _others() -> Iterator[z3.Solver]:
    """Solvers that may tell where one cannot: one that does more before it begins, and some that
    choose otherwise."""
    more = z3.Solver()
    more.set(rlimit=WORK)
    yield more
    yield from map(_simple_solver, SEEDS)


def places_of(ends: Iterable[CallEnd]) -> frozenset[Place]:
    """All places of the text that these paths went through."""
    return frozenset(place for end in ends for place in end.after.ran)


# values that were found


def is_value(universe: Universe, value: Value | z3.ExprRef, found: Any) -> Iterator[Formula]:
    """The conditions that a symbolic value is what was found."""
    if not isinstance(value, Value):
        yield value == element(universe, _leaf_of(universe, value), found)
        return
    if isinstance(value.kind, Leaf):
        yield value.term == element(universe, value.kind, found)
        return
    if isinstance(value.kind, EventsOf):
        yield from _are_events(value, value.kind.key, *found)
        return
    keys = {key: element(universe, value.key, key) for key in found}
    known = {term.get_id(): key for key, term in keys.items()}
    for member in universe.members(value.key):
        there = member.get_id() in known
        yield value.has(member) == there
        if there and isinstance(value.kind, MapOf):
            yield from is_value(universe, value.at(member), found[known[member.get_id()]])
    if is_ordered(value.kind):
        in_order = list(keys.values())
        for earlier, later in itertools.pairwise(in_order):
            yield value.place(earlier) < value.place(later)


def _leaf_of(universe: Universe, value: z3.ExprRef) -> Leaf:
    found = universe.leaf_of(value) if isinstance(value, z3.ExprRef) else None
    return found or BOOL


def _are_events(
    value: Value, leaf: Leaf, cleared: bool, growth: Mapping[Hashable, int]
) -> Iterator[Formula]:
    known = {element(value.universe, leaf, key).get_id(): by for key, by in growth.items()}
    yield value.terms[0] == cleared
    for member in value.universe.members(leaf):
        yield z3.Select(value.terms[1], member) == known.get(member.get_id(), 0)


def element(universe: Universe, leaf: Leaf, found: Any) -> z3.ExprRef:
    """The element that a number, a letter and a number, or a pair of such stands for."""
    if leaf in (INT, BOOL):
        return found
    if isinstance(found, tuple):
        one, other = map(partial(element, universe), PARTS[leaf], found)
        return universe.pair(one, other, leaf)
    return universe.members(leaf)[found if isinstance(found, int) else int(found[1:])]


# states that were not found

_SOME: Mapping[Leaf, Any] = {
    IDENTIFIER: "h0", REQUEST: "r0", INPUT: 0, DEBIT: ("r0", 0), INT: 1, BLOCK: "b1",
    KEY: ("h0", "g0"),
}  # fmt: skip


def with_a_change(
    after: Found, types: Mapping[tuple[str, str], Type], draw: random.Random
) -> dict[tuple[str, str], Any]:
    """A state with one thing changed: a number, a member more or less, or an order."""
    changed = copy.deepcopy(dict(after))
    # sorted: every process draws the same, and answers are kept for all
    place = draw.choice(sorted(changed))
    changed[place] = _otherwise(changed[place], types[place], draw)
    return changed


def _otherwise(found: Any, kind: Type, draw: random.Random) -> Any:
    match kind:
        case SetOf(leaf) | ListOf(leaf):
            return type(found)({*found} ^ {_SOME[leaf]})
        case SequenceOf():
            return found[1:]
        case EventsOf(leaf):
            cleared, growth = found
            return cleared, Counter(growth) + Counter({_SOME[leaf]: 1})
        case MapOf(leaf, inner, ordered) if found:
            key = draw.choice(sorted(found))
            if ordered and len(found) > 1 and draw.random() < 0.5:
                return type(found)(reversed(found.items()))
            # A block has each of its attributes: to leave one out says what an empty one says.
            if leaf != BLOCK and draw.random() < 0.5:
                return type(found)((k, v) for k, v in found.items() if k != key)
            return type(found)({**found, key: _otherwise(found[key], inner, draw)})
        case MapOf(leaf, inner):
            return type(found)({_SOME[leaf]: _some(inner)})
        case Leaf("int"):
            return found + 1
        case Leaf("bool"):
            return not found
        case _:
            letter = found[0]
            return f"{letter}1" if found == f"{letter}0" else f"{letter}0"


def _some(kind: Type) -> Any:
    match kind:
        case SetOf():
            return set()
        case MapOf():
            return {}
        case Leaf():
            return _SOME[kind]
    raise TypeError(kind)
