"""What is known around the loops of encoder cache managers, and of spec's ghost.

A for loop is known by what is true of the members that are done and of the others; a while loop by
the contracts of its call as they stand midway.
"""

import ast
from collections.abc import Mapping, Sequence

import z3

from cacheproof.proofs.symbolic.conditions import Play
from cacheproof.proofs.symbolic.predicates import Record
from cacheproof.proofs.symbolic.source import Source
from cacheproof.proofs.symbolic.state import Around, Loop, State
from cacheproof.proofs.symbolic.values import (
    Formula,
    Value,
    conjunction,
    disjunction,
    iff,
    implies,
    negated,
)

Rules = list[tuple[str, Formula]]
CARRIED = ("EC-6", "EC-7", "EC-8a")
"""What an admission keeps at each eviction."""


def loops(play: Play) -> Mapping[tuple[str, str], Sequence[Loop]]:
    """The loops of a manager and of the ghost, by owner and method, in order of their lines."""
    needed = _variable_of_while(play.subject.sources["m"], "can_allocate")

    def evicting(around: Around) -> Rules:
        names, start = play.names(around.now), play.names(around.start)
        call = Record({"need": around.now.names[needed], "pending": 0})
        seen = {"pre": start["s"], "post": names["s"], "g": names["g"], "c": call}
        carried = [one for one in play.subject.transitions["can"] if one.id in CARRIED]
        return play.invariants(around.now, taken=around.taken) + [
            (one.id, play.read(one, seen, taken=around.taken)) for one in carried
        ]

    def queued(state: State) -> z3.ArithRef:
        return play.words.count(play.names(state)["s"].fields["queue"])

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
        ("m", "can_allocate"): [Loop(evicting, queued)],
        ("m", "free"): [Loop(releasing)],
        ("g", "consume"): [Loop(passing)],
        ("g", "withdraw"): [Loop(_debits_of_the_rest), Loop(withdrawing)],
        ("g", "step"): [Loop(_reported), Loop(_counted), Loop(_stored)],
    }


def _variable_of_while(source: Source, method: str) -> str:
    """The local variable that a method's while loop compares; "" where there is no such loop."""
    for node in ast.walk(source.methods[method]):
        if isinstance(node, ast.While):
            for one in ast.walk(node.test):
                if isinstance(one, ast.Name) and one.id != "self":
                    return one.id
    return ""


def _todo(around: Around, key: z3.ExprRef) -> Formula:
    """Whether a member is still to come."""
    assert around.seen is not None
    assert around.members is not None
    return conjunction((around.members.has(key), negated(around.seen.has(key))))


def _members(around: Around) -> Value:
    assert around.members is not None
    return around.members


def _released(play: Play, around: Around) -> Rules:
    """Of the manager: a request that lets go of what it claimed."""
    request = around.now.names["request"].term
    m = play.names(around.now)["m"].fields
    members, seen = _members(around), around.seen
    assert seen is not None
    if "claims" in m:
        claims: Value = m["claims"]

        def claimed(number: z3.ExprRef) -> Formula:
            return conjunction((claims.has(request), claims.at(request).has(number)))

        return [
            ("claims to come", members.all(lambda i: implies(claimed(i), members.has(i)))),
            ("claims given up", members.all(lambda i: implies(seen.has(i), negated(claimed(i))))),
        ]
    cached: Value = m["cached"]

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


# of the ghost


def still_claimed(around: Around) -> Rules:
    """What a request is still to be confirmed to have got past is claimed."""
    request = around.now.names["request"]
    ends = around.now.attribute("g", "_claimed_end")
    there = _members(around).all(
        lambda h: implies(_todo(around, h), ends.at(request).has(h)),
    )
    return [("claims to pass", conjunction((ends.has(request), there)))]


def needs_the_rest(around: Around) -> Rules:
    """Of what it claimed, a request that is withdrawn needs what is still to come."""
    request = around.now.names["request"]
    ends = around.now.attribute("g", "_claimed_end")
    needed = around.now.attribute("g", "needed")
    universe = needed.universe
    own = _members(around).all(
        lambda h: iff(conjunction((needed.has(h), needed.at(h).has(request))), _todo(around, h))
    )

    def as_claimed(h: z3.ExprRef, r: z3.ExprRef) -> Formula:
        needs = conjunction((needed.has(h), needed.at(h).has(r)))
        claims = conjunction((ends.has(r), ends.at(r).has(h)))
        return disjunction((r == request, iff(needs, claims)))

    others = universe.all(needed.key, lambda h: universe.all(ends.key, lambda r: as_claimed(h, r)))
    return [
        ("needs of who is withdrawn", conjunction((negated(ends.has(request)), own))),
        ("needs of others", others),
    ]


def _debits_of_the_rest(around: Around) -> Rules:
    debits = around.now.attribute("g", "debits")
    return [
        ("debits to drop", debits.all(lambda d: implies(_todo(around, d), debits.has(d)))),
    ]


def _reported(around: Around) -> Rules:
    """What was reported is gone from the store, and nothing else."""
    assert around.seen is not None
    seen = around.seen
    then, now = (state.attribute("g", "stored") for state in (around.start, around.now))
    gone = now.all(lambda h: iff(now.has(h), conjunction((then.has(h), negated(seen.has(h))))))
    return [("what is reported leaves", gone)]


def _counted(around: Around) -> Rules:
    """Counting steps leaves the same entries."""
    then, now = (state.attribute("g", "steps_since_encode") for state in (around.start, around.now))
    return [("what is stored stays", now.all(lambda h: iff(now.has(h), then.has(h))))]


def _stored(around: Around) -> Rules:
    """What was encoded is in the store, and nothing else is new."""
    assert around.seen is not None
    seen = around.seen
    then, now = (state.attribute("g", "stored") for state in (around.start, around.now))
    there = now.all(lambda h: iff(now.has(h), disjunction((then.has(h), seen.has(h)))))
    return [("what is encoded comes", there)]
