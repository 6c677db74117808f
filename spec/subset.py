"""The fixed subset in which contracts are written, and the reading of a broken one.

A predicate is one return expression over its parameters: comparison, + and -, and / or / not,
`in`, attribute and subscript access, `all(generator)`, `len`, and the words of `vocabulary`.
Anything else is refused at import with file and line, so that the same source can later be read by
a solver. `explain` walks a false predicate down to the comparison that failed and prints both
sides with their values.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from cacheproof.spec import vocabulary

PARAMETERS = frozenset({"s", "pre", "post", "g", "c", "w", "p", "k"})
WORDS = vocabulary.WORDS | {"len", "all"}
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_PLAIN = (ast.Name, ast.expr_context, ast.And, ast.Or, ast.Not, ast.Add, ast.Sub, *_COMPARISONS)


Refuse = Callable[[ast.AST, str], "SubsetError"]


class SubsetError(Exception):
    """A contract steps outside the subset. The message names file, line and what was found."""


@dataclass(frozen=True)
class Expression:
    """A parsed predicate: its parameters, its syntax tree and the names it may call."""

    parameters: tuple[str, ...]
    tree: ast.expr
    text: str

    def explain(self, values: Mapping[str, object]) -> str:
        """The failing comparison with both sides evaluated, or the text when nothing failed."""
        return _explain(self.tree, dict(values)) or self.text


def parse(predicate: Callable[..., bool]) -> Expression:
    """Read a predicate's source and check that it lies in the subset.

    Raises:
        SubsetError: it does not; the message begins with file:line.
    """
    lines, first = inspect.getsourcelines(predicate)
    path = inspect.getsourcefile(predicate) or "<unknown>"
    name = predicate.__name__

    def refuse(node: ast.AST, found: str) -> SubsetError:
        line = first + getattr(node, "lineno", 1) - 1
        return SubsetError(f"{path}:{line}: {name}: {found} is outside the subset")

    function = ast.parse(textwrap.dedent("".join(lines))).body[0]
    if not isinstance(function, ast.FunctionDef):
        raise refuse(function, "what is no plain function")
    parameters = _parameters(function, refuse)
    if len(function.body) != 1 or not isinstance(function.body[0], ast.Return):
        raise refuse(function.body[-1], "a body other than one return")
    tree = function.body[0].value
    if tree is None:
        raise refuse(function.body[0], "a return without a value")
    for node in ast.walk(tree):
        _check(node, refuse)
    _check_names(tree, frozenset(parameters), refuse)
    return Expression(parameters, tree, ast.unparse(tree))


def _parameters(function: ast.FunctionDef, refuse: Refuse) -> tuple[str, ...]:
    plain = function.args.args
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg) and argument not in plain:
            raise refuse(argument, f"parameter {argument.arg!r} that is not plain")
    if function.args.defaults:
        raise refuse(function.args.defaults[0], "a default value")
    for argument in plain:
        if argument.arg not in PARAMETERS:
            raise refuse(argument, f"parameter {argument.arg!r}")
    return tuple(argument.arg for argument in plain)


def _check_names(node: ast.AST, known: frozenset[str], refuse: Refuse) -> None:
    """Every name is a parameter, a word that is called, or bound by a generator around it."""
    match node:
        case ast.Name(id=name):
            if name not in known:
                raise refuse(node, f"name {name!r}")
        case ast.Call(args=arguments):
            for argument in arguments:
                _check_names(argument, known, refuse)
        case ast.GeneratorExp(elt=element, generators=generators):
            for part in generators:
                _check_names(part.iter, known, refuse)
                assert isinstance(part.target, ast.Name)
                if part.target.id in known | WORDS:
                    raise refuse(part.target, f"a second meaning of {part.target.id!r}")
                known |= {part.target.id}
                for condition in part.ifs:
                    _check_names(condition, known, refuse)
            _check_names(element, known, refuse)
        case _:
            for child in ast.iter_child_nodes(node):
                _check_names(child, known, refuse)


def _check(node: ast.AST, refuse: Refuse) -> None:
    match node:
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in WORDS:
            if name == "all" and not (
                len(arguments) == 1 and isinstance(arguments[0], ast.GeneratorExp)
            ):
                raise refuse(node, "all() of something else than a generator")
        case ast.Call():
            raise refuse(node, f"call of {ast.unparse(node.func)}")
        case ast.Constant(value=int() | str() as value) if not isinstance(value, bool):
            pass
        case ast.Constant():
            raise refuse(node, f"constant {ast.unparse(node)}")
        case ast.GeneratorExp(generators=generators):
            if any(not isinstance(part.target, ast.Name) or part.is_async for part in generators):
                raise refuse(node, "a generator that unpacks")
        case ast.Attribute() | ast.Subscript() | ast.comprehension() | ast.Compare():
            if isinstance(node, ast.Compare) and any(
                not isinstance(operator, _COMPARISONS) for operator in node.ops
            ):
                raise refuse(node, "identity comparison")
        case ast.BoolOp() | ast.BinOp() | ast.UnaryOp():
            pass
        case _ if isinstance(node, _PLAIN):
            pass
        case _:
            raise refuse(node, type(node).__name__)


def _evaluate(node: ast.expr, values: dict[str, object]) -> Any:
    code = compile(ast.Expression(node), "<contract>", "eval")
    names = {word: getattr(vocabulary, word) for word in vocabulary.WORDS}
    return eval(code, {"__builtins__": {"len": len, "all": all}, **names, **values})


def _explain(node: ast.expr, values: dict[str, object]) -> str | None:
    """Why `node` is false under `values`; None when it is true."""
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return next((why for part in parts if (why := _explain(part, values))), None)
        case ast.BoolOp(op=ast.Or(), values=parts):
            reasons = []
            for part in parts:  # those behind one that holds may be undefined
                if (reason := _explain(part, values)) is None:
                    return None
                reasons.append(reason)
            return " and ".join(reasons)
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() as generator]):
            return _explain_all(generator, values)
        case ast.Call(func=ast.Name(id="within"), args=[part, whole]):
            return _explain(key_by_key(part, whole), values)
        case ast.Compare():
            if _evaluate(node, values):
                return None
            return _sides(node, values)
        case _:
            return None if _evaluate(node, values) else f"{ast.unparse(node)} is false"


def _explain_all(node: ast.GeneratorExp, values: dict[str, object]) -> str | None:
    head, *rest = node.generators
    assert isinstance(head.target, ast.Name)
    for item in _in_order(_evaluate(head.iter, values)):
        bound = {**values, head.target.id: item}
        if not all(_evaluate(condition, bound) for condition in head.ifs):
            continue
        inner: ast.expr = node.elt
        if rest:
            inner = ast.copy_location(
                ast.Call(
                    ast.copy_location(ast.Name("all", ast.Load()), node),
                    [ast.copy_location(ast.GeneratorExp(node.elt, rest), node)],
                    [],
                ),
                node,
            )
        if reason := _explain(inner, bound):
            return f"for {head.target.id} = {_shown(item)}: {reason}"
    return None


def key_by_key(part: ast.expr, whole: ast.expr) -> ast.expr:
    """`within` key by key, so that the key that differs can be named."""
    part_text, whole_text = ast.unparse(part), ast.unparse(whole)
    text = f"all(h in {whole_text} and {part_text}[h] == {whole_text}[h] for h in {part_text})"
    return ast.parse(text, mode="eval").body


def _sides(node: ast.Compare, values: dict[str, object]) -> str:
    operands = [node.left, *node.comparators]
    texts = [ast.unparse(operand) for operand in operands]
    shown = [_shown(_evaluate(operand, values)) for operand in operands]
    signs = [_SIGNS[type(operator)] for operator in node.ops]
    text = "".join(f"{part} {sign} " for part, sign in zip(texts, signs, strict=False)) + texts[-1]
    value = "".join(f"{part} {sign} " for part, sign in zip(shown, signs, strict=False)) + shown[-1]
    return f"{text} is false: {value}"


_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


def _in_order(values: Iterable[object]) -> Iterable[object]:
    """Sets in an order that depends on their elements alone: a finding always reads the same."""
    if not isinstance(values, Set):
        return values
    return sorted(values, key=lambda one: (one if isinstance(one, int) else 0, _shown(one)))


def _shown(value: object) -> str:
    """The `repr` of a value, with sets in order at any depth."""
    match value:
        case frozenset() | set():
            return "{" + ", ".join(map(_shown, _in_order(value))) + "}"
        case tuple() if hasattr(value, "_fields"):
            pairs = zip(value._fields, value, strict=True)
            return f"{type(value).__name__}({', '.join(f'{n}={_shown(v)}' for n, v in pairs)})"
        case tuple():
            return f"({', '.join(map(_shown, value))}{',' if len(value) == 1 else ''})"
        case list():
            return f"[{', '.join(map(_shown, value))}]"
        case dict():
            return "{" + ", ".join(f"{_shown(k)}: {_shown(v)}" for k, v in value.items()) + "}"
        case _:
            return repr(value)
