"""Runs expressions of a method on symbolic values.

On the way every operation that could raise leaves an obligation: that it does not. A construct
without a reading is refused with file, line and construct.
"""

import ast
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from cacheproof.proofs.symbolic.predicates import NotTranslated, Words, equal, unwrapped
from cacheproof.proofs.symbolic.source import Source
from cacheproof.proofs.symbolic.state import (
    Count,
    Empty,
    Feature,
    Features,
    Lazy,
    Loop,
    Obligation,
    Receiver,
    Ref,
    RequestOf,
    Returned,
    Reversed,
    State,
    Values,
    term_of,
    truth_of,
)
from cacheproof.proofs.symbolic.values import (
    DEBIT,
    Formula,
    Leaf,
    ListOf,
    MapOf,
    SetOf,
    Type,
    Universe,
    Value,
    conjunction,
    disjunction,
    iff,
    implies,
    negated,
)


@dataclass
class Expressions(ABC):
    """Evaluates expressions in states. A value that is a container is a `Ref` to where it lives,
    so that what is done to it is seen by all who have it. `safety` is the rule that nothing raises.
    """

    universe: Universe
    words: Words
    sources: Mapping[str, Source]
    types: Mapping[tuple[str, str], Type]
    loops: Mapping[tuple[str, str], Sequence[Loop]]
    safety: str
    obligations: list[Obligation] = field(default_factory=list)
    _cells: Iterator[int] = field(default_factory=itertools.count)

    @abstractmethod
    def call(self, owner: str, name: str, arguments: Sequence[Any], state: State) -> list[Returned]:
        """The states in which a call of a method may end, and its answers."""

    def require(self, name: str, state: State, claimed: Formula, rule: str = "") -> State:
        """Leave an obligation, and go on where it is met."""
        if claimed is True:
            return state
        self.obligations.append(Obligation(name, state, claimed, rule or self.safety))
        return state.assuming(claimed)

    def _decided(self, test: ast.expr, state: State) -> Iterator[tuple[State, bool]]:
        """The two ways on from a condition; one where it is plain."""
        for after, value in self._eval(test, state):
            yield from self._split(truth_of(after, value), after)

    def _split(self, holds: Formula, state: State) -> Iterator[tuple[State, bool]]:
        if isinstance(holds, z3.BoolRef):
            plain = z3.simplify(holds)
            holds = z3.is_true(plain) if z3.is_true(plain) or z3.is_false(plain) else holds
        if isinstance(holds, bool):
            yield state, holds
        else:
            yield state.assuming(holds), True
            yield state.assuming(negated(holds)), False

    def _assign(self, target: ast.expr, operand: Any, state: State) -> Iterator[State]:
        match target:
            case ast.Name(id=name):
                yield replace(state, names={**state.names, name: operand})
            case ast.Attribute(value=of, attr=name):
                for after, receiver in self._eval(of, state):
                    if not isinstance(receiver, Receiver):
                        raise self._refused_in(state, target)
                    yield self._set_attribute(after, receiver.owner, name, operand)
            case ast.Subscript(value=container, slice=key):
                for after, (of, at) in self._each([container, key], state):
                    yield self._put(of, at, operand, after)
            case ast.Tuple(elts=targets) if isinstance(operand, tuple):
                states = [state]
                for one, part in zip(targets, operand, strict=True):
                    states = [end for before in states for end in self._assign(one, part, before)]
                yield from states
            case _:
                raise self._refused_in(state, target)

    # what containers hold

    def _set_attribute(self, state: State, owner: str, name: str, operand: Any) -> State:
        if isinstance(operand, Empty):
            operand = self.universe.empty(self.types[owner, name])
        if isinstance(operand, Value):
            scalar = unwrapped(operand)
            if scalar is operand:
                cell = next(self._cells)
                state = replace(state, cells={**state.cells, cell: operand})
                operand = Ref(cell)
            else:
                operand = scalar
        if isinstance(operand, Ref) and operand.keys:
            raise NotTranslated(f"{owner}.{name}: what is in another container is put there")
        state = replace(state, attributes={**state.attributes, (owner, name): operand})
        return state.snapshot()

    def _write(self, ref: Ref, value: Value, state: State, touched: z3.ExprRef | None) -> State:
        """A container replaced by its next contents."""
        chain = [state.cells[ref.cell]]
        for key in ref.keys:
            chain.append(chain[-1].at(key))
        for key, outer in zip(reversed(ref.keys), reversed(chain[:-1]), strict=True):
            value = outer.put(key, value)
        named, facts = self.universe.named(value, chain[0])
        state = replace(state, cells={**state.cells, ref.cell: named}).assuming(*facts)
        return state.snapshot(ref.keys[0] if ref.keys else touched)

    def _detached(self, ref: Ref, key: z3.ExprRef, state: State) -> Iterator[State]:
        """Variables that lead into what goes away keep it; forks where that is not certain."""
        for name, operand in state.names.items():
            deeper = len(ref.keys)
            if (
                isinstance(operand, Ref)
                and operand.cell == ref.cell
                and len(operand.keys) > deeper
                and all(a.eq(b) for a, b in zip(ref.keys, operand.keys, strict=False))
            ):
                same = operand.keys[deeper]
                if not same.eq(key):
                    raise NotTranslated(f"{name} may lead into what goes away")
                cell = next(self._cells)
                kept = state.value(Ref(ref.cell, operand.keys[: deeper + 1]))
                cells = {**state.cells, cell: kept}
                moved = Ref(cell, operand.keys[deeper + 1 :])
                state = replace(state, cells=cells, names={**state.names, name: moved})
        yield state

    def _put(self, of: Any, key: Any, operand: Any, state: State) -> State:
        key = self._key(key)
        container = state.value(of)
        if not isinstance(of, Ref) or not isinstance(container.kind, MapOf):
            raise NotTranslated(f"an item is set of {of}")
        kind = container.kind.value
        (state,) = self._detached(of, key, state)
        if isinstance(operand, Ref):
            raise NotTranslated("one container is put into another while a variable has it")
        return self._write(of, container.put(key, self._whole(kind, operand)), state, key)

    def _whole(self, kind: Type, operand: Any) -> Value:
        """An operand as a value of the type of the place that it is put."""
        if isinstance(operand, Empty):
            return self.universe.empty(kind)
        return (
            operand
            if isinstance(operand, Value)
            else Value(self.universe, kind, (term_of(operand),))
        )

    def _delete(self, node: ast.AST, of: Any, key: Any, state: State) -> State:
        key = self._key(key)
        container = state.value(of)
        state = self.require(self._at(state, node, "KeyError"), state, container.has(key))
        (state,) = self._detached(of, key, state)
        return self._write(of, state.value(of).without(key), state, key)

    def _dropped(self, of: Any, key: Any, state: State) -> State:
        key = self._key(key)
        (state,) = self._detached(of, key, state)
        return self._write(of, state.value(of).without(key), state, key)

    def _key(self, operand: Any) -> z3.ExprRef:
        if isinstance(operand, tuple):
            return self.universe.pair(*operand)
        return unwrapped(operand)

    def _in_order(self, value: Value) -> list[Formula]:
        """What the places of an ordered map are by the way they come to be: each its own, and all
        before the next."""
        if not (isinstance(value.kind, MapOf) and value.kind.ordered):
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

    # expressions

    def _each(
        self, nodes: Sequence[ast.expr], state: State
    ) -> Iterator[tuple[State, tuple[Any, ...]]]:
        if not nodes:
            yield state, ()
            return
        for after, first in self._eval(nodes[0], state):
            for end, others in self._each(nodes[1:], after):
                yield end, (first, *others)

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
            case ast.List(elts=[]) | ast.Dict(keys=[]):
                yield state, Empty()
            case ast.Attribute(value=of, attr=name):
                for after, operand in self._eval(of, state):
                    yield after, self._attribute_of(node, operand, name, after)
            case ast.Subscript(value=of, slice=key):
                for after, (container, at) in self._each([of, key], state):
                    yield from self._item(node, container, at, after)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
                for after, (one, other) in self._each([left, right], state):
                    one, other = unwrapped(one), unwrapped(other)
                    yield after, one + other if isinstance(operator, ast.Add) else one - other
            case ast.BoolOp(op=operator, values=[first, *rest]):
                stops = isinstance(operator, ast.Or)
                others = rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
                for after, value in self._eval(first, state):
                    for branch, holds in self._split(truth_of(after, value), after):
                        if holds == stops:
                            yield branch, value
                        else:
                            yield from self._eval(ast.copy_location(others, node), branch)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                for after, value in self._eval(part, state):
                    yield after, negated(truth_of(after, value))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                for after, holds in self._decided(test, state):
                    yield from self._eval(body if holds else orelse, after)
            case ast.Compare(left=left, ops=operators, comparators=others):
                for after, operands in self._each([left, *others], state):
                    compared = [
                        self._compared(node, operator, one, other, after)
                        for operator, one, other in zip(
                            operators, operands, operands[1:], strict=False
                        )
                    ]
                    yield after, conjunction(compared)
            case (
                ast.ListComp(elt=element, generators=[head])
                | ast.SetComp(elt=element, generators=[head])
            ):
                for after, among in self._eval(head.iter, state):
                    yield from self._comprehension(
                        node, element, head, self._lazy(node, among, after), after
                    )
            case ast.Call():
                yield from self._called(node, state)
            case _:
                raise self._refused_in(state, node)

    def _attribute_of(self, node: ast.AST, operand: Any, name: str, state: State) -> Any:
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
        if hasattr(operand, name) and not isinstance(
            operand, Receiver | RequestOf | Feature | Value | Ref | z3.ExprRef
        ):
            return getattr(operand, name)
        raise self._refused_in(state, node)

    def _item(self, node: ast.AST, of: Any, key: Any, state: State) -> Iterator[tuple[State, Any]]:
        if isinstance(of, z3.ExprRef) and self.universe.leaf_of(of) == DEBIT:
            yield state, self.universe.parts(of)[key]
            return
        if isinstance(of, Features):
            number = unwrapped(key)
            name = self._at(state, node, "IndexError")
            state = self.require(name, state, self.words.has_input(of.request, number))
            identifier = self.words.item(of.request, number)
            yield state, identifier if of.gives_identifiers else Feature(of.request, number)
            return
        key = self._key(key)
        container = state.value(of)
        if not isinstance(container, Value) or not isinstance(container.kind, MapOf):
            raise self._refused_in(state, node)
        state = self.require(self._at(state, node, "KeyError"), state, container.has(key))
        yield state, self._inner(of, key, state)

    def _inner(self, of: Any, key: z3.ExprRef, state: State) -> Any:
        """What a key of a container maps to: a scalar, or where the inner container is."""
        value = state.value(of).at(key)
        scalar = unwrapped(value)
        return Ref(of.cell, (*of.keys, key)) if scalar is value else scalar

    def _compared(
        self, node: ast.AST, operator: ast.cmpop, left: Any, right: Any, state: State
    ) -> Formula:
        if isinstance(operator, ast.Is | ast.IsNot):
            return (left is right) == isinstance(operator, ast.Is)
        if isinstance(operator, ast.In | ast.NotIn):
            found = self._contains(node, right, self._key(left), state)
            return negated(found) if isinstance(operator, ast.NotIn) else found
        left, right = unwrapped(state.value(left)), unwrapped(state.value(right))
        match operator:
            case ast.Eq():
                return equal(left, right)
            case ast.NotEq():
                return negated(equal(left, right))
            case ast.Lt():
                return left < right
            case ast.LtE():
                return left <= right
            case ast.Gt():
                return left > right
            case ast.GtE():
                return left >= right
        raise self._refused_in(state, node)

    def _contains(self, node: ast.AST, among: Any, key: Any, state: State) -> Formula:
        if isinstance(among, tuple):
            return disjunction(tuple(equal(key, one) for one in among))
        if isinstance(among, Values):
            container = state.value(among.of)
            return container.some(
                lambda k: conjunction((container.has(k), equal(container.at(k), key)))
            )
        container = state.value(among)
        if not isinstance(container, Value):
            raise self._refused_in(state, node)
        return container.has(key)

    # calls

    def _called(self, node: ast.Call, state: State) -> Iterator[tuple[State, Any]]:
        given = [*node.args, *(one.value for one in node.keywords)]
        match node.func:
            case ast.Name(id="any" | "all" as word) if isinstance(node.args[0], ast.GeneratorExp):
                yield from self._quantified(node, word, node.args[0], state)
            case ast.Name(id=name):
                for after, arguments in self._each(given, state):
                    yield self._builtin(node, name, arguments, after)
            case ast.Attribute(value=of, attr=name):
                for after, (operand, *others) in self._each([of, *given], state):
                    yield from self._method(node, operand, name, others, after)
            case _:
                raise self._refused_in(state, node)

    def _builtin(
        self, node: ast.Call, name: str, arguments: Sequence[Any], state: State
    ) -> tuple[State, Any]:
        match name, arguments:
            case (("set" | "dict" | "list" | "OrderedDict" | "frozenset"), []):
                return state, Empty()
            case (("list" | "sorted" | "set" | "tuple" | "frozenset"), [among]):
                if among == ():
                    return state, Empty()
                return state, replace(self._lazy(node, among, state), source=None)
            case "iter", [among]:
                return state, among
            case "next", [Ref() as among]:
                return self._outermost(node, among, state, oldest=True)
            case "reversed", [Ref() as among]:
                return state, Reversed(among)
            case "next", [Reversed(among)]:
                return self._outermost(node, among, state, oldest=False)
            case "enumerate", [Features(request)]:
                lazy = Lazy(self.words.inputs(request))
                return state, replace(
                    lazy, target=lambda number: (number, Feature(request, number))
                )
            case "len", [Features(request)]:
                return state, Count(request)
            case "range", [Count(request)]:
                return state, Lazy(self.words.inputs(request))
            case "len", [Ref() as container]:
                return state, self.words.len(state.value(container))
        raise self._refused_in(state, node)

    def _outermost(
        self, node: ast.AST, of: Ref, state: State, *, oldest: bool
    ) -> tuple[State, z3.ExprRef]:
        """The first key of an ordered map, or the last."""
        container = state.value(of)
        name = self._at(state, node, "an empty container has no oldest entry")
        state = self.require(name, state, negated(container.is_empty))
        found = self.universe.constant(container.key, "outermost")
        place = container.place(found)

        def inside(key: z3.ExprRef) -> Formula:
            other = container.place(key)
            return implies(container.has(key), place <= other if oldest else place >= other)

        return state.assuming(container.has(found), container.all(inside)), found

    def _method(
        self, node: ast.Call, operand: Any, name: str, arguments: Sequence[Any], state: State
    ) -> Iterator[tuple[State, Any]]:
        match operand, name, arguments:
            case None, _, _:
                self.require(self._at(state, node, "AttributeError"), state, False)
            case Receiver(owner), _, _ if name in self.sources[owner].methods:
                yield from self.call(owner, name, arguments, state)
            case (
                RequestOf(request),
                "get_num_encoder_embeds" | "get_num_encoder_tokens",
                [number],
            ):
                at = self._at(state, node, "IndexError")
                state = self.require(at, state, self.words.has_input(request, unwrapped(number)))
                yield state, self.words.embeds(request, unwrapped(number))
            case Ref(), "keys" | "copy", []:
                yield state, replace(self._lazy(node, operand, state), source=None)
            case Lazy(), "copy", []:
                yield state, operand
            case Ref(), "values", []:
                yield state, Values(operand)
            case Ref(), "items", []:
                lazy = self._lazy(node, operand, state)
                container = state.value(operand)
                yield state, replace(lazy, target=lambda k: (k, unwrapped(container.at(k))))
            case Ref(), "clear", []:
                kind = state.value(operand).kind
                yield self._write(operand, self.universe.empty(kind), state, None), None
            case Ref(), "append", [member]:
                longer = state.value(operand).appended(unwrapped(member))
                yield self._write(operand, longer, state, None), None
            case Ref(), "add", [member]:
                yield self._member(operand, unwrapped(member), True, state), None
            case Ref(), "discard", [member]:
                yield self._member(operand, unwrapped(member), False, state), None
            case Ref(), "remove", [member]:
                there = state.value(operand).has(unwrapped(member))
                state = self.require(self._at(state, node, "KeyError"), state, there)
                yield self._member(operand, unwrapped(member), False, state), None
            case Ref(), "popitem", [bool() as last]:
                state, found = self._outermost(node, operand, state, oldest=not last)
                value = unwrapped(state.value(operand).at(found))
                yield self._delete(node, operand, found, state), (found, value)
            case Ref(), "pop", [key]:
                value = unwrapped(state.value(operand).at(self._key(key)))
                yield self._delete(node, operand, key, state), value
            case Ref(), "pop" | "get" | "setdefault", [key, *default]:
                yield from self._with_default(operand, name, key, default, state)
            case _:
                raise self._refused_in(state, node)

    def _member(self, of: Ref, member: z3.ExprRef, there: bool, state: State) -> State:
        return self._write(of, state.value(of).with_member(member, there), state, member)

    def _with_default(
        self, of: Ref, name: str, key: Any, default: Sequence[Any], state: State
    ) -> Iterator[tuple[State, Any]]:
        key = self._key(key)
        container = state.value(of)
        assert isinstance(container.kind, MapOf)
        fallback = default[0] if default else None
        if name == "setdefault":
            whole = self._whole(container.kind.value, fallback)
            now = container.at(key).unless(container.has(key), whole)
            state = self._write(of, container.put(key, now), state, key)
            yield state, self._inner(of, key, state)
            return
        if name == "get" and isinstance(container.kind.value, Leaf) and fallback not in (None, ()):
            yield state, z3.If(container.has(key), container.at(key).term, term_of(fallback))
            return
        there, absent = (
            state.assuming(container.has(key)),
            state.assuming(z3.Not(container.has(key))),
        )
        if name == "pop":
            inner = self._inner(of, key, there)
            if isinstance(inner, Ref):
                cell = next(self._cells)
                there = replace(there, cells={**there.cells, cell: there.value(inner)})
                inner = Ref(cell)
            (there,) = self._detached(of, key, there)
            yield self._write(of, container.without(key), there, key), inner
        else:
            yield there, self._inner(of, key, there)
        if isinstance(fallback, Empty) or fallback == ():
            kind = container.kind.value if isinstance(container.kind, MapOf) else None
            if not isinstance(kind, MapOf | SetOf | ListOf):
                yield absent, fallback
                return
            cell = next(self._cells)
            yield (
                replace(absent, cells={**absent.cells, cell: self.universe.empty(kind)}),
                Ref(cell),
            )
        else:
            yield absent, fallback

    # comprehensions

    def _lazy(self, node: ast.AST, among: Any, state: State) -> Lazy:
        if isinstance(among, Lazy):
            return among
        container = state.value(among)
        if isinstance(container, Value):
            return Lazy(container.keys, source=among if isinstance(among, Ref) else None)
        raise self._refused_in(state, node)

    def _comprehension(
        self,
        node: ast.ListComp | ast.SetComp,
        element: ast.expr,
        head: ast.comprehension,
        among: Lazy,
        state: State,
    ) -> Iterator[tuple[State, Any]]:
        """The members that a filter leaves; the element must be what is filtered."""
        first = head.target.elts[0] if isinstance(head.target, ast.Tuple) else head.target
        if ast.unparse(first) != ast.unparse(element):
            raise self._refused_in(state, node)
        leaf = among.members.key
        kind = SetOf(leaf) if isinstance(node, ast.SetComp) else ListOf(leaf)
        found = self.universe.fresh(kind, "filtered")

        member = self.universe.constant(leaf, "member")
        conditions = self._conditions(head, among, member, state)
        there = conjunction((among.members.has(member), *conditions))
        described = self.universe.of_every(member, leaf, iff(found.has(member), there))
        cell = next(self._cells)
        state = replace(state, cells={**state.cells, cell: found})
        yield state.assuming(described), Ref(cell)

    def _conditions(
        self, head: ast.comprehension, among: Lazy, member: z3.ExprRef, state: State
    ) -> list[Formula]:
        """A generator's conditions of one member; they must decide nothing else."""
        (inner,) = self._assign(head.target, among.target(member), state)
        inner = inner.assuming(among.members.has(member))
        conditions = []
        for condition in head.ifs:
            ((inner, value),) = self._eval(condition, inner)
            conditions.append(truth_of(inner, value))
        return conditions

    def _quantified(
        self, node: ast.Call, word: str, generator: ast.GeneratorExp, state: State
    ) -> Iterator[tuple[State, Any]]:
        (head,) = generator.generators
        for after, among in self._eval(head.iter, state):
            if isinstance(among, Empty) or among == ():
                yield after, word == "all"
                continue
            lazy = self._lazy(node, among, after)

            leaf = lazy.members.key
            member = self.universe.constant(leaf, "member")
            conditions = self._conditions(head, lazy, member, after)
            (inner,) = self._assign(head.target, lazy.target(member), after)
            there = conjunction((lazy.members.has(member), *conditions))
            ((end, value),) = self._eval(generator.elt, inner.assuming(there))
            holds = truth_of(end, value)
            if word == "all":
                yield after, self.universe.of_every(member, leaf, implies(there, holds))
                continue
            none = self.universe.of_every(member, leaf, negated(conjunction((there, holds))))
            yield after, negated(none)

    # refusals

    def _at(self, state: State, node: ast.AST, what: str) -> str:
        owner, method = state.names.get("", ("", ""))
        path = self.sources[owner].path if owner in self.sources else ""
        return f"{method}: {what} ({path}:{getattr(node, 'lineno', 0)})"

    def _refused_in(self, state: State, node: ast.AST) -> NotTranslated:
        owner, _ = state.names[""]
        return self._refused(owner, node, ast.unparse(node))

    def _refused(self, owner: str, node: Any, what: str) -> NotTranslated:
        path = self.sources[owner].path if owner in self.sources else owner
        return NotTranslated(f"{path}:{getattr(node, 'lineno', 0)}: no reading of {what}")
