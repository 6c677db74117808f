"""How the text of a block pool is read: beside what all texts say, blocks that are made, lists of a
caller's by places, keys of two parts, and records that are only handed on.

A block and its id are one element: ids are given once, where blocks are made, and all differ.
"""

import ast
from dataclasses import dataclass, replace
from functools import partial

import z3

from cacheproof.proofs.logic import Formula, conjunction, implies, negated
from cacheproof.proofs.symbolic.reading import containers
from cacheproof.proofs.symbolic.reading.builtin_calls import outermost
from cacheproof.proofs.symbolic.reading.execution import UNREAD, Run
from cacheproof.proofs.symbolic.reading.expressions import ATTRIBUTES, EXPRESSIONS, ITEMS, each
from cacheproof.proofs.symbolic.reading.machine import READINGS
from cacheproof.proofs.symbolic.reading.operands import number_of
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import (
    Lazy,
    Operand,
    Ref,
    State,
    Ways,
    term_of,
    truth_of,
)
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
    """An event that tells of hashes of a group that each finds `by` more blocks. The hashes
    are some, or what a comprehension makes of its members."""

    by: int
    hashes: tuple[z3.ExprRef, ...] | Lazy
    group: z3.ExprRef


@dataclass(frozen=True)
class Cleared:
    """An event that tells that nothing is found any more."""


_PARTS_OF_KEY = ("block_hash", "group_id")
_RECORDS = ("Stored",)


def _list(run: Run, node: ast.List, state: State) -> Ways:
    if len(node.elts) != 1:
        return EXPRESSIONS[ast.List](run, node, state)
    return [(after, (operand,)) for after, operand in run.evaluated(node.elts[0], state)]


def _comprehension(run: Run, node: ast.ListComp, state: State) -> Ways:
    """Blocks that are made, or any other comprehension."""
    match node:
        case ast.ListComp(
            elt=ast.Call(func=ast.Name(id=name), args=[ast.Name()]),
            generators=[ast.comprehension(iter=ast.Call(args=[count]), ifs=[])],
        ) if name == run.sources["b"].name:
            return [_made(run, term_of(many), after) for after, many in run.evaluated(count, state)]
    return EXPRESSIONS[ast.ListComp](run, node, state)


def _made(run: Run, many: z3.ArithRef, state: State) -> tuple[State, Ref]:
    """New blocks, as many as `many`, all different, each as its class has it at first."""
    blocks = run.universe.fresh(SequenceOf(BLOCK), "made")
    facts = [
        *containers.in_order(blocks),
        implies(many >= 0, run.words.number(blocks) == many),
        implies(many > 0, negated(blocks.is_empty)),
    ]
    for (owner, name), kind in run.types.items():
        if owner == "b":
            values = run.universe.fresh(kind, name)
            first = defaults_of(run.sources["b"])[name]
            facts.append(blocks.all(partial(_at_first, values, first)))
            state = containers.set_attribute(run, state, owner, name, values)
    return containers.hold(run, blocks, state.assuming(*facts))


def _subscript(run: Run, node: ast.Subscript, state: State) -> Ways:
    match node.slice:
        case ast.Slice(lower=ast.Constant(value=1), upper=None, step=None):
            for after, blocks in run.evaluated(node.value, state):
                assert isinstance(blocks, Ref)
                there, first = outermost(run, node, blocks, after, oldest=True)
                found = there.value(blocks)
                rest = found.filtered(z3.Store(found.terms[0], first, False))
                yield containers.hold(run, rest, there)
        case _:
            yield from EXPRESSIONS[ast.Subscript](run, node, state)


def _arithmetic(run: Run, node: ast.BinOp, state: State) -> Ways:
    match node.op:
        case ast.Mult():
            for after, operands in each(run, [node.left, node.right], state):
                one, other = map(number_of, operands)
                yield after, one * other
        case ast.FloorDiv():
            for after, operands in each(run, [node.left, node.right], state):
                one, other = map(number_of, operands)
                name = run.at(after, node, "ZeroDivisionError")
                yield run.require(name, after, other > 0), term_of(one) / term_of(other)
        case _:
            yield from EXPRESSIONS[ast.BinOp](run, node, state)


def _call(run: Run, node: ast.Call, state: State) -> Ways:
    match node.func:
        case ast.Name(id=name) if name in _RECORDS and node.keywords:
            words = [one.arg or "" for one in node.keywords]
            for after, given in each(run, [one.value for one in node.keywords], state):
                yield after, Record(dict(zip(words, given, strict=True)))
        case _:
            yield from EXPRESSIONS[ast.Call](run, node, state)


def _of_block_or_key(run: Run, operand: z3.ExprRef, name: str, state: State) -> Operand:
    leaf = run.universe.leaf_of(operand)
    if leaf == BLOCK and name == "block_id":
        return operand
    if leaf == KEY and name in _PARTS_OF_KEY:
        return run.universe.parts(operand)[_PARTS_OF_KEY.index(name)]
    return ATTRIBUTES[z3.ExprRef](run, operand, name, state)


def _of_record(run: Run, operand: Record, name: str, state: State) -> Operand:
    return operand.fields[name]


def _of_request(run: Run, operand: HashedRequest, name: str, state: State) -> Operand:
    return operand.block_hashes if name == "block_hashes" else UNREAD


def _of_places(run: Run, node: ast.AST, state: State, of: Places, key: int | z3.ArithRef) -> Ways:
    there = conjunction((key >= 0, key < of.length))
    return [(run.require(run.at(state, node, "IndexError"), state, there), of.at(key))]


def _of_blocks(run: Run, node: ast.AST, state: State, of: Ref, key: Operand) -> Ways:
    """A block of a list by its place, where the first place alone is known, or an item of a
    dict."""
    blocks = state.value(of)
    if not isinstance(blocks.kind, SequenceOf):
        return ITEMS["[]", Ref, object](run, node, state, of, key)
    if isinstance(key, int) and key == 0:
        return [outermost(run, node, of, state, oldest=True)]
    return [(run.require(run.at(state, node, "IndexError"), state, blocks.has(key)), key)]


def _block_key(run: Run, node: ast.AST, state: State, block_hash: Operand, group: Operand) -> Ways:
    return [(state, run.universe.pair(block_hash, group, KEY))]


def _hashes_at(run: Run, node: ast.AST, state: State, hashes: Places, size: Operand) -> Ways:
    return [(state, hashes)]


def _removed(
    run: Run, node: ast.AST, state: State, block_hash: z3.ExprRef, group: z3.ExprRef
) -> Ways:
    return [(state, Told(-1, (block_hash,), group))]


def _stored(
    run: Run, node: ast.AST, state: State, request: Operand, what: Record, flags: Operand
) -> Ways:
    hashes, group = what.fields["hashes"], what.fields["group_id"]
    assert isinstance(hashes, tuple | Lazy)
    return [(state, Told(1, hashes, term_of(group)))]


def _cleared(run: Run, node: ast.AST, state: State) -> Ways:
    return [(state, Cleared())]


def _bool(run: Run, node: ast.AST, state: State, of: tuple[Operand, ...] | Lazy) -> Ways:
    return [(state, truth_of(state, of))]


def _told(run: Run, node: ast.AST, state: State, of: Ref, event: Told | Cleared) -> Ways:
    """Events with one more."""
    events = state.value(of)
    nothing = run.universe.empty(events.kind)
    if isinstance(event, Cleared):
        longer = replace(nothing, terms=(z3.BoolVal(True), nothing.terms[1]))
        return [(containers.write(run, of, longer, state, None), None)]
    cleared, growth = events.terms
    if isinstance(event.hashes, Lazy):
        state, growth = _grown(run, node, growth, event, event.hashes, state)
    else:
        for block_hash in event.hashes:
            key = run.universe.pair(block_hash, event.group, KEY)
            growth = z3.Store(growth, key, z3.Select(growth, key) + event.by)
    longer = replace(events, terms=(cleared, growth))
    return [(containers.write(run, of, longer, state, None), None)]


def _grown(
    run: Run, node: ast.AST, growth: z3.ExprRef, event: Told, hashes: Lazy, state: State
) -> tuple[State, z3.ExprRef]:
    """What keys find after an event of many hashes, none of which is in it twice."""
    universe, members, hash_of = run.universe, hashes.members, hashes.target

    def apart(one: z3.ExprRef, other: z3.ExprRef) -> Formula:
        both = conjunction((members.has(one), members.has(other)))
        return implies(conjunction((both, hash_of(one) == hash_of(other))), one == other)

    once = members.all(lambda one: members.all(lambda other: apart(one, other)))
    state = run.require(run.at(state, node, "a hash twice in an event"), state, once)
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


POOL_READINGS = replace(
    READINGS,
    expressions={
        **EXPRESSIONS,
        ast.BinOp: _arithmetic,
        ast.Call: _call,
        ast.List: _list,
        ast.ListComp: _comprehension,
        ast.Subscript: _subscript,
    },
    attributes={
        **ATTRIBUTES,
        HashedRequest: _of_request,
        Record: _of_record,
        z3.ExprRef: _of_block_or_key,
    },
    functions={
        **READINGS.functions,
        ("[]", Places, object): _of_places,
        ("[]", Ref, object): _of_blocks,
        (".append", Ref, Cleared): _told,
        (".append", Ref, Told): _told,
        ("AllBlocksCleared",): _cleared,
        ("BlockKey", object, object): _block_key,
        ("bool", Lazy): _bool,
        ("bool", tuple): _bool,
        ("hashes_at", Places, object): _hashes_at,
        ("removed_event", z3.ExprRef, z3.ExprRef): _removed,
        ("stored_event", object, Record, object): _stored,
    },
)


def _at_first(values: Value, default: Operand, block: z3.ExprRef) -> Formula:
    value = values.at(block)
    if default is dict:
        return value.is_empty
    return value.term == term_of(default)


def defaults_of(source: Source) -> dict[str, Operand]:
    """Attribute -> what an object of a dataclass has at first: a constant, or `dict`."""
    (definition,) = ast.parse(source.text).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, Operand] = {}
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
