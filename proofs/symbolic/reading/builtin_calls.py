"""Calls of builtin functions and of methods, on operands that a run has evaluated."""

import ast
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import z3

from cacheproof.proofs.logic import Formula, implies, negated
from cacheproof.proofs.symbolic.reading.comprehensions import Comprehensions
from cacheproof.proofs.symbolic.values.language import NotTranslated, methods_of
from cacheproof.proofs.symbolic.values.records import unwrapped
from cacheproof.proofs.symbolic.values.state import (
    Count,
    Empty,
    Feature,
    Features,
    Lazy,
    Range,
    Receiver,
    Ref,
    RequestOf,
    Returned,
    Reversed,
    State,
    Values,
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
    is_ordered,
)


class BuiltinCalls(Comprehensions):
    """Calls builtin functions, methods of containers and of requests, and methods of the text."""

    @abstractmethod
    def call(self, owner: str, name: str, arguments: Sequence[Any], state: State) -> list[Returned]:
        """The states in which a call of a method may end, and its answers."""

    @abstractmethod
    def call_on(
        self, receiver: Any, owner: str, name: str, arguments: Sequence[Any], state: State
    ) -> list[Returned]:
        """The same of a method of an object."""

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
                if name in ("set", "frozenset") and not is_itself(lazy):
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
            case _:
                yield from self._method_of_container(node, operand, name, arguments, state)

    def _method_of_container(
        self, node: ast.Call, operand: Any, name: str, arguments: Sequence[Any], state: State
    ) -> Iterator[tuple[State, Any]]:
        """A method of a container, or of its keys."""
        match operand, name, arguments:
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

    def _input(self, key: Any) -> z3.ExprRef:
        """The number of an input; no other number, and none from the end, is one."""
        number = unwrapped(key)
        if not isinstance(number, z3.ExprRef) or self.universe.leaf_of(number) != INPUT:
            raise NotTranslated(f"{number} in the place of an input's number")
        return number

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


def is_itself(lazy: Lazy) -> bool:
    """Whether what a loop's target is told of a member is the member."""
    probe = z3.Const("probe", lazy.members.universe.sort(lazy.members.key))
    return lazy.target(probe) is probe
