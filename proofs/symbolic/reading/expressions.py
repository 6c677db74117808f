"""Evaluates the expressions of a method on symbolic values, and assigns to its targets."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import get_args

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, negated
from cacheproof.proofs.symbolic.reading import containers
from cacheproof.proofs.symbolic.reading.builtin_calls import input_of, method
from cacheproof.proofs.symbolic.reading.comprehensions import comprehension, quantified
from cacheproof.proofs.symbolic.reading.execution import (
    UNREAD,
    Attribute,
    Expression,
    Function,
    Run,
    Signature,
    Target,
)
from cacheproof.proofs.symbolic.reading.operands import (
    compared,
    number_of,
    refuse_empty,
    refuse_kept,
)
from cacheproof.proofs.symbolic.reading.source import defaults_of
from cacheproof.proofs.symbolic.values.language import OF_THE_END
from cacheproof.proofs.symbolic.values.records import equal
from cacheproof.proofs.symbolic.values.state import (
    Empty,
    Feature,
    Features,
    Flags,
    Operand,
    Receiver,
    Ref,
    RequestOf,
    Reversed,
    State,
    Values,
    Ways,
    truth_of,
)
from cacheproof.proofs.symbolic.values.values import DEBIT, Leaf, Value

_OF_ANY: Mapping[tuple[type[ast.cmpop], int], bool] = {
    (ast.Eq, 0): False, (ast.NotEq, 0): True, (ast.Gt, 0): True, (ast.LtE, 0): False,
    (ast.GtE, 1): True, (ast.Lt, 1): False,
}  # fmt: skip
"""(operator, number) -> what `len(x) operator number` says of x: True, it has members; False,
none."""
_ANY_OF: Mapping[tuple[int, type[ast.cmpop]], bool] = {
    (0, ast.Eq): False, (0, ast.NotEq): True, (0, ast.Lt): True, (0, ast.GtE): False,
    (1, ast.LtE): True, (1, ast.Gt): False,
}  # fmt: skip
"""(number, operator) -> what `number operator len(x)` says of x: True, it has members; False,
none."""


def decided(run: Run, test: ast.expr, state: State) -> Iterator[tuple[State, bool]]:
    """The two ways on from a condition; one where it is plain."""
    for after, value in run.evaluated(test, state):
        for branch, holds in run.split(truth_of(after, value), after):
            yield run.through(test, branch, str(holds)), holds


# targets


def _to_name(run: Run, target: ast.Name, operand: Operand, state: State) -> Iterator[State]:
    kind = run.variables.get((*state.method, target.id))
    if isinstance(operand, Empty) and kind is not None:
        state, operand = containers.hold(run, containers.empty_in(run, operand, kind), state)
    refuse_kept(operand)
    refuse_empty(operand)
    yield replace(state, names={**state.names, target.id: operand})


def _to_attribute(
    run: Run, target: ast.Attribute, operand: Operand, state: State
) -> Iterator[State]:
    for after, receiver in run.evaluated(target.value, state):
        if isinstance(receiver, Receiver):
            yield containers.set_attribute(run, after, receiver.owner, target.attr, operand)
        elif (owner := containers.owner_of(run, receiver)) is not None:
            of_all = after.attributes[owner, target.attr]
            yield containers.put(run, of_all, receiver, operand, after)
        else:
            raise run.refused_in(state, target)


def _to_item(run: Run, target: ast.Subscript, operand: Operand, state: State) -> Iterator[State]:
    for after, (of, at) in each(run, [target.value, target.slice], state):
        yield containers.put(run, of, at, operand, after)


def _to_tuple(run: Run, target: ast.Tuple, operand: Operand, state: State) -> Iterator[State]:
    if not isinstance(operand, tuple) or len(target.elts) != len(operand):
        raise run.refused_in(state, target)
    yield from _assign_each(run, target.elts, operand, state)


def _assign_each(
    run: Run, targets: Sequence[ast.expr], operands: Sequence[Operand], state: State
) -> Iterator[State]:
    """Assign operands one after the other; a container that is still to be assigned stays the one
    that it is, whatever takes its place meanwhile."""
    if not targets:
        yield state
        return
    parked, names = state, []
    for operand in operands:
        parked, name = containers.park(run, operand, parked)
        names.append(name)
    for after in run.assigned(targets[0], operands[0], parked):
        found = []
        for operand, name in zip(operands, names, strict=True):
            after, one = containers.unpark(operand, name, after)
            found.append(one)
        yield from _assign_each(run, targets[1:], found[1:], after)


# expressions


def each(
    run: Run, nodes: Sequence[ast.expr], state: State
) -> Iterator[tuple[State, tuple[Operand, ...]]]:
    if not nodes:
        yield state, ()
        return
    for after, first in run.evaluated(nodes[0], state):
        if len(nodes) == 1:
            yield after, (first,)
            continue
        parked, name = containers.park(run, first, after)
        for end, others in each(run, nodes[1:], parked):
            end, found = containers.unpark(first, name, end)
            yield end, (found, *others)


def _constant(run: Run, node: ast.Constant, state: State) -> Ways:
    yield state, node.value


def _name(run: Run, node: ast.Name, state: State) -> Ways:
    if node.id not in state.names:
        raise run.refused_in(state, node)
    yield state, state.names[node.id]


def _tuple(run: Run, node: ast.Tuple, state: State) -> Ways:
    yield from each(run, node.elts, state)


def _list(run: Run, node: ast.List, state: State) -> Ways:
    if node.elts:
        raise run.refused_in(state, node)
    yield state, Empty("list")


def _dict(run: Run, node: ast.Dict, state: State) -> Ways:
    if node.keys:
        raise run.refused_in(state, node)
    yield state, Empty("dict")


def _sum(run: Run, node: ast.BinOp, state: State) -> Ways:
    if not isinstance(node.op, ast.Add | ast.Sub):
        raise run.refused_in(state, node)
    for after, operands in each(run, [node.left, node.right], state):
        one, other = map(number_of, operands)
        yield after, one + other if isinstance(node.op, ast.Add) else one - other


def _and_or(run: Run, node: ast.BoolOp, state: State) -> Ways:
    first, *rest = node.values
    stops = isinstance(node.op, ast.Or)
    others = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    for after, value in run.evaluated(first, state):
        for branch, holds in run.split(truth_of(after, value), after):
            if holds == stops:
                yield run.through(first, branch, str(stops)), value
            else:
                further = run.through(rest[0], branch)
                yield from run.evaluated(ast.copy_location(others, rest[0]), further)


def _not(run: Run, node: ast.UnaryOp, state: State) -> Ways:
    match node.op, node.operand:
        case ast.USub(), ast.Constant(value=int() as value):
            yield state, -value
        case ast.Not(), operand:
            for after, found in run.evaluated(operand, state):
                yield after, negated(truth_of(after, found))
        case _:
            raise run.refused_in(state, node)


def _if_else(run: Run, node: ast.IfExp, state: State) -> Ways:
    for after, holds in decided(run, node.test, state):
        yield from run.evaluated(node.body if holds else node.orelse, after)


# attributes and items


def _attribute(run: Run, node: ast.Attribute, state: State) -> Ways:
    for after, operand in run.evaluated(node.value, state):
        owner = (
            operand.owner if isinstance(operand, Receiver) else containers.owner_of(run, operand)
        )
        if owner is not None and node.attr in run.sources[owner].properties:
            yield from run.call_on(operand, owner, node.attr, [], after)
            continue
        read = run.readings.attribute_of(operand)
        found = UNREAD if read is None else read(run, operand, node.attr, after)
        if found is UNREAD:
            raise run.refused_in(after, node)
        yield after, found


def _of_element(run: Run, operand: z3.ExprRef, name: str, state: State) -> Operand:
    """An attribute of an element that is an object."""
    owner = containers.owner_of(run, operand)
    if owner is None or (owner, name) not in state.attributes:
        return UNREAD
    return containers.inner(run, state.attributes[owner, name], operand, state)


def _of_object(run: Run, operand: Receiver, name: str, state: State) -> Operand:
    return state.attributes.get((operand.owner, name), UNREAD)


def _of_request(run: Run, operand: RequestOf, name: str, state: State) -> Operand:
    match name:
        case "request_id":
            return operand.term
        case "mm_features":
            return Features(operand.term)
        case "mm_hashes":
            return Features(operand.term, gives_identifiers=True)
    return UNREAD


def _of_feature(run: Run, operand: Feature, name: str, state: State) -> Operand:
    if name != "identifier":
        return UNREAD
    return run.words.item(operand.request, operand.number)


def _of_flags(run: Run, operand: Flags, name: str, state: State) -> Operand:
    return getattr(operand, name, UNREAD)


ATTRIBUTES: Mapping[type, Attribute] = {
    Feature: _of_feature,
    Receiver: _of_object,
    RequestOf: _of_request,
    z3.ExprRef: _of_element,
    **dict.fromkeys(get_args(Flags), _of_flags),
}


def _subscript(run: Run, node: ast.Subscript, state: State) -> Ways:
    for after, operands in each(run, [node.value, node.slice], state):
        yield from run.answered(node, "[]", operands, after)


def _part(run: Run, node: ast.AST, state: State, of: z3.ExprRef, key: int) -> Ways:
    if run.universe.leaf_of(of) != DEBIT:
        raise run.refused_in(state, node)
    yield state, run.universe.parts(of)[key]


def _input_or_identifier(run: Run, node: ast.AST, state: State, of: Features, key: Operand) -> Ways:
    number = input_of(run, key)
    name = run.at(state, node, "IndexError")
    state = run.require(name, state, run.words.has_input(of.request, number))
    identifier = run.words.item(of.request, number)
    yield state, identifier if of.gives_identifiers else Feature(of.request, number)


def _of_tuple(run: Run, node: ast.AST, state: State, of: tuple[Operand, ...], key: int) -> Ways:
    if not -len(of) <= key < len(of):
        raise run.refused_in(state, node)
    yield state, of[key]


def _of_map(run: Run, node: ast.AST, state: State, of: Ref, key: Operand) -> Ways:
    """What a key of a dict maps to."""
    key, (_, container) = containers.key_of(run, key), containers.map_of(of, state)
    state = run.require(run.at(state, node, "KeyError"), state, container.has(key))
    yield state, containers.inner(run, of, key, state)


ITEMS: Mapping[Signature, Function] = {
    ("[]", Features, object): _input_or_identifier,
    ("[]", Ref, object): _of_map,
    ("[]", tuple, int): _of_tuple,
    ("[]", z3.ExprRef, object): _part,
}


# comparisons


def _comparison(run: Run, node: ast.Compare, state: State) -> Ways:
    for after, first in run.evaluated(node.left, state):
        yield from _chain(run, node, first, node.ops, node.comparators, after)


def _chain(
    run: Run,
    node: ast.AST,
    left: Operand,
    operators: Sequence[ast.cmpop],
    others: Sequence[ast.expr],
    state: State,
) -> Ways:
    """A comparison; the rest of a chain is run where it holds so far."""
    parked, name = containers.park(run, left, state)
    for after, right in run.evaluated(others[0], parked):
        there, found = containers.unpark(left, name, after)
        holds = _compared(run, node, operators[0], found, right, there)
        if len(others) == 1:
            yield there, holds
            continue
        for branch, goes_on in run.split(holds, there):
            if goes_on:
                further = run.through(others[1], branch)
                yield from _chain(run, node, right, operators[1:], others[1:], further)
            else:
                yield run.through(others[0], branch, str(goes_on)), False


def _compared(
    run: Run, node: ast.AST, operator: ast.cmpop, left: Operand, right: Operand, state: State
) -> Formula:
    if isinstance(operator, ast.Is | ast.IsNot):
        if right is not None:
            raise run.refused_in(state, node)
        return (left is None) == isinstance(operator, ast.Is)
    if isinstance(operator, ast.In | ast.NotIn):
        found = _contains(run, node, right, containers.key_of(run, left), state)
        return negated(found) if isinstance(operator, ast.NotIn) else found
    is_empty = _emptiness(run, operator, left, right)
    return compared(operator, left, right, state) if is_empty is None else is_empty


def _emptiness(run: Run, operator: ast.cmpop, left: Operand, right: Operand) -> Formula | None:
    """What a comparison of how many keys there are says, if it is whether there are any."""
    if (container := run.words.measured_by(left)) is not None:
        asked = _OF_ANY.get((type(operator), right)) if type(right) is int else None
    elif (container := run.words.measured_by(right)) is not None:
        asked = _ANY_OF.get((left, type(operator))) if type(left) is int else None
    else:
        return None
    if asked is None:
        return None
    return negated(container.is_empty) if asked else container.is_empty


def _contains(run: Run, node: ast.AST, among: Operand, key: Operand, state: State) -> Formula:
    if isinstance(among, tuple):
        return disjunction(tuple(compared(ast.Eq(), key, one, state) for one in among))
    if isinstance(among, Values):
        mapping = state.value(among.of)
        inside = containers.values_of(mapping)
        if not (
            isinstance(inside, Leaf)
            and isinstance(key, z3.ExprRef)
            and run.universe.sort(inside) == key.sort()
        ):
            raise run.refused_in(state, node)
        return mapping.some(lambda k: conjunction((mapping.has(k), equal(mapping.at(k), key))))
    container = state.value(among)
    if not isinstance(container, Value) or not isinstance(key, z3.ExprRef | int):
        raise run.refused_in(state, node)
    return container.has(key)


# calls


def call(run: Run, node: ast.Call, state: State) -> Ways:
    """What a call answers: of a class, of a builtin function, or of a method."""
    given = [*node.args, *(one.value for one in node.keywords)]
    match node.func:
        case ast.Name(id=name) if (owner := _class(run, name)) is not None:
            for after, arguments in each(run, given, state):
                ordered = _arranged(run, node, owner, "__init__", arguments, after)
                for built, _ in run.call(owner, "__init__", ordered, after):
                    yield built, Receiver(owner)
        case ast.Name() if node.keywords:
            raise run.refused_in(state, node)
        case ast.Name(id="next") if len(given) == 2:
            yield from _first_or(run, node, given, state)
        case ast.Name(id="any" | "all" as word) if isinstance(node.args[0], ast.GeneratorExp):
            yield from quantified(run, node, word, node.args[0], state)
        case ast.Name(id=name):
            for after, arguments in each(run, given, state):
                yield from run.answered(node, name, arguments, after)
        case ast.Attribute(value=of, attr=name):
            for after, (operand, *others) in each(run, [of, *given], state):
                owner = operand.owner if isinstance(operand, Receiver) else ""
                if owner and name in run.sources[owner].methods:
                    others = _arranged(run, node, owner, name, others, after)
                elif node.keywords and not (
                    name in OF_THE_END and [one.arg for one in node.keywords] == ["last"]
                ):
                    raise run.refused_in(after, node)
                yield from method(run, node, operand, name, others, after)
        case _:
            raise run.refused_in(state, node)


def _arranged(
    run: Run, node: ast.Call, owner: str, name: str, values: Sequence[Operand], state: State
) -> list[Operand]:
    """The values of a call's arguments, which were evaluated as they stand there, in the order
    of the parameters that take them, with the defaults of those that are left out."""
    definition = run.sources[owner].methods[name]
    method = definition.args
    positional = [one.arg for one in (*method.posonlyargs, *method.args)][1:]
    taken = dict(zip(positional, values[: len(node.args)], strict=False))
    for keyword, value in zip(node.keywords, values[len(node.args) :], strict=True):
        if keyword.arg is None or keyword.arg in taken:
            raise run.refused_in(state, node)
        taken[keyword.arg] = value
    parameters = [*positional, *(one.arg for one in method.kwonlyargs)]
    taken = {**defaults_of(definition), **taken}
    if len(node.args) > len(positional) or taken.keys() != set(parameters):
        raise run.refused_in(state, node)
    return [taken[one] for one in parameters]


def _class(run: Run, name: str) -> str | None:
    """The owner of what an object of that class, of which there is one, works on."""
    found = (owner for owner, source in run.sources.items() if source.name == name)
    return next((owner for owner in found if owner not in run.objects.values()), None)


def _first_or(run: Run, node: ast.Call, given: Sequence[ast.expr], state: State) -> Ways:
    """What comes first, or what there is instead where nothing does. Python makes the iterator
    before it evaluates what there is instead, so that must have no effects."""
    if not isinstance(given[1], ast.Constant | ast.Name):
        raise run.refused_in(state, given[1])
    for after, (among, default) in each(run, given, state):
        container = after.container(among.of if isinstance(among, Values | Reversed) else among)
        for branch, empty in run.split(container.is_empty, after):
            there = run.through(node, branch, str(empty))
            if empty:
                yield there, default
            else:
                yield from run.answered(node, "next", [among], there)


EXPRESSIONS: Mapping[type[ast.expr], Expression] = {
    ast.Attribute: _attribute,
    ast.BinOp: _sum,
    ast.BoolOp: _and_or,
    ast.Call: call,
    ast.Compare: _comparison,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.IfExp: _if_else,
    ast.List: _list,
    ast.ListComp: comprehension,
    ast.Name: _name,
    ast.SetComp: comprehension,
    ast.Subscript: _subscript,
    ast.Tuple: _tuple,
    ast.UnaryOp: _not,
}
TARGETS: Mapping[type[ast.expr], Target] = {
    ast.Attribute: _to_attribute,
    ast.Name: _to_name,
    ast.Subscript: _to_item,
    ast.Tuple: _to_tuple,
}
