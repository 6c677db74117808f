"""What is known around the loops of spec's ghost, beside any manager."""

from collections.abc import Callable

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, iff, implies, negated
from cacheproof.proofs.symbolic.values.state import Around, RequestOf, State
from cacheproof.proofs.symbolic.values.values import Value

Rules = list[tuple[str, Formula]]


def _todo(around: Around, key: z3.ExprRef) -> Formula:
    """Whether a member is still to come."""
    assert around.seen is not None
    assert around.members is not None
    return conjunction((around.members.has(key), negated(around.seen.has(key))))


def members_of(around: Around) -> Value:
    assert around.members is not None
    return around.members


def term_of_request(state: State) -> z3.ExprRef:
    """The request that a method was given."""
    request = state.names["request"]
    assert isinstance(request, RequestOf)
    return request.term


def still_claimed(around: Around) -> Rules:
    """What a request is still to be confirmed to have got past is claimed."""
    request = around.now.names["request"]
    ends = around.now.contents("g", "claimed_end")
    there = members_of(around).all(
        lambda h: implies(_todo(around, h), ends.at(request).has(h)),
    )
    return [("claims to pass", conjunction((ends.has(request), there)))]


def needs_the_rest(around: Around) -> Rules:
    """A request that is withdrawn needs, of what it claimed, what is still to come."""
    request = around.now.names["request"]
    ends = around.now.contents("g", "claimed_end")
    needed = around.now.contents("g", "needed")
    universe = needed.universe
    own = members_of(around).all(
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


def without_keys(then: Value, now: Value, gone: Callable[[z3.ExprRef], Formula]) -> Formula:
    """The condition that some keys of a map are gone, and all others are as they were."""

    def of_key(key: z3.ExprRef) -> Formula:
        there = iff(now.has(key), conjunction((then.has(key), negated(gone(key)))))
        same = implies(now.has(key), now.at(key).term == then.at(key).term)
        return conjunction((there, same))

    return now.all(of_key)


def debits_dropped(around: Around) -> Rules:
    assert around.seen is not None
    then, now = (state.contents("g", "debits") for state in (around.start, around.now))
    return [("debits dropped", without_keys(then, now, around.seen.has))]


def reported(around: Around) -> Rules:
    """What was reported is gone from the store and is not counted, and nothing else."""
    assert around.seen is not None
    rules = []
    for name in ("stored", "steps_since_encode"):
        then, now = (state.contents("g", name) for state in (around.start, around.now))
        gone = without_keys(then, now, around.seen.has)
        rules.append((f"{name} without what is reported", gone))
    return rules


def counted(around: Around) -> Rules:
    """Counting steps leaves the same entries."""
    then, now = (state.contents("g", "steps_since_encode") for state in (around.start, around.now))
    return [("what is stored stays", now.all(lambda h: iff(now.has(h), then.has(h))))]


def stored(around: Around) -> Rules:
    """What was encoded is in the store, with no step since; nothing else is new."""
    seen = around.seen
    assert seen is not None

    def there(name: str) -> Formula:
        then, now = (state.contents("g", name) for state in (around.start, around.now))
        return now.all(lambda h: iff(now.has(h), disjunction((then.has(h), seen.has(h)))))

    rules = [
        (f"{name} with what is encoded", there(name)) for name in ("stored", "steps_since_encode")
    ]
    steps = around.now.contents("g", "steps_since_encode")
    fresh = steps.all(lambda h: implies(seen.has(h), steps.at(h).term == 0))
    return [*rules, ("no step since", fresh)]
