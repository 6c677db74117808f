"""A symbolic execution of any text: the tables that it reads by, the obligations that it leaves.

What a statement or an expression does is read by a function, which tables tell by the node's type
(`Readings`); it is given the execution, the node and a state, and tells the states that come of it.
An operation that could raise leaves an obligation: that it does not. A construct without a reading
is refused with file, line and construct.
"""

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from cacheproof.proofs.logic import Formula, negated
from cacheproof.proofs.symbolic.reading.joins import Joins, joined
from cacheproof.proofs.symbolic.reading.operands import refuse_empty, refuse_kept
from cacheproof.proofs.symbolic.reading.source import Source, defaults_of
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.solver import Possible
from cacheproof.proofs.symbolic.values.state import (
    Ended,
    Evaluated,
    Loop,
    Obligation,
    Operand,
    Place,
    Receiver,
    Ref,
    State,
    Ways,
)
from cacheproof.proofs.symbolic.values.values import Leaf, Type, Universe
from cacheproof.proofs.symbolic.values.words import Words
from cacheproof.proofs.text.definitions import without_docstring

PATHS_MAX = 8
"""Most paths that go on from a statement before those that can be are joined."""
_FAILURES = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""How a reading ends that was not made for what it meets."""

Statement = Callable[["Run", Any, State], Iterable[Ended]]
"""Reads a node: where the method may be after it."""
Expression = Callable[["Run", Any, State], Iterable[Evaluated]]
"""Reads a node: what it is in a state, on each way that it may take."""
Target = Callable[["Run", Any, Operand, State], Iterable[State]]
"""Reads a node and what is assigned to it: the states after the assignment."""
Attribute = Callable[["Run", Any, str, State], Operand]
"""Reads an attribute: what an operand has of a name, or `UNREAD`."""
Function = Callable[..., Iterable[Evaluated]]
"""Reads a call, given the execution, its node, a state and operands: what the function answers."""
Signature = tuple[str | type, ...]
"""A name, and the type of each operand. Methods have a point before their names, and `[]` is what
takes items; the first operand of these is what has them."""
UNREAD = object()


@dataclass(frozen=True)
class Readings:
    """Who reads what: nodes by their types, attributes by the type of what has them, functions by
    their signatures. A type stands for those that inherit from it."""

    statements: Mapping[type[ast.stmt], Statement]
    expressions: Mapping[type[ast.expr], Expression]
    targets: Mapping[type[ast.expr], Target]
    attributes: Mapping[type, Attribute]
    functions: Mapping[Signature, Function]

    def attribute_of(self, operand: Operand) -> Attribute | None:
        """Who reads attributes of such operands."""
        table = self.attributes
        return next((table[one] for one in type(operand).__mro__ if one in table), None)

    def function(self, name: str, operands: Sequence[Operand]) -> Function | None:
        """Who reads a function of such operands: the reader for the narrowest types, the first
        operand's before the others'."""
        for types in itertools.product(*(type(one).__mro__ for one in operands)):
            if (name, *types) in self.functions:
                return self.functions[name, *types]
        return None


@dataclass
class Run:
    """What a symbolic execution works on, the obligations that it leaves, and what it refuses.

    Raises NotTranslated for a construct that has no reading.

    Attributes:
        safety: the rule that nothing raises.
        objects: elements that are objects -> the owner of their attributes, each of them a map.
        variables: of owner, method and name, the types of variables that start as an empty list.
        unrolls: whether a for loop is run turn by turn, as it can be among a few elements.
        may_join: whether paths may be joined; `joins` are those that were.
    """

    readings: Readings
    universe: Universe
    words: Words
    sources: Mapping[str, Source]
    types: Mapping[tuple[str, str], Type]
    loops: Mapping[tuple[str, str], Sequence[Loop]]
    safety: str
    objects: Mapping[Leaf, str] = field(default_factory=dict)
    variables: Mapping[tuple[str, str, str], Type] = field(default_factory=dict)
    unrolls: bool = False
    may_join: bool = False
    joins: Joins = field(default_factory=Joins)
    obligations: list[Obligation] = field(default_factory=list)
    possible: Possible = field(default_factory=Possible)
    _cells: Iterator[int] = field(default_factory=itertools.count)
    _numbers: dict[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    _numbered: list[ast.FunctionDef] = field(default_factory=list)

    # what its tables tell

    def evaluated(self, node: ast.expr, state: State) -> Ways:
        """What an expression is in a state, on each way that it may take."""
        read = self.readings.expressions.get(type(node))
        if read is None:
            raise self.refused_in(state, node)
        return read(self, node, state)

    def assigned(self, target: ast.expr, operand: Operand, state: State) -> Iterable[State]:
        """The states in which a target is bound to an operand."""
        assign = self.readings.targets.get(type(target))
        if assign is None:
            raise self.refused_in(state, target)
        return assign(self, target, operand, state)

    def answered(self, node: ast.AST, name: str, operands: Sequence[Operand], state: State) -> Ways:
        """What a function answers in a state, on each way that it may take."""
        read = self.readings.function(name, operands)
        if read is None:
            raise self.refused_in(state, node)
        return read(self, node, state, *operands)

    def block(self, body: Sequence[ast.stmt], state: State) -> list[Ended]:
        """Where a run of some statements may end."""
        ends: list[Ended] = [(state, False, None)]
        for statement in body:
            ends = [
                end
                for before, done, answer in ends
                for end in ([(before, done, answer)] if done else self.executed(statement, before))
            ]
            if self.may_join and len(ends) > PATHS_MAX:
                ends = self._joined(ends)
        return ends

    def executed(self, node: ast.stmt, state: State) -> list[Ended]:
        """Where a run of a statement may end."""
        read = self.readings.statements.get(type(node))
        if read is None:
            raise self.refused_in(state, node)
        with self.reading(node, state):
            return list(read(self, node, self.through(node, state)))

    def _joined(self, ends: Sequence[Ended]) -> list[Ended]:
        """The ends, with those paths joined that go on and can be; what returns is left as it
        is."""
        left = joined(self.universe, [state for state, done, _ in ends if not done], self.joins)
        return [one for one in ends if one[1]] + [(state, False, None) for state in left]

    # calls of methods

    def call(
        self, owner: str, name: str, arguments: Sequence[Operand], state: State
    ) -> list[Evaluated]:
        """The states in which a call of a method may end, and its answers."""
        return self.call_on(Receiver(owner), owner, name, arguments, state)

    def call_on(
        self, receiver: Operand, owner: str, name: str, arguments: Sequence[Operand], state: State
    ) -> list[Evaluated]:
        """The states in which a call of a method on an object may end, and its answers."""
        method = self.sources[owner].methods[name]
        parameters = [one.arg for one in (*method.args.args, *method.args.kwonlyargs)][1:]
        defaults = defaults_of(method)
        left_out = parameters[len(arguments) :]
        if len(arguments) > len(parameters) or not defaults.keys() >= {*left_out}:
            raise self.refused(owner, method, f"{name}() with {len(arguments)} arguments")
        arguments = [*arguments, *(defaults[one] for one in left_out)]
        for one in arguments:
            refuse_kept(one)
            if state.names:  # what is told from outside is told once
                refuse_empty(one)
        names = {"self": receiver, **dict(zip(parameters, arguments, strict=True))}
        frames = (*state.frames, state.names)
        inside = replace(state, names={**names, "": (owner, name)}, frames=frames)
        ends = [
            (replace(end, names=end.frames[-1], frames=end.frames[:-1]), answer if done else None)
            for end, done, answer in self.block(method.body, inside)
        ]
        if not state.names:  # the next call starts with attributes of which each has its own
            for end, _ in ends:
                self._refuse_shared(end, owner, method)
        return ends

    def _refuse_shared(self, state: State, owner: str, method: ast.FunctionDef) -> None:
        """Refuse two attributes that have one container between calls."""
        found: dict[int, str] = {}
        for (_, name), operand in state.attributes.items():
            if isinstance(operand, Ref):
                if operand.cell in found:
                    words = f"{found[operand.cell]} and {name}, which are one object"
                    raise self.refused(owner, method, f"{method.name}(): {words}")
                found[operand.cell] = name

    # what readings go on with

    def new_cell(self) -> int:
        """A new cell, for a container that is in no other one."""
        return next(self._cells)

    def through(self, node: ast.stmt | ast.expr, state: State, way: str = "") -> State:
        """The state, gone through a node of the method that runs."""
        of_method = owner, method = state.method
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

    def split(self, holds: Formula, state: State) -> Iterator[tuple[State, bool]]:
        """A state in which something holds, and one in which it does not; one where it is plain."""
        if isinstance(holds, z3.BoolRef):
            plain = z3.simplify(holds)
            holds = z3.is_true(plain) if z3.is_true(plain) or z3.is_false(plain) else holds
        if isinstance(holds, bool):
            yield state, holds
        else:
            yield state.assuming(holds), True
            yield state.assuming(negated(holds)), False

    # refusals

    @contextmanager
    def reading(self, node: ast.AST, state: State) -> Iterator[None]:
        """Refuse with file and line what is refused, or fails, in the block."""
        try:
            yield
        except NotTranslated as refusal:
            if refusal.has_place:
                raise
            raise self.refused_in(state, node, f": {refusal}") from refusal
        except (*_FAILURES, z3.Z3Exception) as failure:
            raise self.refused_in(state, node, f": {failure}") from failure

    def at(self, state: State, node: ast.AST, what: str) -> str:
        """The name of an obligation: what, and where."""
        owner, method = state.method
        path = self.sources[owner].path if owner in self.sources else ""
        return f"{method}: {what} ({path}:{getattr(node, 'lineno', 0)})"

    def refused_in(self, state: State, node: ast.AST, why: str = "") -> NotTranslated:
        """The refusal of a node of the method that runs."""
        owner, _ = state.method
        return self.refused(owner, node, ast.unparse(node).splitlines()[0] + why)

    def refused(self, owner: str, node: ast.AST, what: str) -> NotTranslated:
        """The refusal of what stands in the text of an owner."""
        path = self.sources[owner].path if owner in self.sources else owner
        place = f"{path}:{getattr(node, 'lineno', 0)}"
        return NotTranslated(f"{place}: no reading of {what}", has_place=True)
