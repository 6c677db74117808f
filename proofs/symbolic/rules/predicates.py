"""Reads the source of a predicate as a formula over symbolic values.

A predicate of `spec` is one expression in the subset of `spec.subset`, so what is proved is the
text that runs. The invariants that only proofs need are written in the same way; they may also say
`any(generator)` and ask for what a request's input is.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, implies, negated
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.records import (
    Denoted,
    Joined,
    Record,
    equal,
    joined,
    truth,
    unwrapped,
)
from cacheproof.proofs.symbolic.values.values import Value
from cacheproof.proofs.symbolic.values.words import Words


@dataclass(frozen=True)
class PredicateReader:
    """Reads one predicate, whose file and first line are for messages."""

    words: Words
    place: str

    def read(self, tree: ast.expr, names: Mapping[str, Denoted]) -> Any:
        """The value of an expression; `names` are what its names stand for."""
        match tree:
            case ast.Name(id=name):
                return names[name]
            case ast.Constant(value=value):
                return value
            case ast.Attribute(value=of, attr=name):
                return self._field(tree, self.read(of, names), name)
            case ast.Subscript(value=of, slice=ast.Constant(value=int() as part)):
                return self.words.part(self.read(of, names), part)
            case ast.Subscript(value=of, slice=key):
                return unwrapped(self.read(of, names).at(unwrapped(self.read(key, names))))
            case ast.BoolOp(op=ast.And(), values=parts):
                return conjunction(tuple(truth(self.read(part, names)) for part in parts))
            case ast.BoolOp(op=ast.Or(), values=parts):
                return disjunction(tuple(truth(self.read(part, names)) for part in parts))
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return negated(truth(self.read(part, names)))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                one, other = self.read(left, names), self.read(right, names)
                if isinstance(one, Value | Joined):
                    return joined(one, other)
                return one + other
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.read(left, names) - self.read(right, names)
            case ast.Compare():
                return self._comparison(tree, names)
            case ast.Call(func=ast.Name(id="all" | "any" as word), args=[ast.GeneratorExp() as of]):
                return self._quantified(word, of.elt, of.generators, names)
            case ast.Call(func=ast.Name(id=word), args=arguments) if hasattr(self.words, word):
                return getattr(self.words, word)(*(self.read(one, names) for one in arguments))
        raise self._refused(tree)

    def formula(self, tree: ast.expr, names: Mapping[str, Denoted]) -> tuple[Formula, Formula]:
        """What defines the results of an expression's words, and its truth value."""
        truth_value = truth(self.read(tree, names))
        return conjunction(tuple(self.words.taken())), truth_value

    def _field(self, tree: ast.AST, record: Denoted, name: str) -> Denoted:
        if isinstance(record, Record) and name in record.fields:
            return unwrapped(record.fields[name])
        raise self._refused(tree)

    def _comparison(self, tree: ast.Compare, names: Mapping[str, Denoted]) -> Formula:
        match tree:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[of]),
                ops=[ast.Gt() | ast.Eq() as operator],
                comparators=[ast.Constant(value=0)],
            ):
                some = truth(self.read(of, names))
                return some if isinstance(operator, ast.Gt) else negated(some)
        operands = [unwrapped(self.read(one, names)) for one in (tree.left, *tree.comparators)]
        parts = [
            self._compared(tree, operator, left, right)
            for operator, left, right in zip(tree.ops, operands, operands[1:], strict=False)
        ]
        return parts[0] if len(parts) == 1 else conjunction(tuple(parts))

    def _compared(self, tree: ast.AST, operator: ast.cmpop, left: Any, right: Any) -> Formula:
        match operator:
            case ast.Eq():
                return equal(left, right)
            case ast.NotEq():
                return negated(equal(left, right))
            case ast.In():
                return right.has(left)
            case ast.NotIn():
                return z3.Not(right.has(left))
            case ast.LtE() if isinstance(left, Value):
                return left.all(lambda k: implies(left.has(k), right.has(k)))
            case ast.LtE():
                return left <= right
            case ast.Lt():
                return left < right
            case ast.GtE():
                return left >= right
            case ast.Gt():
                return left > right
        raise self._refused(tree)

    def _quantified(
        self,
        word: str,
        element: ast.expr,
        generators: list[ast.comprehension],
        names: Mapping[str, Denoted],
    ) -> Formula:
        if not generators:
            return truth(self.read(element, names))
        head, *rest = generators
        among = self.read(head.iter, names)
        if not isinstance(among, Value) or not isinstance(head.target, ast.Name):
            raise self._refused(head.iter)
        element_of = head.target.id

        def body(key: z3.ExprRef) -> Formula:
            inner = {**names, element_of: key}
            conditions = (among.has(key), *(truth(self.read(one, inner)) for one in head.ifs))
            then = self._quantified(word, element, rest, inner)
            if word == "all":
                return implies(conjunction(conditions), then)
            return conjunction((*conditions, then))

        return among.all(body) if word == "all" else among.some(body)

    def _refused(self, tree: ast.AST) -> NotTranslated:
        return NotTranslated(f"{self.place}: no reading of {ast.unparse(tree)}", has_place=True)
