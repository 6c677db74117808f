"""Runs the text of a block pool: what it says of blocks, their keys, and lists by their places.

A block and its id are one element: ids are given once, where blocks are made, and no two alike.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import z3

from cacheproof.proofs.logic import Formula, conjunction, implies, negated
from cacheproof.proofs.symbolic.reading.machine import Machine
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import Lazy, Ref, State, term_of, truth_of
from cacheproof.proofs.symbolic.values.values import BLOCK, HASH, KEY, SequenceOf, Value


@dataclass(frozen=True)
class Places:
    """A list that a caller gives: what stands at a place, and how many places there are."""

    at: z3.FuncDeclRef
    length: z3.ArithRef


@dataclass(frozen=True)
class OncePlaces(Places):
    """A list in which nothing stands twice, but for what nobody asks the number of."""

    number_of: z3.FuncDeclRef


@dataclass(frozen=True)
class HashedRequest:
    """A request, of which a pool asks for the hashes of its blocks alone."""

    block_hashes: Places


@dataclass(frozen=True)
class Told:
    """An event that tells of hashes of a group: of each, that it finds so many blocks more. The
    hashes are some, or what a comprehension makes of its members."""

    by: int
    hashes: tuple[z3.ExprRef, ...] | Lazy
    group: z3.ExprRef


@dataclass(frozen=True)
class Cleared:
    """An event that tells that nothing is found any more."""


class PoolMachine(Machine):
    """Reads beside what every machine does: blocks that are made, lists of a caller's by places,
    keys of two parts, and records that are only handed on."""

    def _eval(self, node: ast.expr, state: State) -> Iterator[tuple[State, Any]]:
        match node:
            case ast.ListComp(
                elt=ast.Call(func=ast.Name(id=name), args=[ast.Name()]),
                generators=[ast.comprehension(iter=ast.Call(args=[count]), ifs=[])],
            ) if name == self.sources["b"].name:
                for after, many in self._eval(count, state):
                    yield self._made(term_of(many), after)
            case ast.Subscript(value=of, slice=ast.Slice(lower=ast.Constant(value=1), upper=None)):
                for after, blocks in self._eval(of, state):
                    there, first = self._outermost(node, blocks, after, oldest=True)
                    found = there.value(blocks)
                    rest = found.filtered(z3.Store(found.terms[0], first, False))
                    yield self._held(rest, there)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                for after, (one, other) in self._each([left, right], state):
                    yield after, one * other
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                for after, (one, other) in self._each([left, right], state):
                    name = self._at(after, node, "ZeroDivisionError")
                    yield self.require(name, after, other > 0), one / other
            case ast.List(elts=[only]):
                for after, operand in self._eval(only, state):
                    yield after, (operand,)
            case _:
                yield from super()._eval(node, state)

    def _made(self, many: z3.ArithRef, state: State) -> tuple[State, Ref]:
        """So many blocks, no two alike, each as its class has it at first."""
        blocks = self.universe.fresh(SequenceOf(BLOCK), "made")
        facts = [
            *self.in_order(blocks),
            implies(many >= 0, self.words.number(blocks) == many),
            implies(many > 0, negated(blocks.is_empty)),
        ]
        for (owner, name), kind in self.types.items():
            if owner == "b":
                values = self.universe.fresh(kind, name)
                first = defaults_of(self.sources["b"])[name]
                facts.append(blocks.all(partial(_at_first, values, first)))
                state = self._set_attribute(state, owner, name, values)
        return self._held(blocks, state.assuming(*facts))

    def _attribute_of(self, node: ast.AST, operand: Any, name: str, state: State) -> Any:
        leaf = self.universe.leaf_of(operand) if isinstance(operand, z3.ExprRef) else None
        if leaf == BLOCK and name == "block_id":
            return operand
        if leaf == KEY and name in _PARTS_OF_KEY:
            return self.universe.parts(operand)[_PARTS_OF_KEY.index(name)]
        if isinstance(operand, Record):
            return operand.fields[name]
        if isinstance(operand, HashedRequest) and name == "block_hashes":
            return operand.block_hashes
        return super()._attribute_of(node, operand, name, state)

    def _item(self, node: ast.AST, of: Any, key: Any, state: State) -> Iterator[tuple[State, Any]]:
        name = self._at(state, node, "IndexError")
        blocks = state.value(of)
        if isinstance(of, Places):
            there = conjunction((key >= 0, key < of.length))
            yield self.require(name, state, there), of.at(key)
        elif isinstance(blocks, Value) and isinstance(blocks.kind, SequenceOf):
            if isinstance(key, int) and key == 0:
                yield self._outermost(node, of, state, oldest=True)
            else:
                yield self.require(name, state, blocks.has(key)), key
        else:
            yield from super()._item(node, of, key, state)

    def _called(self, node: ast.Call, state: State) -> Iterator[tuple[State, Any]]:
        match node.func:
            case ast.Name(id=name) if name in _RECORDS and node.keywords:
                words = [one.arg or "" for one in node.keywords]
                for after, given in self._each([one.value for one in node.keywords], state):
                    yield after, Record(dict(zip(words, given, strict=True)))
            case _:
                yield from super()._called(node, state)

    def _builtin(
        self, node: ast.Call, name: str, arguments: Sequence[Any], state: State
    ) -> tuple[State, Any]:
        match name, arguments:
            case "BlockKey", [block_hash, group]:
                return state, self.universe.pair(block_hash, group, KEY)
            case "hashes_at", [Places() as hashes, _]:
                return state, hashes
            case "removed_event", [z3.ExprRef() as block_hash, z3.ExprRef() as group]:
                return state, Told(-1, (block_hash,), group)
            case "stored_event", [_, Record(fields), _]:
                return state, Told(1, fields["hashes"], fields["group_id"])
            case "AllBlocksCleared", []:
                return state, Cleared()
            case "bool", [tuple() as listed]:
                return state, bool(listed)
            case "bool", [Lazy() as listed]:
                return state, truth_of(state, listed)
        return super()._builtin(node, name, arguments, state)

    def _method(
        self, node: ast.Call, operand: Any, name: str, arguments: Sequence[Any], state: State
    ) -> Iterator[tuple[State, Any]]:
        match name, arguments:
            case "append", [Told() | Cleared() as event]:
                state, longer = self._told(node, state.value(operand), event, state)
                yield self._write(operand, longer, state, None), None
            case _:
                yield from super()._method(node, operand, name, arguments, state)

    def _told(
        self, node: ast.AST, events: Value, event: Told | Cleared, state: State
    ) -> tuple[State, Value]:
        """Events with one more."""
        nothing = self.universe.empty(events.kind)
        if isinstance(event, Cleared):
            return state, replace(nothing, terms=(z3.BoolVal(True), nothing.terms[1]))
        cleared, growth = events.terms
        if isinstance(event.hashes, Lazy):
            state, growth = self._grown(node, growth, event, event.hashes, state)
        else:
            for block_hash in event.hashes:
                key = self.universe.pair(block_hash, event.group, KEY)
                growth = z3.Store(growth, key, z3.Select(growth, key) + event.by)
        return state, replace(events, terms=(cleared, growth))

    def _grown(
        self, node: ast.AST, growth: z3.ExprRef, event: Told, hashes: Lazy, state: State
    ) -> tuple[State, z3.ExprRef]:
        """What keys find behind an event of many hashes, none of which is in it twice."""
        universe, members, hash_of = self.universe, hashes.members, hashes.target

        def apart(one: z3.ExprRef, other: z3.ExprRef) -> Formula:
            both = conjunction((members.has(one), members.has(other)))
            return implies(conjunction((both, hash_of(one) == hash_of(other))), one == other)

        once = members.all(lambda one: members.all(lambda other: apart(one, other)))
        state = self.require(self._at(state, node, "a hash twice in an event"), state, once)
        sorts = universe.sort(HASH), universe.sort(members.key)
        number_of = z3.Function(f"told!{next(universe.names)}", *sorts)
        now = z3.Const(f"growth!{next(universe.names)}", growth.sort())

        def of_key(key: z3.ExprRef) -> Formula:
            block_hash, group = universe.parts(key)
            number = number_of(block_hash)
            told = z3.And(group == event.group, members.has(number), hash_of(number) == block_hash)
            return z3.Select(now, key) == z3.Select(growth, key) + z3.If(told, event.by, 0)

        back = members.all(lambda n: implies(members.has(n), number_of(hash_of(n)) == n))
        return state.assuming(back, universe.all(KEY, of_key)), now


_PARTS_OF_KEY = ("block_hash", "group_id")
_RECORDS = ("Stored",)


def _at_first(values: Value, default: Any, block: z3.ExprRef) -> Formula:
    value = values.at(block)
    if default is dict:
        return value.is_empty
    return value.term == term_of(default)


def defaults_of(source: Source) -> dict[str, Any]:
    """Attribute -> what an object of a dataclass has at first: a constant, or `dict`."""
    (definition,) = ast.parse(source.text).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, Any] = {}
    for one in definition.body:
        match one:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)):
                found[name] = value
            case ast.AnnAssign(
                target=ast.Name(id=name),
                value=ast.Call(keywords=[ast.keyword("default_factory", ast.Name(id="dict"))]),
            ):
                found[name] = dict
    return found
