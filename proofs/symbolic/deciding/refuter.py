"""Looks for counterexamples: a state and a call from which a class breaks a rule."""

import itertools
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field

from cacheproof.proofs.logic import negated
from cacheproof.proofs.symbolic.deciding.answers import OperationAnswers, Question
from cacheproof.proofs.symbolic.deciding.counterexample import Model, terms_of
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import Operation, OperationReading, Subject
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.values.solver import is_possible, models
from cacheproof.proofs.symbolic.values.state import Fact
from cacheproof.spec.registry import contracts

MODELS_MAX = 8
"""Most counterexamples of one condition that are run again in search of one that the class
breaks."""


@dataclass(frozen=True)
class Counterexample:
    """A state and a call in words; `replayed` when the class itself, run from there, breaks the
    rule as well. A path through a loop is known in part, and then it need not."""

    sentence: str
    replayed: bool


@dataclass(frozen=True)
class Findings:
    """What was asked -> the counterexample that was found, if any; and whether one was there among
    the fewest elements. `answers` are what other processes found."""

    counterexamples: dict[Hashable, Counterexample | None] = field(default_factory=dict)
    soon: dict[Hashable, bool] = field(default_factory=dict)
    answers: OperationAnswers = field(default_factory=OperationAnswers)


class Refuter:
    """Looks for counterexamples among a few elements, where nothing has to be instantiated in
    part: what is found there is one. It may start from a state that no calls lead to, if the
    invariants that stand allow it.

    Args:
        found: what others found, where all that a call runs reads the same and is asked the same.
    """

    def __init__(
        self, subject: Subject, languages: Sequence[RuleLanguage], found: Findings | None = None
    ) -> None:
        self._subject = subject
        self._languages = languages
        self._found = found or Findings()
        self._readings: dict[str, OperationReading] = {}
        self._digests: dict[str, str] = {}
        self._contracts = {rule.id for rule in contracts()}
        self._plays: dict[tuple[str, int], Play] = {}

    def counterexample(
        self, operation: Operation, rule: str, without: Collection[str] = ()
    ) -> "Counterexample | None":
        """A state and a call of an operation that break a rule, if any are found; of the first that
        are found, one from which the class itself breaks it is preferred."""
        asked = self._asked(operation, rule, without)
        known = self._found.counterexamples
        if asked not in known:
            known[asked] = self._found.answers.once(
                ("counterexample", *self._kept_by(operation, rule, without)),
                Counterexample | None,
                lambda: self._search(operation, rule, without),
            )
        return known[asked]

    def _asked(self, operation: Operation, rule: str, without: Collection[str]) -> Hashable:
        if operation.name not in self._readings:
            self._readings[operation.name] = self._subject.reading_of(operation)
        return self._readings[operation.name], *self._how, rule, frozenset(without)

    @property
    def _how(self) -> tuple[bool, tuple[int | None, ...]]:
        """Whether counterexamples are run again, and among how many elements they are sought."""
        is_replayed = self._subject.replay is not None
        return is_replayed, tuple(one.universe.elements for one in self._languages)

    def _kept_by(self, operation: Operation, rule: str, without: Collection[str]) -> Question:
        if not self._found.answers.are_kept:
            return ()
        if operation.name not in self._digests:
            self._digests[operation.name] = self._subject.digest_of(operation)
        return self._digests[operation.name], *self._how, rule, sorted(without)

    def _search(
        self, operation: Operation, rule: str, without: Collection[str]
    ) -> "Counterexample | None":
        subject = self._subject
        # a replay judges by contracts of the registry, which auxiliary invariants are not
        replay = subject.replay if rule in self._contracts else None
        first = None
        for number in range(len(self._languages)):
            play = self._play(operation, number)
            for one in play.conditions(rule):
                facts = one.known(without)
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
                    # without a replay no later model is better than the first
                    if breaks or replay is None:
                        return first
        return first

    def is_soon_refuted(
        self, operation: Operation, rule: str, without: Collection[str] = ()
    ) -> bool:
        """Whether a counterexample is there among the fewest elements."""
        asked = self._asked(operation, rule, without)
        if asked not in self._found.soon:
            self._found.soon[asked] = self._found.answers.once(
                ("soon", *self._kept_by(operation, rule, without)),
                bool,
                lambda: self._is_possible(operation, rule, without),
            )
        return self._found.soon[asked]

    def _is_possible(self, operation: Operation, rule: str, without: Collection[str]) -> bool:
        return any(
            is_possible([*one.known(without), Fact(negated(one.claimed))])
            for one in self._play(operation, 0).conditions(rule)
        )

    def rules(self, operation: Operation) -> list[str]:
        """All that an operation must keep: contracts, invariants, and what its loops carry."""
        play = self._play(operation, 0)
        return list(dict.fromkeys(one.rule for one in play.conditions()))

    def _play(self, operation: Operation, number: int) -> Play:
        place = (operation.name, number)
        if place not in self._plays:
            self._plays[place] = Play(self._subject, operation, self._languages[number])
        return self._plays[place]
