"""Changes of a class's text that break it: the red twins of what is proved of it.

Each is one small change that a programmer might make by mistake: a statement left out, a condition
taken the other way, a comparison that is off by one, the newest entry taken for the oldest.
"""

import ast
import pickle
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cacheproof.proofs.symbolic.reading.source import Source


@dataclass(frozen=True)
class ClassMutant:
    """A class with one change in a method."""

    name: str
    method: str
    source: Source

    @property
    def change(self) -> tuple[str, str]:
        """What is changed, wherever the method stands in its file."""
        return self.method, self.name.partition(": ")[2]


def mutants(
    source: Source,
    changes: "Sequence[Change] | None" = None,
    among: Container[str] | None = None,
) -> Iterator[ClassMutant]:
    """Every change of every method, or of those `among` these, those for red twins by default, each
    once; methods that begin anew come last."""
    last = ("reset", "__init__")
    asked = FOR_TWINS if changes is None else tuple(changes)
    for name, method in sorted(source.methods.items(), key=lambda one: one[0] in last):
        if among is None or name in among:
            for words, changed in _changes_of(method, asked):
                methods = {**source.methods, name: changed}
                yield ClassMutant(f"{name}() {words}", name, replace(source, methods=methods))


@lru_cache(maxsize=256)
def _changes_of(
    method: ast.FunctionDef, changes: "tuple[Change, ...]"
) -> list[tuple[str, ast.FunctionDef]]:
    """What a method is with each of these changes at each place, and the change in words."""
    found = []
    made = {ast.unparse(method)}
    original = pickle.dumps(method)
    changed, places = _copy(original)
    for number, node in enumerate(ast.walk(method)):
        for change in changes:
            done = change(changed, places[number])
            if done is None:
                continue
            text = ast.unparse(changed)
            if text not in made:
                made.add(text)
                ast.fix_missing_locations(changed)
                found.append((f"line {getattr(node, 'lineno', method.lineno)}: {done}", changed))
            changed, places = _copy(original)
    return found


def _copy(method: bytes) -> tuple[ast.FunctionDef, list[ast.AST]]:
    """A method to be changed, and its nodes."""
    copied = pickle.loads(method)
    return copied, list(ast.walk(copied))


def put_in_place(tree: ast.AST, node: ast.AST, other: ast.AST) -> str:
    """Put another node in a node's place, and say so."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, other)
            elif isinstance(value, list):
                value[:] = [other if one is node else one for one in value]
    return f"{ast.unparse(other)!r} for {ast.unparse(node)!r}"


Change = Callable[[ast.FunctionDef, ast.AST], str | None]
"""Changes a method at a node, and says how; None, and nothing done, where there is nothing of its
kind."""


_STATEMENTS = (ast.Assign, ast.AugAssign, ast.Delete, ast.Expr, ast.If, ast.For, ast.While)


def _left_out(method: ast.FunctionDef, node: ast.AST) -> str | None:
    if not isinstance(node, _STATEMENTS):
        return None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return None
    if isinstance(node, ast.Assign) and not isinstance(
        node.targets[0], ast.Attribute | ast.Subscript
    ):
        return None
    for parent in ast.walk(method):
        for body in (getattr(parent, "body", None), getattr(parent, "orelse", None)):
            if isinstance(body, list) and node in body:
                words = ast.unparse(node).splitlines()[0]
                body[body.index(node)] = ast.copy_location(ast.Pass(), node)
                return f"without {words!r}"
    return None


def _off_by_one(method: ast.FunctionDef, node: ast.AST) -> str | None:
    others = {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt}
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in others:
        return None
    before = ast.unparse(node)
    node.ops[0] = others[type(node.ops[0])]()
    return f"{ast.unparse(node)!r} for {before!r}"


def _other_way(method: ast.FunctionDef, node: ast.AST) -> str | None:
    if not isinstance(node, ast.If):
        return None
    before = ast.unparse(node.test)
    node.test = ast.copy_location(ast.Constant(True), node.test)
    return f"always, not only if {before!r}"


def _newest(method: ast.FunctionDef, node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "popitem" and node.keywords:
        node.keywords[0].value = ast.copy_location(ast.Constant(True), node)
        return "the newest entry for the oldest"
    if isinstance(node.func, ast.Name) and node.func.id == "iter":
        node.func.id = "reversed"
        return "the newest entry for the oldest"
    return None


def _without_default(method: ast.FunctionDef, node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr != "pop" or len(node.args) != 2:
        return None
    default = ast.unparse(node.args.pop())
    return f"{ast.unparse(node)!r} without the default {default}"


def _unfiltered(method: ast.FunctionDef, node: ast.AST) -> str | None:
    if not isinstance(node, ast.ListComp | ast.SetComp) or not node.generators[0].ifs:
        return None
    node.generators[0].ifs = []
    return "all of them"


_NOTHING = {"list": "[]", "set": "set()"}
"""What is nothing, by the type of an answer."""


def _reports_nothing(method: ast.FunctionDef, node: ast.AST) -> str | None:
    if not isinstance(node, ast.Return) or method.returns is None or node.value is None:
        return None
    nothing = _NOTHING.get(ast.unparse(method.returns).partition("[")[0])
    if nothing is None:
        return None
    before = ast.unparse(node.value)
    node.value = ast.copy_location(ast.parse(nothing, mode="eval").body, node.value)
    return f"nothing for {before!r}"


def _demands_room(method: ast.FunctionDef, node: ast.AST) -> str | None:
    return _begins_with(method, node, "assert self.num_free_slots > 0")


def _forgets_holders(method: ast.FunctionDef, node: ast.AST) -> str | None:
    return _begins_with(method, node, "self.cached.clear()")


def _forgets_sizes(method: ast.FunctionDef, node: ast.AST) -> str | None:
    return _begins_with(method, node, "self.num_embeds_by_hash.clear()")


def _begins_with(method: ast.FunctionDef, node: ast.AST, statement: str) -> str | None:
    if node is not method or method.name == "__init__":
        return None
    method.body.insert(0, ast.parse(statement).body[0])
    return f"{statement!r} first"


FOR_TWINS: tuple[Change, ...] = (
    _left_out,
    _off_by_one,
    _other_way,
    _newest,
    _without_default,
    _unfiltered,
    _reports_nothing,
    _demands_room,
    _forgets_holders,
    _forgets_sizes,
)
"""A few of each kind, so that every contract is broken by one of them."""


# every change of a kind, for a measurement


def _compared_by(other: type[ast.cmpop]) -> Change:
    def change(method: ast.FunctionDef, node: ast.AST) -> str | None:
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return None
        if type(node.ops[0]) is other or _kind_of(node.ops[0]) != _kind_of(other()):
            return None
        before = ast.unparse(node)
        node.ops[0] = other()
        return f"{ast.unparse(node)!r} for {before!r}"

    return change


_COMPARISONS = (
    (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
)


def _kind_of(operator: ast.cmpop) -> int:
    return next(n for n, kind in enumerate(_COMPARISONS) if isinstance(operator, kind))


def _other_arithmetic(method: ast.FunctionDef, node: ast.AST) -> str | None:
    others = {ast.Add: ast.Sub, ast.Sub: ast.Add}
    if not isinstance(node, ast.BinOp | ast.AugAssign) or type(node.op) not in others:
        return None
    before = ast.unparse(node)
    node.op = others[type(node.op)]()
    return f"{ast.unparse(node)!r} for {before!r}"


def _without_operand(number: int) -> Change:
    def change(method: ast.FunctionDef, node: ast.AST) -> str | None:
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                kept = right if number == 0 else left
            case ast.BoolOp(values=values) if number < len(values):
                others = [one for one in values if one is not values[number]]
                kept = others[0] if len(others) == 1 else ast.BoolOp(node.op, others)
            case _:
                return None
        return put_in_place(method, node, kept)

    return change


def _decided(way: bool) -> Change:
    """A condition that is always met, or never."""

    def change(method: ast.FunctionDef, node: ast.AST) -> str | None:
        if not isinstance(node, ast.If | ast.While | ast.IfExp):
            return None
        before = ast.unparse(node.test)
        node.test = ast.copy_location(ast.Constant(way), node.test)
        return f"{way} for {before!r}"

    return change


def _negated(method: ast.FunctionDef, node: ast.AST) -> str | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return put_in_place(method, node, node.operand)
    if not isinstance(node, ast.If | ast.While | ast.IfExp):
        return None
    before = ast.unparse(node.test)
    node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
    return f"{ast.unparse(node.test)!r} for {before!r}"


def _other_constant(by: int) -> Change:
    def change(method: ast.FunctionDef, node: ast.AST) -> str | None:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, int):
            return None
        before = node.value
        if isinstance(before, bool) and by < 0:
            return None
        if isinstance(before, bool):
            node.value = not before
            return f"{node.value} for {before}"
        node.value = before + by
        return f"{node.value} for {before}"

    return change


def _answers(answer: bool) -> Change:
    def change(method: ast.FunctionDef, node: ast.AST) -> str | None:
        if not isinstance(node, ast.Return) or method.returns is None or node.value is None:
            return None
        before = ast.unparse(node.value)
        if ast.unparse(method.returns) != "bool" or before == str(answer):
            return None
        node.value = ast.copy_location(ast.Constant(answer), node.value)
        return f"{answer} for {before!r}"

    return change


BY_KIND: Mapping[str, tuple[Change, ...]] = {
    "statement left out": (_left_out,),
    "other comparison": tuple(_compared_by(one) for kind in _COMPARISONS for one in kind),
    "other arithmetic": (_other_arithmetic,),
    "operand left out": tuple(_without_operand(number) for number in range(3)),
    "condition decided": tuple(_decided(way) for way in (True, False)),
    "condition negated": (_negated,),
    "other constant": tuple(_other_constant(by) for by in (1, -1)),
    "other answer": (*(_answers(answer) for answer in (True, False)), _reports_nothing),
    "other elements": (_newest, _without_default, _unfiltered),
}
"""The operators of mutation testing: of every place at which one applies, a change."""

EVERY: tuple[Change, ...] = tuple(change for kind in BY_KIND.values() for change in kind)
