"""Proves conditions, each with as much effort as it takes."""

import itertools
from collections.abc import Collection, Iterator, Sequence

import z3

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.play import Condition, Play
from cacheproof.proofs.symbolic.solver import RLIMIT, Among, Effort, Premises, Verdict, efforts_for
from cacheproof.proofs.symbolic.state import Fact, State


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
        known = condition.known(without)
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
