"""Whether a module's classes are what its text says, once all that a scheduler imports has run.

Run by itself in a release's interpreter: a request comes as JSON over standard input, and what is
not as the text says goes as JSON to standard output. Uses the standard library alone.
"""

import ast
import builtins
import collections
import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

_GIVEN = frozenset(
    {"__annotate_func__", "__annotations__", "__annotations_cache__", "__dict__", "__doc__"}
    | {"__firstlineno__", "__module__", "__qualname__", "__static_attributes__", "__weakref__"}
)
"""What Python puts into every class."""


def differences(module: Any, text: str, names: Sequence[str]) -> Iterator[str]:
    """What of these classes, and of their bases, is not as the text says."""
    whole = compile(text, module.__file__, "exec", dont_inherit=True)
    given = _defaults(ast.parse(text))
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
        yield from _of_class(module, found, defined, given)
        for base in found.__mro__[1:-1]:
            if vars(module).get(base.__name__) is base:
                to_do.append(base.__name__)
            else:
                yield f"{base.__name__}, a base of {name}"


def replaced(module: Any, users: Sequence[Any], names: Sequence[str]) -> Iterator[str]:
    """What has the name of one of these classes in modules that use them, and is another."""
    for user in users:
        for name in names:
            if vars(user).get(name, vars(module)[name]) is not vars(module)[name]:
                yield f"{user.__name__}.{name}"


_Default = tuple[type, object]
_Defaults = dict[tuple[str, str], list[_Default]]


def _defaults(tree: ast.Module) -> _Defaults:
    """The defaults of methods, each with its type, by the class and the name; where all are
    literals."""
    found: _Defaults = {}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            for one in owner.body:
                if isinstance(one, ast.FunctionDef):
                    given = [*one.args.defaults, *filter(None, one.args.kw_defaults)]
                    with suppress(ValueError):
                        found[owner.name, one.name] = _typed(map(ast.literal_eval, given))
    return found


def _of_class(
    module: Any, found: type, defined: dict[str, CodeType], given: _Defaults
) -> Iterator[str]:
    left = set(defined)
    for name, value in vars(found).items():
        if name in _GIVEN:
            continue
        left.discard(name)
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if not (
            isinstance(function, FunctionType)
            and function.__code__ == defined.get(name)
            and function.__globals__ is vars(module)
            and _given_to(function) == given.get((found.__name__, name), _given_to(function))
        ):
            yield f"{found.__name__}.{name}"
    yield from (f"{found.__name__}.{name}" for name in sorted(left))
    for name in sorted({name for code in defined.values() for name in code.co_names}):
        if _is_replaced(module, name):
            yield name


def _given_to(function: FunctionType) -> list[_Default]:
    """Its defaults, each with its type."""
    return _typed([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()])


def _typed(values: Iterable[object]) -> list[_Default]:
    """True is equal to 1, and something else in a class that asks."""
    return [(type(value), value) for value in values]


def _is_replaced(module: Any, name: str) -> bool:
    """Whether a builtin, or an OrderedDict, is not Python's own."""
    if name == "OrderedDict":
        ordered = collections.OrderedDict
        found = vars(module).get(name, ordered)
        return found is not ordered or ordered.__module__ != "collections"
    own = getattr(vars(builtins).get(name), "__module__", "builtins")
    return name in vars(builtins) and (name in vars(module) or own != "builtins")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield from (one for one in code.co_consts if isinstance(one, CodeType))


def main() -> None:
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed goes to standard error
    request = json.load(sys.stdin)
    users = [importlib.import_module(name) for name in request["imports"]]
    module, names = sys.modules[request["module"]], request["classes"]
    found = [*differences(module, request["text"], names), *replaced(module, users, names)]
    json.dump(found, results)
    results.close()


if __name__ == "__main__":
    main()
