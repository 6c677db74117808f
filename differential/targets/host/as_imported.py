"""Whether a module's classes are what its text says, once all that a scheduler imports has run.

To be imported before the release, so that a builtin which that replaces is noticed.
"""

import ast
import builtins
import collections
import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType

from .protocol import Plain

_AS_BEGUN = dict(vars(builtins))
"""Python's builtins before the modules are imported that may replace them."""
_ORDERED = collections.OrderedDict

_GIVEN = frozenset(
    {"__annotate_func__", "__annotations__", "__annotations_cache__", "__dict__", "__doc__"}
    | {"__firstlineno__", "__module__", "__qualname__", "__static_attributes__", "__weakref__"}
)
"""Attributes that Python gives every class."""


def differences(module: ModuleType, text: str, names: Sequence[str]) -> Iterator[str]:
    """What differs in these classes, and in their bases, from the text."""
    assert module.__file__ is not None
    whole = compile(text, module.__file__, "exec", dont_inherit=True)
    methods = _methods(ast.parse(text))
    to_do, done = [*names], set[str]()
    while to_do:
        name = to_do.pop()
        if name in done:
            continue
        done.add(name)
        found = vars(module).get(name)
        bodies = [one for one in _codes(whole) if one.co_name == name]
        if type(found) is not type or len(bodies) != 1:
            yield name
            continue
        defined = {one.co_name: one for one in _codes(bodies[0])}
        yield from _of_class(module, found, defined, methods)
        for base in found.__mro__[1:-1]:
            if vars(module).get(base.__name__) is base:
                to_do.append(base.__name__)
            else:
                yield f"{base.__name__}, a base of {name}"


def replaced(
    module: ModuleType, users: Sequence[ModuleType], names: Sequence[str]
) -> Iterator[str]:
    """Names of these classes that stand for another class in modules that use them."""
    for user in users:
        for name in names:
            if vars(user).get(name, vars(module)[name]) is not vars(module)[name]:
                yield f"{user.__name__}.{name}"


_Methods = dict[tuple[str, str], ast.FunctionDef]


def _methods(tree: ast.Module) -> _Methods:
    """The methods of the classes of a module, by the class and the name."""
    return {
        (owner.name, one.name): one
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        for one in owner.body
        if isinstance(one, ast.FunctionDef)
    }


def _of_class(
    module: ModuleType, found: type, defined: dict[str, CodeType], methods: _Methods
) -> Iterator[str]:
    left = set(defined)
    for name, value in vars(found).items():
        if name in _GIVEN:
            continue
        left.discard(name)
        method = methods.get((found.__name__, name))
        if method is None or not _is_method(module, value, method, defined.get(name)):
            yield f"{found.__name__}.{name}"
    yield from (f"{found.__name__}.{name}" for name in sorted(left))
    for name in sorted({name for code in defined.values() for name in _names(code)}):
        if _is_replaced(module, name):
            yield name


def _is_method(
    module: ModuleType, value: object, method: ast.FunctionDef, code: CodeType | None
) -> bool:
    """Whether a class has a method as its text has it, in its code and its decorators."""
    function = _function_of(value, method)
    return (
        function is not None
        and function.__code__ == code
        and function.__globals__ is vars(module)
        and function.__closure__ is None
        and _given_to(function) == _said_of(method, function)
    )


def _function_of(value: object, method: ast.FunctionDef) -> FunctionType | None:
    """The function of a method that is decorated as its text says; None where it is decorated
    otherwise."""
    match [ast.unparse(one) for one in method.decorator_list]:
        case []:
            function = value
        case ["property"] if type(value) is property and not (value.fset or value.fdel):
            function = value.fget
        case ["classmethod"] if type(value) is classmethod:
            function = value.__func__
        case ["staticmethod"] if type(value) is staticmethod:
            function = value.__func__
        case _:
            return None
    return function if type(function) is FunctionType else None


_Default = tuple[type, object]


def _said_of(method: ast.FunctionDef, function: FunctionType) -> list[_Default]:
    """The defaults of a method by its text; where these are no literals, those that it has now."""
    given = [*method.args.defaults, *filter(None, method.args.kw_defaults)]
    try:
        return _typed(map(ast.literal_eval, given))
    except ValueError:
        return _given_to(function)


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function reads, and the comprehensions in it."""
    yield from code.co_names
    for inner in _codes(code):
        yield from _names(inner)


def _given_to(function: FunctionType) -> list[_Default]:
    """A function's defaults, each with its type."""
    return _typed([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()])


def _typed(values: Iterable[object]) -> list[_Default]:
    """Values with their types: True is equal to 1, and a class may tell them apart."""
    return [(type(value), value) for value in values]


def _is_replaced(module: ModuleType, name: str) -> bool:
    """Whether a builtin, or an OrderedDict, is not Python's own."""
    if name == "OrderedDict":
        return vars(module).get(name, _ORDERED) is not _ORDERED
    if name not in _AS_BEGUN:
        return False
    return name in vars(module) or vars(builtins).get(name) is not _AS_BEGUN[name]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield from (one for one in code.co_consts if isinstance(one, CodeType))


def otherwise(request: Plain) -> list[str]:
    """What of a `module`'s `classes` differs from its `text`, or is another class in one of the
    modules `imports`."""
    users = [importlib.import_module(name) for name in request["imports"]]
    module, names = sys.modules[request["module"]], request["classes"]
    return [*differences(module, request["text"], names), *replaced(module, users, names)]
