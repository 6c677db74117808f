"""The encoder cache manager: what its methods are asked, and what only proofs need to know of it."""

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import z3

from cacheproof.proofs.conditions import (
    Aggregate,
    End,
    Operation,
    Proof,
    Subject,
    auxiliary,
    of_contract,
)
from cacheproof.proofs.execution import Loop, RequestOf, Source, State
from cacheproof.proofs.predicates import Record
from cacheproof.proofs.values import (
    DEBIT,
    IDENTIFIER,
    INPUT,
    INT,
    REQUEST,
    Formula,
    ListOf,
    MapOf,
    SetOf,
    Type,
    negated,
)
from cacheproof.reference.semantics import Semantics
from cacheproof.spec import encoder_cache as rules_of_component
from cacheproof.spec.registry import contracts

COMPONENT = rules_of_component.COMPONENT
GHOST: Mapping[tuple[str, str], Type] = {
    ("g", "needed"): MapOf(IDENTIFIER, SetOf(REQUEST)),
    ("g", "idle_since"): MapOf(IDENTIFIER, INT),
    ("g", "size"): MapOf(IDENTIFIER, INT),
    ("g", "stored"): MapOf(IDENTIFIER, INT),
    ("g", "debits"): MapOf(DEBIT, INT),
    ("g", "steps_since_encode"): MapOf(IDENTIFIER, INT),
    ("g", "_claimed_end"): MapOf(REQUEST, MapOf(IDENTIFIER, INT)),
    ("g", "_clock"): INT,
    ("w", "encoded"): MapOf(IDENTIFIER, INT),
}
"""The fields of spec's ghost, and what the step in the making has encoded."""

REFERENCE: Mapping[tuple[str, str], Type] = {
    ("m", "cache_size"): INT,
    ("m", "num_free_slots"): INT,
    ("m", "num_freeable_slots"): INT,
    ("m", "cached"): MapOf(IDENTIFIER, SetOf(REQUEST)),
    ("m", "num_embeds_by_hash"): MapOf(IDENTIFIER, INT),
    ("m", "freeable"): MapOf(IDENTIFIER, INT, ordered=True),
    ("m", "freed"): ListOf(IDENTIFIER),
    ("m", "_claims"): MapOf(REQUEST, MapOf(INPUT, IDENTIFIER)),
}


# invariants that only proofs need


def needed_as_claimed(g):
    """A request needs what it has claimed and has not got past."""
    return all(
        all(r in g._claimed_end and h in g._claimed_end[r] for r in g.needed[h]) for h in g.needed
    ) and all(
        all(h in g.needed and r in g.needed[h] for h in g._claimed_end[r]) for r in g._claimed_end
    )


def somebody_needs(g):
    """What is needed somebody needs."""
    return all(any(r in g.needed[h] for r in g.needed[h]) for h in g.needed)


def one_table(m):
    """Holders and sizes are known of the same entries."""
    return all(h in m.num_embeds_by_hash for h in m.cached) and all(
        h in m.cached for h in m.num_embeds_by_hash
    )


def claims_name_items(m):
    """A claim remembers the identifier of its input."""
    return all(all(m._claims[r][i] == item(r, i) for i in m._claims[r]) for r in m._claims)


def claimed_is_held(m):
    """What a request has claimed is resident and held for it."""
    return all(
        all(item(r, i) in m.cached and r in m.cached[item(r, i)] for i in m._claims[r])
        for r in m._claims
    )


def held_is_claimed(m):
    """Who holds an entry has claimed an input of that identifier."""
    return all(
        all(r in m._claims and any(item(r, i) == h for i in m._claims[r]) for r in m.cached[h])
        for h in m.cached
    )


def last_claim_stands(m, g):
    """Of an identifier that a request needs, its last occurrence is claimed."""
    return all(
        all(
            r in m._claims
            and any(item(r, i) == h and end(r, i) == g._claimed_end[r][h] for i in m._claims[r])
            for h in g._claimed_end[r]
        )
        for r in g._claimed_end
    )


def queued_is_idle(s, g):
    """What stands in the queue was needed once, and is needed no more."""
    return all(h in g.idle_since and h not in g.needed for h in s.queue)


def queued_in_order(s, g):
    """Who stands earlier in the queue has been idle for longer."""
    return all(
        all(not stands_before(s.queue, e, k) or g.idle_since[e] <= g.idle_since[k] for k in s.queue)
        for e in s.queue
    )


def idle_by_now(g):
    """Nothing has become idle later than now."""
    return all(g.idle_since[h] <= g._clock for h in g.idle_since)


def held_in_vain_since_now(s, g):
    """What is held and not needed became idle just now, and is about to be released."""
    return all(
        h in g.needed or not s.holders[h] or (h in g.idle_since and g.idle_since[h] == g._clock)
        for h in s.holders
    )


INVARIANTS = [
    auxiliary(one)
    for one in (
        needed_as_claimed,
        somebody_needs,
        one_table,
        claims_name_items,
        claimed_is_held,
        held_is_claimed,
        last_claim_stands,
        queued_is_idle,
        queued_in_order,
        idle_by_now,
        held_in_vain_since_now,
    )
]


def source_of(path: Path, name: str) -> Source:
    """The methods of a class, from its file."""
    tree = ast.parse(path.read_text())
    (found,) = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name]
    return Source(
        path.name, {one.name: one for one in found.body if isinstance(one, ast.FunctionDef)}
    )


def records(get: Callable[[str, str], Any]) -> dict[str, Any]:
    """The records that contracts look at, of a manager's attributes."""
    s = Record(
        {
            "capacity": get("m", "cache_size"),
            "free_slots": get("m", "num_free_slots"),
            "freeable_slots": get("m", "num_freeable_slots"),
            "size": get("m", "num_embeds_by_hash"),
            "holders": get("m", "cached"),
            "queue": get("m", "freeable"),
            "notices": get("m", "freed"),
        }
    )
    m = Record({name: get(owner, name) for owner, name in REFERENCE})
    g = Record({name: get(owner, name) for owner, name in GHOST if owner == "g"})
    return {"s": s, "m": m, "g": g, "w": Record({"encoded": get("w", "encoded")})}


def call_record(proof, operation, request, number, budget, pending, granted, debited) -> Record:
    words = proof.words
    return Record(
        {
            "operation": operation,
            "request": request,
            "identifier": None if number is None else words.item(request, number),
            "need": None if number is None else words.embeds(request, number),
            "budget": budget,
            "pending": pending,
            "granted": granted,
            "debited": debited,
            "raised": "",
        }
    )


def one_input(proof: Proof, state: State) -> tuple[State, z3.ExprRef, z3.ExprRef]:
    """A request and an input of it."""
    request = proof.universe.constant(REQUEST, "r")
    number = proof.universe.constant(INPUT, "i")
    words = proof.words
    return (
        state.assuming(
            words.has_input(request, number),
            words.embeds(request, number) >= 1,
            words.end(request, number) >= 1,
        ),
        request,
        number,
    )


def _end(proof, operation, before, at_call, after, call, ghost_state=None) -> End:
    pre, post = proof.names(before)["s"], proof.names(at_call)["s"]
    g = proof.names(ghost_state or at_call)["g"]
    return End(before, after, {"pre": pre, "post": post, "g": g, "c": call})


def check(proof: Proof, state: State) -> Iterator[End]:
    state, r, i = one_input(proof, state)
    m = proof.machine
    for after, answer in m.call("m", "check_and_update_cache", [RequestOf(r), i], state):
        call = call_record(proof, "check", r, i, 0, 0, answer, False)
        ends = [after]
        if answer is True:
            words = proof.words
            ends = [
                end
                for end, _ in m.call("g", "claim", [r, words.item(r, i), words.end(r, i)], after)
            ]
        for end in ends:
            yield _end(proof, "check", state, after, end, call)


def can(proof: Proof, state: State) -> Iterator[End]:
    state, r, i = one_input(proof, state)
    budget, pending = z3.Int("budget"), z3.Int("pending")
    state = state.assuming(pending >= 0)
    given = [RequestOf(r), i, budget, pending]
    for after, answer in proof.machine.call("m", "can_allocate", given, state):
        call = call_record(proof, "can", r, i, budget, pending, answer, False)
        yield _end(proof, "can", state, after, after, call)


def allocate(proof: Proof, state: State) -> Iterator[End]:
    state, r, i = one_input(proof, state)
    m, words = proof.machine, proof.words
    identifier, need = words.item(r, i), words.embeds(r, i)
    s = proof.names(state)["s"].fields
    state = state.assuming(negated(s["size"].has(identifier)), need <= s["free_slots"])
    for told, _ in m.call("g", "encode", [r, i, identifier, need], state):
        for after, _ in m.call("m", "allocate", [RequestOf(r), i], told):
            for claimed, _ in m.call("g", "claim", [r, identifier, words.end(r, i)], after):
                call = call_record(proof, "allocate", r, i, 0, 0, None, True)
                yield _end(proof, "allocate", told, after, claimed, call)


def release(proof: Proof, state: State) -> Iterator[End]:
    state, r, i = one_input(proof, state)
    m, words = proof.machine, proof.words
    ends = proof.names(state)["g"].fields["_claimed_end"]
    identifier = words.item(r, i)
    past = z3.Or(
        z3.Not(ends.has(r)),
        z3.Not(ends.at(r).has(identifier)),
        ends.at(r).at(identifier).term != words.end(r, i),
    )
    state = state.assuming(past)
    for after, _ in m.call("m", "free_encoder_input", [RequestOf(r), i], state):
        for told, _ in m.call("g", "release", [r, i], after):
            call = call_record(proof, "release", r, i, 0, 0, None, False)
            yield _end(proof, "release", state, after, told, call)


OPERATIONS = (
    Operation("check", check),
    Operation("can", can),
    Operation("allocate", allocate),
    Operation("release", release),
)


def loops(proof: Proof) -> dict[tuple[str, str], list[Loop]]:
    carried = [
        rule for rule in proof.subject.transitions["can"] if rule.id in ("EC-6", "EC-7", "EC-8a")
    ]

    def evicting(
        start: State, now: State, seen: Any, members: Any, taken: bool
    ) -> list[tuple[str, Formula]]:
        names = proof.names(now)
        pre = proof.names(start)["s"]
        need = now.names.get("need")
        call = Record({"need": need, "pending": 0})
        all_names = {"pre": pre, "post": names["s"], "g": names["g"], "c": call}
        return [
            *proof.invariants(now, taken=taken),
            *(
                (rule.id, (proof.assumed if taken else proof.claimed)(rule, all_names))
                for rule in carried
            ),
        ]

    def entries(state: State) -> z3.ArithRef:
        return proof.words.count(proof.names(state)["s"].fields["queue"])

    return {("m", "can_allocate"): [Loop(evicting, entries)]}


def aggregates() -> list[Aggregate]:
    def share_of_total(words, names, k):
        size = names["s"].fields["size"]
        return z3.If(size.has(k), size.at(k).term, 0)

    def share_unheld(words, names, k):
        s = names["s"].fields
        return words.unheld(s["size"], s["holders"], k)

    def one_each(words, names, k):
        return z3.If(names["s"].fields["queue"].has(k), 1, 0)

    whole = Aggregate(IDENTIFIER, lambda w, n: w.total(n["s"].fields["size"]), share_of_total)
    unheld = Aggregate(
        IDENTIFIER,
        lambda w, n: w.total_unheld(n["s"].fields["size"], n["s"].fields["holders"]),
        share_unheld,
        at_most=whole,
    )
    queued = Aggregate(IDENTIFIER, lambda w, n: w.count(n["s"].fields["queue"]), one_each)
    return [whole, unheld, queued]


def reference_subject() -> Subject:
    root = Path(__file__).parent.parent
    rules = {rule.id: rule for rule in contracts(COMPONENT)}
    states = [of_contract(rule) for rule in rules.values() if rule.kind == "state"]
    operations = {"check", "can", "allocate", "release", "free"}
    transitions = {
        operation: [
            of_contract(rule)
            for rule in rules.values()
            if rule.kind == "transition" and operation in rule.calls
        ]
        for operation in operations
    }
    return Subject(
        "reference",
        {
            "m": source_of(root / "reference/encoder_cache.py", "EncoderCacheManager"),
            "g": source_of(root / "spec/ghost.py", "Ghost"),
        },
        {**REFERENCE, **GHOST},
        {("m", "semantics"): Semantics.ideal()},
        records,
        [*states, *INVARIANTS],
        transitions,
        OPERATIONS,
        aggregates(),
        loops,
    )
