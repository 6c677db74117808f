"""Runs expressions of a method on symbolic values.

On the way every operation that could raise leaves an obligation: that it does not. A construct
without a reading is refused with file, line and construct.
"""

import ast
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from cacheproof.proofs.symbolic.language import OF_THE_END, methods_of
from cacheproof.proofs.symbolic.operands import (
    RUNNING,
    WHOLE,
    compared,
    number_of,
    same_place,
    short,
)
from cacheproof.proofs.symbolic.predicates import NotTranslated, Words, equal, unwrapped
from cacheproof.proofs.symbolic.solver import Possible
from cacheproof.proofs.symbolic.source import Source, without_docstring
from cacheproof.proofs.symbolic.state import (
    Count,
    Empty,
    Feature,
    Features,
    Flags,
    Lazy,
    Loop,
    Obligation,
    Place,
    Range,
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
    BOOL,
    DEBIT,
    INPUT,
    INT,
    Formula,
    Leaf,
    ListOf,
    MapOf,
    SequenceOf,
    SetOf,
    Type,
    Universe,
    Value,
    conjunction,
    disjunction,
    iff,
    implies,
    is_ordered,
    negated,
)


def _facts_since(before: State, after: State) -> list[Formula]:
    """What is known of a place beyond what was known where its path came from."""
    return [fact.formula for fact in after.path[len(before.path) :]]


def _leads_into(operand: Any, ref: Ref) -> bool:
    """Whether a variable's container is inside another."""
    return (
        isinstance(operand, Ref)
        and operand.cell == ref.cell
        and len(operand.keys) > len(ref.keys)
        and all(a.eq(b) for a, b in zip(ref.keys, operand.keys, strict=False))
    )


def refuse_kept(operand: Any) -> None:
    """Refuse a tuple that is kept while it has what is in another container: what takes its place
    there must not take its place in the tuple.

    Raises:
        NotTranslated: it has such.
    """
    if isinstance(operand, tuple):
        for one in operand:
            refuse_kept(one)
            if isinstance(one, Ref) and one.keys:
                raise NotTranslated("a container of another one in a tuple that is kept")


def refuse_empty(operand: Any) -> None:
    """Refuse an empty container that a variable has: it is not known which container it is, and so
    not that two places have it, or that it is empty no more.

    Raises:
        NotTranslated: it is one, or a tuple with one.
    """
    if isinstance(operand, Empty):
        raise NotTranslated(f"an empty {operand.name} in a variable")
    if isinstance(operand, tuple):
        for one in operand:
            refuse_empty(one)


_PARKED = "parked "
"""How the variable begins that stands for what an expression has evaluated; no text has such."""
_CHANGED = "what a loop runs over is changed in it"
_NOTHING = object()
_FAILURES = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""How a reading ends that was not made for what it meets."""
_NOWHERE = State({}, {}, {})


@dataclass
class Expressions(ABC):
    """Evaluates expressions in states. A value that is a container is a `Ref` to where it lives,
    so that what is done to it is seen by all who have it.

    Attributes:
        safety: the rule that nothing raises.
        objects: elements that are objects -> the owner of their attributes, each of them a map.
        variables: of owner, method and name, the types of variables that start as an empty list.
        unrolls: whether a for loop is run turn by turn, as it can be among a few elements.
    """

    universe: Universe
    words: Words
    sources: Mapping[str, Source]
    types: Mapping[tuple[str, str], Type]
    loops: Mapping[tuple[str, str], Sequence[Loop]]
    safety: str
    objects: Mapping[Leaf, str] = field(default_factory=dict)
    variables: Mapping[tuple[str, str, str], Type] = field(default_factory=dict)
    unrolls: bool = False
    obligations: list[Obligation] = field(default_factory=list)
    _cells: Iterator[int] = field(default_factory=itertools.count)
    _possible: Possible = field(default_factory=Possible)
    _numbers: dict[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    _numbered: list[ast.FunctionDef] = field(default_factory=list)

    @abstractmethod
    def call(self, owner: str, name: str, arguments: Sequence[Any], state: State) -> list[Returned]:
        """The states in which a call of a method may end, and its answers."""

    @abstractmethod
    def call_on(
        self, receiver: Any, owner: str, name: str, arguments: Sequence[Any], state: State
    ) -> list[Returned]:
        """The same of a method of an object."""

    def _through(self, node: ast.stmt | ast.expr, state: State, way: str = "") -> State:
        """The same place, gone through a node of the method that runs."""
        of_method = owner, method = state.names[""]
        if of_method not in self._numbers:
            bare = without_docstring(self.sources[owner].methods[method])
            self._numbered.append(bare)  # so that no other node has its place in memory
            nodes = enumerate(ast.walk(bare))
            self._numbers[of_method] = {id(one): number for number, one in nodes}
        number = self._numbers[of_method].get(id(node))
        if number is None:  # made while reading another, which was gone through
            return state
        return replace(state, ran=state.ran | {Place(owner, method, number, way)})

    def require(self, name: str, state: State, claimed: Formula, rule: str = "") -> State:
        """Leave an obligation, and go on where it is met."""
        if claimed is True:
            return state
        self.obligations.append(Obligation(name, state, claimed, rule or self.safety))
        return state.assuming(claimed)

    def _decided(self, test: ast.expr, state: State) -> Iterator[tuple[State, bool]]:
        """The two ways on from a condition; one where it is plain."""
        for after, value in self._eval(test, state):
            for branch, holds in self._split(truth_of(after, value), after):
                yield self._through(test, branch, str(holds)), holds

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

    def _parked(self, operand: Any, state: State) -> tuple[State, str]:
        """With a variable of no name for what an expression has evaluated, where it leads into a
        container: what takes its place there must not take its place here."""
        refuse_kept(operand)
        if not isinstance(operand, Ref) or not operand.keys:
            return state, ""
        name = f"{_PARKED}{next(self._cells)}"
        return replace(state, names={**state.names, name: operand}), name

    def _unparked(self, operand: Any, name: str, state: State) -> tuple[State, Any]:
        """The operand as it is by now, and the state without its variable."""
        if not name:
            return state, operand
        names = {one: found for one, found in state.names.items() if one != name}
        return replace(state, names=names), state.names[name]

    # what containers hold

    def _held(self, value: Value, state: State) -> tuple[State, Ref]:
        """A container where only one has it."""
        cell = next(self._cells)
        return replace(state, cells={**state.cells, cell: value}), Ref(cell)

    def _owner_of(self, operand: Any) -> str | None:
        """Of an element that is an object, the owner of its attributes."""
        leaf = self.universe.leaf_of(operand) if isinstance(operand, z3.ExprRef) else None
        return self.objects.get(leaf) if leaf is not None else None

    def _set_attribute(self, state: State, owner: str, name: str, operand: Any) -> State:
        place, kind = (owner, name), self.types.get((owner, name))
        if kind is None:
            known = state.attributes.get(place, _NOTHING)
            if operand is not known and not (isinstance(operand, Receiver) and operand == known):
                raise NotTranslated(f"{name} is set, and nothing says what it is")
            return state
        if isinstance(operand, Empty):
            operand = self._emptied(operand, kind)
        if isinstance(operand, Value) and operand.kind == kind and not isinstance(kind, Leaf):
            state, operand = self._held(operand, state)
        operand = unwrapped(operand)
        if isinstance(operand, Ref) and operand.keys:
            raise NotTranslated(f"{owner}.{name}: what is in another container is put there")
        self._fits(name, kind, operand, state)
        state = replace(state, attributes={**state.attributes, place: operand})
        return state.snapshot()

    def _fits(self, name: str, kind: Type, operand: Any, state: State) -> None:
        """Refuse what is of another type than the place that it is put."""
        if isinstance(operand, Ref):
            fits = not operand.is_frozen and state.value(operand).kind == kind
        elif isinstance(kind, Leaf):
            number = type(operand) is int and kind == INT
            truth_value = type(operand) is bool and kind == BOOL
            sort = self.universe.sort(kind)
            term = isinstance(operand, z3.ExprRef) and operand.sort() == sort
            fits = number or truth_value or term
        else:
            fits = False
        if not fits:
            raise NotTranslated(f"{name}: {short(operand)} is put where {kind} is read")

    def _write(self, ref: Ref, value: Value, state: State, touched: z3.ExprRef | None) -> State:
        """A container replaced by its next contents."""
        if ref.is_frozen:
            raise NotTranslated("a container that has no method to change it is changed")
        chain = [state.cells[ref.cell]]
        for key in ref.keys:
            chain.append(chain[-1].at(key))
        for key, outer in zip(reversed(ref.keys), reversed(chain[:-1]), strict=True):
            value = outer.put(key, value)
        named, facts = self.universe.named(value, chain[0])
        before = state
        state = replace(state, cells={**state.cells, ref.cell: named}).assuming(*facts)
        for names in (*state.frames, state.names):
            for name, over in names.items():
                if name.startswith(RUNNING) and over.cell == ref.cell:
                    same = same_place(before.value(over), state.value(over), name)
                    state = self.require(_CHANGED, state, same)
        return state.snapshot(ref.keys[0] if ref.keys else touched)

    def running_over(self, state: State, ref: Ref, *, whole: bool) -> tuple[State, str]:
        """With a variable of no name for what a loop runs over: no turn may change which members
        there are and in what order; where it takes values along (`whole`), nothing of it."""
        name = f"{WHOLE if whole else RUNNING}{next(self._cells)}"
        return replace(state, names={**state.names, name: ref}), name

    def run_over(self, state: State, name: str, ref: Ref) -> State:
        """A turn is done: without that variable."""
        if state.names.get(name) is not ref:
            raise NotTranslated("what a loop runs over goes away in it")
        names = {one: found for one, found in state.names.items() if one != name}
        return replace(state, names=names)

    def _detached(self, ref: Ref, key: z3.ExprRef | None, state: State) -> State:
        """Variables, the callers' among them, that lead into what goes away keep it. What goes is
        at a key, or everything."""
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
        cell = next(self._cells)  # one for all of them: they go on having the same object
        for number, name, operand in leading:
            if key is None or not operand.keys[deeper].eq(key):
                raise NotTranslated(f"{name} may lead into what goes away")
            kept = Ref(cell, operand.keys[deeper + 1 :], operand.is_frozen)
            frames[number] = {**frames[number], name: kept}
        first = leading[0][2]
        goes = state.value(Ref(ref.cell, first.keys[: deeper + 1]))
        cells = {**state.cells, cell: goes}
        return replace(state, cells=cells, names=frames[-1], frames=tuple(frames[:-1]))

    def _taken_out(self, ref: Ref, key: z3.ExprRef, state: State) -> tuple[State, Any]:
        """What is at a key, where it is to be kept when the key goes: a scalar, or a container that
        variables go on sharing."""
        found = self._inner(ref, key, state)
        state, name = self._parked(found, state)
        return self._unparked(found, name, self._detached(ref, key, state))

    def _put(self, of: Any, key: Any, operand: Any, state: State) -> State:
        key = self._key(key)
        container = self._map(of, state)
        kind = container.kind.value  # type: ignore[attr-defined]
        state = self._detached(of, key, state)
        if isinstance(operand, Ref):
            raise NotTranslated("one container is put into another while a variable has it")
        return self._write(of, container.put(key, self._whole(kind, operand)), state, key)

    def _emptied(self, operand: Empty, kind: Type) -> Value:
        """An empty container in a place of that type."""
        if not operand.fits(kind):
            raise NotTranslated(f"an empty {operand.name} is put where {kind} is read")
        return self.universe.empty(kind)

    def _map(self, of: Any, state: State) -> Value:
        """A dict by its contents; all else has no items."""
        container = state.value(of)
        if not isinstance(of, Ref) or not isinstance(container.kind, MapOf):
            raise NotTranslated(f"{short(of)} has no items")
        return container  # type: ignore[no-any-return]

    def _whole(self, kind: Type, operand: Any) -> Value:
        """An operand as a value of the type of the place that it is put."""
        if isinstance(operand, Empty):
            return self._emptied(operand, kind)
        scalar = unwrapped(operand)
        if not isinstance(kind, Leaf) or isinstance(scalar, Value | Ref):
            raise NotTranslated(f"{short(operand)} is put where {kind} is read")
        self._fits("an item", kind, scalar, _NOWHERE)
        return Value(self.universe, kind, (term_of(scalar),))

    def _delete(self, node: ast.AST, of: Any, key: Any, state: State) -> State:
        key = self._key(key)
        container = self._map(of, state)
        state = self.require(self._at(state, node, "KeyError"), state, container.has(key))
        return self._dropped(of, key, state)

    def _dropped(self, of: Any, key: Any, state: State) -> State:
        """Without a key, where it is there."""
        key = self._key(key)
        self._map(of, state)
        state = self._detached(of, key, state)
        return self._write(of, state.value(of).without(key), state, key)

    def _key(self, operand: Any) -> z3.ExprRef:
        if isinstance(operand, tuple):
            return self.universe.pair(*operand)
        return unwrapped(operand)

    def in_order(self, value: Value) -> list[Formula]:
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

    def _input(self, key: Any) -> z3.ExprRef:
        """The number of an input; no other number, and none from the end, is one."""
        number = unwrapped(key)
        if not isinstance(number, z3.ExprRef) or self.universe.leaf_of(number) != INPUT:
            raise NotTranslated(f"{number} in the place of an input's number")
        return number

    def _inner(self, of: Any, key: z3.ExprRef, state: State) -> Any:
        """What a key of a container maps to: a scalar, or where the inner container is."""
        value = state.value(of).at(key)
        scalar = unwrapped(value)
        return Ref(of.cell, (*of.keys, key)) if scalar is value else scalar

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
        return compared(operator, left, right, state)

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
        of the parameters that take them. One that a method has a default for is not left out."""
        method = self.sources[owner].methods[name].args
        positional = [one.arg for one in (*method.posonlyargs, *method.args)][1:]
        taken = dict(zip(positional, values[: len(node.args)], strict=False))
        for keyword, value in zip(node.keywords, values[len(node.args) :], strict=True):
            if keyword.arg is None or keyword.arg in taken:
                raise self._refused_in(state, node)
            taken[keyword.arg] = value
        parameters = [*positional, *(one.arg for one in method.kwonlyargs)]
        if len(node.args) > len(positional) or taken.keys() != set(parameters):
            raise self._refused_in(state, node)
        return [taken[one] for one in parameters]

    def _class(self, name: str) -> str | None:
        """The owner of what an object of that class, of which there is one, works on."""
        found = (owner for owner, source in self.sources.items() if source.name == name)
        return next((owner for owner in found if owner not in self.objects.values()), None)

    def _builtin(
        self, node: ast.Call, name: str, arguments: Sequence[Any], state: State
    ) -> tuple[State, Any]:
        match name, arguments:
            case (("set" | "dict" | "list" | "OrderedDict" | "frozenset"), []):
                return state, Empty(name)
            case (("list" | "sorted" | "set" | "tuple" | "frozenset"), [among]):
                if isinstance(among, tuple) and not among:
                    return state, Empty("list" if name == "sorted" else name)
                lazy = replace(self._lazy(node, among, state), source=None)
                if lazy.takes_values and not lazy.has_scalars:
                    raise self._refused_in(state, node)  # these go on changing
                keeps_order = name in ("list", "tuple")
                if name in ("set", "frozenset") and not _is_itself(lazy):
                    raise self._refused_in(state, node)  # what is alike would be one
                return state, lazy if keeps_order else replace(lazy, place=None)
            case "iter", [among]:
                return state, among
            case "next", [Ref() as among]:
                return self._outermost(node, among, state, oldest=True)
            case "reversed", [Ref() as among] if is_ordered(state.value(among).kind):
                return state, Reversed(among)
            case "next", [Reversed(among)]:
                return self._outermost(node, among, state, oldest=False)
            case "next", [Values(among)]:
                state, key = self._outermost(node, among, state, oldest=True)
                return state, self._inner(among, key, state)
            case "enumerate", [Features(request)]:
                lazy = Lazy(self.words.inputs(request))
                return state, replace(
                    lazy, target=lambda number: (number, Feature(request, number))
                )
            case "len", [Features(request)]:
                return state, Count(request)
            case "range", [Count(request)]:
                return state, Lazy(self.words.inputs(request))
            case "range", [z3.ArithRef() as stop]:
                return state, Range(z3.IntVal(0), stop)
            case "range", [z3.ArithRef() as start, z3.ArithRef() as stop]:
                return state, Range(start, stop)
            case "len", [Ref() as container] if not isinstance(
                state.value(container).kind, ListOf
            ):  # of a list it is not known what is in it more than once
                return state, self.words.len(state.value(container))
        raise self._refused_in(state, node)

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

    def _outermost(
        self, node: ast.AST, of: Ref, state: State, *, oldest: bool
    ) -> tuple[State, z3.ExprRef]:
        """The first key of an ordered map, or the last; of another one that may be any key."""
        container = state.value(of)
        name = self._at(state, node, "an empty container has no oldest entry")
        state = self.require(name, state, negated(container.is_empty))
        found = self.universe.constant(container.key, "outermost")
        if not is_ordered(container.kind):
            return state.assuming(container.has(found)), found
        place = container.place(found)

        def inside(key: z3.ExprRef) -> Formula:
            other = container.place(key)
            return implies(container.has(key), place <= other if oldest else place >= other)

        return state.assuming(container.has(found), container.all(inside)), found

    def _method(
        self, node: ast.Call, operand: Any, name: str, arguments: Sequence[Any], state: State
    ) -> Iterator[tuple[State, Any]]:
        if isinstance(operand, Ref) and (
            operand.is_frozen or name not in methods_of(state.value(operand).kind)
        ):
            raise self._refused_in(state, node)
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
                number = self._input(number)
                state = self.require(at, state, self.words.has_input(request, number))
                yield state, self.words.embeds(request, number)
            case Ref(), "keys", []:
                yield state, self._lazy(node, operand, state)
            case Ref(), "copy", []:
                yield state, replace(self._lazy(node, operand, state), source=None)
            case Lazy(), "copy", []:
                yield state, operand
            case Ref(), "values", []:
                yield state, Values(operand)
            case Ref(), "items", []:
                lazy = self._lazy(node, operand, state)
                container = state.value(operand)
                taken = replace(lazy, target=lambda k: (k, unwrapped(container.at(k))))
                scalars = isinstance(container.kind.value, Leaf)
                yield state, replace(taken, takes_values=True, has_scalars=scalars)
            case Ref(), "clear", []:
                kind = state.value(operand).kind
                state = self._detached(operand, None, state)
                yield self._write(operand, self.universe.empty(kind), state, None), None
            case Ref(), "append", [member]:
                found, member = state.value(operand), unwrapped(member)
                if isinstance(found.kind, SequenceOf):
                    name = self._at(state, node, "appended where it is read as once in a list")
                    state = self.require(name, state, negated(found.has(member)))
                yield self._write(operand, found.appended(member), state, member), None
            case Ref(), "move_to_end", [key, bool() as last]:
                yield self._moved(node, operand, self._key(key), state, last=last), None
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
                yield from self._popped(node, operand, found, state, with_key=True)
            case Ref(), "pop", [key]:
                yield from self._popped(node, operand, self._key(key), state, with_key=False)
            case Ref(), "pop" | "get" | "setdefault", [key, *default] if len(default) < 2:
                yield from self._with_default(operand, name, key, default, state)
            case _:
                raise self._refused_in(state, node)

    def _popped(
        self, node: ast.AST, of: Ref, key: z3.ExprRef, state: State, *, with_key: bool
    ) -> Iterator[tuple[State, Any]]:
        there = self._map(of, state).has(key)
        state = self.require(self._at(state, node, "KeyError"), state, there)
        state, found = self._taken_out(of, key, state)
        state = self._write(of, state.value(of).without(key), state, key)
        yield state, (key, found) if with_key else found

    def _moved(self, node: ast.AST, of: Ref, key: z3.ExprRef, state: State, *, last: bool) -> State:
        """A key of an ordered map goes behind all others, or in front of them."""
        container = state.value(of)
        state = self.require(self._at(state, node, "KeyError"), state, container.has(key))
        if last:
            behind_all = container.without(key).put(key, container.at(key))
            return self._write(of, behind_all, state, key)
        place = self.universe.constant(INT, "front")
        in_front = container.all(lambda k: implies(container.has(k), place < container.place(k)))
        return self._write(of, container.moved(key, place), state.assuming(in_front), key)

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
        number = isinstance(fallback, int | z3.ArithRef) and not isinstance(fallback, bool)
        if name == "get" and container.kind.value == INT and number:
            yield state, z3.If(container.has(key), container.at(key).term, term_of(fallback))
            return
        there, absent = (
            state.assuming(container.has(key)),
            state.assuming(z3.Not(container.has(key))),
        )
        if name == "pop":
            there, inner = self._taken_out(of, key, there)
            yield self._write(of, container.without(key), there, key), inner
        else:
            yield there, self._inner(of, key, there)
        if isinstance(fallback, Empty) or fallback == ():
            kind = container.kind.value if isinstance(container.kind, MapOf) else None
            if not isinstance(kind, MapOf | SetOf | ListOf):
                yield absent, fallback
                return
            cell = next(self._cells)
            frozen = fallback == () or not fallback.fits(kind)
            yield (
                replace(absent, cells={**absent.cells, cell: self.universe.empty(kind)}),
                Ref(cell, is_frozen=frozen),
            )
        else:
            yield absent, fallback

    # comprehensions

    def _lazy(self, node: ast.AST, among: Any, state: State) -> Lazy:
        if isinstance(among, Lazy):
            return among
        if isinstance(among, Reversed):
            lazy = self._lazy(node, among.of, state)
            forwards = lazy.place
            if forwards is None:
                raise self._refused_in(state, node)
            return replace(lazy, place=lambda member: -forwards(member), backwards=True)
        if isinstance(among, Range):
            number = self.universe.constant(INT, "number")
            inside = z3.And(among.start <= number, number < among.stop)
            return Lazy(Value(self.universe, SetOf(INT), (z3.Lambda([number], inside),)))
        container = state.value(among)
        if isinstance(container, Value):
            source = among if isinstance(among, Ref) else None
            place = container.place if is_ordered(container.kind) else None
            again = _always if isinstance(container.kind, ListOf) else None
            return Lazy(container.keys, source=source, place=place, again=again)
        raise self._refused_in(state, node)

    def _comprehension(
        self,
        node: ast.ListComp | ast.SetComp,
        element: ast.expr,
        head: ast.comprehension,
        among: Lazy,
        state: State,
    ) -> Iterator[tuple[State, Any]]:
        """The members that a filter leaves, or what the element is of each of them, in the order of
        what it runs over."""
        if among.backwards:
            raise self._refused_in(state, node)
        leaf = among.members.key
        member = self.universe.constant(leaf, "member")
        conditions = self._conditions(head, among, member, state)
        there = conjunction((among.members.has(member), *conditions))
        found = self.universe.fresh(SetOf(leaf), "filtered")
        described = self.universe.of_every(member, leaf, iff(found.has(member), there))
        state = state.assuming(described)
        first = head.target.elts[0] if isinstance(head.target, ast.Tuple) else head.target
        if ast.unparse(first) != ast.unparse(element) or not _begins_with_itself(among):
            if isinstance(node, ast.SetComp):
                raise self._refused_in(state, node)  # what is alike would be one
            among = replace(among, members=found)
            yield state, self._mapped(node, element, head, among, member, state)
            return
        if isinstance(node, ast.ListComp):
            (there,) = found.terms
            if among.source is not None and among.place is not None:
                found = state.value(among.source).filtered(there)
            elif among.again is None:  # in some order, each once
                _, *order = self.universe.fresh(SequenceOf(leaf), "filtered").terms
                found = Value(self.universe, SequenceOf(leaf), (there, *order))
            else:
                log, _, length = self.universe.fresh(ListOf(leaf), "filtered").terms
                found = Value(self.universe, ListOf(leaf), (log, there, length))
        yield self._held(found, state)

    def _mapped(
        self,
        node: ast.AST,
        element: ast.expr,
        head: ast.comprehension,
        among: Lazy,
        member: z3.ExprRef,
        state: State,
    ) -> Lazy:
        """What an element is of each member, which an expression of one tells."""
        (inner,) = self._assign(head.target, among.target(member), state)
        ((_, value),) = self._eval(element, inner.assuming(among.members.has(member)))
        if not isinstance(value, z3.ExprRef):
            raise self._refused_in(state, node)
        return replace(among, source=None, target=lambda one: z3.substitute(value, (member, one)))

    def _conditions(
        self, head: ast.comprehension, among: Lazy, member: z3.ExprRef, state: State
    ) -> list[Formula]:
        """A generator's conditions of one member; they must decide nothing else."""
        (inner,) = self._assign(head.target, among.target(member), state)
        inner = inner.assuming(among.members.has(member))
        conditions = []
        for condition in head.ifs:
            ways = [
                conjunction((*_facts_since(inner, end), truth_of(end, value)))
                for end, value in self._eval(condition, inner)
            ]
            conditions.append(disjunction(ways))
            inner = inner.assuming(conditions[-1])
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
            for there in self._of_some_or_none(node, lazy, after):
                yield there, self._of_members(word, generator, head, lazy, there)

    def _of_members(
        self,
        word: str,
        generator: ast.GeneratorExp,
        head: ast.comprehension,
        lazy: Lazy,
        state: State,
    ) -> Formula:
        """Whether an expression holds of `any` or `all` of the members that a filter leaves."""
        leaf = lazy.members.key
        member = self.universe.constant(leaf, "member")
        conditions = self._conditions(head, lazy, member, state)
        (inner,) = self._assign(head.target, lazy.target(member), state)
        there = conjunction((lazy.members.has(member), *conditions))
        inner = inner.assuming(there)
        holds = disjunction(
            conjunction((*_facts_since(inner, end), truth_of(end, value)))
            for end, value in self._eval(generator.elt, inner)
        )
        if word == "all":
            return self.universe.of_every(member, leaf, implies(there, holds))
        none = self.universe.of_every(member, leaf, negated(conjunction((there, holds))))
        return negated(none)

    def _of_some_or_none(self, node: ast.expr, among: Lazy, state: State) -> Iterator[State]:
        """A state in which there is something to run over, so that what is said of each is
        evaluated, and one in which there is nothing."""
        for branch, is_empty in self._split(among.members.is_empty, state):
            yield branch if is_empty else self._through(node, branch, "of some")

    # refusals

    @contextmanager
    def reading(self, node: ast.AST, state: State) -> Iterator[None]:
        """What is refused, or fails, in there is refused with file and line."""
        try:
            yield
        except NotTranslated as refusal:
            if refusal.has_place:
                raise
            raise self._refused_in(state, node, f": {refusal}") from refusal
        except (*_FAILURES, z3.Z3Exception) as failure:
            raise self._refused_in(state, node, f": {failure}") from failure

    def _at(self, state: State, node: ast.AST, what: str) -> str:
        owner, method = state.names.get("", ("", ""))
        path = self.sources[owner].path if owner in self.sources else ""
        return f"{method}: {what} ({path}:{getattr(node, 'lineno', 0)})"

    def _refused_in(self, state: State, node: ast.AST, why: str = "") -> NotTranslated:
        owner, _ = state.names.get("", ("", ""))
        return self._refused(owner, node, ast.unparse(node).splitlines()[0] + why)

    def _refused(self, owner: str, node: Any, what: str) -> NotTranslated:
        path = self.sources[owner].path if owner in self.sources else owner
        place = f"{path}:{getattr(node, 'lineno', 0)}"
        return NotTranslated(f"{place}: no reading of {what}", has_place=True)


def _always(_: z3.ExprRef) -> Formula:
    return True


def _is_itself(lazy: Lazy) -> bool:
    """Whether what a loop's target is told of a member is the member."""
    probe = z3.Const("probe", lazy.members.universe.sort(lazy.members.key))
    return lazy.target(probe) is probe


def _begins_with_itself(lazy: Lazy) -> bool:
    """The same, or a tuple of which it is the first."""
    probe = z3.Const("probe", lazy.members.universe.sort(lazy.members.key))
    found = lazy.target(probe)
    return found is probe or (isinstance(found, tuple) and found[0] is probe)
