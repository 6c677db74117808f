"""The language that the translator reads: what the gate lets through, and what docs say of it.

Each table is asked by the code that reads or refuses, and printed by `language_page`. A sentence
says what of a construct is read; where it says less than Python allows, the rest is refused.
"""

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass

from cacheproof.proofs.symbolic.values.values import MapOf, SetOf, Type


class NotTranslated(Exception):
    """A construct that has no reading; the message names file, line and construct where it
    `has_place`, and else is still to be given one."""

    def __init__(self, message: str, *, has_place: bool = False) -> None:
        super().__init__(message)
        self.has_place = has_place


@dataclass(frozen=True)
class Refusal:
    """What has no reading, and where it stands."""

    node: ast.AST
    what: str


STATEMENTS: Mapping[type[ast.AST], str] = {
    ast.Expr: "an expression by itself, such as a call",
    ast.Pass: "`pass`",
    ast.Return: "`return`, with or without a value; not inside a `while` loop",
    ast.Assert: "`assert` without effects; one that may fail is a call that may raise",
    ast.Assign: "`=` with one target, which is a name, an attribute, an item, or a tuple of them",
    ast.AnnAssign: "the same with an annotation, and with a value",
    ast.AugAssign: "`+=` and `-=` of numbers",
    ast.If: "`if`, `elif` and `else`",
    ast.Delete: "`del` of one item of a dict",
    ast.Raise: "`raise`; what leads there is a call that raises",
    ast.For: "`for` without `else` and `break`, in methods of which invariants are stated",
    ast.While: "`while` without `else` and `break`, in methods of which invariants are stated",
    ast.Continue: "`continue` alone under an `if` that stands in the loop's own body",
}
EXPRESSIONS: Mapping[type[ast.AST], str] = {
    ast.Constant: "whole numbers, truth values, `None` and strings",
    ast.Name: "parameters and variables that every path has bound",
    ast.Attribute: "attributes of `self` with a stated type; those that a request and its inputs "
    "have; flags of the reference's semantics",
    ast.Subscript: "items of dicts, of tuples, and of a request's inputs by their number",
    ast.Tuple: "tuples",
    ast.List: "`[]`",
    ast.Dict: "`{}`",
    ast.BinOp: "`+` and `-` of numbers",
    ast.BoolOp: "`and` and `or`, which stop where Python does and give an operand",
    ast.UnaryOp: "`not`, and `-` in front of a number that is written there",
    ast.IfExp: "`a if c else b`",
    ast.Compare: "comparisons, also chained; `is` and `is not` only with `None` at their right; "
    "of containers those of sets and of dicts without an order",
    ast.ListComp: "comprehensions of lists, with one `for` and without effects",
    ast.SetComp: "comprehensions of sets, of which each element is the member itself",
    ast.GeneratorExp: "`any(... for ...)` and `all(... for ...)`, with one `for`, without effects",
    ast.Call: "calls of methods of the class, of containers, of builtins below",
}
OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "`+`", ast.Sub: "`-`", ast.And: "`and`", ast.Or: "`or`", ast.Not: "`not`",
    ast.USub: "`-`", ast.Eq: "`==`", ast.NotEq: "`!=`", ast.Lt: "`<`", ast.LtE: "`<=`",
    ast.Gt: "`>`", ast.GtE: "`>=`", ast.In: "`in`", ast.NotIn: "`not in`", ast.Is: "`is None`",
    ast.IsNot: "`is not None`",
}  # fmt: skip
OF_POOL: Mapping[type[ast.AST], str] = {
    ast.Mult: "`*`, of block pools",
    ast.FloorDiv: "`//` by what is greater than 0, of block pools",
    ast.Slice: "`[1:]`, of block pools",
}
PARTS: tuple[type[ast.AST], ...] = (
    ast.arguments, ast.arg, ast.keyword, ast.comprehension, ast.expr_context,
)  # fmt: skip
"""What stands in statements and expressions and means nothing by itself."""

_OF_DICTS: Mapping[str, str] = {
    "clear": "", "copy": "to be run through", "get": "with or without a default",
    "items": "run through at once", "keys": "run through at once",
    "pop": "with or without a default", "setdefault": "with a default that is empty or a scalar",
    "values": "asked with `in`, or for the first by `next(iter(...))`",
}  # fmt: skip
OF_THE_END: Mapping[str, str] = {
    "move_to_end": "with `last`, which may be a keyword",
    "popitem": "with `last`, which may be a keyword",
}
"""Methods of an OrderedDict alone."""
METHODS: Mapping[str, Mapping[str, str]] = {
    "dict": _OF_DICTS,
    "OrderedDict": {**_OF_DICTS, **OF_THE_END},
    "set": {"add": "", "clear": "", "copy": "to be run through", "discard": "", "remove": ""},
    "list": {"append": "", "clear": "", "copy": "to be run through"},
}
"""Methods of containers by the type of the receiver."""
CHANGES = frozenset(
    {"add", "append", "clear", "discard", "move_to_end"}
    | {"pop", "popitem", "remove", "setdefault", "update"}
)
"""Methods of containers that change them."""
VIEWS = frozenset({"items", "keys", "values"})
"""Methods that give what goes on showing the container."""
BUILTINS: Mapping[str, str] = {
    "all": "of a generator", "any": "of a generator", "bool": "of block pools' lists",
    "dict": "without arguments", "enumerate": "of a request's inputs",
    "frozenset": "of nothing, or a copy to be run through",
    "iter": "inside `next`", "len": "of dicts, sets and a request's inputs",
    "list": "of nothing, or a copy to be run through",
    "next": "of `iter(...)` or `reversed(...)`, with or without a default",
    "property": "as a decorator", "range": "of one number or two",
    "reversed": "of a dict with a stated order, run through at once or inside `next`",
    "set": "of nothing, or a copy to be run through",
    "sorted": "a copy to be run through, in no order that is known",
    "tuple": "of nothing, or a copy to be run through",
}  # fmt: skip
"""Functions and types that have a reading, where nothing else bears their names."""
REACHES_ANYTHING = frozenset(
    {"__builtins__", "__import__", "builtins", "compile", "delattr", "eval", "exec", "gc"}
    | {"getattr", "globals", "importlib", "inspect", "locals", "setattr", "sys", "vars"}
)
"""Names by which a module may change what it does not name."""
GUARDED = frozenset({*BUILTINS, *REACHES_ANYTHING, *dir(builtins)} - {"__doc__"})
"""Names that mean what Python says that they mean."""
ORDERED = "OrderedDict"
ONCE = frozenset({"enumerate", "frozenset", "list", "next", "set", "sorted", "tuple", "any", "all"})
"""Builtins that run through what they are given before anything else happens."""
MAY_ALIAS: tuple[str, ...] = (
    "Variables and `self`'s attributes may share a container, also across calls of methods.",
    "A variable may lead into a container that is in another one; when that goes, or another takes "
    "its place, all variables that have it keep the one object, those of callers and what "
    "expressions have evaluated among them.",
    "At the end of each call every attribute has a container of its own.",
    "No container is put into another but an empty one that is made there; an empty one is given "
    "to no variable, parameter or tuple, but where it is known what the variable starts with.",
    "A tuple that a variable keeps, or that a method is given, has nothing that is in a container.",
    "What a loop runs over has the same members in the same order after each change in the loop.",
)


def methods_of(kind: Type) -> Mapping[str, str]:
    """The methods of containers of a type that have a reading."""
    match kind:
        case MapOf(ordered=ordered):
            return METHODS[ORDERED if ordered else "dict"]
        case SetOf():
            return METHODS["set"]
    return METHODS["list"]
