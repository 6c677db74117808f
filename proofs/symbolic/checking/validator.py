"""A text as the translator reads it, held against calls that CPython made of the class.

Loops are read in both ways: turn by turn, which says exactly what happens, and as a proof reads
them, by what is known of any turn. Where a path that can be gone goes through a place of the text
that none of the calls went through, a solver says from which state, and the class is run from there
where it can be.
"""

import ast
import random
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.checking.validation import (
    Paths,
    UnadmittedCall,
    places_of,
    with_a_change,
)
from cacheproof.proofs.symbolic.deciding.answers import Answer, OperationAnswers, QuestionPart
from cacheproof.proofs.symbolic.deciding.counterexample import Model
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import CallEnd, Operation, Subject
from cacheproof.proofs.symbolic.reading.source import reached_from
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.state import Place
from cacheproof.proofs.symbolic.values.values import Universe
from cacheproof.proofs.witness.recorded import Found


class PlayedCall(Protocol):
    """A call that CPython made: all attributes before it and after it."""

    @property
    def before(self) -> Found: ...

    @property
    def after(self) -> Found: ...

    @property
    def mark(self) -> bytes:
        """A key that is unique to this call."""

    def given(self, play: Play) -> Iterator[Formula]:
        """What it is given."""

    def answered(self, end: CallEnd) -> Formula:
        """The condition that its answer is what a path says; True where no contract looks at it."""


class RunningClass(Protocol):
    """Runs a class in the call of a play that a model describes, from the state that the path to
    an end began in; tells in words why it cannot be so where it raises."""

    def __call__(
        self, subject: Subject, play: Play, end: CallEnd, found: Model
    ) -> PlayedCall | str: ...


@dataclass
class ShownCalls:
    """What calls showed of an operation.

    Attributes:
        calls: how many were admitted.
        refused: how many of them were refused with one thing changed in the state after.
        ran: the places of the text that the paths which admit them went through.
        against: a call that no path admits, in words; or "".
        undecided: a call of which no solver can tell whether a path admits it; or "".
        unread: why its loops cannot be gone through turn by turn; or "".
        elsewhere: places that can be gone through, and no call was seen to.
        can_be_called: whether there is any state from which a path can be gone; true where calls
            were admitted.
    """

    calls: int = 0
    refused: int = 0
    ran: set[Place] = field(default_factory=set)
    against: str = ""
    undecided: str = ""
    unread: str = ""
    elsewhere: Collection[Place] = ()
    can_be_called: bool = True


class Validator:
    """Holds the texts of a family against CPython; texts that read the same have their paths made
    once.

    Args:
        universe: of a few elements.
        running: runs a class from a state that a solver found; None: it cannot be.
    """

    def __init__(self, universe: Universe, running: RunningClass | None = None) -> None:
        self._language = RuleLanguage(universe)
        self._running = running
        self._readings: dict[Hashable, _Reading] = {}

    def all_shown(
        self,
        subject: Subject,
        calls: Mapping[str, Sequence[PlayedCall]],
        fallen: Collection[str],
        answers: OperationAnswers | None = None,
    ) -> dict[str, ShownCalls]:
        """What the calls of each operation show, where some rules have fallen."""
        return {
            one.name: self.shown(subject, one, calls.get(one.name, ()), fallen, answers)
            for one in subject.operations
        }

    def shown(
        self,
        subject: Subject,
        operation: Operation,
        calls: Sequence[PlayedCall],
        fallen: Collection[str] = (),
        answers: OperationAnswers | None = None,
    ) -> ShownCalls:
        """What the calls of an operation show; `answers` are what other processes found."""
        shown = ShownCalls()
        answers = OperationAnswers() if answers is None else answers
        try:
            readings = [self._read(replace(subject, unrolls=True), operation, answers)]
            # without a loop both readings are the same
            if _has_loop(subject, operation):
                readings.append(self._read(replace(subject, unrolls=False), operation, answers))
            for one in readings:
                one.refuse_unread()
        except NotTranslated as refusal:
            shown.unread = str(refusal)
            return shown
        for call in calls:
            if not shown.against:
                _hold(readings, call, fallen, shown)
        if not shown.calls:
            shown.can_be_called = readings[0].can_be_called(fallen)
        elif not shown.against:
            self._go_elsewhere(subject, readings, fallen, shown)
        return shown

    def _go_elsewhere(
        self,
        subject: Subject,
        readings: Sequence["_Reading"],
        fallen: Collection[str],
        shown: ShownCalls,
    ) -> None:
        """Run the class through places that no call went through, from states in which all holds
        that is taken to hold."""
        first = readings[0]
        places = first.places - shown.ran
        # this answer may be kept, and then no path need be made again
        if not places or first.cannot_go_through(places, fallen):
            return
        play = first.paths.play
        left: set[Place] = set()
        for end, model in first.paths.models(fallen, places):
            new = end.after.ran - shown.ran
            if not new or shown.against:
                continue
            if self._running is None:
                left |= new
                continue
            call = self._running(subject, play, end, Model(play.universe, play.words, model))
            if isinstance(call, str):
                shown.against = call
            else:
                _hold(readings, call, fallen, shown)
        shown.elsewhere = left

    def _read(
        self, subject: Subject, operation: Operation, answers: OperationAnswers
    ) -> "_Reading":
        reading = subject.unrolls, subject.reading_of(operation)
        if reading not in self._readings:
            self._readings[reading] = _Reading(subject, operation, self._language, answers)
        return self._readings[reading]


@dataclass(frozen=True)
class _Said:
    """What a reading says of a call.

    Attributes:
        ran: the places that the path which admits it went through.
        refuses_another: whether no path admits a state after with one thing changed.
        refused: why, if no path was seen to admit it.
    """

    ran: frozenset[Place] = frozenset()
    refuses_another: bool = False
    refused: UnadmittedCall | None = None


class _Reading:
    """An operation as it is read, held against calls; `answers` are what other processes found."""

    def __init__(
        self,
        subject: Subject,
        operation: Operation,
        language: RuleLanguage,
        answers: OperationAnswers,
    ) -> None:
        self._subject = subject
        self._operation = operation
        self._language = language
        self._answers = answers
        self._said: dict[Hashable, _Said] = {}

    @cached_property
    def paths(self) -> Paths:
        # joined paths do not tell which places each went through
        return Paths(Play(self._subject, self._operation, self._language, joins=False))

    @cached_property
    def places(self) -> frozenset[Place]:
        """All places of the text that its paths go through."""
        return self._once("places", frozenset[Place], lambda: places_of(self.paths.play.ends))

    def refuse_unread(self) -> None:
        """Raise what the reading of it raises.

        Raises:
            NotTranslated: it has no reading.
        """
        self._once("is read", bool, lambda: bool(self.paths))

    def can_be_called(self, fallen: Collection[str]) -> bool:
        """Whether there is any state from which a path can be gone."""
        return self._once(
            "can be called",
            bool,
            lambda: next(self.paths.models(fallen), None) is not None,
            sorted(fallen),
        )

    def cannot_go_through(self, places: Collection[Place], fallen: Collection[str]) -> bool:
        """Whether no path can be gone through any of these places."""
        return self._once(
            "cannot go through",
            bool,
            lambda: next(self.paths.models(fallen, places), None) is None,
            sorted(fallen),
            sorted(places),
        )

    def said(self, call: PlayedCall, fallen: Collection[str]) -> _Said:
        """What it says of a call, where some rules have fallen."""
        asked = frozenset(fallen), call.mark
        if asked not in self._said:
            self._said[asked] = self._once(
                "says", _Said, lambda: self._say(call, fallen), sorted(fallen), call.mark.hex()
            )
        return self._said[asked]

    def _say(self, call: PlayedCall, fallen: Collection[str]) -> _Said:
        changed = with_a_change(call.after, self._subject.types, random.Random(call.mark))
        given = call.given(self.paths.play)
        afters = [call.after, changed]
        end, of_changed = self.paths.admitting(call.before, given, afters, call.answered, fallen)
        if isinstance(end, UnadmittedCall):
            return _Said(refused=end)
        return _Said(places_of([end]), of_changed is UnadmittedCall.BY_ALL)

    def _once(
        self, what: str, kind: Any, ask: Callable[[], Answer], *given: QuestionPart
    ) -> Answer:
        return self._answers.once((what, self._digest, *given), kind, ask)

    @cached_property
    def _digest(self) -> str:
        return self._subject.digest_of(self._operation)


def _hold(
    readings: Sequence[_Reading], call: PlayedCall, fallen: Collection[str], shown: ShownCalls
) -> None:
    """Hold each reading against a call."""
    for number, reading in enumerate(readings):
        said = reading.said(call, fallen)
        if said.refused is UnadmittedCall.UNDECIDED:
            shown.undecided = f"{call}: no solver can tell whether a path admits it"
            return
        if said.refused is not None:
            shown.against = f"{call}, which no path admits"
            return
        # of the reading turn by turn alone: one by an invariant admits more states after
        if number == 0:
            shown.ran |= said.ran
            shown.refused += said.refuses_another
    shown.calls += 1


def _has_loop(subject: Subject, operation: Operation) -> bool:
    reached = reached_from(operation.method, subject.sources.values())
    return not operation.method or any(
        isinstance(node, ast.For | ast.While)
        for source in subject.sources.values()
        for name in reached & source.methods.keys()
        for node in ast.walk(source.methods[name])
    )
