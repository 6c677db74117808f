"""Runs the source text of a method on symbolic values: what it does on every path through it.

The text is not changed and not imported.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import z3

from cacheproof.proofs.symbolic.reading.builtin_calls import is_itself
from cacheproof.proofs.symbolic.reading.containers import refuse_empty, refuse_kept
from cacheproof.proofs.symbolic.reading.joins import joined
from cacheproof.proofs.symbolic.reading.loops import Loops
from cacheproof.proofs.symbolic.reading.source import defaults_of
from cacheproof.proofs.symbolic.values.state import (
    Ended,
    Lazy,
    Receiver,
    Ref,
    Returned,
    State,
    term_of,
    truth_of,
)
from cacheproof.proofs.symbolic.values.values import Leaf, ListOf, SequenceOf, SetOf, Value

PATHS_MAX = 8
"""So many paths go on from a statement before those are joined that can be."""


class Machine(Loops):
    """Runs methods of objects whose attributes have the types of a table.

    Raises NotTranslated for a construct that has no reading.
    """

    # entry points

    def fresh_state(self, constants: Mapping[tuple[str, str], Any]) -> State:
        """Objects of which nothing is known, with some attributes that are."""
        state = State(dict(constants), {}, {})
        for (owner, name), kind in self.types.items():
            value = self.universe.fresh(kind, f"{owner}.{name}")
            state = self._set_attribute(state, owner, name, value)
            state = state.assuming(*self.in_order(value))
        return replace(state, snapshots=()).snapshot(anew=True)

    def emptied(self, state: State, attributes: Sequence[tuple[str, str]]) -> State:
        """With some attributes empty; a number is 0."""
        for owner, name in attributes:
            kind = self.types[owner, name]
            nothing = z3.IntVal(0) if isinstance(kind, Leaf) else self.universe.empty(kind)
            state = self._set_attribute(state, owner, name, nothing)
        return state

    def become(self, owner: str, name: str, value: Value, state: State) -> State:
        """With an attribute that is something else from now on."""
        return self._set_attribute(state, owner, name, value)

    def put(self, owner: str, name: str, key: z3.ExprRef, value: z3.ExprRef, state: State) -> State:
        """With an item of a map set."""
        return self._put(state.attributes[owner, name], key, value, state)

    def call(self, owner: str, name: str, arguments: Sequence[Any], state: State) -> list[Returned]:
        """The states in which a call of a method may end, and its answers."""
        return self.call_on(Receiver(owner), owner, name, arguments, state)

    def call_on(
        self, receiver: Any, owner: str, name: str, arguments: Sequence[Any], state: State
    ) -> list[Returned]:
        method = self.sources[owner].methods[name]
        parameters = [one.arg for one in (*method.args.args, *method.args.kwonlyargs)][1:]
        left_out = defaults_of(method)
        arguments = [
            *arguments,
            *(left_out[one] for one in parameters[len(arguments) :] if one in left_out),
        ]
        if len(parameters) != len(arguments):
            raise self._refused(owner, method, f"{name}() with {len(arguments)} arguments")
        for one in arguments:
            refuse_kept(one)
            if state.names:  # what is told from outside is told once
                refuse_empty(one)
        names = {"self": receiver, **dict(zip(parameters, arguments, strict=True))}
        frames = (*state.frames, state.names)
        inside = replace(state, names={**names, "": (owner, name)}, frames=frames)
        ends = [
            (replace(end, names=end.frames[-1], frames=end.frames[:-1]), answer if done else None)
            for end, done, answer in self._block(method.body, inside)
        ]
        if not state.names:  # the next call starts with attributes of which each has its own
            for end, _ in ends:
                self._refuse_shared(end, owner, method)
        return ends

    def _refuse_shared(self, state: State, owner: str, method: ast.FunctionDef) -> None:
        """Two attributes that have one container between calls."""
        found: dict[int, str] = {}
        for (_, name), operand in state.attributes.items():
            if isinstance(operand, Ref):
                if operand.cell in found:
                    words = f"{found[operand.cell]} and {name}, which are one object"
                    raise self._refused(owner, method, f"{method.name}(): {words}")
                found[operand.cell] = name

    def kept_by_caller(self, owner: str, name: str, state: State) -> list[Returned]:
        """As `call` of a method without parameters, whose answer the caller keeps: what an object
        answers and goes on using would change there.

        Raises:
            NotTranslated: an attribute is what it answers.
        """
        ends = self.call(owner, name, [], state)
        for end, answer in ends:
            for (_, attribute), operand in end.attributes.items():
                both = isinstance(answer, Ref) and isinstance(operand, Ref)
                if both and answer.cell == operand.cell:
                    method = self.sources[owner].methods[name]
                    words = f"{name}(), which answers with {attribute} itself"
                    raise self._refused(owner, method, words)
        return ends

    def inputs_in(self, owner: str, name: str, answer: Any, state: State) -> Value | None:
        """The members of a set or a list that a call of a method has answered; None: it is neither.

        Raises:
            NotTranslated: its members are made of others.
        """
        if isinstance(answer, Lazy):
            if not is_itself(answer):
                method = self.sources[owner].methods[name]
                raise self._refused(owner, method, f"{name}(), whose answer's members are made")
            return answer.members
        if isinstance(answer, Ref):
            found = state.value(answer)
            return found.keys if isinstance(found.kind, SetOf | ListOf | SequenceOf) else None
        return None

    def evaluated(self, node: ast.expr, state: State) -> Iterator[tuple[State, Any]]:
        """What an expression is in a state, on each way that it may take."""
        return self._eval(node, state)

    def asked(
        self, name: str, given: Sequence[Any], state: State
    ) -> Iterator[tuple[State, bool | z3.BoolRef]]:
        """As `call` of a method of the manager that answers whether something is so.

        Raises:
            NotTranslated: it answers something that is only as good as true, or as false.
        """
        for after, answer in self.call("m", name, given, state):
            if not isinstance(answer, bool | z3.BoolRef):
                words = f"{name}(), which answers no truth value"
                raise self._refused("m", self.sources["m"].methods[name], words)
            yield after, answer

    def granted(self, answer: bool | z3.BoolRef, state: State) -> Iterator[tuple[State, bool]]:
        """A state in which an answer is true, and one in which it is not."""
        return self._split(answer, state)

    # statements

    def _block(self, body: Sequence[ast.stmt], state: State) -> list[Ended]:
        ends: list[Ended] = [(state, False, None)]
        for statement in body:
            ends = [
                end
                for before, done, answer in ends
                for end in (
                    [(before, done, answer)] if done else self._statement(statement, before)
                )
            ]
            if self.may_join and len(ends) > PATHS_MAX:
                ends = self._joined(ends)
        return ends

    def _joined(self, ends: Sequence[Ended]) -> list[Ended]:
        """With the paths joined that go on and can be; what returns is left as it is."""
        left = joined(self.universe, [state for state, done, _ in ends if not done], self.joins)
        return [one for one in ends if one[1]] + [(state, False, None) for state in left]

    def _statement(self, node: ast.stmt, state: State) -> list[Ended]:
        with self.reading(node, state):
            return self._read(node, self._through(node, state))

    def _read(self, node: ast.stmt, state: State) -> list[Ended]:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return [(state, False, None)]
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=of, attr="pop"),
                    args=[key, ast.Constant()],
                    keywords=[],
                )
            ) if "pop" not in self.sources[state.names[""][0]].methods:
                # whatever was there, nobody asks for it
                return [
                    (self._dropped(container, at, after), False, None)
                    for after, (container, at) in self._each([of, key], state)
                ]
            case ast.Expr(value=value):
                return [(after, False, None) for after, _ in self._eval(value, state)]
            case ast.Return(value=None):
                return [(state, True, None)]
            case ast.Return(value=ast.expr() as value):
                return [(after, True, answer) for after, answer in self._eval(value, state)]
            case ast.Assert(test=test):
                return [
                    (
                        self.require(self._at(state, node, "assert"), after, truth_of(after, v)),
                        False,
                        None,
                    )
                    for after, v in self._eval(test, state)
                ]
            case ast.If(test=test, body=body, orelse=orelse):
                return [
                    end
                    for branch, holds in self._decided(test, state)
                    for end in self._block(body if holds else orelse, branch)
                ]
            case ast.Raise():  # what leads here must not happen
                self.require(self._at(state, node, ast.unparse(node)), state, False)
                return []
            case ast.While(test=test, body=body, orelse=[]):
                return [(after, False, None) for after in self._while(node, test, body, state)]
            case ast.For(target=target, iter=iterable, body=body, orelse=[]):
                return [
                    end
                    for after, among in self._eval(iterable, state)
                    for end in self._for(node, target, among, _without_continue(body), after)
                ]
        return self._bound(node, state)

    def _bound(self, node: ast.stmt, state: State) -> list[Ended]:
        """A statement that binds a target, or unbinds one."""
        match node:
            case ast.Assign(targets=[target], value=value):
                return [
                    (end, False, None)
                    for after, operand in self._eval(value, state)
                    for end in self._assign(target, operand, after)
                ]
            case ast.AnnAssign(target=target, value=value) if value is not None:
                return [
                    (end, False, None)
                    for after, operand in self._eval(value, state)
                    for end in self._assign(target, operand, after)
                ]
            case ast.AugAssign(
                target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=value
            ) if self._only_counts(name, state):
                return [
                    (self._counting_on(node, operand, after), False, None)
                    for after, operand in self._eval(value, state)
                ]
            case ast.AugAssign(target=target, op=operator, value=value):
                load = ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
                ast.fix_missing_locations(load)
                for child in ast.walk(load):
                    ast.copy_location(child, target)
                sum_ = ast.copy_location(ast.BinOp(load, operator, value), node)
                return self._statement(ast.copy_location(ast.Assign([target], sum_), node), state)
            case ast.Delete(targets=[ast.Subscript(value=container, slice=key)]):
                return [
                    (self._delete(node, of, at, after), False, None)
                    for after, (of, at) in self._each([container, key], state)
                ]
        raise self._refused_in(state, node)

    def _only_counts(self, name: str, state: State) -> bool:
        """Whether an attribute of which nothing is proved is a number from the start, and stays
        one."""
        owner, _ = state.names[""]
        return (owner, name) not in state.attributes and self.sources[owner].is_counter(name)

    def _counting_on(self, node: ast.AST, operand: Any, state: State) -> State:
        """With a number added to one that nobody reads."""
        number = term_of(operand)
        if isinstance(number, bool) or not isinstance(number, int | z3.ArithRef):
            raise self._refused_in(state, node)
        return state


def _without_continue(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """A loop's body in which what follows a condition to continue is its other branch."""
    for number, one in enumerate(body):
        match one:
            case ast.If(test=test, body=[ast.Continue()], orelse=[]):
                rest = _without_continue(body[number + 1 :])
                nothing = ast.copy_location(ast.Pass(), one)
                branch = ast.copy_location(ast.If(test, [nothing], rest), one)
                return [*body[:number], branch]
    return list(body)
