"""Decides which rules hold of a class, from its source text.

Every method that a scheduler calls, started where the invariants hold and its caller keeps its
promises, ends where the invariants hold, keeps every contract of such a call, and raises nothing. A
rule that some method does not keep is no invariant, and no proof may lean on it: it is taken out,
and what leaned on it is asked again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cacheproof.proofs.symbolic.deciding.answers import OperationAnswers
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.prover import Prover, Unkept
from cacheproof.proofs.symbolic.deciding.refuter import Counterexample, Findings, Refuter
from cacheproof.proofs.symbolic.deciding.subject import (
    Operation,
    OperationReading,
    Subject,
)
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.values.solver import (
    ALL_BUT_THE_GREATEST,
    SOON,
    Effort,
    SolverVerdict,
)
from cacheproof.proofs.symbolic.values.values import Universe


@dataclass
class RuleOutcome:
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


class ProverLibrary:
    """Provers of operations, each for all subjects of one kind in which the text of the operation
    reads the same: a proof or a counterexample of one is one of each. `twins` are changes that
    break operations, by all that makes two operations the same; `answers` are what other processes
    found."""

    def __init__(self, seed: int = 0, answers: OperationAnswers | None = None) -> None:
        self.answers = answers or OperationAnswers()
        self.few = [RuleLanguage(Universe(size)) for size in (2, 3)]
        self._language = RuleLanguage(Universe())
        self._seed = seed
        self._provers: dict[OperationReading, Prover] = {}
        self._found = Findings(answers=self.answers)
        self._anew: set[str] = set()
        self._efforts: dict[tuple[str, str, int], Effort] = {}
        self.twins: dict[tuple[OperationReading, frozenset[str]], Any] = {}

    def prover(self, subject: Subject, operation: Operation) -> Prover:
        key = subject.reading_of(operation)
        if key not in self._provers:
            reading = subject.digest_of(operation)
            self._provers[key] = Prover(
                lambda: self.play(subject, operation),
                self._seed,
                self.answers,
                reading,
                operation.name,
                self._efforts,
                is_anew=reading in self._anew,
            )
        return self._provers[key]

    def prove_anew(self, unkept: Unkept) -> None:
        """Have the conditions of an operation proved without the answers that were kept of it."""
        self._anew.add(unkept.reading)
        self._provers = {
            key: one for key, one in self._provers.items() if one.reading != unkept.reading
        }

    def refuter(self, subject: Subject) -> Refuter:
        return Refuter(subject, self.few, self._found)

    def refuter_of_change(self, subject: Subject) -> Refuter:
        """What refutes a class that is broken on purpose, for which fewer elements do."""
        return Refuter(subject, self.few[:1], self._found)

    def play(self, subject: Subject, operation: Operation) -> Play:
        return Play(subject, operation, self._language)


def prove(
    subject: Subject, library: ProverLibrary | None = None, settled: Collection[str] = ()
) -> dict[str, RuleOutcome]:
    """What holds of a subject, by the id of the rule; but for rules that are `settled`: they hold,
    and lean on each other only. A library is for subjects that differ in their texts alone.

    Raises:
        Unkept: answers that were kept do not do; the library is to prove the operation anew.
    """
    library = library or ProverLibrary()
    refuter = library.refuter(subject)
    conditions = [
        (operation, prover, number)
        for operation in subject.operations
        for prover in (library.prover(subject, operation),)
        for number, rule in enumerate(prover.rules)
        if rule not in settled
    ]
    outcomes = {
        rule: RuleOutcome(rule)
        for rule in (prover.rules[number] for _, prover, number in conditions)
    }
    out: set[str] = set()
    proved: dict[tuple[str, int], tuple[str, SolverVerdict]] = {}
    changed = True
    # a rule that falls takes its support from other proofs: repeat until no rule falls
    while changed:
        changed = False
        for operation, prover, number in conditions:
            rule = prover.rules[number]
            place = operation.name, number
            if rule in out or (place in proved and proved[place][1].rules.isdisjoint(out)):
                continue
            # see `_decided`: of unrolled loops a look at two elements costs more than proofs
            soon = ALL_BUT_THE_GREATEST if subject.unrolls else SOON
            verdict = _decided(prover, refuter, operation, number, out, soon)
            if isinstance(verdict, SolverVerdict) and verdict.word == "proved":
                proved[place] = rule, verdict
                continue
            outcome = outcomes[rule]
            if isinstance(verdict, Counterexample):
                outcome.word, outcome.replayed = "refuted", verdict.replayed
                outcome.counterexample = verdict.sentence
            else:
                outcome.word = "unknown"
                # played anew: a prover with kept answers has rules alone
                one = list(library.play(subject, operation).conditions())[number]
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
    prover: Prover,
    refuter: Refuter,
    operation: Operation,
    number: int,
    out: Collection[str],
    soon: int,
) -> SolverVerdict | Counterexample:
    """A proof, or a counterexample; or a verdict that says that neither was found.

    What two elements do not refute is tried with all efforts before three are looked at: a search
    among three for what is not there costs more than any proof. Where loops are run turn by turn,
    so does one among two. The first `soon` efforts come before any search.
    """
    rule = prover.rules[number]
    verdict = prover.verdict(number, out, slice(soon))
    if verdict.word == "proved":
        return verdict
    is_refuted = refuter.is_soon_refuted(operation, rule, out)
    # what two elements refute no effort proves: the counterexample is looked for at once
    if not is_refuted:
        verdict = prover.verdict(number, out, slice(soon, None))
        if verdict.word == "proved":
            return verdict
    found = refuter.counterexample(operation, rule, out)
    return found or (prover.verdict(number, out, slice(soon, None)) if is_refuted else verdict)
