"""Loops of any number of rounds, cut at an invariant.

In the text of a function each loop becomes one round from any state in which its invariant holds,
and what follows it. The invariants are stated where they are used; that they hold on entry and
after a round is checked on every path.
"""

import ast
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, runtime_checkable

import z3

from cacheproof.proofs.keys import paths
from cacheproof.proofs.keys.symbolic import Truth

HELPER = "cut_loop"


class Invariant(Protocol):
    """What is known of a loop, as two methods of the variables that it changes and that stood
    before it, by name in order: `entered` claims the invariant of them and returns them as any
    round may find them, `repeated` claims it after a round."""

    @property
    def entered(self) -> Callable[..., tuple[object, ...]]: ...

    @property
    def repeated(self) -> Callable[..., None]: ...


@runtime_checkable
class ForInvariant(Invariant, Protocol):
    """The invariant of a for loop: `element` of an iterable says whether there is another element,
    and which."""

    @property
    def element(self) -> Callable[..., tuple[Truth, object]]: ...


class LoopClaims:
    """What must hold on the paths on which it is claimed; `failed` names what did not, and
    `counterexample` is a model of the first of these."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.failed: list[str] = []
        self.counterexample: z3.ModelRef | None = None
        self._known: dict[tuple[int, ...], tuple[list[z3.BoolRef], z3.ModelRef | None]] = {}

    def claim(self, name: str, condition: z3.BoolRef) -> None:
        """Claim a condition on this path; it is taken for true afterwards. Paths share their
        beginnings, so most of what is asked on one was asked on another."""
        terms = [*paths.assumed(), z3.Not(condition)]
        asked = tuple(term.get_id() for term in terms)
        if asked not in self._known:
            self._known[asked] = terms, paths.satisfiable(terms, self._seed)
        model = self._known[asked][1]
        if model is not None:
            self.failed.append(name)
            self.counterexample = self.counterexample or model
        paths.assume(condition)


class Loops:
    """The invariants of a text's loops, by function and number."""

    def __init__(self, invariants: Mapping[str, Invariant]) -> None:
        self._invariants = invariants

    def entered(self, name: str, *variables: object) -> tuple[object, ...]:
        return self._invariants[name].entered(*variables)

    def element(self, name: str, iterable: object) -> tuple[Truth, object]:
        invariant = self._invariants[name]
        assert isinstance(invariant, ForInvariant)
        return invariant.element(iterable)

    def repeated(self, name: str, *variables: object) -> None:
        self._invariants[name].repeated(*variables)
        raise paths.PathEnded


def cut(tree: ast.Module, functions: Collection[str]) -> ast.Module:
    """The tree, in which the loops of these functions are cut; they ask `cut_loop`, a `Loops`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in functions:
            _Cut(node).visit(node)
    return tree


class _Cut(ast.NodeTransformer):
    def __init__(self, function: ast.FunctionDef) -> None:
        self._function = function
        self._number = 0

    def visit_While(self, loop: ast.While) -> list[ast.stmt]:
        name, variables = self._described(loop)
        again = ast.If(loop.test, [*loop.body, _asked(loop, "repeated", name, variables)], [])
        return [_entry(loop, name, variables), again]

    def visit_For(self, loop: ast.For) -> list[ast.stmt]:
        name, variables = self._described(loop)
        draw = _at(loop, f"another, _ = {HELPER}.element({name!r}, _)")
        assert isinstance(draw, ast.Assign)
        assert isinstance(draw.targets[0], ast.Tuple)
        assert isinstance(draw.value, ast.Call)
        draw.targets[0].elts[1], draw.value.args[1] = loop.target, loop.iter
        body = [*loop.body, _asked(loop, "repeated", name, variables)]
        again = ast.If(ast.Name("another", ast.Load()), body, [])
        return [_entry(loop, name, variables), draw, again]

    def _described(self, loop: ast.While | ast.For) -> tuple[str, list[str]]:
        self._number += 1
        changed = {name for node in ast.walk(loop) for name in _changed(node)}
        before = bound_before(self._function, loop)
        return f"{self._function.name} {self._number}", sorted(changed & before)


def bound_before(function: ast.FunctionDef, loop: ast.While | ast.For) -> set[str]:
    """The variables, but for parameters, that stand before a loop."""
    within = set(map(id, ast.walk(loop)))
    return {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and id(node) not in within
        and node.lineno < loop.lineno
    }


def _changed(node: ast.AST) -> Iterable[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")):
            yield name


def _entry(loop: ast.stmt, name: str, variables: list[str]) -> ast.stmt:
    names = "".join(f"{variable}, " for variable in variables)
    return _at(loop, f"({names}) = {HELPER}.entered({name!r}, {names})")


def _asked(loop: ast.stmt, what: str, name: str, variables: list[str]) -> ast.stmt:
    return _at(loop, f"{HELPER}.{what}({name!r}, {', '.join(variables)})")


def _at(loop: ast.stmt, text: str) -> ast.stmt:
    """A statement in the line of a loop."""
    return ast.increment_lineno(ast.parse(text).body[0], loop.lineno - 1)
