"""What a text may say in other words than proofs read, in those that they read.

Each rule leaves what a method does as it is, and its docstring is a line of
docs/reference/language.md. What CPython runs beside a proof is the text as it stands.
"""

import ast
import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.text.bindings import parsed

_LEVELS = frozenset({"critical", "debug", "error", "info", "warning"})
"""Methods of a logger that format what they are given, or do not, and change nothing."""
_LOGGER = ("init_logger", "vllm.logger")
"""What makes a logger, and the module that it comes from."""
_ADDING = {"append": (ast.ListComp, ["[]", "list()"]), "add": (ast.SetComp, ["set()"])}
"""By the method that adds a member: the comprehension, and what it would begin with."""


@dataclass(frozen=True)
class About:
    """What a rule knows beside some statements: the method that they stand in, and the names of
    loggers of its module."""

    method: ast.FunctionDef
    loggers: Collection[str]

    def is_named_but_in(self, names: Collection[str], loop: ast.For) -> bool:
        """Whether the method names one of these anywhere else than in a loop, but for what a
        comprehension calls so for itself."""
        within = {id(one) for one in ast.walk(loop)}
        for node in ast.walk(self.method):
            if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                bound = {_bound(one) for head in node.generators for one in ast.walk(head.target)}
                first = {id(one) for one in ast.walk(node.generators[0].iter)}
                within |= {
                    id(one)
                    for one in ast.walk(node)
                    if _name_of(one) in bound and id(one) not in first
                }
        return any(
            id(one) not in within and _name_of(one) in names for one in ast.walk(self.method)
        )


Rule = Callable[[Sequence[ast.stmt], About], "tuple[list[ast.stmt], int] | None"]
"""What some statements begin with, in other words, and how many of them that was; or None."""
RULES: list[Rule] = []


def _rule(rule: Rule) -> Rule:
    RULES.append(rule)
    return rule


def in_plain_words(source: Source) -> Source:
    """A class whose methods are read in the words of proofs; those that are in them already are the
    same objects."""
    loggers = frozenset(_loggers(parsed(source.module)))
    read = {name: _plain(method, loggers) for name, method in source.methods.items()}
    return replace(source, methods=read, read=read)


def _plain(method: ast.FunctionDef, loggers: Collection[str]) -> ast.FunctionDef:
    bound = {name for one in ast.walk(method) if (name := _bound(one)) is not None}
    changed = copy.deepcopy(method)
    bind_self(changed)
    changed.body = _block(changed.body, About(changed, frozenset(loggers) - bound))
    if ast.dump(changed) == ast.dump(method):
        return method
    return ast.fix_missing_locations(changed)


def _block(body: Sequence[ast.stmt], about: About) -> list[ast.stmt]:
    """Statements, and those within them, in the words that proofs read."""
    left, done = list(body), list[ast.stmt]()
    while left:
        for rule in RULES:
            if (found := rule(left, about)) is not None:
                said, count = found
                left = [*_placed(said, left[0]), *left[count:]]
                break
        else:
            one = left.pop(0)
            for part in ("body", "orelse"):
                inner = getattr(one, part, None)
                if inner and not isinstance(one, ast.FunctionDef | ast.ClassDef):
                    setattr(one, part, _block(inner, about))
            done.append(one)
    return done


def _placed(said: Sequence[ast.stmt], where: ast.stmt) -> Sequence[ast.stmt]:
    """Statements where another stood, so that what is told of them has its line."""
    for one in said:
        for node in ast.walk(one):
            if not hasattr(node, "lineno") and isinstance(node, ast.stmt | ast.expr):
                ast.copy_location(node, where)
    return said


def bind_self(method: ast.FunctionDef) -> None:
    """A static method that is called by `self`: a method that does not use it."""
    is_static = [ast.unparse(one) for one in method.decorator_list] == ["staticmethod"]
    named = any(_name_of(one) == "self" for one in ast.walk(method))
    if is_static and not named and not method.args.posonlyargs:
        method.decorator_list = []
        method.args.args.insert(0, ast.arg("self"))


@_rule
def _assertions(body: Sequence[ast.stmt], about: About) -> tuple[list[ast.stmt], int] | None:
    """The message of an assertion, which is only evaluated where the assertion fails: left out."""
    match body[0]:
        case ast.Assert(test=test, msg=ast.expr()) as one:
            return [ast.copy_location(ast.Assert(test), one)], 1
    return None


@_rule
def _logging(body: Sequence[ast.stmt], about: About) -> tuple[list[ast.stmt], int] | None:
    """`logger.debug(...)` and the like, of the module's `init_logger(__name__)`, with arguments by
    place: these are evaluated, an f-string's parts as well if nothing says how to format them. What
    a request or a container is in words is taken to be there."""
    match body[0]:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id=logger), attr=level),
                args=[_, *_] as given,
                keywords=[],
            )
        ) if logger in about.loggers and level in _LEVELS:
            parts = [part for one in given for part in _parts(one)]
            if any(isinstance(one, ast.JoinedStr | ast.Starred) for one in parts):
                return None
            told = [ast.Expr(one) for one in parts if not isinstance(one, ast.Constant)]
            return [*told] or [ast.Pass()], 1
    return None


def _parts(given: ast.expr) -> Iterator[ast.expr]:
    """What is evaluated of what a logger is given; an f-string that is formatted as it says is
    given whole."""
    if not isinstance(given, ast.JoinedStr):
        yield given
        return
    for one in given.values:
        if isinstance(one, ast.FormattedValue):
            yield one.value if one.format_spec is None else given


@_rule
def _named_on_the_way(body: Sequence[ast.stmt], about: About) -> tuple[list[ast.stmt], int] | None:
    """`:=` in what a statement evaluates first, and whatever happens: an assignment before it. Not
    in what a `while` loop asks."""
    match body[0]:
        case ast.If(test=asked) | ast.Assert(test=asked):
            field = "test"
        case (
            ast.Return(value=ast.expr() as asked) | ast.Assign(value=asked) | ast.Expr(value=asked)
        ):
            field = "value"
        case _:
            return None
    first = _evaluated_first(asked)
    if first is None:
        return None
    target, value = first.target, first.value
    read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
    one = copy.copy(body[0])
    setattr(one, field, _with(asked, first, read))
    return [ast.copy_location(ast.Assign([target], value), body[0]), one], 1


def _evaluated_first(asked: ast.expr) -> ast.NamedExpr | None:
    """The `:=` that an expression begins with."""
    while True:
        match asked:
            case ast.NamedExpr():
                return asked
            case ast.Compare(left=first) | ast.BinOp(left=first) | ast.UnaryOp(operand=first):
                asked = first
            case ast.BoolOp(values=[first, *_]) | ast.IfExp(test=first):
                asked = first
            case _:
                return None


def _with(asked: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """An expression with another in the place of a part."""

    class Put(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else super().generic_visit(node)

    found = Put().visit(asked)
    assert isinstance(found, ast.expr)
    return found


@_rule
def _collecting(body: Sequence[ast.stmt], about: About) -> tuple[list[ast.stmt], int] | None:
    """A `for` loop that does nothing but add to a list or a set, which is made before it, under one
    `if` or none: a comprehension. Its variable is named nowhere else."""
    match list(body[:2]):
        case [
            ast.Assign(targets=[ast.Name(id=name)], value=empty)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as empty),
            ast.For(target=target, iter=among, body=[only], orelse=[]) as loop,
        ]:
            pass
        case _:
            return None
    match only:
        case ast.If(test=test, body=[adding], orelse=[]):
            ifs = [test]
        case adding:
            ifs = []
    match adding:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id=to), attr=how), args=[member], keywords=[]
            )
        ) if to == name and how in _ADDING:
            kind, beginnings = _ADDING[how]
        case _:
            return None
    asked = [among, member, *ifs]
    names = {one for node in ast.walk(target) if (one := _bound(node)) is not None}
    if (
        ast.unparse(empty) not in beginnings
        or any(_name_of(one) == name for part in (target, *asked) for one in ast.walk(part))
        or about.is_named_but_in(names, loop)
    ):
        return None
    value = kind(member, [ast.comprehension(target, among, ifs, 0)])
    first = copy.copy(body[0])
    first.value = ast.copy_location(value, loop)  # type: ignore[attr-defined]
    return [first], 2


@_rule
def _asking(body: Sequence[ast.stmt], about: About) -> tuple[list[ast.stmt], int] | None:
    """A `for` loop that returns a truth value at the first member of which something is so, before
    the other one is returned: `any` or `all`. Its variable is named nowhere else."""
    match list(body[:2]):
        case [
            ast.For(
                target=target,
                iter=among,
                body=[ast.If(test=test, body=[ast.Return(value=found)], orelse=[])],
                orelse=[],
            ) as loop,
            ast.Return(value=otherwise),
        ]:
            pass
        case _:
            return None
    match found, otherwise:
        case ast.Constant(value=True), ast.Constant(value=False):
            word, asked = "any", test
        case ast.Constant(value=False), ast.Constant(value=True):
            word, asked = "all", _negated(test)
        case _:
            return None
    names = {one for node in ast.walk(target) if (one := _bound(node)) is not None}
    if about.is_named_but_in(names, loop):
        return None
    members = ast.GeneratorExp(asked, [ast.comprehension(target, among, [], 0)])
    return [ast.Return(ast.Call(ast.Name(word, ast.Load()), [members], []))], 2


def _negated(test: ast.expr) -> ast.expr:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
    return ast.UnaryOp(ast.Not(), test)


@_rule
def _cases(body: Sequence[ast.stmt], about: About) -> tuple[list[ast.stmt], int] | None:
    """`match` of a name against numbers, strings, `None` and `_`, with or without a guard: `if` and
    `elif`."""
    match body[0]:
        case ast.Match(subject=ast.Name() as subject, cases=cases):
            pass
        case _:
            return None
    said: list[ast.stmt] = []
    for case in reversed(cases):
        test = _test_of(case.pattern, subject)
        if test is None:
            return None
        if case.guard is not None:
            test = ast.BoolOp(ast.And(), [test, case.guard])
        said = [ast.If(test, list(case.body), said)]
    return said, 1


def _test_of(pattern: ast.pattern, subject: ast.Name) -> ast.expr | None:
    """What a pattern asks of a name; None: it is not one of those that are read."""
    match pattern:
        case ast.MatchAs(pattern=None, name=None):
            return ast.Constant(True)
        case ast.MatchSingleton(value=None):
            return ast.Compare(copy.copy(subject), [ast.Is()], [ast.Constant(None)])
        case ast.MatchValue(value=ast.Constant() as value):
            return ast.Compare(copy.copy(subject), [ast.Eq()], [value])
        case ast.MatchOr(patterns=patterns):
            tests = [_test_of(one, subject) for one in patterns]
            known = [one for one in tests if one is not None]
            return ast.BoolOp(ast.Or(), list(known)) if len(known) == len(tests) else None
    return None


@_rule
def _in_the_end(body: Sequence[ast.stmt], about: About) -> tuple[list[ast.stmt], int] | None:
    """`try` with `finally` alone, and nothing in it that leaves it: one after the other. Where
    something raises there, the call does."""
    match body[0]:
        case ast.Try(body=tried, handlers=[], orelse=[], finalbody=last):
            leaving = ast.Return | ast.Break | ast.Continue
            if not any(isinstance(one, leaving) for part in tried for one in ast.walk(part)):
                return [*tried, *last], 1
    return None


def _loggers(tree: ast.Module) -> Iterator[str]:
    """Names that a module binds to a logger."""
    maker, module = _LOGGER
    imported = any(
        isinstance(one, ast.ImportFrom)
        and one.module == module
        and one.level == 0
        and any(name.name == maker and name.asname is None for name in one.names)
        for one in tree.body
    )
    bound = [name for node in ast.walk(tree) if (name := _bound(node)) is not None]
    for one in tree.body if imported and maker not in bound else ():
        match one:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id=called), args=[ast.Name(id="__name__")]),
            ) if called == maker and bound.count(name) == 1:
                yield name


def _bound(node: ast.AST) -> str | None:
    """The name that a node binds: a variable, a parameter, or what is defined there."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
    return None


def _name_of(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name):
            return name
    return None
