"""What is known around the loops of encoder cache managers.

A for loop is known by what is true of the members that are done and of the others; a while loop by
the contracts of its call as they stand midway.
"""

import ast
from collections.abc import Mapping, Sequence

import z3

from cacheproof.proofs.logic import Formula, conjunction, implies, negated
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.reading.ghost_loops import (
    Rules,
    counted,
    debits_dropped,
    members_of,
    needs_the_rest,
    reported,
    still_claimed,
    stored,
    term_of_request,
)
from cacheproof.proofs.symbolic.reading.source import Source, place_of_loop
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import Around, Loop, State

CARRIED = ("EC-6", "EC-7", "EC-8a")
"""What an admission keeps at each eviction."""


def loops(play: Play) -> Mapping[tuple[str, str], Sequence[Loop]]:
    """The loops of a manager and of the ghost, by owner and method, in order of their lines."""
    manager = play.subject.sources["m"]
    evicts = place_of_loop(manager, "can_allocate", ast.While)
    needed = _variable_of_while(manager, evicts)

    def evicting(around: Around) -> Rules:
        names, start = play.names(around.now), play.names(around.start)
        call = Record({"need": around.now.names[needed], "pending": 0})
        seen = {"pre": start["s"], "post": names["s"], "g": names["g"], "c": call}
        carried = [one for one in play.subject.transitions["can"] if one.id in CARRIED]
        return play.invariants(around.now, taken=around.taken) + [
            (one.id, play.read(one, seen, taken=around.taken)) for one in carried
        ]

    def queued(state: State) -> z3.ArithRef:
        return play.words.number(play.names(state)["s"].container("queue"))

    def releasing(around: Around) -> Rules:
        return play.invariants(around.now, taken=around.taken) + _released(play, around)

    def passing(around: Around) -> Rules:
        return play.invariants(around.now, taken=around.taken) + still_claimed(around)

    def withdrawing(around: Around) -> Rules:
        kept = [
            (rule, formula)
            for rule, formula in play.invariants(around.now, taken=around.taken)
            if rule != "needed_as_claimed"
        ]
        return kept + needs_the_rest(around)

    return {
        ("m", evicts): [Loop(evicting, queued)],
        ("m", place_of_loop(manager, "free", ast.For)): [Loop(releasing)],
        ("g", "consume"): [Loop(passing)],
        ("g", "withdraw"): [Loop(debits_dropped), Loop(withdrawing)],
        ("g", "step"): [Loop(reported), Loop(counted), Loop(stored)],
    }


def _variable_of_while(source: Source, method: str) -> str:
    """The local variable that a method's while loop compares; "" where there is no such loop."""
    for node in ast.walk(source.methods[method]):
        if isinstance(node, ast.While):
            for one in ast.walk(node.test):
                if isinstance(one, ast.Name) and one.id != "self":
                    return one.id
            raise NotTranslated(f"{source.path}:{node.lineno}: no reading of a loop without need")
    return ""


def _released(play: Play, around: Around) -> Rules:
    """What holds of the manager while a request lets go of what it claimed."""
    request = term_of_request(around.now)
    m = play.names(around.now)["m"]
    members, seen = members_of(around), around.seen
    assert seen is not None

    def is_left(number: z3.ExprRef) -> Formula:
        return conjunction((members.has(number), negated(seen.has(number))))

    if "claims" in m.fields:
        claims = m.container("claims")

        def claimed(number: z3.ExprRef) -> Formula:
            return conjunction((claims.has(request), claims.at(request).has(number)))

        return [
            ("claims to come", members.all(lambda i: implies(claimed(i), members.has(i)))),
            ("claims left", members.all(lambda i: implies(is_left(i), claimed(i)))),
            ("claims given up", members.all(lambda i: implies(seen.has(i), negated(claimed(i))))),
        ]
    cached = m.container("cached")

    def held(number: z3.ExprRef) -> Formula:
        identifier = play.words.item(request, number)
        return conjunction((cached.has(identifier), cached.at(identifier).has(request)))

    inputs = play.words.inputs(request)
    return [
        (
            "holds to come",
            members.all(lambda i: implies(conjunction((inputs.has(i), held(i))), members.has(i))),
        ),
        ("holds given up", members.all(lambda i: implies(seen.has(i), negated(held(i))))),
    ]
