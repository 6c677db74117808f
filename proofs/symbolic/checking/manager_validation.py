"""Calls of managers for the translator to be held against: one of each kind that the exploration
made, and calls from states that a solver found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import z3

from cacheproof.proofs.logic import Formula, conjunction, iff
from cacheproof.proofs.symbolic.checking.validation import element
from cacheproof.proofs.symbolic.deciding.counterexample import Model
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.replay import SECONDS, made_of
from cacheproof.proofs.symbolic.deciding.subject import CallEnd, Subject
from cacheproof.proofs.symbolic.values.values import IDENTIFIER, INPUT, REQUEST, Universe
from cacheproof.proofs.witness.calls import MadeCall, attributes_of
from cacheproof.proofs.witness.exploration import CallTransition, ScopeExploration
from cacheproof.proofs.witness.limits import Endless, limited
from cacheproof.proofs.witness.recorded import Found, mark_of
from cacheproof.spec.records import inputs_in, named_by, number_of

ANSWERED = ("check", "can")
SIZED = "embeds"
NAMED = "inputs"
"""Operations of which contracts look at the answer: a truth value, a number, and inputs."""
Inputs = Mapping[tuple[str, int], tuple[str, int, int]]
LookedAt = bool | tuple[bool, int] | frozenset[str] | None


def universe() -> Universe:
    """A universe of as many requests and identifiers as scopes have, and of as many inputs of
    each."""
    return Universe(3, {INPUT: 2})


@dataclass(frozen=True)
class ManagerCall:
    """A call that CPython made: the inputs of requests, by request and number, each an identifier,
    its embeddings and its end; all attributes before and after."""

    made: MadeCall
    capacity: int
    inputs: Inputs
    answer: LookedAt
    before: Found
    after: Found

    @property
    def mark(self) -> bytes:
        """A key that is unique to this call."""
        return mark_of(self.made, self.capacity, self.inputs, self.before, self.after)

    def __str__(self) -> str:
        changed = {
            place: found for place, found in self.after.items() if self.before.get(place) != found
        }
        return f"{self.made} from {_short(self.before)} to {_short(changed)}"

    def answered(self, end: CallEnd) -> Formula:
        """The condition that its answer is what a path says; True where no contract looks at it."""
        if self.answer is None:
            return True
        said = end.names["c"].fields
        if isinstance(self.answer, bool):
            return iff(said["granted"], self.answer)
        if isinstance(self.answer, frozenset):
            told = end.names["c"].container("told")
            universe = told.universe
            named = {element(universe, IDENTIFIER, one) for one in self.answer}
            members = universe.members(IDENTIFIER)
            return conjunction(iff(told.has(one), one in named) for one in members)
        tells, number = self.answer
        return conjunction((iff(said["tells"], tells), said["answered"] == number))

    def given(self, play: Play) -> Iterator[Formula]:
        """What it is given, and what its requests show."""
        universe, words, made = play.universe, play.words, self.made
        yield z3.Int("capacity") == self.capacity
        yield z3.Int("budget") == made.budget
        yield z3.Int("pending") == made.pending
        yield z3.Int("progress") == made.progress
        for constant in play.arguments:
            leaf = universe.leaf_of(constant)
            assert leaf is not None
            found = made.input_id if leaf == INPUT else made.request
            yield constant == element(universe, leaf, found)
        for number, r in enumerate(universe.members(REQUEST)):
            for i, member in enumerate(universe.members(INPUT)):
                shown = self.inputs.get((f"r{number}", i))
                yield words.has_input(r, member) == (shown is not None)
                if shown is not None:
                    identifier, size, end = shown
                    yield words.item(r, member) == element(universe, IDENTIFIER, identifier)
                    yield words.embeds(r, member) == size
                    yield words.end(r, member) == end


def calls_of(
    subject: Subject, explorations: Sequence[ScopeExploration]
) -> dict[str, list[ManagerCall]]:
    """Operation -> the calls of it that explorations made, one of each kind."""
    found: dict[str, list[ManagerCall]] = {}
    for one in explorations:
        for transition in one.unlike.values():
            call = _call_of(subject, transition)
            found.setdefault(transition.made.operation, []).append(call)
    return found


def _call_of(subject: Subject, one: CallTransition) -> ManagerCall:
    scope = one.scope
    inputs = {
        (name, number): (identifier, size, number + 1)
        for name, items in scope.requests.items()
        for number, (identifier, size) in enumerate(items)
    }
    return ManagerCall(
        one.made,
        scope.capacity,
        inputs,
        _looked_at(one.made, inputs, one.answer),
        {} if one.before is None else _typed(subject, one.before.attributes()),
        _typed(subject, one.after.attributes()),
    )


def _looked_at(made: MadeCall, inputs: Inputs, answer: object) -> LookedAt:
    """An answer as contracts look at it; None: they do not."""
    if made.operation == SIZED:
        return answer is not None, number_of(answer)
    if made.operation == NAMED:
        items = {
            number: item for (name, number), (item, *_) in inputs.items() if name == made.request
        }
        return frozenset(named_by(inputs_in(answer), [items[number] for number in sorted(items)]))
    return bool(answer) if made.operation in ANSWERED else None


def run_from(subject: Subject, play: Play, end: CallEnd, found: Model) -> ManagerCall | str:
    """The call that a model describes, made of the class from the state that the path to an end
    began in; in words why it cannot be so where it raises."""
    assert subject.replay is not None
    at = end.after.snapshots[0]
    name = play.operation.name
    made = made_of(name, found)
    try:
        with limited(SECONDS):
            episode, answer = subject.replay.run(
                subject.sources["m"], subject.constants, name, [], found, at
            )
    except Endless:
        return (
            f"{made} from {_short(found.attributes(at))}, which does not end, and every path does"
        )
    if episode.ended:
        return f"{made} from {_short(found.attributes(at))}, which raises, and no path does"
    before = {} if play.operation.begins else found.attributes(at)
    after = attributes_of(vars(episode.manager), episode.ghost, episode.encoded)
    return ManagerCall(
        made,
        found.arguments().get("capacity", 0),
        found.inputs(),
        _looked_at(made, found.inputs(), answer),
        _typed(subject, before),
        _typed(subject, after),
    )


def _typed(subject: Subject, found: Found) -> Found:
    """The attributes that the translator follows."""
    return {place: value for place, value in found.items() if place in subject.types}


def _short(found: Found) -> str:
    return ", ".join(f"{name}={value}" for (_, name), value in found.items() if value)
