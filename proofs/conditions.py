"""The conditions under which contracts hold of a class, from its source text.

Of every method that a scheduler calls: started where the invariants hold, and where what the method
asks of its caller holds, it ends where the invariants hold, keeps every contract of such a call, and
raises nothing. What is not kept by all methods is no invariant, and nothing may lean on it: it is
taken out, and all is asked again.
"""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from cacheproof.proofs.execution import Loop, Machine, Snapshot, Source, State
from cacheproof.proofs.predicates import Reader, Words
from cacheproof.proofs.solver import Solver, Verdict
from cacheproof.proofs.values import (
    All,
    And,
    Formula,
    Leaf,
    Or,
    Some,
    Type,
    Universe,
    implies,
)
from cacheproof.spec.registry import Contract


@dataclass(frozen=True)
class Predicate:
    """A rule by the text of its expression: a contract of spec, or one that only proofs need."""

    id: str
    title: str
    parameters: tuple[str, ...]
    tree: ast.expr
    place: str


def of_contract(rule: Contract) -> Predicate:
    """A contract's predicate, as spec states it."""
    path = inspect.getsourcefile(rule.predicate) or ""
    return Predicate(rule.id, rule.title, rule.parameters, rule.expression.tree, path)


def auxiliary(function: Callable[..., bool]) -> Predicate:
    """A predicate that only proofs need, by the name and the docstring of its function."""
    text = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(text).body
    assert isinstance(definition, ast.FunctionDef)
    (returned,) = [one for one in definition.body if isinstance(one, ast.Return)]
    assert returned.value is not None
    parameters = tuple(one.arg for one in definition.args.args)
    place = f"{inspect.getsourcefile(function)}:{function.__code__.co_firstlineno}"
    title = inspect.getdoc(function) or ""
    return Predicate(function.__name__, title, parameters, returned.value, place)


Names = Mapping[str, Any]


@dataclass(frozen=True)
class Aggregate:
    """A sum over keys that contracts speak of: its value in a state, what one key adds, and a sum
    that it is part of."""

    leaf: Leaf
    value: Callable[[Words, Names], z3.ArithRef]
    share: Callable[[Words, Names, z3.ExprRef], z3.ArithRef]
    at_most: "Aggregate | None" = None


@dataclass(frozen=True)
class End:
    """Where a call may end: the state before it, after it, and the names its contracts look at."""

    before: State
    after: State
    names: Names


@dataclass(frozen=True)
class Operation:
    """A call, as a scheduler makes it: `run` plays it with the ghost's part."""

    name: str
    run: Callable[["Proof", State], Iterable[End]]


@dataclass
class Outcome:
    """What became of one rule: proved, refuted or unknown, at which operations, and how."""

    rule: Predicate
    word: str
    failing: list[str] = field(default_factory=list)
    conditions: int = 0
    work_max: int = 0


@dataclass(frozen=True)
class Subject:
    """A class and all that is said of it beside its text."""

    name: str
    sources: Mapping[str, Source]
    types: Mapping[tuple[str, str], Type]
    constants: Mapping[tuple[str, str], Any]
    records: Callable[[Callable[[str, str], Any]], dict[str, Any]]
    invariants: Sequence[Predicate]
    transitions: Mapping[str, Sequence[Predicate]]
    operations: Sequence[Operation]
    aggregates: Sequence[Aggregate]
    loops: Callable[["Proof"], Mapping[tuple[str, str], Sequence[Loop]]]


class Proof:
    """The conditions of one subject over one universe."""

    def __init__(
        self, subject: Subject, universe: Universe, standing: Sequence[Predicate], seed: int = 0
    ) -> None:
        self.subject = subject
        self.universe = universe
        self.words = Words(universe)
        self.standing = standing
        self.solver = Solver(universe, seed)
        self._sums_known: dict[int, tuple[State, list[Formula]]] = {}
        self.machine = Machine(
            universe, self.words, subject.sources, subject.types, subject.loops(self)
        )

    def names(self, state: State | Snapshot) -> dict[str, Any]:
        """The records that predicates look at, of a state."""
        if isinstance(state, Snapshot):
            state = State(state.attributes, state.cells, {})
        return self.subject.records(state.attribute)

    def claimed(self, rule: Predicate, names: Names) -> Formula:
        """A predicate over these records, to be proved."""
        defined, holds = Reader(self.words, rule.place).formula(rule.tree, names)
        return implies(defined, holds)

    def assumed(self, rule: Predicate, names: Names) -> Formula:
        """A predicate over these records, taken to hold."""
        return And(Reader(self.words, rule.place).formula(rule.tree, names))

    def invariants(self, state: State, *, taken: bool = False) -> list[tuple[str, Formula]]:
        """What holds between calls, of a state: to be proved, or taken as proved."""
        names = self.names(state)
        read = self.assumed if taken else self.claimed
        return [(rule.id, read(rule, names)) for rule in self.standing]

    def start(self) -> State:
        """Any state that the invariants allow."""
        state = self.machine.fresh_state(self.subject.constants)
        return state.assuming(*(fact for _, fact in self.invariants(state, taken=True)))

    def conditions(self, operation: Operation) -> Iterator[tuple[str, State, Formula]]:
        """What an operation must keep: names, where, and what."""
        self.machine.obligations.clear()
        ends = list(operation.run(self, self.start()))
        for one in self.machine.obligations:
            yield one.name, one.state, one.claimed
        for end in ends:
            for name, formula in self.invariants(end.after):
                yield name, end.after, formula
            for rule in self.subject.transitions.get(operation.name, ()):
                yield rule.id, end.after, self.claimed(rule, end.names)

    def verdict(self, state: State, claimed: Formula) -> Verdict:
        """Whether a claim follows where a path has come to."""
        work = 0
        for with_sums, depth in ((False, 0), (True, 1), (False, 2), (True, 2)):
            facts = [*state.path, *self._sums_of(state)] if with_sums else state.path
            verdict = self.solver.check(facts, claimed, depth)
            work += verdict.work
            if verdict.word != "unknown":
                break
        return Verdict(verdict.word, work, verdict.model)

    def _sums_of(self, state: State) -> list[Formula]:
        if id(state.snapshots) not in self._sums_known:
            self._sums_known[id(state.snapshots)] = state, list(self._sums(state))
        return self._sums_known[id(state.snapshots)][1]

    def _sums(self, state: State) -> Iterator[Formula]:
        """Of every sum: how it changes since nothing was known of it, and its bounds then and
        now."""
        if self.universe.elements is not None:
            return
        first = max(number for number, one in enumerate(state.snapshots) if one.anew)
        moments = [(one.key, self.names(one)) for one in state.snapshots[first:]]
        for one in self.subject.aggregates:
            yield from self._changes(one, moments)
            then, now = moments[0][1], moments[-1][1]
            yield from _bounds(one, self.words, then)
            if not one.value(self.words, now).eq(one.value(self.words, then)):
                yield from _bounds(one, self.words, now)

    def _changes(
        self, one: Aggregate, moments: Sequence[tuple[z3.ExprRef | None, Names]]
    ) -> Iterator[Formula]:
        """A sum changes by what the one key adds at which a map changed."""
        words = self.words
        for (_, before), (key, after) in itertools.pairwise(moments):
            if key is None or self.universe.leaf_of(key) != one.leaf:
                continue
            old, new = one.value(words, before), one.value(words, after)
            if not new.eq(old):
                yield new == old - one.share(words, before, key) + one.share(words, after, key)


def _bounds(aggregate: Aggregate, words: Words, names: Names) -> Iterator[Formula]:
    """A sum of shares that are not negative is at least each of them; one without shares is 0; one
    whose shares are at most another's is at most that."""
    value = aggregate.value(words, names)

    def share(key: z3.ExprRef) -> z3.ArithRef:
        return aggregate.share(words, names, key)

    negative = Some(aggregate.leaf, lambda k: share(k) < 0)
    if aggregate.at_most is not None:
        whole = aggregate.at_most
        bigger = Some(aggregate.leaf, lambda k: share(k) > whole.share(words, names, k))
        yield Or((bigger, value <= whole.value(words, names)))
    at_least_each = All(aggregate.leaf, lambda k: share(k) <= value)
    yield Or((negative, And((value >= 0, at_least_each))))
    yield Or((Some(aggregate.leaf, lambda k: share(k) != 0), value == 0))


def prove(
    subject: Subject, seed: int = 0, report: Callable[[str], None] = lambda _: None
) -> dict[str, Outcome]:
    """What holds of a subject, by the id of the rule."""
    standing = list(subject.invariants)
    refuted: dict[str, Outcome] = {}
    while True:
        outcomes = {rule.id: Outcome(rule, "proved") for rule in standing}
        for operation in subject.operations:
            _decide(subject, standing, operation, outcomes, seed)
        failing = [rule for rule in standing if outcomes[rule.id].word != "proved"]
        for rule in failing:
            refuted[rule.id] = outcomes[rule.id]
        if not failing:
            return {**refuted, **outcomes}
        report(
            f"{subject.name}: not kept: {', '.join(f'{r.id} ({outcomes[r.id].failing[0]})' for r in failing)}"
        )
        standing = [rule for rule in standing if rule not in failing]


def _decide(
    subject: Subject,
    standing: Sequence[Predicate],
    operation: Operation,
    outcomes: dict[str, Outcome],
    seed: int,
) -> None:
    proof = Proof(subject, Universe(), standing, seed)
    rules = {
        rule.id: rule
        for rule in (*subject.invariants, *subject.transitions.get(operation.name, ()))
    }
    for name, state, claimed in proof.conditions(operation):
        id_ = next(
            (one for one in rules if name == one or name.split(" (")[0].endswith(" " + one)),
            "safety",
        )
        rule = rules.get(id_, SAFETY)
        outcome = outcomes.setdefault(id_, Outcome(rule, "proved"))
        verdict = proof.verdict(state, claimed)
        outcome.conditions += 1
        outcome.work_max = max(outcome.work_max, verdict.work)
        if verdict.word != "proved":
            outcome.word = verdict.word
            outcome.failing.append(f"{operation.name}: {name}")


SAFETY = Predicate("safety", "Nothing raises", (), ast.Constant(True), "")
