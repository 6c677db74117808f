"""The encoder-decoder cache manager: what a scheduler asks of it, and what only proofs need.

It counts slots, shares nothing, and has what a step encodes dropped after the next.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import z3

from cacheproof.proofs.crosshair.encoder_decoder_cache import state_of
from cacheproof.proofs.logic import Formula, conjunction
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.replay import CounterexampleReplay
from cacheproof.proofs.symbolic.deciding.subject import (
    Aggregate,
    Attributes,
    CallEnd,
    Names,
    Operation,
    Subject,
)
from cacheproof.proofs.symbolic.reading.ghost_loops import (
    Rules,
    counted,
    debits_dropped,
    needs_the_rest,
    reported,
    still_claimed,
    stored,
    term_of_request,
    without_keys,
)
from cacheproof.proofs.symbolic.reading.source import Source, place_of_loop, source_of
from cacheproof.proofs.symbolic.rules.rules import auxiliary, of_contract
from cacheproof.proofs.symbolic.subjects import encoder_cache
from cacheproof.proofs.symbolic.subjects.calls import (
    GHOST,
    TOLD,
    Assumption,
    call_record,
    end_of,
    kept,
    one_input,
    one_request,
    sizes_at_least_one,
    sources_with,
    types_with,
)
from cacheproof.proofs.symbolic.subjects.encoder_cache_rules import (
    idle_is_not_needed,
    needed_as_claimed,
    somebody_needs,
)
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import Around, Loop, Operand, RequestOf, State
from cacheproof.proofs.symbolic.values.values import DEBIT, IDENTIFIER, INT, ListOf, MapOf, Type
from cacheproof.proofs.symbolic.values.words import Words
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics
from cacheproof.spec import encoder_decoder_cache as contracts_of_component
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Making
from cacheproof.spec.registry import contracts

COMPONENT = contracts_of_component.COMPONENT
SAFETY = "ED-4"
CLASS = "EncoderDecoderCacheManager"
MANAGER: Mapping[str, Type] = {
    "cache_size": INT,
    "num_free_slots": INT,
    "freed": ListOf(IDENTIFIER),
    "allocated": ListOf(IDENTIFIER),
    "to_free": ListOf(IDENTIFIER),
    "_debits": MapOf(DEBIT, INT),
}
"""The attributes of managers, of which each release's has some."""


class DecoderTables(Protocol):
    """Attributes of managers, as `MANAGER` has them."""

    cache_size: int
    num_free_slots: int
    allocated: Sequence[str]
    to_free: Sequence[str]
    _debits: Mapping[tuple[str, int], int]


# what only proofs need to know


def debits_are_sized(g: Ghost) -> bool:
    """What is debited is at least one slot."""
    return all(g.debits[d] >= 1 for d in g.debits)


def debits_are_of_inputs(g: Ghost, has_input: Callable[[str, int], bool]) -> bool:
    """Only inputs are debited."""
    return all(has_input(d[0], d[1]) for d in g.debits)


def encoded_is_to_be_dropped(m: DecoderTables, w: Making) -> bool:
    """What the step in the making encodes is to be dropped after the next."""
    return all(h in m.allocated for h in w.encoded)


def stored_is_dated(g: Ghost) -> bool:
    """Of what the worker has, and of nothing else, it is known how long it has it."""
    return all(h in g.steps_since_encode for h in g.stored) and all(
        h in g.stored for h in g.steps_since_encode
    )


def stored_is_to_be_dropped(m: DecoderTables, g: Ghost) -> bool:
    """What the worker has was encoded in the last step, and is to be dropped in the next."""
    return all(
        h in m.to_free and h in g.steps_since_encode and g.steps_since_encode[h] == 0
        for h in g.stored
    )


def books_balance(m: DecoderTables, total: Callable[[Mapping[tuple[str, int], int]], int]) -> bool:
    """Free slots and what the manager has debited make up the capacity."""
    return m.num_free_slots + total(m._debits) == m.cache_size


def debits_are_known(m: DecoderTables, g: Ghost) -> bool:
    """The manager has debited what it was told, and nothing else."""
    return all(d in g.debits and g.debits[d] == m._debits[d] for d in m._debits) and all(
        d in m._debits for d in g.debits
    )


_ALWAYS = (
    needed_as_claimed,
    somebody_needs,
    idle_is_not_needed,
    debits_are_sized,
    debits_are_of_inputs,
    stored_is_dated,
)
_OF_ATTRIBUTE: Mapping[str, Sequence[Callable[..., bool]]] = {
    "to_free": (encoded_is_to_be_dropped, stored_is_to_be_dropped),
    "_debits": (books_balance, debits_are_known),
}


class EncoderDecoderView:
    """The records that contracts look at, of a manager with these attributes."""

    def __init__(self, attributes: Sequence[str]) -> None:
        self._attributes = attributes

    def __call__(self, get: Callable[[str, str], Operand]) -> Names:
        fields = {name: get("m", name) for name in self._attributes}
        state = {"capacity": fields["cache_size"], "free_slots": fields["num_free_slots"]}
        return {
            "s": Record(state),
            "m": Record(fields),
            "g": Record({name: get("g", name) for name in GHOST}),
            "w": Record({"encoded": get("w", "encoded")}),
        }


# calls, as a scheduler makes them; where nothing else is said, as those of an encoder cache manager


def check(play: Play, state: State) -> Iterator[CallEnd]:
    state, r, i = one_input(play, state)
    m = play.machine
    for after, answer in m.asked("check_and_update_cache", [RequestOf(r), i], state):
        yield end_of(play, state, after, after, call_record(play, "check", r, i, granted=answer))


def allocate(play: Play, state: State) -> Iterator[CallEnd]:
    state, r, i = one_input(play, state)
    m, words = play.machine, play.words
    identifier, need = words.item(r, i), words.embeds(r, i)
    debited = play.names(state)["g"].container("debits").has(play.universe.pair(r, i))
    state = kept(play, state, call_record(play, "allocate", r, i, debited=debited))
    for told, _ in m.call("g", "encode", [r, i, identifier, need], state):
        for after, _ in m.call("m", "allocate", [RequestOf(r), i], told):
            for claimed, _ in m.call("g", "claim", [r, identifier, words.end(r, i)], after):
                encoded = m.put("w", "encoded", identifier, need, claimed)
                call = call_record(play, "allocate", r, i, debited=True)
                yield end_of(play, told, after, encoded, call)


def release(play: Play, state: State) -> Iterator[CallEnd]:
    """Any input may be released, at any time."""
    state, r, i = one_input(play, state)
    debited = play.names(state)["g"].container("debits").has(play.universe.pair(r, i))
    m = play.machine
    for after, _ in m.call("m", "free_encoder_input", [RequestOf(r), i], state):
        for told, _ in m.call("g", "release", [r, i], after):
            call = call_record(play, "release", r, i, debited=debited)
            yield end_of(play, state, after, told, call)


def free(play: Play, state: State) -> Iterator[CallEnd]:
    """A request ends, or stops running."""
    r = one_request(play)
    m = play.machine
    for told, _ in m.call("g", "withdraw", [r], state):
        for after, _ in m.call("m", "free", [RequestOf(r)], told):
            yield end_of(play, told, after, after, call_record(play, "free", r))


def consume(play: Play, state: State) -> Iterator[CallEnd]:
    """A worker has executed a request's tokens up to some progress."""
    r = one_request(play)
    for after, _ in play.machine.call("g", "consume", [r, z3.Int("progress")], state):
        yield end_of(play, after, after, after, call_record(play, "consume", r))


def notices(play: Play, state: State) -> Iterator[CallEnd]:
    """A step ends: the worker drops what the notices name, then encodes."""
    m = play.machine
    for after, told in m.kept_by_caller("m", "get_freed_mm_hashes", state):
        encoded = after.attributes["w", "encoded"]
        for executed, _ in m.call("g", "step", [told, encoded], after):
            ghost = play.names(executed)["g"].fields
            step = {
                "encoded": after.value(encoded),
                "store": ghost["stored"],
                "steps_since_encode": ghost["steps_since_encode"],
            }
            done = m.emptied(executed, [("w", "encoded")])
            end = end_of(play, state, after, done, call_record(play, "notices", None))
            yield CallEnd(end.after, {**end.names, "w": Record(step)})


_OPERATIONS = (
    Operation("init", encoder_cache.begin, "__init__", begins=True),
    Operation("check", check, "check_and_update_cache"),
    Operation("can", encoder_cache.can, "can_allocate"),
    Operation("allocate", allocate, "allocate"),
    Operation("release", release, "free_encoder_input"),
    Operation("free", free, "free"),
    Operation("notices", notices, "get_freed_mm_hashes"),
    Operation("inputs", encoder_cache.inputs, "get_cached_input_ids"),
    Operation("reset", encoder_cache.reset, "reset", since="0.16.0"),
    Operation("consume", consume),
)


# loops


def loops(play: Play) -> Mapping[tuple[str, str], Sequence[Loop]]:
    """The loops of a manager and of the ghost, by owner and method, in order of their lines."""
    own = {"needed_as_claimed", "ED-5", "debits_are_known"}

    def without(around: Around, *rules: str) -> Rules:
        found = play.invariants(around.now, taken=around.taken)
        return [(rule, formula) for rule, formula in found if rule not in rules]

    def releasing(around: Around) -> Rules:
        return without(around, "ED-5", "debits_are_known") + _released(play, around)

    def passing(around: Around) -> Rules:
        return without(around) + still_claimed(around)

    def withdrawing(around: Around) -> Rules:
        return without(around, *own) + needs_the_rest(around)

    return {
        ("m", place_of_loop(play.subject.sources["m"], "free", ast.For)): [Loop(releasing)],
        ("g", "consume"): [Loop(passing)],
        ("g", "withdraw"): [Loop(debits_dropped), Loop(withdrawing)],
        ("g", "step"): [Loop(reported), Loop(counted), Loop(stored)],
    }


def _released(play: Play, around: Around) -> Rules:
    """The debits of the inputs that are done are gone from a manager that knows its debits."""
    if ("m", "_debits") not in around.now.attributes:
        return []
    request, seen = term_of_request(around.now), around.seen
    assert seen is not None
    then, now = (state.contents("m", "_debits") for state in (around.start, around.now))

    def given_back(debit: z3.ExprRef) -> Formula:
        owner, number = play.universe.parts(debit)
        return conjunction((owner == request, seen.has(number)))

    return [("debits given back", without_keys(then, now, given_back))]


# sums


def _aggregates(attributes: Sequence[str]) -> list[Aggregate]:
    def of(record: str, name: str) -> Aggregate:
        def share(words: Words, names: Names, key: z3.ExprRef) -> z3.ArithRef:
            debits = names[record].container(name)
            return z3.If(debits.has(key), debits.at(key).term, 0)

        return Aggregate(DEBIT, lambda w, n: w.total(n[record].container(name)), share)

    told = of("g", "debits")
    if "_debits" not in attributes:
        return [told]
    own = of("m", "_debits")
    return [replace(told, at_most=own), replace(own, at_most=told)]


# subjects


def of_reference(assumptions: Sequence[Assumption] = ()) -> Subject:
    """The reference manager, as it should be."""
    path = Path(inspect.getfile(EncoderDecoderCacheManager))
    base = source_of(path.with_name("encoder_cache.py"), encoder_cache.CLASS)
    constants = {("m", "semantics"): EncoderCacheSemantics()}
    source = source_of(path, CLASS).of_base(base)
    return _subject_of(encoder_cache.REFERENCE, source, None, assumptions, constants)


def of_release(release: str, source: Source, assumptions: Sequence[Assumption] = ()) -> Subject:
    """The manager of a release, judged by the contracts that the release promises."""
    return _subject_of(f"vllm@{release}", source, release, assumptions, {})


def _subject_of(
    name: str,
    source: Source,
    release: str | None,
    assumptions: Sequence[Assumption],
    constants: Attributes,
) -> Subject:
    attributes = [one for one in MANAGER if one in source.attributes]
    rules = [rule for rule in contracts(COMPONENT, release) if rule.component == COMPONENT]
    auxiliaries = [
        *_ALWAYS,
        *(rule for name, rules in _OF_ATTRIBUTE.items() if name in attributes for rule in rules),
    ]
    operations = [one for one in _OPERATIONS if one.is_asked(source, release)]
    return Subject(
        name,
        sources_with(source),
        types_with({one: MANAGER[one] for one in attributes}),
        constants,
        EncoderDecoderView(attributes),
        [
            *(of_contract(rule) for rule in rules if rule.kind == "state"),
            *(auxiliary(one) for one in auxiliaries),
        ],
        {one.name: encoder_cache.judged_at(one.name, rules) for one in operations},
        operations,
        _aggregates(attributes),
        loops,
        SAFETY,
        lambda play: [one(play) for one in (sizes_at_least_one, *assumptions)],
        CounterexampleReplay(state_of, has_ledger=False),
        component=COMPONENT,
        also_called=encoder_cache.also_called(release),
        told=TOLD,
        absent=encoder_cache.absent_of(release),
    )
