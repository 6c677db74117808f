"""Whether the translator reads a class as Python runs it.

Real objects are led through random calls. Of each that meets what none before it met, the state
before, the arguments, the answer and the state after are put to the symbolic paths of the same
method: one of them must admit all of it, and none may admit the state after with one thing changed.
"""

import copy
import itertools
import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import z3

from cacheproof.proofs.evidence import Evidence, Outcome, RedTwin, digest_of
from cacheproof.proofs.symbolic.conditions import End, Play, Subject
from cacheproof.proofs.symbolic.encoder_cache import MANAGER
from cacheproof.proofs.symbolic.readings import Language
from cacheproof.proofs.symbolic.state import State
from cacheproof.proofs.symbolic.values import (
    BOOL,
    IDENTIFIER,
    INPUT,
    INT,
    PARTS,
    REQUEST,
    EventsOf,
    Formula,
    Leaf,
    MapOf,
    Universe,
    Value,
    iff,
    is_ordered,
)

Call = TypeVar("Call")
SIZE = 3
"""Identifiers, requests, and inputs of each."""
CALLS_OF_ONE = 50
CALLS = 2000
LOOPLESS = ("check", "allocate", "release")
"""Operations of which the paths say exactly what happens; of a loop they say what is known."""


_METHODS = {
    "check": "check_and_update_cache",
    "can": "can_allocate",
    "allocate": "allocate",
    "release": "free_encoder_input",
}


@dataclass(frozen=True)
class _Feature:
    identifier: str


@dataclass(frozen=True)
class _Request:
    """What a manager asks of a request."""

    request_id: str
    mm_features: list[_Feature]
    sizes: Mapping[str, int]

    def get_num_encoder_embeds(self, input_id: int) -> int:
        return self.sizes[self.mm_features[input_id].identifier]

    get_num_encoder_tokens = get_num_encoder_embeds


@dataclass(frozen=True)
class Transition:
    """One call of a real object, by the numbers of the request and of its input."""

    operation: str
    request: int
    input_id: int
    budget: int
    answer: Any
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    requests: tuple[_Request, ...]


def transitions(build: Callable[[int], Any], seed: int) -> Iterator[Transition]:
    """Random calls that a caller could make, of one manager after the other."""
    draw = random.Random(seed)
    while True:
        yield from itertools.islice(_calls(build, draw), CALLS_OF_ONE)


def _calls(build: Callable[[int], Any], draw: random.Random) -> Iterator[Transition]:
    sizes = {f"h{number}": draw.randint(1, 3) for number in range(SIZE)}
    requests = tuple(
        _Request(f"r{number}", [_Feature(draw.choice(list(sizes))) for _ in range(SIZE)], sizes)
        for number in range(SIZE)
    )
    manager = build(draw.randint(3, 6))
    while True:
        number, input_id = draw.randrange(SIZE), draw.randrange(SIZE)
        request = requests[number]
        resident = request.mm_features[input_id].identifier in manager.cached
        fits = request.get_num_encoder_embeds(input_id) <= manager.num_free_slots
        allowed = ["check", "can", "release", *(["allocate"] if fits and not resident else [])]
        operation, budget = draw.choice(allowed), draw.randint(1, 4)
        before = _attributes(manager)
        passed = (budget, 0) if operation == "can" else ()
        answer = getattr(manager, _METHODS[operation])(request, input_id, *passed)
        after = _attributes(manager)
        yield Transition(operation, number, input_id, budget, answer, before, after, requests)


def _attributes(manager: Any) -> dict[str, Any]:
    return {name: copy.deepcopy(found) for name, found in vars(manager).items() if name in MANAGER}


def met(one: Transition) -> Hashable:
    """What a call finds of its item and of the queue, what it answers, and how much it evicts."""
    before, after = one.before["cached"], one.after["cached"]
    holders = before.get(one.requests[one.request].mm_features[one.input_id].identifier)
    return (
        one.operation,
        one.answer,
        None if holders is None else min(2, len(holders)),
        min(2, len(one.before["freeable"])),
        len(before.keys() - after.keys()),
    )


def unlike(calls: Iterable[Call], met: Callable[[Call], Hashable]) -> Iterator[Call]:
    """Those that meet what none before them met."""
    before = set()
    for one in calls:
        about = met(one)
        if about not in before:
            before.add(about)
            yield one


class Paths:
    """The symbolic paths of a subject's operations, among a few elements."""

    def __init__(self, subject: Subject) -> None:
        self._plays = {
            operation.name: Play(subject, operation, Language(Universe(SIZE)))
            for operation in subject.operations
            if operation.name in _METHODS
        }

    def admit(self, one: Transition, after: Mapping[str, Any]) -> bool:
        """Whether a path leads from the state before to this state after."""
        play = self._plays[one.operation]
        return any(self._admits(play, end, one, after) for end in play.ends)

    def _admits(self, play: Play, end: End, one: Transition, after: Mapping[str, Any]) -> bool:
        universe = play.universe
        start = next(iter(end.after.snapshots))
        before = State(start.attributes, start.cells, {})
        call = end.names["c"].fields
        solver = z3.SimpleSolver()
        solver.add(*(fact.formula for fact in end.after.path))
        solver.add(*self._inputs(play, one))
        solver.add(call["request"] == universe.members(REQUEST)[one.request])
        solver.add(play.words.item(call["request"], self._input(play, one)) == call["identifier"])
        solver.add(*self._arguments(play, one))
        if one.operation in ("check", "can"):
            solver.add(iff(call["granted"], bool(one.answer)))
        for name, found in one.before.items():
            solver.add(*is_found(before.attribute("m", name), found))
        for name, found in after.items():
            solver.add(*is_found(end.after.attribute("m", name), found))
        return bool(solver.check() == z3.sat)

    def _input(self, play: Play, one: Transition) -> z3.ExprRef:
        return play.universe.members(INPUT)[one.input_id]

    def _arguments(self, play: Play, one: Transition) -> Iterator[Formula]:
        """The input, and what a caller of can() passes."""
        yield z3.Int("budget") == one.budget
        yield z3.Int("pending") == 0
        for constant in play.arguments:
            if play.universe.leaf_of(constant) == INPUT:
                yield constant == self._input(play, one)

    def _inputs(self, play: Play, one: Transition) -> Iterator[Formula]:
        """What the requests show."""
        universe, words = play.universe, play.words
        identifiers = universe.members(IDENTIFIER)
        for request, r in zip(one.requests, universe.members(REQUEST), strict=True):
            for number, i in enumerate(universe.members(INPUT)):
                shown = request.mm_features[number].identifier
                yield words.has_input(r, i)
                yield words.item(r, i) == identifiers[int(shown[1:])]
                yield words.embeds(r, i) == request.sizes[shown]


def is_found(value: Any, found: Any) -> Iterator[Formula]:
    """That a symbolic value is what was found."""
    if not isinstance(value, Value):
        yield value == found
        return
    if isinstance(value.kind, Leaf):
        yield value.term == element(value.universe, value.kind, found)
        return
    if isinstance(value.kind, EventsOf):
        yield from _are_events(value, value.kind.key, *found)
        return
    keys = {key: element(value.universe, value.key, key) for key in found}
    known = {term.get_id(): key for key, term in keys.items()}
    for member in value.universe.members(value.key):
        there = member.get_id() in known
        yield value.has(member) == there
        if there and isinstance(value.kind, MapOf):
            yield from is_found(value.at(member), found[known[member.get_id()]])
    if is_ordered(value.kind):
        in_order = list(keys.values())
        for earlier, later in itertools.pairwise(in_order):
            yield value.place(earlier) < value.place(later)


def _are_events(
    value: Value, leaf: Leaf, cleared: bool, growth: Mapping[Any, int]
) -> Iterator[Formula]:
    known = {element(value.universe, leaf, key).get_id(): by for key, by in growth.items()}
    yield value.terms[0] == cleared
    for member in value.universe.members(leaf):
        yield z3.Select(value.terms[1], member) == known.get(member.get_id(), 0)


def element(universe: Universe, leaf: Leaf, found: Any) -> Any:
    """The element that a number, a letter and a number, or a pair of such stands for."""
    if leaf in (INT, BOOL):
        return found
    if isinstance(found, tuple):
        one, other = map(partial(element, universe), PARTS[leaf], found)
        return universe.pair(one, other, leaf)
    return universe.members(leaf)[found if isinstance(found, int) else int(found[1:])]


def _changed(after: Mapping[str, Any], draw: random.Random) -> dict[str, Any]:
    """A state with one thing changed."""
    changed = copy.deepcopy(dict(after))
    choices = ["num_free_slots", "num_freeable_slots", *(["cached"] if changed["cached"] else [])]
    chosen = draw.choice(choices)
    if chosen == "cached":
        holders = changed["cached"][draw.choice(sorted(changed["cached"]))]
        holders ^= {f"r{draw.randrange(SIZE)}"}
    else:
        changed[chosen] += 1
    return changed


def validate(subject: Subject, build: Callable[[int], Any], seed: int = 0) -> Evidence:
    """Whether the symbolic paths admit what a class does, and nothing else that was tried."""
    started = time.monotonic()
    paths, draw = Paths(subject), random.Random(seed)
    refused, wrong, changed = "", 0, 0
    for one in unlike(itertools.islice(transitions(build, seed), CALLS), met):
        if not paths.admit(one, one.after):
            refused = f"{one.operation} from {one.before} to {one.after}"
            break
        if one.operation in LOOPLESS:
            changed += 1
            wrong += paths.admit(one, _changed(one.after, draw))
    return Evidence(
        "translator",
        subject.name,
        subject.sources["m"].name,
        "proof",
        f"calls that differ among {CALLS} random ones",
        Outcome.REFUTED if refused else Outcome.HOLDS,
        refused,
        digest_of([subject.sources["m"].text]),
        time.monotonic() - started,
        (RedTwin(f"{changed} states after with one thing changed", changed > 0 and wrong == 0),),
    )
