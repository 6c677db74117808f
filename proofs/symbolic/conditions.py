"""The conditions under which contracts hold of a class, from its source text.

Of every method that a scheduler calls: started where the invariants hold, and where what the
method asks of its caller holds, it ends where the invariants hold, keeps every contract of such a
call, and raises nothing. What is not kept by all methods is no invariant, and nothing may lean on
it: it is taken out, and what leaned on it is asked again.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from cacheproof.proofs.symbolic.counterexample import Model, terms_of
from cacheproof.proofs.symbolic.machine import Machine
from cacheproof.proofs.symbolic.predicates import Words
from cacheproof.proofs.symbolic.readings import Language
from cacheproof.proofs.symbolic.replay import Replay
from cacheproof.proofs.symbolic.rules import Predicate
from cacheproof.proofs.symbolic.solver import (
    ALL_BUT_THE_GREATEST,
    RLIMIT,
    SOON,
    Among,
    Effort,
    Premises,
    Verdict,
    efforts_for,
    is_possible,
    models,
)
from cacheproof.proofs.symbolic.source import Source, reached_from, reading_of
from cacheproof.proofs.symbolic.state import Fact, Loop, Snapshot, State
from cacheproof.proofs.symbolic.values import (
    Formula,
    Leaf,
    Type,
    Universe,
    conjunction,
    implies,
    negated,
)
from cacheproof.spec.registry import contracts
from cacheproof.spec.versions import release_key

Names = Mapping[str, Any]


@dataclass(frozen=True)
class Aggregate:
    """A sum over keys that contracts speak of: its value in a state, what one key adds, a sum that
    it is part of, and sums that make it up."""

    leaf: Leaf
    value: Callable[[Words, Names], z3.ArithRef]
    share: Callable[[Words, Names, z3.ExprRef], z3.ArithRef]
    at_most: "Aggregate | None" = None
    parts: "Sequence[Aggregate]" = ()


@dataclass(frozen=True)
class End:
    """Where a call may end: the state after it, and the names its contracts look at."""

    after: State
    names: Names


@dataclass(frozen=True)
class Operation:
    """A call of a `method`, as a scheduler makes it: `run` plays it with the ghost's part. One that
    builds the object `begins` where nothing is known. Where only the ghost is told something there
    is no method. Schedulers make it `since` a release, or all of them."""

    name: str
    run: Callable[["Play", State], Iterable[End]]
    method: str = ""
    begins: bool = False
    since: str = "0"

    def is_asked(self, source: Source, release: str | None) -> bool:
        """Whether a scheduler of a release makes it, of a class that may be older."""
        is_due = release is None or release_key(release) >= release_key(self.since)
        return is_due or self.method in {"", *source.methods}


@dataclass(frozen=True)
class Subject:
    """A class and all that is said of it beside its text.

    Attributes:
        sources: whose methods are run, by the owner of the attributes that they work on.
        types: of attributes, by owner and name. `constants` are attributes that are known.
        records: what contracts look at, from the value of each attribute.
        safety: the contract that nothing raises.
        replay: how counterexamples are run again; None: they are not.
        component: whose callers' promises are kept; "": of none.
        assumptions: facts of the table of requests' inputs, from its words.
        under_proof: the owners of the texts that the rules are proved of.
        machine: what runs the texts. `objects` and `variables` are as it knows them; it `unrolls`
            loops among a few elements.
        hangs_on: rule -> the owner and name of a method of which a change breaks it.
        noticed_by: rule -> the method and words of a change that breaks it in a small scope.
        told: of texts that are not under proof, the methods that operations call.
        also_called: methods that a scheduler calls, and no operation.
        absent: what a request of the release does not have, of what can be read.
    """

    name: str
    sources: Mapping[str, Source]
    types: Mapping[tuple[str, str], Type]
    constants: Mapping[tuple[str, str], Any]
    records: Callable[[Callable[[str, str], Any]], dict[str, Any]]
    invariants: Sequence[Predicate]
    transitions: Mapping[str, Sequence[Predicate]]
    operations: Sequence[Operation]
    aggregates: Sequence[Aggregate]
    loops: Callable[["Play"], Mapping[tuple[str, str], Sequence[Loop]]]
    safety: str
    assumptions: Callable[["Play"], Sequence[Formula]]
    replay: Replay | None = None
    component: str = ""
    under_proof: Sequence[str] = ("m",)
    machine: type[Machine] = Machine
    objects: Mapping[Leaf, str] = field(default_factory=dict)
    variables: Mapping[tuple[str, str, str], Type] = field(default_factory=dict)
    unrolls: bool = False
    hangs_on: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    noticed_by: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    told: Mapping[str, Sequence[str]] = field(default_factory=dict)
    also_called: Sequence[str] = ()
    absent: Sequence[str] = ()

    def judged_at(self, operation: Operation) -> list[str]:
        """The rules that an operation must keep."""
        rules = (*self.invariants, *self.transitions.get(operation.name, ()))
        return list(dict.fromkeys([*(rule.id for rule in rules), self.safety]))

    def reading_of(self, operation: Operation) -> tuple[Any, ...]:
        """All that makes an operation of two subjects the same, where they differ in their texts
        and in what follows from these."""
        reached = reached_from(operation.method, self.sources.values())
        texts = [
            (owner, name, reading_of(method))
            for owner, source in self.sources.items()
            for name, method in source.methods.items()
            if name in reached
        ]
        return (
            operation,
            tuple(sorted(texts)),
            tuple(sorted(self.types.items(), key=lambda one: one[0])),
            tuple(self.constants.items()),
            tuple(self.invariants),
            tuple(self.transitions.get(operation.name, ())),
        )


@dataclass(frozen=True)
class Condition:
    """That a rule holds where a path has come to."""

    operation: str
    name: str
    rule: str
    state: State
    claimed: Formula


class Play:
    """One operation of a subject, run in one language: its `ends`, the elements that stand for
    what the call is given, and what else it is `given`, by name."""

    def __init__(self, subject: Subject, operation: Operation, language: Language) -> None:
        self.subject = subject
        self.operation = operation
        self.universe = universe = language.universe
        self.words = language.words
        self._language = language
        self.machine = subject.machine(
            universe,
            self.words,
            subject.sources,
            subject.types,
            subject.loops(self),
            subject.safety,
            subject.objects,
            subject.variables,
            subject.unrolls and universe.elements is not None,
        )
        self.arguments: list[z3.ExprRef] = []
        self.given: dict[str, Any] = {}
        self.ends = list(operation.run(self, self._start()))

    # reading rules

    def names(self, state: State | Snapshot) -> dict[str, Any]:
        """The records that predicates look at, of a state."""
        if isinstance(state, Snapshot):
            state = State(state.attributes, state.cells, {})
        return self.subject.records(state.attribute)

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
            state = State(dict(self.subject.constants), {}, {})
        else:
            state = self.machine.fresh_state(self.subject.constants)
            known = self.invariants(state, taken=True)
            state = state.assuming(*(Fact(formula, frozenset({rule})) for rule, formula in known))
        return state.assuming(*self.subject.assumptions(self))

    def conditions(self, rule: str | None = None) -> Iterator[Condition]:
        """What the operation must keep; of one rule, or of all."""
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

    def sums(self, state: State, proved: Callable[[Formula], Verdict]) -> Iterator[Fact]:
        """Of every sum: how it changes since nothing was known of it, and its bounds then and
        now, where what they rest on is `proved`."""
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
            if key is None or self.universe.leaf_of(key) != one.leaf:
                continue
            old, new = one.value(words, before), one.value(words, after)
            if not new.eq(old):
                changed = one.share(words, after, key) - one.share(words, before, key)
                yield Fact(new == old + changed, of_sums=True)

    def _bounds(
        self, one: Aggregate, names: Names, proved: Callable[[Formula], Verdict]
    ) -> Iterator[Fact]:
        """A sum without shares is 0; one of shares that are not negative is at least each of them;
        one whose shares are at most another's is at most that; one whose shares are those of others
        together is what these are together."""
        every, words = self.universe.all, self.words
        value = one.value(words, names)

        def share(key: z3.ExprRef) -> z3.ArithRef:
            return one.share(words, names, key)

        some = self.universe.constant(one.leaf, "adds")
        yield Fact(z3.Or(share(some) != 0, value == 0), of_sums=True)
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


class Prover:
    """Decides the conditions of a play. What told last time of a rule is tried first."""

    def __init__(self, play: Play, seed: int = 0) -> None:
        self.play = play
        self.conditions = list(play.conditions())
        self._proved: dict[int, list[Verdict]] = {}
        self._premises = Premises(seed)
        self._sums: dict[int, tuple[State, list[Fact]]] = {}
        self._told: dict[str, Effort] = {}
        self._first: dict[int, Effort | None] = {}

    def verdict(self, number: int, without: Collection[str], tries: slice) -> Verdict:
        """Whether a condition holds, `without` some rules, by some of its efforts; what was proved
        once stays so."""
        proved = self._proved.setdefault(number, [])
        for known in proved:
            if known.rules.isdisjoint(without):
                return known
        condition = self.conditions[number]
        first = self._first.setdefault(number, self._told.get(condition.rule))
        efforts = _with_first(first, efforts_for(condition.claimed))
        tried = [*itertools.islice(efforts, tries.start, tries.stop)]
        verdict = self.decided(condition, without, tried)
        if verdict.word == "proved":
            proved.append(verdict)
        return verdict

    def knows_sums(self, state: State) -> bool:
        """Whether a condition was tried there with what is known of sums."""
        return id(state) in self._sums

    def decided(
        self, condition: Condition, without: Collection[str], efforts: Sequence[Effort]
    ) -> Verdict:
        """Whether a condition holds, `without` some rules, by some efforts."""
        known = _known(condition.state, without)
        for fact in known:
            if condition.rule in fact.rules and _same(fact.formula, condition.claimed):
                return Verdict("proved", fact.rules)
        parts = _parts(condition.claimed)
        if len(parts) > 1:
            whole = self._tried(condition, condition.claimed, without, efforts[:1])
            if whole.word == "proved":
                return whole
        verdicts = []
        for part in parts:
            verdicts.append(self._tried(condition, part, without, efforts))
            if verdicts[-1].word != "proved":
                return verdicts[-1]
        rules = frozenset(rule for one in verdicts for rule in one.rules)
        return Verdict("proved", rules, max(one.work for one in verdicts))

    def _tried(
        self,
        condition: Condition,
        claimed: Formula,
        without: Collection[str],
        efforts: Sequence[Effort],
    ) -> Verdict:
        """Whether a part of a condition holds, by the first effort that tells."""
        worst = 0.0
        told = self._told.get(condition.rule)
        for effort in sorted(efforts, key=lambda one: one is not told):
            path = [*condition.state.path]
            if effort.sums:
                path += self._sums_at(condition.state, without)

            def takes(fact: Fact, among: Among = effort.among) -> bool:
                return fact.rules.isdisjoint(without) and (
                    fact.of_sums or condition.rule in fact.rules or _takes_part(fact, among)
                )

            verdict = self._premises.imply(path, claimed, takes, effort.rlimit)
            if verdict.word == "proved":
                self._told[condition.rule] = effort
                return verdict
            worst = max(worst, verdict.work)
        return Verdict("unknown", frozenset(), worst)

    def _sums_at(self, state: State, without: Collection[str]) -> list[Fact]:
        if id(state) not in self._sums:

            def known(fact: Fact) -> bool:
                return fact.rules.isdisjoint(without)

            def plain(fact: Fact) -> bool:
                return known(fact) and _takes_part(fact, Among.PLAIN)

            def proved(claimed: Formula) -> Verdict:
                verdict = self._premises.imply(state.path, claimed, plain, RLIMIT // 200)
                if verdict.word != "proved":
                    verdict = self._premises.imply(state.path, claimed, known, RLIMIT // 100)
                return verdict

            self._sums[id(state)] = state, list(self.play.sums(state, proved))
        return self._sums[id(state)][1]


def _with_first(first: Effort | None, efforts: Iterator[Effort]) -> Iterator[Effort]:
    """Efforts, one of them before all others."""
    if first is not None:
        yield first
    yield from (one for one in efforts if one is not first)


def _known(state: State, without: Collection[str]) -> list[Fact]:
    """What is known at a place, `without` some rules."""
    return [fact for fact in state.path if fact.rules.isdisjoint(without)]


def _parts(claimed: Formula) -> list[Formula]:
    """What a claim is that all of some hold, one by one."""
    if isinstance(claimed, bool) or not z3.is_and(claimed):
        return [claimed]
    return [part for one in claimed.children() for part in _parts(one)]


def _same(one: Formula, other: Formula) -> bool:
    return isinstance(one, z3.ExprRef) and isinstance(other, z3.ExprRef) and one.eq(other)


def _takes_part(fact: Fact, among: Among) -> bool:
    return (
        not fact.rules or among is Among.ALL or (among is Among.PLAIN and not fact.gives_elements)
    )


MODELS_MAX = 8
"""Of one condition, how many counterexamples are run again until one is broken by the class."""


@dataclass(frozen=True)
class Counterexample:
    """A state and a call in words; `replayed` when the class itself, run from there, breaks the
    rule as well. A path through a loop is known in part, and then it need not."""

    sentence: str
    replayed: bool


@dataclass(frozen=True)
class Findings:
    """What was asked -> the counterexample that was found, if any; and whether one was there among
    the fewest elements."""

    counterexamples: dict[tuple[Any, ...], Counterexample | None] = field(default_factory=dict)
    soon: dict[tuple[Any, ...], bool] = field(default_factory=dict)


class Refuter:
    """Looks for counterexamples among a few elements, where nothing has to be instantiated in
    part: what is found there is one. It may start from a state that no calls lead to, if the
    invariants that stand allow it.

    Args:
        found: what others found, where all that a call runs reads the same and is asked the same.
    """

    def __init__(
        self, subject: Subject, languages: Sequence[Language], found: Findings | None = None
    ) -> None:
        self._subject = subject
        self._languages = languages
        self._found = found or Findings()
        self._readings: dict[str, tuple[Any, ...]] = {}
        self._contracts = {rule.id for rule in contracts()}
        self._plays: dict[tuple[str, int], Play] = {}

    def counterexample(
        self, operation: Operation, rule: str, without: Collection[str] = ()
    ) -> "Counterexample | None":
        """A state and a call of an operation that break a rule: one that the class itself breaks
        it from, where such a one is among the first that are found."""
        asked = self._asked(operation, rule, without)
        known = self._found.counterexamples
        if asked not in known:
            known[asked] = self._search(operation, rule, without)
        return known[asked]

    def _asked(self, operation: Operation, rule: str, without: Collection[str]) -> tuple[Any, ...]:
        if operation.name not in self._readings:
            self._readings[operation.name] = self._subject.reading_of(operation)
        is_replayed = self._subject.replay is not None
        sizes = tuple(one.universe.elements for one in self._languages)
        return self._readings[operation.name], is_replayed, sizes, rule, frozenset(without)

    def _search(
        self, operation: Operation, rule: str, without: Collection[str]
    ) -> "Counterexample | None":
        subject = self._subject
        replay = subject.replay if rule in self._contracts else None
        first = None
        for number in range(len(self._languages)):
            play = self._play(operation, number)
            for one in play.conditions(rule):
                facts = _known(one.state, without)
                start = terms_of(one.state.snapshots[0])
                for model in itertools.islice(models(facts, one.claimed, start), MODELS_MAX):
                    found = Model(play.universe, play.words, model)
                    breaks = replay is not None and replay.breaks(
                        subject.sources["m"],
                        subject.constants,
                        one.operation,
                        rule,
                        found,
                        one.state,
                    )
                    if first is None or breaks:
                        sentence = found.sentence(one.state, operation.name, play.given)
                        first = Counterexample(sentence, breaks)
                    if breaks or replay is None:
                        return first
        return first

    def is_soon_refuted(
        self, operation: Operation, rule: str, without: Collection[str] = ()
    ) -> bool:
        """Whether a counterexample is there among the fewest elements."""
        asked = self._asked(operation, rule, without)
        if asked not in self._found.soon:
            self._found.soon[asked] = any(
                is_possible([*_known(one.state, without), Fact(negated(one.claimed))])
                for one in self._play(operation, 0).conditions(rule)
            )
        return self._found.soon[asked]

    def rules(self, operation: Operation) -> list[str]:
        """All that an operation must keep: contracts, invariants, and what its loops carry."""
        play = self._play(operation, 0)
        return list(dict.fromkeys(one.rule for one in play.conditions()))

    def _play(self, operation: Operation, number: int) -> Play:
        place = (operation.name, number)
        if place not in self._plays:
            self._plays[place] = Play(self._subject, operation, self._languages[number])
        return self._plays[place]


@dataclass
class Outcome:
    """What became of one rule.

    Attributes:
        word: proved, refuted, or unknown.
        failing: of an unknown rule, the first condition that was not proved.
        counterexample: of a refuted rule, in words; `replayed` as it says.
        conditions: how many were proved. `work_max`: what the hardest took, as a share of RLIMIT.
        rests_on: the rules that its proofs lean on.
    """

    rule: str
    word: str = "proved"
    failing: str = ""
    counterexample: str = ""
    replayed: bool = False
    conditions: int = 0
    work_max: float = 0.0
    rests_on: frozenset[str] = frozenset()


class Library:
    """Provers of operations, each for all subjects of one kind in which its text reads alike: what
    is proved of it there is proved of each, and a counterexample is one of each. `twins` are of
    operations, by all that makes two of them the same."""

    def __init__(self, seed: int = 0) -> None:
        self.few = [Language(Universe(size)) for size in (2, 3)]
        self._language = Language(Universe())
        self._seed = seed
        self._provers: dict[tuple[Any, ...], Prover] = {}
        self._found = Findings()
        self.twins: dict[tuple[Any, ...], Any] = {}

    def prover(self, subject: Subject, operation: Operation) -> Prover:
        key = subject.reading_of(operation)
        if key not in self._provers:
            self._provers[key] = Prover(self.play(subject, operation), self._seed)
        return self._provers[key]

    def refuter(self, subject: Subject) -> Refuter:
        return Refuter(subject, self.few, self._found)

    def refuter_of_change(self, subject: Subject) -> Refuter:
        """Of a class that is broken on purpose, where fewer elements do."""
        return Refuter(subject, self.few[:1], self._found)

    def play(self, subject: Subject, operation: Operation) -> Play:
        return Play(subject, operation, self._language)


def prove(
    subject: Subject, library: Library | None = None, settled: Collection[str] = ()
) -> dict[str, Outcome]:
    """What holds of a subject, by the id of the rule; but for rules that are `settled`: they hold,
    and lean on each other only. A library is for subjects that differ in their texts alone."""
    library = library or Library()
    refuter = library.refuter(subject)
    conditions = [
        (operation, prover, number)
        for operation in subject.operations
        for prover in (library.prover(subject, operation),)
        for number, one in enumerate(prover.conditions)
        if one.rule not in settled
    ]
    outcomes = {
        rule: Outcome(rule)
        for rule in (prover.conditions[number].rule for _, prover, number in conditions)
    }
    out: set[str] = set()
    proved: dict[tuple[str, int], tuple[str, Verdict]] = {}
    changed = True
    while changed:
        changed = False
        for operation, prover, number in conditions:
            rule = prover.conditions[number].rule
            place = operation.name, number
            if rule in out or (place in proved and proved[place][1].rules.isdisjoint(out)):
                continue
            verdict = _decided(prover, refuter, operation, number, out)
            if isinstance(verdict, Verdict) and verdict.word == "proved":
                proved[place] = rule, verdict
                continue
            outcome = outcomes[rule]
            if isinstance(verdict, Counterexample):
                outcome.word, outcome.replayed = "refuted", verdict.replayed
                outcome.counterexample = verdict.sentence
            else:
                outcome.word = "unknown"
                one = Prover(library.play(subject, operation)).conditions[number]
                outcome.failing = f"{one.operation}: {one.name}"
            out.add(rule)
            changed = True
    for rule, verdict in proved.values():
        outcome = outcomes[rule]
        outcome.conditions += 1
        outcome.work_max = max(outcome.work_max, verdict.work)
        outcome.rests_on |= verdict.rules
    return outcomes


def _decided(
    prover: Prover, refuter: Refuter, operation: Operation, number: int, out: Collection[str]
) -> Verdict | Counterexample:
    """A proof, or a counterexample; or a verdict that says that neither was found.

    What no two elements refute is tried with all effort before more of them are looked at: among
    three the search for what is not there costs more than any proof. Where loops are run turn by
    turn, it does among two.
    """
    rule = prover.conditions[number].rule
    soon = ALL_BUT_THE_GREATEST if prover.play.subject.unrolls else SOON
    verdict = prover.verdict(number, out, slice(soon))
    if verdict.word == "proved":
        return verdict
    is_refuted = refuter.is_soon_refuted(operation, rule, out)
    if not is_refuted:
        verdict = prover.verdict(number, out, slice(soon, None))
        if verdict.word == "proved":
            return verdict
    found = refuter.counterexample(operation, rule, out)
    return found or (prover.verdict(number, out, slice(soon, None)) if is_refuted else verdict)
