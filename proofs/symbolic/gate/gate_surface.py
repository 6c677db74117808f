"""What a scheduler meets of a class beside the methods that are proved: it must change nothing.

A proof speaks of some calls, of an object that was built in one way. So a class has all methods
that are called, no other one changes it, and what it was built with stays. A check yields refusals;
its docstring is a line of docs/reference/language.md.
"""

import ast
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping

from cacheproof.proofs.symbolic.reading.source import Source, reached_among
from cacheproof.proofs.symbolic.values.language import BUILTINS, Refusal
from cacheproof.proofs.text.definitions import without_docstring

CAPACITY = "cache_size"
ASKED_NOTHING = ("get_manager_metadata",)
"""What a scheduler calls without an argument, and no proof does."""
_KEEPS = f"self.{CAPACITY} = {CAPACITY}"
GIVEN_TO_BUILD = {CAPACITY, "vllm_config"}
"""What a scheduler gives a `create_manager`, by their names."""
_NOTHING = (["return None"], ["return"], ["pass"])
_BUILDS = (["return cls(cache_size)"], ["return cls(cache_size=cache_size)"])
_READS = frozenset({"copy", "get", "items", "keys", "values"})
_CHANGES = frozenset(
    name for kind in (dict, list, set, OrderedDict) for name in dir(kind) if name not in _READS
)
_STANDARD = "collections"
"""A module of which a method that changes nothing may call what it imports."""

Check = Callable[[Source, Collection[str]], Iterator[Refusal]]


def passed_on(source: Source, operations: Collection[str]) -> Iterator[Refusal]:
    """`self` where it may get another name: anywhere but in front of an attribute."""
    for method in source.methods.values():
        nodes = [node for statement in method.body for node in ast.walk(statement)]
        named = {id(one.value) for one in nodes if isinstance(one, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.Name) and node.id == "self" and id(node) not in named:
                yield Refusal(node, "self where it may get another name")


def missing(source: Source, operations: Collection[str]) -> Iterator[Refusal]:
    """A class without a method that the scheduler of its release calls, be it inherited, or with a
    property in its place."""
    inherited = _in_module(source).keys() - source.methods.keys()
    for name in operations:
        if name not in {*source.methods, *inherited} or name in source.properties:
            yield Refusal(_class_of(source), f"{source.name} without a method {name}")


def by_keyword(source: Source, operations: Collection[str]) -> Iterator[Refusal]:
    """A method that a scheduler calls, `__init__` aside, with a parameter that is taken by keyword
    alone and has no default: a scheduler gives all by place."""
    for name in operations:
        method = source.methods.get(name)
        if method is None or name == "__init__":
            continue
        for one, default in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True):
            if default is None:
                yield Refusal(method, f"{name}, which takes {one.arg} by keyword alone")


def unread(source: Source, operations: Collection[str]) -> Iterator[Refusal]:
    """A public method that no proof calls, be it inherited, and that may change something or fail:
    it sets or deletes an attribute or an item, has an augmented assignment, an `assert`, a `raise`
    or a `while`, names a container's method, gives a builtin something by keyword, or calls more
    than builtins and methods of the class that do none of this; of containers it may have `get`,
    `copy` and the views. A `create_manager` takes what a scheduler gives it, and builds an object
    of its capacity; a `get_manager_metadata` answers None; both do nothing else."""
    in_module = _in_module(source)
    methods = {**in_module, **source.methods}
    called = {name for one in operations for name in reached_among(one, methods)}
    for name, method in methods.items():
        if name.startswith("_") or name in called or name not in in_module:
            continue  # a base in another module is a class that is proved by itself
        if name == "create_manager":
            if not _only_builds(method):
                yield Refusal(method, "a create_manager that does more than build one")
            continue
        if name in ASKED_NOTHING and not _answers_nothing(method):
            yield Refusal(method, f"a {name} that does more than answer None")
        for reached in reached_among(name, methods):
            for node in _effects(source, methods[reached], methods):
                yield Refusal(node, f"{name}, which no proof calls: {_line(node)}")


def built(source: Source, operations: Collection[str]) -> Iterator[Refusal]:
    """An `__init__` that returns something, for which Python raises; a `cache_size` that is set
    elsewhere, or to something else than the parameter of that name, which no statement binds."""
    for name, method in source.methods.items():
        kept = [
            one.targets[0]
            for one in ast.walk(method)
            if isinstance(one, ast.Assign) and name == "__init__" and ast.unparse(one) == _KEEPS
        ]
        for node in ast.walk(method):
            match node:
                case ast.Return(value=ast.expr() as value) if name == "__init__":
                    if not (isinstance(value, ast.Constant) and value.value is None):
                        yield Refusal(node, f"an __init__ that returns {_line(value)}")
                case ast.Attribute(attr=attribute, ctx=ast.Store() | ast.Del()):
                    if attribute == CAPACITY and node not in kept:
                        yield Refusal(node, f"a {CAPACITY} that is not what it was built with")
                case ast.Name(id=bound, ctx=ast.Store() | ast.Del()):
                    if bound == CAPACITY and name == "__init__":
                        yield Refusal(node, f"a {CAPACITY} that is not what it was built with")


def not_of_requests(
    source: Source, operations: Collection[str], absent: Collection[str]
) -> Iterator[Refusal]:
    """What a request of the release does not have: it is asked under another name there."""
    for name in {name for one in operations for name in reached_among(one, source.methods)}:
        for node in ast.walk(source.methods[name]):
            if isinstance(node, ast.Attribute) and node.attr in absent:
                yield Refusal(node, f"{node.attr}, which a request of its release has not")


OF_SURFACE: tuple[Check, ...] = (missing, by_keyword, passed_on, unread, built)


def _answers_nothing(method: ast.FunctionDef) -> bool:
    """Whether it takes `self` alone, and returns None at once."""
    given = [one.arg for one in ast.walk(method.args) if isinstance(one, ast.arg)]
    body = [ast.unparse(one) for one in without_docstring(method).body]
    return given == ["self"] and not method.decorator_list and body in _NOTHING


def _only_builds(method: ast.FunctionDef) -> bool:
    decorators = [ast.unparse(one) for one in method.decorator_list]
    first = [one.arg for one in method.args.args[:1]]
    given = {one.arg for one in (*method.args.args[1:], *method.args.kwonlyargs)}
    if given != GIVEN_TO_BUILD or method.args.posonlyargs:
        return False
    body = [ast.unparse(one) for one in without_docstring(method).body]
    return decorators == ["classmethod"] and first == ["cls"] and body in _BUILDS


def _class_of(source: Source) -> ast.AST:
    found = (one for one in ast.walk(ast.parse(source.module)) if isinstance(one, ast.ClassDef))
    return next((one for one in found if one.name == source.name), ast.Module([], []))


def _in_module(source: Source) -> dict[str, ast.FunctionDef]:
    """Methods of the class and of its bases, those in its module; the nearest has the last word."""
    tree = ast.parse(source.module)
    classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
    found: dict[str, ast.FunctionDef] = {}
    to_do = [source.name]
    seen: set[str] = set()
    while to_do:
        name = to_do.pop(0)
        if name not in classes or name in seen:
            continue
        seen.add(name)
        for one in classes[name].body:
            if isinstance(one, ast.FunctionDef):
                found.setdefault(one.name, one)
        to_do += [ast.unparse(base) for base in classes[name].bases]
    return found


def _effects(
    source: Source, method: ast.FunctionDef, methods: Mapping[str, ast.FunctionDef]
) -> Iterator[ast.AST]:
    """What a method may change something by."""
    standard = _standard_names(source)
    for statement in method.body:
        for node in ast.walk(statement):
            match node:
                case (
                    ast.Attribute(ctx=ast.Store() | ast.Del())
                    | ast.Subscript(ctx=ast.Store() | ast.Del())
                    | ast.Global()
                    | ast.Nonlocal()
                    | ast.Import()
                    | ast.ImportFrom()
                    | ast.With()
                    | ast.Await()
                    | ast.Yield()
                    | ast.YieldFrom()
                    | ast.Raise()
                    | ast.Assert()
                    | ast.While()
                ):
                    yield node
                case ast.AugAssign():  # it may be a container that has other names
                    yield node
                case ast.Attribute(attr=name) if name in _CHANGES:
                    yield node  # called here, or given to what calls it
                case ast.Call(func=ast.Name(id=name), keywords=named) if name in {
                    *BUILTINS,
                    *standard,
                } and all(isinstance(one.value, ast.Constant) for one in named):
                    continue
                case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if (
                    name in methods
                ):
                    continue
                case ast.Call(func=ast.Attribute(attr=name)) if name in _READS:
                    continue
                case ast.Call():
                    yield node


def _standard_names(source: Source) -> frozenset[str]:
    """What the module has from a module of the standard library, and from nowhere else."""
    bound = [
        (alias.asname or alias.name, node.module == _STANDARD and node.level == 0)
        for node in ast.walk(ast.parse(source.module))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    return frozenset(
        name for name, _ in bound if all(is_standard for one, is_standard in bound if one == name)
    )


def _line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]
