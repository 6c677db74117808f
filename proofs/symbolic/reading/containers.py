"""Containers in the states of a symbolic execution: reading them, changing them, sharing them.

A value that is a container is a `Ref` to where it lives, so that what is done to it is seen by all
who have it.
"""

import ast
from dataclasses import replace
from typing import TypeGuard

import z3

from cacheproof.proofs.logic import Formula, implies
from cacheproof.proofs.symbolic.reading.execution import Run
from cacheproof.proofs.symbolic.reading.operands import (
    RUNNING,
    WHOLE,
    refuse_kept,
    same_place,
    short,
)
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.records import unwrapped
from cacheproof.proofs.symbolic.values.state import Empty, Operand, Receiver, Ref, State, term_of
from cacheproof.proofs.symbolic.values.values import BOOL, INT, Leaf, MapOf, Type, Value, is_ordered

_PARKED = "parked "
"""Prefix of the variable that stands for what an expression has evaluated; no text has such a
name."""
_CHANGED = "what a loop runs over is changed in it"
_NOTHING = object()
_NOWHERE = State({}, {}, {})


# what a variable has


def park(run: Run, operand: Operand, state: State) -> tuple[State, str]:
    """The state with a parked variable, and its name, for an operand that leads into a container:
    what takes its place there must not take its place here. For any other operand the name is
    ""."""
    refuse_kept(operand)
    if not isinstance(operand, Ref) or not operand.keys:
        return state, ""
    name = f"{_PARKED}{run.new_cell()}"
    return replace(state, names={**state.names, name: operand}), name


def unpark(operand: Operand, name: str, state: State) -> tuple[State, Operand]:
    """The state without the parked variable, and the operand as it is by now."""
    if not name:
        return state, operand
    names = {one: found for one, found in state.names.items() if one != name}
    return replace(state, names=names), state.names[name]


def hold(run: Run, value: Value, state: State) -> tuple[State, Ref]:
    """A container in a cell of its own."""
    cell = run.new_cell()
    return replace(state, cells={**state.cells, cell: value}), Ref(cell)


def detach(run: Run, ref: Ref, key: z3.ExprRef | None, state: State) -> State:
    """The state in which variables, the callers' among them, keep what they lead into, though it
    goes from a container: what is at a key, or, where `key` is None, everything."""
    frames = [*state.frames, state.names]
    leading = [
        (number, name, operand)
        for number, names in enumerate(frames)
        for name, operand in names.items()
        if _leads_into(operand, ref)
    ]
    if not leading:
        return state
    deeper = len(ref.keys)
    cell = run.new_cell()  # one for all of them: they go on having the same object
    for number, name, operand in leading:
        if key is None or not operand.keys[deeper].eq(key):
            raise NotTranslated(f"{name} may lead into what goes away")
        kept = Ref(cell, operand.keys[deeper + 1 :], operand.is_frozen)
        frames[number] = {**frames[number], name: kept}
    first = leading[0][2]
    goes = state.value(Ref(ref.cell, first.keys[: deeper + 1]))
    cells = {**state.cells, cell: goes}
    return replace(state, cells=cells, names=frames[-1], frames=tuple(frames[:-1]))


def take_out(run: Run, ref: Ref, key: z3.ExprRef, state: State) -> tuple[State, Operand]:
    """What is at a key, where it is to be kept when the key goes: a scalar, or a container that
    variables go on sharing."""
    found = inner(run, ref, key, state)
    state, name = park(run, found, state)
    return unpark(found, name, detach(run, ref, key, state))


# attributes


def owner_of(run: Run, operand: Operand) -> str | None:
    """The owner of the attributes of an element that is an object; None of anything else."""
    leaf = run.universe.leaf_of(operand) if isinstance(operand, z3.ExprRef) else None
    return run.objects.get(leaf) if leaf is not None else None


def set_attribute(run: Run, state: State, owner: str, name: str, operand: Operand) -> State:
    place, kind = (owner, name), run.types.get((owner, name))
    if kind is None:
        known = state.attributes.get(place, _NOTHING)
        if known is _NOTHING:  # nothing is proved of it, and a text that reads it is refused
            return state
        if operand is not known and not (isinstance(operand, Receiver) and operand == known):
            raise NotTranslated(f"{name} is set, and nothing says what it is")
        return state
    if isinstance(operand, Empty):
        operand = empty_in(run, operand, kind)
    if isinstance(operand, Value) and operand.kind == kind and not isinstance(kind, Leaf):
        state, operand = hold(run, operand, state)
    operand = unwrapped(operand)
    if isinstance(operand, Ref) and operand.keys:
        raise NotTranslated(f"{owner}.{name}: what is in another container is put there")
    refuse_misfit(run, name, kind, operand, state)
    state = replace(state, attributes={**state.attributes, place: operand})
    return state.snapshot()


def refuse_misfit(run: Run, name: str, kind: Type, operand: Operand, state: State) -> None:
    """Refuse what is of another type than the place that it is put."""
    if isinstance(operand, Ref):
        fits = not operand.is_frozen and state.value(operand).kind == kind
    elif isinstance(kind, Leaf):
        # not by isinstance: True is an int
        number = type(operand) is int and kind == INT
        truth_value = type(operand) is bool and kind == BOOL
        sort = run.universe.sort(kind)
        term = isinstance(operand, z3.ExprRef) and operand.sort() == sort
        fits = number or truth_value or term
    else:
        fits = False
    if not fits:
        raise NotTranslated(f"{name}: {short(operand)} is put where {kind} is read")


# items


def key_of(run: Run, operand: Operand) -> z3.ExprRef:
    if isinstance(operand, tuple):
        return run.universe.pair(*operand)
    return unwrapped(operand)


def inner(run: Run, of: Operand, key: z3.ExprRef, state: State) -> Operand:
    """What a key of a container maps to: a scalar, or where the inner container is."""
    of, container = map_of(of, state)
    value = container.at(key)
    scalar = unwrapped(value)
    return Ref(of.cell, (*of.keys, key)) if scalar is value else scalar


def map_of(of: Operand, state: State) -> tuple[Ref, Value]:
    """A dict by where it lives, and its contents; all else has no items."""
    if not isinstance(of, Ref) or not isinstance(state.value(of).kind, MapOf):
        raise NotTranslated(f"{short(of)} has no items")
    return of, state.value(of)


def values_of(container: Value) -> Type:
    """The type of the values of a dict."""
    assert isinstance(container.kind, MapOf)
    return container.kind.value


def put(run: Run, of: Operand, key: Operand, operand: Operand, state: State) -> State:
    key = key_of(run, key)
    of, container = map_of(of, state)
    kind = values_of(container)
    state = detach(run, of, key, state)
    if isinstance(operand, Ref):
        raise NotTranslated("one container is put into another while a variable has it")
    return write(run, of, container.put(key, whole(run, kind, operand)), state, key)


def delete(run: Run, node: ast.AST, of: Operand, key: Operand, state: State) -> State:
    key = key_of(run, key)
    of, container = map_of(of, state)
    state = run.require(run.at(state, node, "KeyError"), state, container.has(key))
    return drop(run, of, key, state)


def drop(run: Run, of: Operand, key: Operand, state: State) -> State:
    """The state in which a container is without a key, if it had it."""
    key = key_of(run, key)
    of, _ = map_of(of, state)
    state = detach(run, of, key, state)
    return write(run, of, state.value(of).without(key), state, key)


def whole(run: Run, kind: Type, operand: Operand) -> Value:
    """An operand as a value of the type of the place that it is put."""
    if isinstance(operand, Empty):
        return empty_in(run, operand, kind)
    scalar = unwrapped(operand)
    if not isinstance(kind, Leaf) or isinstance(scalar, Value | Ref):
        raise NotTranslated(f"{short(operand)} is put where {kind} is read")
    refuse_misfit(run, "an item", kind, scalar, _NOWHERE)
    return Value(run.universe, kind, (term_of(scalar),))


def empty_in(run: Run, operand: Empty, kind: Type) -> Value:
    """An empty container in a place of that type."""
    if not operand.fits(kind):
        raise NotTranslated(f"an empty {operand.name} is put where {kind} is read")
    return run.universe.empty(kind)


def write(run: Run, ref: Ref, value: Value, state: State, touched: z3.ExprRef | None) -> State:
    """A container replaced by its next contents."""
    if ref.is_frozen:
        raise NotTranslated("a container that has no method to change it is changed")
    chain = [state.cells[ref.cell]]
    for key in ref.keys:
        chain.append(chain[-1].at(key))
    for key, outer in zip(reversed(ref.keys), reversed(chain[:-1]), strict=True):
        value = outer.put(key, value)
    # quantifiers over constants have patterns, those over what was stored may not
    named, facts = run.universe.named(value, chain[0])
    before = state
    state = replace(state, cells={**state.cells, ref.cell: named}).assuming(*facts)
    # callers too: a method that a loop calls may change what the loop runs over
    for names in (*state.frames, state.names):
        for name, over in names.items():
            if name.startswith(RUNNING) and isinstance(over, Ref) and over.cell == ref.cell:
                same = same_place(before.value(over), state.value(over), name)
                state = run.require(_CHANGED, state, same)
    # sums are over the keys of the outermost container
    return state.snapshot(ref.keys[0] if ref.keys else touched)


def in_order(value: Value) -> list[Formula]:
    """What the places of an ordered map are by the way they come to be: each its own, and all
    before the next."""
    if not is_ordered(value.kind):
        return []
    before = value.all(lambda k: implies(value.has(k), value.place(k) < value.clock))
    apart = value.all(
        lambda k: value.all(
            lambda j: implies(
                z3.And(value.has(k), value.has(j), value.place(k) == value.place(j)), k == j
            ),
        ),
    )
    return [before, apart]


# what a loop runs over


def begin_turn(run: Run, state: State, ref: Ref, *, whole: bool) -> tuple[State, str]:
    """The state with a variable, and its name, for what a loop runs over: no turn may change its
    members or their order, nor anything of it where the loop takes values along (`whole`)."""
    name = f"{WHOLE if whole else RUNNING}{run.new_cell()}"
    return replace(state, names={**state.names, name: ref}), name


def end_turn(state: State, name: str, ref: Ref) -> State:
    """The state after a turn, without the variable of `begin_turn`."""
    if state.names.get(name) is not ref:
        raise NotTranslated("what a loop runs over goes away in it")
    names = {one: found for one, found in state.names.items() if one != name}
    return replace(state, names=names)


def _leads_into(operand: Operand, ref: Ref) -> TypeGuard[Ref]:
    """Whether a variable's container is inside another."""
    return (
        isinstance(operand, Ref)
        and operand.cell == ref.cell
        and len(operand.keys) > len(ref.keys)
        and all(a.eq(b) for a, b in zip(ref.keys, operand.keys, strict=False))
    )
