"""Proves conditions, each with as much effort as it takes."""

import itertools
import secrets
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import z3

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.deciding.answers import OperationAnswers, Question, QuestionPart
from cacheproof.proofs.symbolic.deciding.play import Condition, Play
from cacheproof.proofs.symbolic.values.solver import (
    RLIMIT,
    Among,
    Effort,
    Premises,
    SolverVerdict,
    efforts_for,
)
from cacheproof.proofs.symbolic.values.state import Fact, State


@dataclass(frozen=True)
class _Kept:
    """The rules of conditions, in their order, and a name of the run that put them in it."""

    name: str
    rules: list[str]


class Unkept(Exception):
    """Something was asked of an operation that its kept answers do not tell. What they told of its
    conditions, by number, must not be mixed with what is found now.

    Attributes:
        reading: of the operation.
    """

    def __init__(self, reading: str) -> None:
        super().__init__(reading)
        self.reading = reading


class Prover:
    """Decides the conditions of a play. The effort that told last of a rule is tried first.

    Args:
        make: runs the operation.
        answers: what was asked before.
        reading: tells the operation from all others.
        efforts: what conditions of operations of other texts took, by the operation's `name`, the
            rule and its number.
        is_anew: whether what was decided before is left unread.
    """

    def __init__(
        self,
        make: Callable[[], Play],
        seed: int = 0,
        answers: OperationAnswers | None = None,
        reading: str = "",
        name: str = "",
        efforts: MutableMapping[tuple[str, str, int], Effort] | None = None,
        *,
        is_anew: bool = False,
    ) -> None:
        self._make = make
        self.answers = answers or OperationAnswers()
        self.reading = reading
        self._name = name
        self._efforts = {} if efforts is None else efforts
        known = None if is_anew else self.answers.known(self._asked("rules"), _Kept)
        self._kept: _Kept | None = None if known is None else known[0]
        self._proved: dict[int, list[SolverVerdict]] = {}
        self._premises = Premises(seed)
        self._sums: dict[int, tuple[State, dict[frozenset[str], list[Fact]]]] = {}
        self._told: dict[str, Effort] = {}
        self._first: dict[int, Effort | None] = {}

    @cached_property
    def play(self) -> Play:
        """The operation as it is run.

        Raises:
            Unkept: its conditions are known from kept answers.
        """
        if self._kept is not None:
            raise Unkept(self.reading)
        return self._make()

    @cached_property
    def conditions(self) -> list[Condition]:
        return list(self.play.conditions())

    @cached_property
    def rules(self) -> list[str]:
        """The rule of each condition."""
        return self._here.rules

    @cached_property
    def _here(self) -> "_Kept":
        """The conditions by their rules, under a name that no other run gave them."""
        if self._kept is not None:
            return self._kept
        here = _Kept(secrets.token_hex(8), [one.rule for one in self.conditions])
        self.answers.keep(self._asked("rules"), here)
        return here

    def _asked(self, *question: QuestionPart) -> Question:
        return (self.reading, *question)

    def verdict(self, number: int, without: Collection[str], tries: slice) -> SolverVerdict:
        """Whether a condition holds, `without` some rules, by some of its efforts; what was proved
        once stays so."""
        proved = self._proved.setdefault(number, [])
        for known in proved:
            if known.rules.isdisjoint(without):
                return known
        effort = [tries.start, tries.stop]
        asked = self._asked("verdict", self._here.name, number, sorted(without), effort)
        # a proof does for any efforts and rules it leans on; a failure only as it was asked
        of_all = self._asked("proved", self._here.name, number)
        for question in (of_all, asked):
            # numbers are those of one run: without its kept list they say nothing
            kept = self.answers.known(question, SolverVerdict) if self._kept is not None else None
            if kept is not None and kept[0].rules.isdisjoint(without):
                if kept[0].word == "proved":
                    proved.append(kept[0])
                found: SolverVerdict = kept[0]
                return found
        verdict = self._decided(number, without, tries)
        self.answers.keep(asked, verdict)
        if verdict.word == "proved":
            self.answers.keep(of_all, verdict)
            proved.append(verdict)
        return verdict

    def _decided(self, number: int, without: Collection[str], tries: slice) -> SolverVerdict:
        condition = self.conditions[number]
        rule = condition.rule
        likely = self._name, rule, self.rules[:number].count(rule)
        # fixed at the first try: slices of the efforts must be slices of one order
        if number not in self._first:
            kept = self.answers.known(("effort", *likely), Effort)
            known = self._efforts.get(likely) if kept is None else kept[0]
            self._first[number] = self._told.get(rule) if known is None else known
        efforts = _with_first(self._first[number], efforts_for(condition.claimed))
        tried = [*itertools.islice(efforts, tries.start, tries.stop)]
        verdict = self.decided(condition, without, tried)
        told = self._told.get(rule)
        if verdict.word == "proved" and told is not None and told != self._first[number]:
            self._note(likely, told)
        return verdict

    def _note(self, likely: tuple[str, str, int], told: Effort) -> None:
        """Have an effort tried first of such a condition, unless it is the greatest of all: what
        does not hold would be refuted only after that."""
        if told.rlimit < RLIMIT:
            self._efforts[likely] = told
            self.answers.keep(("effort", *likely), told)

    def knows_sums(self, state: State) -> bool:
        """Whether a condition was tried there with what is known of sums."""
        return id(state) in self._sums

    def decided(
        self, condition: Condition, without: Collection[str], efforts: Sequence[Effort]
    ) -> SolverVerdict:
        """Whether a condition holds, `without` some rules, by some efforts."""
        known = condition.known(without)
        # what is as it was taken to hold needs no solver
        for fact in known:
            if condition.rule in fact.rules and _same(fact.formula, condition.claimed):
                return SolverVerdict("proved", fact.rules)
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
        return SolverVerdict("proved", rules, max(one.work for one in verdicts))

    def _tried(
        self,
        condition: Condition,
        claimed: Formula,
        without: Collection[str],
        efforts: Sequence[Effort],
    ) -> SolverVerdict:
        """Whether a part of a condition holds, by the first effort that tells."""
        worst = 0.0
        told = self._told.get(condition.rule)
        # a stable sort: the effort that told last comes first, the others keep their order
        for effort in sorted(efforts, key=lambda one: one != told):
            path = [*condition.state.path]
            if effort.sums:
                path += self._sums_at(condition.state, without)

            # facts of sums are on the path only if the effort asks for them
            def takes(fact: Fact, among: Among = effort.among) -> bool:
                return fact.rules.isdisjoint(without) and (
                    fact.of_sums or condition.rule in fact.rules or _takes_part(fact, among)
                )

            verdict = self._premises.imply(path, claimed, takes, effort.rlimit)
            if verdict.word == "proved":
                self._told[condition.rule] = effort
                return verdict
            worst = max(worst, verdict.work)
        return SolverVerdict("unknown", frozenset(), worst)

    def _sums_at(self, state: State, without: Collection[str]) -> list[Fact]:
        """What is known of sums there, `without` some rules: other rules may tell as much."""
        # with the state, whose id no other state takes while it is there
        _, told = self._sums.setdefault(id(state), (state, {}))
        out = frozenset(without)
        for fewer, facts in told.items():
            # what leans on none of those that are left out now stands, and nothing was missing
            if fewer <= out and all(fact.rules.isdisjoint(out) for fact in facts):
                return facts

        def known(fact: Fact) -> bool:
            return fact.rules.isdisjoint(without)

        def plain(fact: Fact) -> bool:
            return known(fact) and _takes_part(fact, Among.PLAIN)

        def proved(claimed: Formula) -> SolverVerdict:
            verdict = self._premises.imply(state.path, claimed, plain, RLIMIT // 200)
            if verdict.word != "proved":
                verdict = self._premises.imply(state.path, claimed, known, RLIMIT // 100)
            return verdict

        told[out] = list(self.play.sums(state, proved))
        return told[out]


def _with_first(first: Effort | None, efforts: Iterator[Effort]) -> Iterator[Effort]:
    """Efforts, one of them before all others."""
    if first is not None:
        yield first
    yield from (one for one in efforts if one != first)


def _parts(claimed: Formula) -> list[Formula]:
    """The claims whose conjunction a claim is."""
    if isinstance(claimed, bool) or not z3.is_and(claimed):
        return [claimed]
    return [part for one in claimed.children() for part in _parts(one)]


def _same(one: Formula, other: Formula) -> bool:
    return isinstance(one, z3.ExprRef) and isinstance(other, z3.ExprRef) and one.eq(other)


def _takes_part(fact: Fact, among: Among) -> bool:
    return (
        not fact.rules or among is Among.ALL or (among is Among.PLAIN and not fact.gives_elements)
    )
