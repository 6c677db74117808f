"""Whether what a proof takes to be known can all be so: from what contradicts itself all follows.

A contradiction is looked for among the facts that proofs may use, those of sums where a proof was
tried with them, with less work than the hardest proofs may take. None found is no proof of none.
"""

import ast
from collections.abc import Collection, Iterator

from cacheproof.proofs.symbolic.deciding.play import Condition
from cacheproof.proofs.symbolic.deciding.prover import Prover
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.values.solver import RLIMIT, Among, Effort
from cacheproof.proofs.symbolic.values.state import Place, State
from cacheproof.proofs.text.definitions import without_docstring

PLAIN = Effort(Among.ALL, sums=False, rlimit=RLIMIT // 400)
SUMS = Effort(Among.ALL, sums=True, rlimit=RLIMIT // 100)


def contradicted(
    prover: Prover, places: Collection[Place], without: Collection[str]
) -> frozenset[Place]:
    """The places, among these that a call can go through, at which a proof knows a contradiction on
    every path through them; `without` what some rules say."""
    states = dict(enumerate(_states(prover)))
    told = frozenset(place for one, _ in states.values() for place in one.ran)
    left = told & frozenset(places)
    while left:
        # the path through most of what is left may settle most at once
        number = max(states, key=lambda one: len(states[one][0].ran & left), default=None)
        if number is None or not states[number][0].ran & left:
            return left
        state, end = states.pop(number)
        if not _is_contradiction(prover, state, end, without):
            left -= state.ran
    return frozenset()


def unseen(prover: Prover, seen: Collection[Place], without: Collection[str]) -> frozenset[Place]:
    """The places that a proof goes through and no call was `seen` to, except those where what is
    known contradicts itself on every path; `without` what some rules say."""
    found: set[Place] = set()
    for state, end in _states(prover):
        new = state.ran - found - frozenset(seen)
        if new and not _is_contradiction(prover, state, end, without):
            found |= new
    return frozenset(found)


def _states(prover: Prover) -> Iterator[tuple[State, State]]:
    """The states in which paths of an operation end and loops begin anew; of joined paths each,
    beside the state that it leads to."""
    play = prover.play
    ends = (*(end.after for end in play.ends), *(one.state for one in prover.conditions))
    for state in {id(one): one for one in ends}.values():
        yield state, state
        for one in play.machine.joins.apart(state):
            yield one, state


def _is_contradiction(prover: Prover, state: State, end: State, without: Collection[str]) -> bool:
    # False follows from what contradicts itself, and from nothing else
    nothing = Condition(prover.play.operation.name, "", "", state, False)
    efforts = [PLAIN, SUMS] if prover.knows_sums(end) else [PLAIN]
    return prover.decided(nothing, without, efforts).word == "proved"


def words_of(subject: Subject, place: Place) -> str:
    """A place as it stands in its text."""
    source = subject.sources[place.owner]
    nodes = list(ast.walk(without_docstring(source.methods[place.method])))
    node = nodes[place.node]
    first = ast.unparse(node).splitlines()[0]
    way = f" is {place.way}" if place.way else ""
    return f"{first}{way} ({source.path}:{getattr(node, 'lineno', 0)})"
