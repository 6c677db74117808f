"""What a function of a text of keys must be to be read: its statements, expressions and loops."""

import ast
import builtins
from collections.abc import Iterable, Iterator
from functools import cached_property

from cacheproof.proofs.keys.key_modules import HELPER, WRAPPER, Language
from cacheproof.proofs.keys.loops import HELPER as CUT
from cacheproof.proofs.keys.loops import bound_before
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.text.bindings import bound_by

STATEMENTS: tuple[type[ast.stmt], ...] = (
    ast.AnnAssign, ast.Assign, ast.AugAssign, ast.Expr, ast.For, ast.FunctionDef, ast.If,
    ast.Match, ast.Pass, ast.Raise, ast.Return, ast.While,
)  # fmt: skip
EXPRESSIONS: tuple[type[ast.expr], ...] = (
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.Constant, ast.Dict,
    ast.FormattedValue, ast.GeneratorExp, ast.IfExp, ast.JoinedStr, ast.List, ast.Name, ast.Slice,
    ast.Starred, ast.Subscript, ast.Tuple, ast.UnaryOp, ast.Yield, ast.YieldFrom,
)  # fmt: skip
PATTERNS: tuple[type[ast.pattern], ...] = (
    ast.MatchAs, ast.MatchClass, ast.MatchOr, ast.MatchSingleton,
)  # fmt: skip
CLASSES = frozenset(
    {"Mapping", "bool", "bytearray", "bytes", "dict", "float"}
    | {"int", "list", "memoryview", "str", "tuple"}
)
"""Classes by which values are told apart: those of which a symbol says whether it is one."""


class Gate:
    """Refuses, with file and line, what has no reading."""

    def __init__(self, language: Language) -> None:
        self._language = language

    def _refuse(self, node: ast.AST, what: str) -> None:
        line = getattr(node, "lineno", 0)
        raise Unread(f"{self._language.path}:{line}: no reading of {what}")


class Function(Gate):
    """A function that is read."""

    def __init__(self, function: ast.FunctionDef, language: Language) -> None:
        super().__init__(language)
        self._function = function
        self._known: set[int] = set()

    def check(self) -> None:
        """Refuse the function if something in it has no reading.

        Raises:
            Unread: names the file, the line, and what stands there.
        """
        self._parameters(self._function.args)
        for node in self._own:
            match node:
                case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Name(id=name)]):
                    if name == WRAPPER and _is_name_of_type(left):
                        self._known.add(id(left))
            self._node(node)
            if isinstance(node, ast.For | ast.While):
                self._loop(node)
        self._lists()

    @cached_property
    def _own(self) -> list[ast.AST]:
        """What stands in its body, but for the bodies of functions within it."""
        return list(_outside_functions(self._function.body))

    @property
    def _is_cut(self) -> bool:
        return self._function.name in self._language.cut

    def _parameters(self, given: ast.arguments) -> None:
        if given.vararg or given.kwarg:
            self._refuse(self._function, f"{self._function.name} of any number of arguments")
        for default in (*given.defaults, *given.kw_defaults):
            if default is not None and not isinstance(default, ast.Constant):
                self._refuse(default, f"the default {ast.unparse(default)}")

    def _node(self, node: ast.AST) -> None:
        known = (*STATEMENTS, *EXPRESSIONS, *PATTERNS)
        if isinstance(node, ast.stmt | ast.expr | ast.pattern) and not isinstance(node, known):
            self._refuse(node, f"{type(node).__name__}: {first_line(node)}")
        match node:
            case ast.FunctionDef():
                self._within(node)
            case ast.Name(id=name, ctx=ast.Store()):
                if name in vars(builtins) or name.startswith(HELPER) or name == CUT:
                    self._refuse(node, f"a variable named {name}")
            case ast.Assign(targets=targets) if len(targets) > 1:
                self._refuse(node, f"one value for several: {first_line(node)}")
            case ast.Assign(targets=[target]):
                self._target(target)
            case ast.AugAssign(target=target) if not isinstance(target, ast.Name):
                self._refuse(node, f"a change in place: {first_line(node)}")
            case ast.AnnAssign(target=target):
                self._target(target)
            case ast.Expr(value=value):
                self._effect(value)
            case ast.Compare():
                self._compared(node)
            case ast.BinOp(left=ast.Constant(value=str())):
                self._refuse(node, f"a text put together: {ast.unparse(node)}")
            case ast.FormattedValue(conversion=how, format_spec=form):
                if how != -1 or form is not None:
                    self._refuse(node, f"a value formatted: {ast.unparse(node)}")
            case ast.GeneratorExp(generators=generators):
                for one in generators:
                    if one.ifs or one.is_async:
                        self._refuse(node, f"elements left out: {ast.unparse(node)}")
            case ast.Attribute(attr=name) if name.startswith("__") and id(node) not in self._known:
                self._refuse(node, ast.unparse(node))
            case ast.Attribute(attr=name) if name in self._language.state:
                if self._function.name not in ("__init__", self._language.state[name]):
                    self._refuse(node, f"{ast.unparse(node)} in {self._function.name}")
            case ast.Call():
                self._call(node)
            case ast.Starred() | ast.Tuple() if self._spreads(node):
                self._refuse(node, f"what is laid out in {ast.unparse(node)}")
            case ast.MatchClass(cls=of, patterns=[], kwd_patterns=[]):
                if ast.unparse(of) not in CLASSES:
                    self._refuse(node, f"values told apart by {ast.unparse(of)}")
            case ast.MatchClass():
                self._refuse(node, "a pattern that takes a value apart")
            case ast.Subscript(slice=ast.Slice(step=ast.expr() as step)):
                self._refuse(node, f"a part taken in steps of {ast.unparse(step)}")

    def _within(self, inner: ast.FunctionDef) -> None:
        """A function within this one: what it takes from here is bound once."""
        if inner.name not in self._language.read:
            self._refuse(inner, f"the function {inner.name} within another")
        bound = [one for node in self._own for one in bound_by(node)]
        for node in ast.walk(inner):
            if isinstance(node, ast.Name) and bound.count(node.id) > 1:
                self._refuse(node, f"{node.id}, which changes outside {inner.name}")
        Function(inner, self._language).check()

    def _target(self, target: ast.expr) -> None:
        match target:
            case ast.Name():
                return
            case ast.Tuple(elts=elements) if all(isinstance(one, ast.Name) for one in elements):
                return
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                if self._function.name in ("__init__", self._language.state.get(name)):
                    return
            case ast.Subscript(value=ast.Name(id=name)) if name in self._made(ast.Dict):
                return
        self._refuse(target, f"a change of {ast.unparse(target)}")

    def _effect(self, value: ast.expr) -> None:
        """An expression that is run for its effect."""
        match value:
            case ast.Constant() | ast.Yield() | ast.YieldFrom():
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[_]):
                if self._is_cut and name in self._made(ast.List):
                    return
        self._refuse(value, f"an effect: {ast.unparse(value)}")

    def _compared(self, node: ast.Compare) -> None:
        for operator, other in zip(node.ops, node.comparators, strict=True):
            is_none = isinstance(other, ast.Constant) and other.value is None
            if isinstance(operator, ast.Is | ast.IsNot) and not (is_none and len(node.ops) == 1):
                self._refuse(node, ast.unparse(node))
            if is_none and not isinstance(operator, ast.Is | ast.IsNot):
                self._refuse(node, ast.unparse(node))

    def _call(self, node: ast.Call) -> None:
        if any(isinstance(one, ast.Starred) for one in node.args):
            self._refuse(node, f"arguments that are many: {ast.unparse(node)}")
        if any(one.arg is None for one in node.keywords):
            self._refuse(node, f"arguments that are many: {ast.unparse(node)}")
        match node.func:
            case ast.Name(id="isinstance") if node.keywords:
                self._refuse(node, "isinstance with keywords")
            case ast.Name(id="isinstance"):
                for one in ast.walk(node.args[-1]):
                    if isinstance(one, ast.Name) and one.id not in CLASSES:
                        self._refuse(node, f"values told apart by {one.id}")

    def _spreads(self, node: ast.AST) -> bool:
        """Whether it lays out more than one value, or one in front of others."""
        match node:
            case ast.Tuple(elts=[*first, _]):
                return any(isinstance(one, ast.Starred) for one in first)
        return False

    def _lists(self) -> None:
        """A list is filled in the loop that is cut, or is handed on as it stands."""
        named = self._made(ast.List)
        for node in self._own:
            match node:
                case (
                    ast.Assign(value=ast.List(elts=elements))
                    | ast.AnnAssign(value=ast.List(elts=elements))
                ) if elements or not self._is_cut:
                    self._refuse(node, f"a list that is kept: {first_line(node)}")
                case ast.AugAssign(target=ast.Name(id=name)) if name in named:
                    self._refuse(node, f"a change in place: {first_line(node)}")
                case ast.Assign(value=ast.Name(id=name)) if name in named:
                    self._refuse(node, f"two names of one list: {first_line(node)}")

    def _made(self, kind: type[ast.List | ast.Dict]) -> set[str]:
        """Variables that are bound once, to an empty list or mapping made there."""
        bound = [one for node in self._own for one in bound_by(node)]
        made: set[str] = set()
        for node in self._own:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=value)
                ) if isinstance(value, kind):
                    made.add(name)
        return {name for name in made if bound.count(name) == 1}

    # loops

    def _loop(self, loop: ast.For | ast.While) -> None:
        if loop.orelse:
            self._refuse(loop.orelse[0], "what a loop does in the end")
        for node in ast.walk(loop):
            if isinstance(node, ast.Return):
                self._refuse(node, "a loop that ends early")
        if self._is_cut:
            self._cut_loop(loop)
        elif isinstance(loop, ast.While):
            self._refuse(loop, f"a loop without an invariant: {first_line(loop)}")
        else:
            self._loop_over_many(loop)

    def _cut_loop(self, loop: ast.For | ast.While) -> None:
        """Only variables change in it, and parameters do not."""
        before = bound_before(self._function, loop)
        given = {one.arg for one in ast.walk(self._function.args) if isinstance(one, ast.arg)}
        for node in (one for part in loop.body for one in ast.walk(part)):
            match node:
                case ast.For() | ast.While():
                    self._refuse(node, "a loop within a loop")
                case ast.Match():
                    self._refuse(node, "a pattern within a loop")
                case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                    self._refuse(node, f"a loop that changes {ast.unparse(node)}")
                case ast.Name(id=name, ctx=ast.Store()) if name in given - before:
                    self._refuse(node, f"a loop that changes the parameter {name}")
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")):
                    if name not in before:
                        self._refuse(node, f"a loop that changes {name}")

    def _loop_over_many(self, loop: ast.For) -> None:
        """No variable outlives a round."""
        bound = _stored(loop)
        for name in bound:
            inside = self._scopes_of(name, loop)
            for node in (*self._own, *ast.walk(self._function.args)):
                is_it = isinstance(node, ast.Name) and node.id == name
                is_it = is_it or (isinstance(node, ast.arg) and node.arg == name)
                if is_it and id(node) not in inside:
                    self._refuse(node, f"a loop that changes {name}, which is used outside it")
        so_far = _stored(loop.target)
        for statement in loop.body:
            if isinstance(statement, ast.Assign):
                self._loaded(statement.value, bound - so_far)
                so_far |= _stored(statement)
            elif isinstance(statement, ast.Expr | ast.For | ast.Pass):
                self._loaded(statement, bound - so_far - _stored(statement))
            else:
                self._refuse(statement, f"a loop with {first_line(statement)}")

    def _scopes_of(self, name: str, loop: ast.For) -> set[int]:
        """What is inside the loop, or another loop or generator that binds the name for itself."""
        inside = {id(node) for node in ast.walk(loop)}
        for other in self._own:
            if isinstance(other, ast.For | ast.GeneratorExp):
                nodes = {id(node) for node in ast.walk(other)}
                if name in _stored(other) and id(loop) not in nodes:
                    inside |= nodes
        return inside

    def _loaded(self, node: ast.AST, names: set[str]) -> None:
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in names:
                self._refuse(one, f"{one.id} of the round before")


def _outside_functions(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nor what the message of an exception says: that is no part of what is proved."""
    for node in nodes:
        yield node
        match node:
            case ast.FunctionDef():
                continue
            case ast.Raise(exc=ast.Call(func=ast.Name() as kind), cause=None):
                yield kind
            case _:
                yield from _outside_functions(ast.iter_child_nodes(node))


def _stored(node: ast.AST) -> set[str]:
    return {name for one in ast.walk(node) for name in bound_by(one)}


def _is_name_of_type(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="type"), args=[_]), attr="__name__"):
            return True
    return False


def first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]
