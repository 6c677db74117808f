"""A symbolic execution, whatever it runs: the tables that it reads by, the obligations it leaves.

An operation that could raise leaves an obligation: that it does not. A construct without a reading
is refused with file, line and construct.
"""

import ast
import itertools
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from cacheproof.proofs.logic import Formula, negated
from cacheproof.proofs.symbolic.reading.joins import Joins
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.solver import Possible
from cacheproof.proofs.symbolic.values.state import Loop, Obligation, Place, State
from cacheproof.proofs.symbolic.values.values import Leaf, Type, Universe
from cacheproof.proofs.symbolic.values.words import Words
from cacheproof.proofs.text.definitions import without_docstring

_FAILURES = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""How a reading ends that was not made for what it meets."""


@dataclass
class Execution(ABC):
    """What a symbolic execution works on, the obligations that it leaves, and what it refuses.

    Attributes:
        safety: the rule that nothing raises.
        objects: elements that are objects -> the owner of their attributes, each of them a map.
        variables: of owner, method and name, the types of variables that start as an empty list.
        unrolls: whether a for loop is run turn by turn, as it can be among a few elements.
        may_join: whether paths may be joined; `joins` are those that were.
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
    may_join: bool = False
    joins: Joins = field(default_factory=Joins)
    obligations: list[Obligation] = field(default_factory=list)
    _cells: Iterator[int] = field(default_factory=itertools.count)
    _possible: Possible = field(default_factory=Possible)
    _numbers: dict[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    _numbered: list[ast.FunctionDef] = field(default_factory=list)

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

    def _split(self, holds: Formula, state: State) -> Iterator[tuple[State, bool]]:
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
