"""Calls of managers, as a scheduler makes them: what all kinds of managers have in common."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import z3

from cacheproof.proofs.logic import Formula, conjunction, implies, negated
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import CallEnd
from cacheproof.proofs.symbolic.reading.plain import in_plain_words
from cacheproof.proofs.symbolic.reading.source import Source, source_of
from cacheproof.proofs.symbolic.rules.rules import of_contract
from cacheproof.proofs.symbolic.values.records import Denoted, Record
from cacheproof.proofs.symbolic.values.state import State
from cacheproof.proofs.symbolic.values.values import (
    DEBIT,
    IDENTIFIER,
    INPUT,
    INT,
    REQUEST,
    MapOf,
    SetOf,
    Type,
    Universe,
    Value,
)
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.manager_calls import COMPONENT as CALLERS
from cacheproof.spec.registry import contracts

GHOST: Mapping[str, Type] = {
    "needed": MapOf(IDENTIFIER, SetOf(REQUEST)),
    "idle_since": MapOf(IDENTIFIER, INT),
    "size": MapOf(IDENTIFIER, INT),
    "stored": MapOf(IDENTIFIER, INT),
    "debits": MapOf(DEBIT, INT),
    "steps_since_encode": MapOf(IDENTIFIER, INT),
    "claimed_end": MapOf(REQUEST, MapOf(IDENTIFIER, INT)),
    "_clock": INT,
}
"""The fields of spec's ghost."""
STEP: Mapping[str, Type] = {"encoded": MapOf(IDENTIFIER, INT)}
"""What the step in the making encodes, by its size."""
TOLD: Mapping[str, Sequence[str]] = {
    "g": ("claim", "consume", "encode", "release", "reset", "step", "withdraw")
}
"""What operations tell the ghost."""


def sources_with(manager: Source) -> dict[str, Source]:
    """The texts of what a manager's calls work on: the manager, and spec's ghost."""
    ghost = source_of(Path(inspect.getfile(Ghost)), "Ghost")
    return {"m": in_plain_words(manager), "g": ghost}


def types_with(manager: Mapping[str, Type]) -> dict[tuple[str, str], Type]:
    """What a manager's calls work on, given its own attributes: these, the ghost, the step."""
    owned = {"m": manager, "g": GHOST, "w": STEP}
    return {(owner, name): kind for owner, own in owned.items() for name, kind in own.items()}


def call_record(
    play: Play,
    operation: str,
    request: z3.ExprRef | None,
    number: z3.ExprRef | None = None,
    **known: Denoted,
) -> Record:
    words = play.words
    given = {
        "operation": operation,
        "request": request,
        "identifier": None if number is None else words.item(request, number),
        "need": 0 if number is None else words.embeds(request, number),
        "end": 0 if number is None else words.end(request, number),
        "budget": 0,
        "pending": 0,
        "granted": False,
        "raised": "",
        "tells": False,
        "answered": 0,
        "told": play.universe.empty(SetOf(IDENTIFIER)),
        "leaves_out": False,
    }
    return Record({**given, **known})


def named_by(
    play: Play, state: State, request: z3.ExprRef, inputs: Value | None
) -> tuple[State, Value]:
    """The identifiers of the inputs of an answer, as spec's `named_by`, and the state in which
    they are known."""
    if inputs is None or inputs.key != INPUT:
        return state, play.universe.empty(SetOf(IDENTIFIER))
    told = play.universe.fresh(SetOf(IDENTIFIER), "told")
    words = play.words

    def is_told(number: z3.ExprRef) -> Formula:
        return conjunction((inputs.has(number), words.has_input(request, number)))

    named = play.universe.all(
        INPUT, lambda i: implies(is_told(i), told.has(words.item(request, i)))
    )
    shown = told.all(
        lambda h: implies(
            told.has(h),
            play.universe.some(
                INPUT, lambda i: conjunction((is_told(i), words.item(request, i) == h))
            ),
        )
    )
    return state.assuming(named, shown), told


def leaves_out(play: Play, state: State, request: z3.ExprRef, inputs: Value | None) -> Formula:
    """Whether a request has been debited an input that is not among these, as spec's."""
    universe, debits = play.universe, play.names(state)["g"].container("debits")
    told = universe.empty(SetOf(INPUT)) if inputs is None or inputs.key != INPUT else inputs

    def is_left_out(number: z3.ExprRef) -> Formula:
        return conjunction((debits.has(universe.pair(request, number)), negated(told.has(number))))

    return universe.some(INPUT, is_left_out)


def end_of(play: Play, before: State, at_call: State, after: State, call: Record) -> CallEnd:
    names = play.names(at_call)
    pre = play.names(before)["s"]
    return CallEnd(after, {"pre": pre, "post": names["s"], "g": names["g"], "c": call})


def kept(play: Play, state: State, call: Record) -> State:
    """A state in which the caller keeps what it promises of such a call, but for the order of
    releases, which is said where progress is made."""
    names = {**play.names(state), "c": call}
    promised = [
        of_contract(rule)
        for rule in contracts(play.subject.component)
        if rule.component == CALLERS
        and call.fields["operation"] in rule.calls
        and not rule.synchronous_only
    ]
    return state.assuming(*(play.read(rule, names, taken=True) for rule in promised))


def one_request(play: Play) -> z3.ExprRef:
    request = play.universe.constant(REQUEST, "r")
    play.arguments.append(request)
    return request


def one_input(play: Play, state: State) -> tuple[State, z3.ExprRef, z3.ExprRef]:
    """A request and an input of it."""
    request = one_request(play)
    number = play.universe.constant(INPUT, "i")
    play.arguments.append(number)
    return state.assuming(play.words.has_input(request, number)), request, number


# what callers owe, beside the contracts of calls


def sizes_at_least_one(play: Play) -> Formula:
    """Every input has one embedding at least, and ends behind a token."""
    words = play.words

    def of_input(r: z3.ExprRef, i: z3.ExprRef) -> Formula:
        sized = z3.And(words.embeds(r, i) >= 1, words.end(r, i) >= 1)
        return implies(words.has_input(r, i), sized)

    return _of_inputs(play.universe, of_input)


def identifier_fixes_size(play: Play) -> Formula:
    """Inputs of one identifier have one size."""
    words = play.words
    return _of_inputs(
        play.universe, lambda r, i: words.embeds(r, i) == words.size_of(words.item(r, i))
    )


def items_differ(play: Play) -> Formula:
    """No request has two inputs of one identifier."""
    words = play.words
    return _of_inputs(play.universe, lambda r, i: words.number_of(r, words.item(r, i)) == i)


def _of_inputs(universe: Universe, body: Callable[[z3.ExprRef, z3.ExprRef], Formula]) -> Formula:
    return universe.all(REQUEST, lambda r: universe.all(INPUT, lambda i: body(r, i)))


Assumption = Callable[[Play], Formula]
