"""Whether what a proof takes to be known can all be so: of what contradicts itself all follows.

A contradiction is looked for among the facts that proofs may use, those of sums where a proof was
tried with them, with less work than the hardest proofs may take. None found is no proof of none.
"""

import ast
from collections.abc import Collection, Iterable

from cacheproof.proofs.symbolic.play import Condition
from cacheproof.proofs.symbolic.prover import Prover
from cacheproof.proofs.symbolic.solver import RLIMIT, Among, Effort
from cacheproof.proofs.symbolic.source import without_docstring
from cacheproof.proofs.symbolic.state import Place, State
from cacheproof.proofs.symbolic.subject import Subject

PLAIN = Effort(Among.ALL, sums=False, rlimit=RLIMIT // 400)
SUMS = Effort(Among.ALL, sums=True, rlimit=RLIMIT // 100)


def contradicted(
    prover: Prover, places: Collection[Place], without: Collection[str]
) -> frozenset[Place]:
    """Of places that a call can go through, those at which a proof knows a contradiction, on every
    path through them; `without` what some rules say."""
    states = {id(one): one for one in _states(prover)}
    told = frozenset(place for one in states.values() for place in one.ran)
    left = told & frozenset(places)
    while left:
        most = max(states.values(), key=lambda one: len(one.ran & left), default=None)
        if most is None or not most.ran & left:
            return left
        del states[id(most)]
        if not _is_contradiction(prover, most, without):
            left -= most.ran
    return frozenset()


def unseen(prover: Prover, seen: Collection[Place], without: Collection[str]) -> frozenset[Place]:
    """Places that a proof goes through and no call was `seen` to, but for those that no call can go
    through, since what is known on every path there contradicts itself; `without` what some rules
    say."""
    found: set[Place] = set()
    for state in {id(one): one for one in _states(prover)}.values():
        new = state.ran - found - frozenset(seen)
        if new and not _is_contradiction(prover, state, without):
            found |= new
    return frozenset(found)


def _states(prover: Prover) -> Iterable[State]:
    """Where the paths of an operation end, and where loops begin anew."""
    yield from (end.after for end in prover.play.ends)
    yield from (one.state for one in prover.conditions)


def _is_contradiction(prover: Prover, state: State, without: Collection[str]) -> bool:
    nothing = Condition(prover.play.operation.name, "", "", state, False)
    efforts = [PLAIN, SUMS] if prover.knows_sums(state) else [PLAIN]
    return prover.decided(nothing, without, efforts).word == "proved"


def words_of(subject: Subject, place: Place) -> str:
    """A place as it stands in its text."""
    source = subject.sources[place.owner]
    nodes = list(ast.walk(without_docstring(source.methods[place.method])))
    node = nodes[place.node]
    first = ast.unparse(node).splitlines()[0]
    way = f" is {place.way}" if place.way else ""
    return f"{first}{way} ({source.path}:{getattr(node, 'lineno', 0)})"
