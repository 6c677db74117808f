"""Runs an operation of a subject, and gives the conditions under which it keeps the rules."""

import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import z3

from cacheproof.proofs.logic import Formula, conjunction, implies
from cacheproof.proofs.symbolic.deciding.subject import Aggregate, Names, Operation, Subject
from cacheproof.proofs.symbolic.reading.machine import Machine
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.rules.rules import Predicate
from cacheproof.proofs.symbolic.values.solver import SolverVerdict
from cacheproof.proofs.symbolic.values.state import Fact, Snapshot, State
from cacheproof.proofs.symbolic.values.values import Value

Made = TypeVar("Made")


def _numbered(one: Value | Formula) -> Iterator[Hashable]:
    for term in one.terms if isinstance(one, Value) else (one,):
        yield term.get_id() if isinstance(term, z3.ExprRef) else term


@dataclass(frozen=True)
class Condition:
    """A rule that must hold where a path has come to."""

    operation: str
    name: str
    rule: str
    state: State
    claimed: Formula

    def known(self, without: Collection[str]) -> list[Fact]:
        """What is known there, `without` some rules."""
        return [fact for fact in self.state.path if fact.rules.isdisjoint(without)]


class Play:
    """One operation of a subject, run in one language: its `ends`, the elements that stand for
    what the call is given, and what else it is `given`, by name. Whoever looks at single paths has
    none of them joined."""

    def __init__(
        self, subject: Subject, operation: Operation, language: RuleLanguage, *, joins: bool = True
    ) -> None:
        self.subject = subject
        self.operation = operation
        self.universe = universe = language.universe
        self.words = language.words
        self._language = language
        self.machine = Machine(
            subject.readings,
            universe,
            self.words,
            subject.sources,
            subject.types,
            subject.loops(self),
            subject.safety,
            subject.objects,
            subject.variables,
            subject.unrolls and universe.elements is not None,
            joins,
        )
        self._named: dict[tuple[int, int], tuple[State | Snapshot, Names]] = {}
        self._made: dict[tuple[Hashable, ...], tuple[tuple[Value | Formula, ...], Any]] = {}
        self.arguments: list[z3.ExprRef] = []
        self.given: dict[str, Value | z3.ExprRef] = {}
        self.ends = list(operation.run(self, self._start()))

    # reading rules

    def names(self, state: State | Snapshot) -> Names:
        """The records that predicates look at, of a state; those of states that differ in what is
        known of them alone are made once."""
        held = id(state.attributes), id(state.cells)
        if held not in self._named:
            alone = State(state.attributes, state.cells, {})
            # with the state, whose attributes no others take the place of while it is there
            self._named[held] = state, self.subject.records(alone.attribute)
        return self._named[held][1]

    def once(self, make: Callable[..., Made], *of: Value | Formula) -> Made:
        """What a function makes of this play and of values: made once for the same terms, with
        which many paths end."""
        asked = make, *(term for one in of for term in _numbered(one))
        if asked not in self._made:
            # with the values, whose terms have their numbers while they are there
            self._made[asked] = of, make(self, *of)
        made: Made = self._made[asked][1]
        return made

    def read(self, rule: Predicate, names: Names, *, taken: bool = False) -> Formula:
        """A predicate over these records: to be proved, or taken to hold."""
        defined, holds = self._language.formula(rule, names)
        return conjunction((defined, holds)) if taken else implies(defined, holds)

    def invariants(self, state: State, *, taken: bool = False) -> list[tuple[str, Formula]]:
        """What holds between calls, of a state: to be proved, or taken as proved."""
        names = self.names(state)
        return [(one.id, self.read(one, names, taken=taken)) for one in self.subject.invariants]

    # running

    def _start(self) -> State:
        if self.operation.begins:
            # the induction's base: before an object is built no invariant may be assumed
            state = State(dict(self.subject.constants), {}, {})
        else:
            state = self.machine.fresh_state(self.subject.constants)
            known = self.invariants(state, taken=True)
            state = state.assuming(*(Fact(formula, frozenset({rule})) for rule, formula in known))
        return state.assuming(*self.subject.assumptions(self))

    def conditions(self, rule: str | None = None) -> Iterator[Condition]:
        """What the operation must keep: one rule, or all."""
        operation = self.operation.name
        for one in self.machine.obligations:
            if rule in (None, one.rule):
                yield Condition(operation, one.name, one.rule, one.state, one.claimed)
        transitions = self.subject.transitions.get(operation, ())
        for end in self.ends:
            names: Names = self.names(end.after)
            judged = [(rule_, names) for rule_ in self.subject.invariants]
            judged += [(rule_, end.names) for rule_ in transitions]
            for each, seen in judged:
                if rule in (None, each.id):
                    claimed = self.read(each, seen)
                    yield Condition(operation, each.id, each.id, end.after, claimed)

    # sums

    def sums(self, state: State, proved: Callable[[Formula], SolverVerdict]) -> Iterator[Fact]:
        """How every sum changes since nothing was known of it, and its bounds then and now, where
        what they rest on is `proved`."""
        # nothing ties a snapshot made anew to those before: a sum is followed from the last such
        first = max((n for n, one in enumerate(state.snapshots) if one.anew), default=0)
        moments = [(one.key, self.names(one)) for one in state.snapshots[first:]]
        for one in self.subject.aggregates:
            yield from self._changes(one, moments)
            then, now = moments[0][1], moments[-1][1]
            yield from self._bounds(one, then, proved)
            sums = (one, *one.parts)
            if any(
                not each.value(self.words, now).eq(each.value(self.words, then)) for each in sums
            ):
                yield from self._bounds(one, now, proved)

    def _changes(
        self, one: Aggregate, moments: Sequence[tuple[z3.ExprRef | None, Names]]
    ) -> Iterator[Fact]:
        """A sum changes by what the one key adds at which a map changed."""
        words = self.words
        for (_, before), (key, after) in itertools.pairwise(moments):
            # the lemma "one change" speaks of one key, and of one among those that are summed
            if key is None or self.universe.leaf_of(key) != one.leaf:
                continue
            old, new = one.value(words, before), one.value(words, after)
            if not new.eq(old):
                changed = one.share(words, after, key) - one.share(words, before, key)
                yield Fact(new == old + changed, of_sums=True)

    def _bounds(
        self, one: Aggregate, names: Names, proved: Callable[[Formula], SolverVerdict]
    ) -> Iterator[Fact]:
        """A sum without shares is 0; one of shares that are not negative is at least each of them;
        one whose shares are at most another's is at most that; one whose shares are those of others
        together is what these are together."""
        every, words = self.universe.all, self.words
        value = one.value(words, names)

        def share(key: z3.ExprRef) -> z3.ArithRef:
            return one.share(words, names, key)

        # the lemma "nothing added", of one constant for a key that adds: no quantifier is needed
        some = self.universe.constant(one.leaf, "adds")
        yield Fact(z3.Or(share(some) != 0, value == 0), of_sums=True)
        # what a lemma rests on is proved first: of "at least each" here, of two others below
        never_less = proved(every(one.leaf, lambda key: share(key) >= 0))
        if never_less.word == "proved":
            yield Fact(value >= 0, never_less.rules, of_sums=True)
            each = every(one.leaf, lambda key: share(key) <= value)
            yield Fact(each, never_less.rules, of_sums=True)
        if (whole := one.at_most) is not None:
            within = proved(
                every(one.leaf, lambda key: share(key) <= whole.share(words, names, key))
            )
            if within.word == "proved":
                yield Fact(value <= whole.value(words, names), within.rules, of_sums=True)
        if one.parts:
            made_up = proved(
                every(
                    one.leaf,
                    lambda key: (
                        share(key) == z3.Sum([part.share(words, names, key) for part in one.parts])
                    ),
                )
            )
            if made_up.word == "proved":
                parts = z3.Sum([part.value(words, names) for part in one.parts])
                yield Fact(value == parts, made_up.rules, of_sums=True)
