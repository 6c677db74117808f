"""Rules by their text: the contracts of spec, and those that only proofs need."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from cacheproof.spec.registry import Contract


@dataclass(frozen=True)
class Predicate:
    """A rule by the text of its expression: a contract of spec, or one that only proofs need."""

    id: str
    title: str
    parameters: tuple[str, ...]
    tree: ast.expr
    place: str


def of_contract(rule: Contract) -> Predicate:
    """A contract's predicate, as spec states it."""
    path = inspect.getsourcefile(rule.predicate) or ""
    return Predicate(rule.id, rule.title, rule.parameters, rule.expression.tree, path)


@cache
def auxiliary(function: Callable[..., bool]) -> Predicate:
    """A predicate that only proofs need, by the name and the docstring of its function."""
    text = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(text).body
    assert isinstance(definition, ast.FunctionDef)
    (returned,) = [one for one in definition.body if isinstance(one, ast.Return)]
    assert returned.value is not None
    parameters = tuple(one.arg for one in definition.args.args)
    place = f"{inspect.getsourcefile(function)}:{function.__code__.co_firstlineno}"
    title = inspect.getdoc(function) or ""
    return Predicate(function.__name__, title, parameters, returned.value, place)
