"""Evaluates the expressions of a method on symbolic values, and assigns to its targets."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, negated
from cacheproof.proofs.symbolic.reading.builtin_calls import BuiltinCalls
from cacheproof.proofs.symbolic.reading.containers import refuse_empty, refuse_kept
from cacheproof.proofs.symbolic.reading.operands import compared, number_of
from cacheproof.proofs.symbolic.reading.source import defaults_of
from cacheproof.proofs.symbolic.values.language import OF_THE_END
from cacheproof.proofs.symbolic.values.records import equal
from cacheproof.proofs.symbolic.values.state import (
    Empty,
    Feature,
    Features,
    Flags,
    Receiver,
    RequestOf,
    Reversed,
    State,
    Values,
    truth_of,
)
from cacheproof.proofs.symbolic.values.values import DEBIT, MapOf, Value

_OF_ANY: Mapping[tuple[type[ast.cmpop], int], bool] = {
    (ast.Eq, 0): False, (ast.NotEq, 0): True, (ast.Gt, 0): True, (ast.LtE, 0): False,
    (ast.GtE, 1): True, (ast.Lt, 1): False,
}  # fmt: skip
"""Of a number of keys, which comparisons with which number say that there are some, or none."""
_ANY_OF: Mapping[tuple[int, type[ast.cmpop]], bool] = {
    (0, ast.Eq): False, (0, ast.NotEq): True, (0, ast.Lt): True, (0, ast.GtE): False,
    (1, ast.LtE): True, (1, ast.Gt): False,
}  # fmt: skip
"""The same from the other side."""


class Expressions(BuiltinCalls):
    """Evaluates expressions in states, each in every way that it may take."""

    def _decided(self, test: ast.expr, state: State) -> Iterator[tuple[State, bool]]:
        """The two ways on from a condition; one where it is plain."""
        for after, value in self._eval(test, state):
            for branch, holds in self._split(truth_of(after, value), after):
                yield self._through(test, branch, str(holds)), holds

    def _assign(self, target: ast.expr, operand: Any, state: State) -> Iterator[State]:
        match target:
            case ast.Name(id=name):
                kind = self.variables.get((*state.names[""], name))
                if isinstance(operand, Empty) and kind is not None:
                    state, operand = self._held(self._emptied(operand, kind), state)
                refuse_kept(operand)
                refuse_empty(operand)
                yield replace(state, names={**state.names, name: operand})
            case ast.Attribute(value=of, attr=name):
                for after, receiver in self._eval(of, state):
                    if isinstance(receiver, Receiver):
                        yield self._set_attribute(after, receiver.owner, name, operand)
                    elif (owner := self._owner_of(receiver)) is not None:
                        yield self._put(after.attributes[owner, name], receiver, operand, after)
                    else:
                        raise self._refused_in(state, target)
            case ast.Subscript(value=container, slice=key):
                for after, (of, at) in self._each([container, key], state):
                    yield self._put(of, at, operand, after)
            case ast.Tuple(elts=targets) if isinstance(operand, tuple):
                if len(targets) != len(operand):
                    raise self._refused_in(state, target)
                yield from self._assign_each(targets, operand, state)
            case _:
                raise self._refused_in(state, target)

    def _assign_each(
        self, targets: Sequence[ast.expr], operands: Sequence[Any], state: State
    ) -> Iterator[State]:
        """One after the other; a container that is still to be assigned stays the one that it is,
        whatever takes its place meanwhile."""
        if not targets:
            yield state
            return
        parked, names = state, []
        for operand in operands:
            parked, name = self._parked(operand, parked)
            names.append(name)
        for after in self._assign(targets[0], operands[0], parked):
            found = []
            for operand, name in zip(operands, names, strict=True):
                after, one = self._unparked(operand, name, after)
                found.append(one)
            yield from self._assign_each(targets[1:], found[1:], after)

    # expressions

    def _each(
        self, nodes: Sequence[ast.expr], state: State
    ) -> Iterator[tuple[State, tuple[Any, ...]]]:
        if not nodes:
            yield state, ()
            return
        for after, first in self._eval(nodes[0], state):
            if len(nodes) == 1:
                yield after, (first,)
                continue
            parked, name = self._parked(first, after)
            for end, others in self._each(nodes[1:], parked):
                end, found = self._unparked(first, name, end)
                yield end, (found, *others)

    def _eval(self, node: ast.expr, state: State) -> Iterator[tuple[State, Any]]:
        match node:
            case ast.Constant(value=value):
                yield state, value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                yield state, -value
            case ast.Name(id=name) if name in state.names:
                yield state, state.names[name]
            case ast.Tuple(elts=parts):
                yield from self._each(parts, state)
            case ast.List(elts=[]):
                yield state, Empty("list")
            case ast.Dict(keys=[]):
                yield state, Empty("dict")
            case ast.Attribute(value=of, attr=name):
                for after, operand in self._eval(of, state):
                    yield from self._attribute_or_property(node, operand, name, after)
            case ast.Subscript(value=of, slice=key):
                for after, (container, at) in self._each([of, key], state):
                    yield from self._item(node, container, at, after)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
                for after, (one, other) in self._each([left, right], state):
                    one, other = number_of(one), number_of(other)
                    yield after, one + other if isinstance(operator, ast.Add) else one - other
            case ast.BoolOp(op=operator, values=[first, *rest]):
                stops = isinstance(operator, ast.Or)
                others = rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
                for after, value in self._eval(first, state):
                    for branch, holds in self._split(truth_of(after, value), after):
                        if holds == stops:
                            yield self._through(first, branch, str(stops)), value
                        else:
                            further = self._through(rest[0], branch)
                            yield from self._eval(ast.copy_location(others, rest[0]), further)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                for after, value in self._eval(part, state):
                    yield after, negated(truth_of(after, value))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                for after, holds in self._decided(test, state):
                    yield from self._eval(body if holds else orelse, after)
            case ast.Compare(left=left, ops=operators, comparators=others):
                for after, first in self._eval(left, state):
                    yield from self._chain(node, first, operators, others, after)
            case (
                ast.ListComp(elt=element, generators=[head])
                | ast.SetComp(elt=element, generators=[head])
            ):
                for after, among in self._eval(head.iter, state):
                    lazy = self._lazy(node, among, after)
                    for there in self._of_some_or_none(node, lazy, after):
                        yield from self._comprehension(node, element, head, lazy, there)
            case ast.Call():
                yield from self._called(node, state)
            case _:
                raise self._refused_in(state, node)

    def _chain(
        self,
        node: ast.AST,
        left: Any,
        operators: Sequence[ast.cmpop],
        others: Sequence[ast.expr],
        state: State,
    ) -> Iterator[tuple[State, Any]]:
        """A comparison; of a chain the rest is run where it holds so far."""
        parked, name = self._parked(left, state)
        for after, right in self._eval(others[0], parked):
            there, found = self._unparked(left, name, after)
            holds = self._compared(node, operators[0], found, right, there)
            if len(others) == 1:
                yield there, holds
                continue
            for branch, goes_on in self._split(holds, there):
                if goes_on:
                    further = self._through(others[1], branch)
                    yield from self._chain(node, right, operators[1:], others[1:], further)
                else:
                    yield self._through(others[0], branch, str(goes_on)), False

    def _attribute_or_property(
        self, node: ast.AST, operand: Any, name: str, state: State
    ) -> Iterator[tuple[State, Any]]:
        owner = operand.owner if isinstance(operand, Receiver) else self._owner_of(operand)
        if owner is not None and name in self.sources[owner].properties:
            yield from self.call_on(operand, owner, name, [], state)
        else:
            yield state, self._attribute_of(node, operand, name, state)

    def _attribute_of(self, node: ast.AST, operand: Any, name: str, state: State) -> Any:
        owner = self._owner_of(operand)
        if owner is not None and (owner, name) in state.attributes:
            return self._inner(state.attributes[owner, name], operand, state)
        match operand:
            case Receiver(owner) if (owner, name) in state.attributes:
                return state.attributes[owner, name]
            case RequestOf(term) if name == "request_id":
                return term
            case RequestOf(term) if name == "mm_features":
                return Features(term)
            case RequestOf(term) if name == "mm_hashes":
                return Features(term, gives_identifiers=True)
            case Feature(request, number) if name == "identifier":
                return self.words.item(request, number)
        if isinstance(operand, Flags) and hasattr(operand, name):
            return getattr(operand, name)
        raise self._refused_in(state, node)

    def _item(self, node: ast.AST, of: Any, key: Any, state: State) -> Iterator[tuple[State, Any]]:
        if isinstance(of, z3.ExprRef) and self.universe.leaf_of(of) == DEBIT:
            yield state, self.universe.parts(of)[key]
            return
        if isinstance(of, Features):
            number = self._input(key)
            name = self._at(state, node, "IndexError")
            state = self.require(name, state, self.words.has_input(of.request, number))
            identifier = self.words.item(of.request, number)
            yield state, identifier if of.gives_identifiers else Feature(of.request, number)
            return
        if isinstance(of, tuple) and isinstance(key, int):
            if not -len(of) <= key < len(of):
                raise self._refused_in(state, node)
            yield state, of[key]
            return
        key = self._key(key)
        container = state.value(of)
        if not isinstance(container, Value) or not isinstance(container.kind, MapOf):
            raise self._refused_in(state, node)
        state = self.require(self._at(state, node, "KeyError"), state, container.has(key))
        yield state, self._inner(of, key, state)

    def _compared(
        self, node: ast.AST, operator: ast.cmpop, left: Any, right: Any, state: State
    ) -> Formula:
        if isinstance(operator, ast.Is | ast.IsNot):
            if right is not None:
                raise self._refused_in(state, node)
            return (left is None) == isinstance(operator, ast.Is)
        if isinstance(operator, ast.In | ast.NotIn):
            found = self._contains(node, right, self._key(left), state)
            return negated(found) if isinstance(operator, ast.NotIn) else found
        is_empty = self._emptiness(operator, left, right)
        return compared(operator, left, right, state) if is_empty is None else is_empty

    def _emptiness(self, operator: ast.cmpop, left: Any, right: Any) -> Formula | None:
        """What a comparison of how many keys there are says, if it is whether there are any."""
        if (container := self.words.measured_by(left)) is not None:
            asked = _OF_ANY.get((type(operator), right)) if type(right) is int else None
        elif (container := self.words.measured_by(right)) is not None:
            asked = _ANY_OF.get((left, type(operator))) if type(left) is int else None
        else:
            return None
        if asked is None:
            return None
        return negated(container.is_empty) if asked else container.is_empty

    def _contains(self, node: ast.AST, among: Any, key: Any, state: State) -> Formula:
        if isinstance(among, tuple):
            return disjunction(tuple(compared(ast.Eq(), key, one, state) for one in among))
        if isinstance(among, Values):
            container = state.value(among.of)
            inside = container.kind.value
            if not isinstance(key, z3.ExprRef) or self.universe.sort(inside) != key.sort():
                raise self._refused_in(state, node)
            return container.some(
                lambda k: conjunction((container.has(k), equal(container.at(k), key)))
            )
        container = state.value(among)
        if not isinstance(container, Value) or not isinstance(key, z3.ExprRef | int):
            raise self._refused_in(state, node)
        return container.has(key)

    # calls

    def _called(self, node: ast.Call, state: State) -> Iterator[tuple[State, Any]]:
        given = [*node.args, *(one.value for one in node.keywords)]
        match node.func:
            case ast.Name(id=name) if (owner := self._class(name)) is not None:
                for after, arguments in self._each(given, state):
                    arranged = self._arranged(node, owner, "__init__", arguments, after)
                    for built, _ in self.call(owner, "__init__", arranged, after):
                        yield built, Receiver(owner)
            case ast.Name() if node.keywords:
                raise self._refused_in(state, node)
            case ast.Name(id="next") if len(given) == 2:
                yield from self._first_or(node, given, state)
            case ast.Name(id="any" | "all" as word) if isinstance(node.args[0], ast.GeneratorExp):
                yield from self._quantified(node, word, node.args[0], state)
            case ast.Name(id=name):
                for after, arguments in self._each(given, state):
                    yield self._builtin(node, name, arguments, after)
            case ast.Attribute(value=of, attr=name):
                for after, (operand, *others) in self._each([of, *given], state):
                    owner = operand.owner if isinstance(operand, Receiver) else ""
                    if owner and name in self.sources[owner].methods:
                        others = self._arranged(node, owner, name, others, after)
                    elif node.keywords and not (
                        name in OF_THE_END and [one.arg for one in node.keywords] == ["last"]
                    ):
                        raise self._refused_in(after, node)
                    yield from self._method(node, operand, name, others, after)
            case _:
                raise self._refused_in(state, node)

    def _arranged(
        self, node: ast.Call, owner: str, name: str, values: Sequence[Any], state: State
    ) -> list[Any]:
        """The values of a call's arguments, which were evaluated as they stand there, in the order
        of the parameters that take them, with the defaults of those that are left out."""
        definition = self.sources[owner].methods[name]
        method = definition.args
        positional = [one.arg for one in (*method.posonlyargs, *method.args)][1:]
        taken = dict(zip(positional, values[: len(node.args)], strict=False))
        for keyword, value in zip(node.keywords, values[len(node.args) :], strict=True):
            if keyword.arg is None or keyword.arg in taken:
                raise self._refused_in(state, node)
            taken[keyword.arg] = value
        parameters = [*positional, *(one.arg for one in method.kwonlyargs)]
        taken = {**defaults_of(definition), **taken}
        if len(node.args) > len(positional) or taken.keys() != set(parameters):
            raise self._refused_in(state, node)
        return [taken[one] for one in parameters]

    def _class(self, name: str) -> str | None:
        """The owner of what an object of that class, of which there is one, works on."""
        found = (owner for owner, source in self.sources.items() if source.name == name)
        return next((owner for owner in found if owner not in self.objects.values()), None)

    def _first_or(
        self, node: ast.Call, given: Sequence[ast.expr], state: State
    ) -> Iterator[tuple[State, Any]]:
        """What comes first, or what there is instead where nothing does. Python makes the iterator
        before it evaluates what there is instead, so that must have no effects."""
        if not isinstance(given[1], ast.Constant | ast.Name):
            raise self._refused_in(state, given[1])
        for after, (among, default) in self._each(given, state):
            container = after.value(among.of if isinstance(among, Values | Reversed) else among)
            for branch, empty in self._split(container.is_empty, after):
                there = self._through(node, branch, str(empty))
                if empty:
                    yield there, default
                else:
                    yield self._builtin(node, "next", [among], there)
