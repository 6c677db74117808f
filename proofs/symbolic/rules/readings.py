"""Rules as formulas, each read once and then put in terms of any state.

For one shape of records a rule's text has one reading, whatever terms these are made of: it is read
with names for the terms, and the terms take the names' places.
"""

import ast
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import z3

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.rules.predicates import PredicateReader
from cacheproof.proofs.symbolic.rules.rules import Predicate
from cacheproof.proofs.symbolic.values.records import Denoted, Record
from cacheproof.proofs.symbolic.values.values import Universe, Value
from cacheproof.proofs.symbolic.values.words import Words


@dataclass(frozen=True)
class _Reading:
    """A formula over names that stand for terms."""

    formula: Formula
    names: Sequence[z3.ExprRef]

    def of(self, terms: Sequence[z3.ExprRef]) -> Formula:
        if isinstance(self.formula, bool) or not terms:
            return self.formula
        return z3.substitute(self.formula, *zip(self.names, terms, strict=True))


class RuleLanguage:
    """A universe, the words that are said of it, and the rules that were read in them."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.words = Words(universe)
        self._parts: dict[ast.expr, list[tuple[str, str]]] = {}
        self._readings: dict[tuple[ast.expr, tuple[Hashable, ...]], _Reading | None] = {}

    def formula(self, rule: Predicate, names: Mapping[str, Denoted]) -> tuple[Formula, Formula]:
        """What defines the results of a rule's words, and its truth value; of these records."""
        apart = _Apart()
        try:
            parts = [apart.take(names, *part) for part in self._parts_of(rule, names)]
        except _NotTold:
            return self._read(rule, names)
        key = rule.tree, tuple(parts)
        if key not in self._readings:
            self._readings[key] = self._reading(rule, names, apart)
        reading = self._readings[key]
        return self._read(rule, names) if reading is None else (True, reading.of(apart.terms))

    def _reading(
        self, rule: Predicate, names: Mapping[str, Denoted], apart: "_Apart"
    ) -> _Reading | None:
        """None where words make something new at each reading."""
        standing = [
            z3.Const(f"term {number}", term.sort()) for number, term in enumerate(apart.terms)
        ]
        defined, holds = self._read(rule, apart.rebuilt(names, iter(standing)))
        return _Reading(holds, standing) if defined is True else None

    def _read(self, rule: Predicate, names: Mapping[str, Denoted]) -> tuple[Formula, Formula]:
        return PredicateReader(self.words, rule.place).formula(rule.tree, names)

    def _parts_of(self, rule: Predicate, names: Mapping[str, Denoted]) -> list[tuple[str, str]]:
        """What a rule looks at: of records the fields, of other names themselves ("")."""
        if rule.tree not in self._parts:
            nodes = list(ast.walk(rule.tree))
            of_names = [
                node
                for node in nodes
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            ]
            inside = {id(node.value) for node in of_names}
            found = [(ast.unparse(node.value), node.attr) for node in of_names]
            found += [
                (node.id, "")
                for node in nodes
                if isinstance(node, ast.Name) and id(node) not in inside
            ]
            self._parts[rule.tree] = [one for one in dict.fromkeys(found) if one[0] in names]
        return self._parts[rule.tree]


class _NotTold(Exception):
    """A value that cannot be told from others by its shape."""


class _Apart:
    """The terms of what a rule looks at, in order; what is left of it is its shape."""

    def __init__(self) -> None:
        self.terms: list[z3.ExprRef] = []
        self._taken: list[tuple[str, str]] = []

    def take(self, names: Mapping[str, Denoted], name: str, field: str) -> Hashable:
        """The shape of a field, or of all that a name stands for."""
        found = names[name]
        if field:
            if not (isinstance(found, Record) and field in found.fields):
                raise _NotTold
            found = found.fields[field]
        self._taken.append((name, field))
        return self._shape(found)

    def _shape(self, value: Denoted) -> Hashable:
        if isinstance(value, Value):
            self.terms += value.terms
            return value.kind
        if isinstance(value, z3.ExprRef):
            self.terms.append(value)
            return value.sort()
        if value is None or isinstance(value, bool | int | str):
            return type(value), value
        raise _NotTold

    def rebuilt(
        self, names: Mapping[str, Denoted], terms: Iterator[z3.ExprRef]
    ) -> dict[str, Denoted]:
        """The names, with other terms in place of those that were taken."""
        found = dict(names)
        for name, field in self._taken:
            taken = found[name]
            if field and isinstance(taken, Record):
                of_field = self._of(taken.fields[field], terms)
                found[name] = Record({**taken.fields, field: of_field})
            else:
                found[name] = self._of(taken, terms)
        return found

    def _of(self, value: Denoted, terms: Iterator[z3.ExprRef]) -> Denoted:
        if isinstance(value, Value):
            return Value(value.universe, value.kind, tuple(next(terms) for _ in value.terms))
        return next(terms) if isinstance(value, z3.ExprRef) else value
