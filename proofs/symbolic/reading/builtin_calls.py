"""Calls of builtin functions and of methods, on operands that a run has evaluated."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import z3

from cacheproof.proofs.logic import Formula, implies, negated
from cacheproof.proofs.symbolic.reading import containers
from cacheproof.proofs.symbolic.reading.comprehensions import lazy_of
from cacheproof.proofs.symbolic.reading.execution import Function, Run, Signature
from cacheproof.proofs.symbolic.values.language import NotTranslated, methods_of
from cacheproof.proofs.symbolic.values.records import unwrapped
from cacheproof.proofs.symbolic.values.state import (
    Count,
    Empty,
    Evaluated,
    Feature,
    Features,
    Lazy,
    Operand,
    Range,
    Receiver,
    Ref,
    RequestOf,
    Reversed,
    State,
    Values,
    Ways,
    term_of,
)
from cacheproof.proofs.symbolic.values.values import (
    INPUT,
    INT,
    Leaf,
    ListOf,
    MapOf,
    SequenceOf,
    SetOf,
    Type,
    is_ordered,
)

# builtin functions


def _empty(name: str, run: Run, node: ast.AST, state: State) -> Ways:
    return [(state, Empty(name))]


def _copied(name: str, run: Run, node: ast.AST, state: State, among: Operand) -> Ways:
    """A copy to be run through."""
    if isinstance(among, tuple) and not among:
        return [(state, Empty("list" if name == "sorted" else name))]
    lazy = replace(lazy_of(run, node, among, state), source=None)
    if lazy.takes_values and not lazy.has_scalars:
        raise run.refused_in(state, node)  # these go on changing
    if name in ("set", "frozenset") and not is_itself(lazy):
        raise run.refused_in(state, node)  # what is alike would be one
    keeps_order = name in ("list", "tuple")
    return [(state, lazy if keeps_order else replace(lazy, place=None))]


def _itself(run: Run, node: ast.AST, state: State, among: Operand) -> Ways:
    return [(state, among)]


def _first(run: Run, node: ast.AST, state: State, among: Ref) -> Ways:
    return [outermost(run, node, among, state, oldest=True)]


def _last(run: Run, node: ast.AST, state: State, among: Reversed) -> Ways:
    return [outermost(run, node, among.of, state, oldest=False)]


def _first_value(run: Run, node: ast.AST, state: State, among: Values) -> Ways:
    state, key = outermost(run, node, among.of, state, oldest=True)
    return [(state, containers.inner(run, among.of, key, state))]


def _reversed(run: Run, node: ast.AST, state: State, among: Ref) -> Ways:
    if not is_ordered(state.value(among).kind):
        raise run.refused_in(state, node)
    return [(state, Reversed(among))]


def _enumerate(run: Run, node: ast.AST, state: State, of: Features) -> Ways:
    if of.gives_identifiers:
        raise run.refused_in(state, node)
    inputs = Lazy(run.words.inputs(of.request))
    return [(state, replace(inputs, target=lambda number: (number, Feature(of.request, number))))]


def _number_of_inputs(run: Run, node: ast.AST, state: State, of: Features) -> Ways:
    return [(state, Count(of.request))]


def _len(run: Run, node: ast.AST, state: State, of: Ref) -> Ways:
    container = state.value(of)
    if isinstance(container.kind, ListOf):  # it is not known what is in it more than once
        raise run.refused_in(state, node)
    return [(state, run.words.len(container))]


def _inputs(run: Run, node: ast.AST, state: State, of: Count) -> Ways:
    return [(state, Lazy(run.words.inputs(of.request)))]


def _range(run: Run, node: ast.AST, state: State, *ends: z3.ArithRef) -> Ways:
    return [(state, Range(z3.IntVal(0), *ends) if len(ends) == 1 else Range(*ends))]


def is_itself(lazy: Lazy) -> bool:
    """Whether a loop's target is bound to the members themselves."""
    probe = z3.Const("probe", lazy.members.universe.sort(lazy.members.key))
    return lazy.target(probe) is probe


def outermost(
    run: Run, node: ast.AST, of: Ref, state: State, *, oldest: bool
) -> tuple[State, z3.ExprRef]:
    """The first key of an ordered map, or the last; in a map without an order that may be any
    key."""
    container = state.value(of)
    name = run.at(state, node, "an empty container has no oldest entry")
    state = run.require(name, state, negated(container.is_empty))
    found = run.universe.constant(container.key, "outermost")
    if not is_ordered(container.kind):
        return state.assuming(container.has(found)), found
    place = container.place(found)

    def inside(key: z3.ExprRef) -> Formula:
        other = container.place(key)
        return implies(container.has(key), place <= other if oldest else place >= other)

    return state.assuming(container.has(found), container.all(inside)), found


# methods


def method(
    run: Run, node: ast.AST, operand: Operand, name: str, arguments: Sequence[Operand], state: State
) -> Ways:
    """What a method of an object, of a request or of a container answers."""
    if operand is None:
        run.require(run.at(state, node, "AttributeError"), state, False)
        return []
    if isinstance(operand, Receiver) and name in run.sources[operand.owner].methods:
        return run.call(operand.owner, name, arguments, state)
    if isinstance(operand, Ref) and (
        operand.is_frozen or name not in methods_of(state.value(operand).kind)
    ):
        raise run.refused_in(state, node)
    return run.answered(node, f".{name}", (operand, *arguments), state)


def _embeds(run: Run, node: ast.AST, state: State, of: RequestOf, number: Operand) -> Ways:
    name = run.at(state, node, "IndexError")
    number = input_of(run, number)
    state = run.require(name, state, run.words.has_input(of.term, number))
    return [(state, run.words.embeds(of.term, number))]


def input_of(run: Run, key: Operand) -> z3.ExprRef:
    """The number of an input; no other number, and none from the end, is one."""
    number = unwrapped(key)
    if not isinstance(number, z3.ExprRef) or run.universe.leaf_of(number) != INPUT:
        raise NotTranslated(f"{number} in the place of an input's number")
    return number


def _keys(run: Run, node: ast.AST, state: State, of: Ref) -> Ways:
    return [(state, lazy_of(run, node, of, state))]


def _copy(run: Run, node: ast.AST, state: State, of: Ref) -> Ways:
    return [(state, replace(lazy_of(run, node, of, state), source=None))]


def _values(run: Run, node: ast.AST, state: State, of: Ref) -> Ways:
    return [(state, Values(of))]


def _items(run: Run, node: ast.AST, state: State, of: Ref) -> Ways:
    container = state.value(of)
    lazy = lazy_of(run, node, of, state)
    taken = replace(lazy, target=lambda k: (k, unwrapped(container.at(k))))
    scalars = isinstance(containers.values_of(container), Leaf)
    return [(state, replace(taken, takes_values=True, has_scalars=scalars))]


def _clear(run: Run, node: ast.AST, state: State, of: Ref) -> Ways:
    kind = state.value(of).kind
    state = containers.detach(run, of, None, state)
    return [(containers.write(run, of, run.universe.empty(kind), state, None), None)]


def _append(run: Run, node: ast.AST, state: State, of: Ref, member: Operand) -> Ways:
    found, member = state.value(of), unwrapped(member)
    if isinstance(found.kind, SequenceOf):
        name = run.at(state, node, "appended where it is read as once in a list")
        state = run.require(name, state, negated(found.has(member)))
    return [(containers.write(run, of, found.appended(member), state, member), None)]


def _add(run: Run, node: ast.AST, state: State, of: Ref, member: Operand) -> Ways:
    return [(_with_member(run, of, unwrapped(member), True, state), None)]


def _discard(run: Run, node: ast.AST, state: State, of: Ref, member: Operand) -> Ways:
    return [(_with_member(run, of, unwrapped(member), False, state), None)]


def _remove(run: Run, node: ast.AST, state: State, of: Ref, member: Operand) -> Ways:
    there = state.value(of).has(unwrapped(member))
    state = run.require(run.at(state, node, "KeyError"), state, there)
    return _discard(run, node, state, of, member)


def _with_member(run: Run, of: Ref, member: z3.ExprRef, there: bool, state: State) -> State:
    return containers.write(run, of, state.value(of).with_member(member, there), state, member)


def _move_to_end(run: Run, node: ast.AST, state: State, of: Ref, key: Operand, last: bool) -> Ways:
    """A key of an ordered map goes after all others, or before them."""
    key = containers.key_of(run, key)
    container = state.value(of)
    state = run.require(run.at(state, node, "KeyError"), state, container.has(key))
    if last:
        behind_all = container.without(key).put(key, container.at(key))
        return [(containers.write(run, of, behind_all, state, key), None)]
    place = run.universe.constant(INT, "front")
    in_front = container.all(lambda k: implies(container.has(k), place < container.place(k)))
    moved = container.moved(key, place)
    return [(containers.write(run, of, moved, state.assuming(in_front), key), None)]


def _popitem(run: Run, node: ast.AST, state: State, of: Ref, last: bool) -> Ways:
    state, key = outermost(run, node, of, state, oldest=not last)
    for after, found in _pop(run, node, state, of, key):
        yield after, (key, found)


def _pop(run: Run, node: ast.AST, state: State, of: Ref, key: Operand) -> Ways:
    key = containers.key_of(run, key)
    there = containers.map_of(of, state)[1].has(key)
    state = run.require(run.at(state, node, "KeyError"), state, there)
    state, found = containers.take_out(run, of, key, state)
    yield containers.write(run, of, state.value(of).without(key), state, key), found


def _pop_or(
    run: Run, node: ast.AST, state: State, of: Ref, key: Operand, fallback: Operand
) -> Ways:
    key, (_, container) = containers.key_of(run, key), containers.map_of(of, state)
    absent = state.assuming(z3.Not(container.has(key)))
    there, found = containers.take_out(run, of, key, state.assuming(container.has(key)))
    yield containers.write(run, of, container.without(key), there, key), found
    yield _instead(run, containers.values_of(container), absent, fallback)


def _get(
    run: Run, node: ast.AST, state: State, of: Ref, key: Operand, fallback: Operand = None
) -> Ways:
    key, (_, container) = containers.key_of(run, key), containers.map_of(of, state)
    number = isinstance(fallback, int | z3.ArithRef) and not isinstance(fallback, bool)
    if containers.values_of(container) == INT and number:
        yield state, z3.If(container.has(key), container.at(key).term, term_of(fallback))
        return
    there = state.assuming(container.has(key))
    absent = state.assuming(z3.Not(container.has(key)))
    yield there, containers.inner(run, of, key, there)
    yield _instead(run, containers.values_of(container), absent, fallback)


def _instead(run: Run, inside: Type, state: State, fallback: Operand) -> Evaluated:
    """What stands for what a map of such values does not have."""
    if not (isinstance(fallback, Empty) or fallback == ()) or not isinstance(
        inside, MapOf | SetOf | ListOf
    ):
        return state, fallback
    cell = run.new_cell()
    frozen = not isinstance(fallback, Empty) or not fallback.fits(inside)
    cells = {**state.cells, cell: run.universe.empty(inside)}
    return replace(state, cells=cells), Ref(cell, is_frozen=frozen)


def _setdefault(
    run: Run, node: ast.AST, state: State, of: Ref, key: Operand, fallback: Operand = None
) -> Ways:
    key, (_, container) = containers.key_of(run, key), containers.map_of(of, state)
    whole = containers.whole(run, containers.values_of(container), fallback)
    now = container.at(key).unless(container.has(key), whole)
    state = containers.write(run, of, container.put(key, now), state, key)
    return [(state, containers.inner(run, of, key, state))]


FUNCTIONS: Mapping[Signature, Function] = {
    **{
        (name,): partial(_empty, name)
        for name in ("dict", "frozenset", "list", "OrderedDict", "set")
    },
    **{
        (name, object): partial(_copied, name)
        for name in ("frozenset", "list", "set", "sorted", "tuple")
    },
    ("enumerate", Features): _enumerate,
    ("iter", object): _itself,
    ("len", Features): _number_of_inputs,
    ("len", Ref): _len,
    ("next", Ref): _first,
    ("next", Reversed): _last,
    ("next", Values): _first_value,
    ("range", Count): _inputs,
    ("range", z3.ArithRef): _range,
    ("range", z3.ArithRef, z3.ArithRef): _range,
    ("reversed", Ref): _reversed,
    (".get_num_encoder_embeds", RequestOf, object): _embeds,
    (".get_num_encoder_tokens", RequestOf, object): _embeds,
    (".add", Ref, object): _add,
    (".append", Ref, object): _append,
    (".clear", Ref): _clear,
    (".copy", Lazy): _itself,
    (".copy", Ref): _copy,
    (".discard", Ref, object): _discard,
    (".get", Ref, object): _get,
    (".get", Ref, object, object): _get,
    (".items", Ref): _items,
    (".keys", Ref): _keys,
    (".move_to_end", Ref, object, bool): _move_to_end,
    (".pop", Ref, object): _pop,
    (".pop", Ref, object, object): _pop_or,
    (".popitem", Ref, bool): _popitem,
    (".remove", Ref, object): _remove,
    (".setdefault", Ref, object): _setdefault,
    (".setdefault", Ref, object, object): _setdefault,
    (".values", Ref): _values,
}
