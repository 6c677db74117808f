"""What a module and a class must be for a class's methods to be all that says what a call does.

A check yields refusals; its docstring is a line of docs/language.md.
"""

import ast
import builtins
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from cacheproof.proofs.crosshair.episode import METHODS
from cacheproof.proofs.symbolic.language import BUILTINS, ORDERED
from cacheproof.proofs.symbolic.source import Source

REACHES_ANYTHING = frozenset(
    {"__builtins__", "__import__", "builtins", "compile", "delattr", "eval", "exec", "gc"}
    | {"getattr", "globals", "importlib", "inspect", "locals", "setattr", "sys", "vars"}
)
"""Names by which a module may change what it does not name."""


_GUARDED = frozenset({*BUILTINS, *REACHES_ANYTHING, *dir(builtins)} - {"__doc__"})
"""Names that mean what Python says that they mean."""


@dataclass(frozen=True)
class Refusal:
    """What has no reading, and where it stands."""

    node: ast.AST
    what: str


_CALLED = frozenset(name for operation, name in METHODS.items() if operation != "embeds")
"""Methods that a scheduler calls, and that every manager is proved of; `embeds` changes nothing."""


@lru_cache(maxsize=8)
def _parsed(module: str) -> ast.Module:
    """A module's tree, which checks look at and do not change."""
    return ast.parse(module)


def of_module(source: Source) -> Iterator[Refusal]:
    """Modules that bind a builtin's name, import `*`, name what reaches anything (`globals`,
    `setattr`, `sys` and the like), set attributes or items outside of methods, or do more when they
    are imported than import, define, and bind names to values; values, bases, defaults and
    annotations that ask what the module defines for an attribute, an item or an operator, or name
    what is not bound by then; classes that bind a builtin's name or have a special method that
    Python runs by itself, and bases from elsewhere but a few that run nothing."""
    tree = _parsed(source.module)
    within = {
        id(node)
        for found in ast.walk(tree)
        if isinstance(found, ast.ClassDef)
        for node in ast.walk(found)
    }
    for node in _at_import(tree):
        for bound in _bound_by(node):
            if bound == "*" or bound in _GUARDED:
                yield Refusal(node, f"a module that binds {bound}")
            if bound == ORDERED and not _imports_ordered(node):
                yield Refusal(node, f"an {ORDERED} that is not that of collections")
            if bound == source.name and not isinstance(node, ast.ClassDef):
                yield Refusal(node, f"{source.name} bound to something else")
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in REACHES_ANYTHING:
                yield Refusal(node, f"a module that names {name}")
            case ast.Import(names=names):
                for one in names:
                    if one.name.partition(".")[0] in REACHES_ANYTHING:
                        yield Refusal(node, f"a module that names {one.name}")
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in REACHES_ANYTHING:
                yield Refusal(node, f"a module that names {name}")
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ) if id(node) not in within:
                yield Refusal(node, f"what is set elsewhere: {ast.unparse(node)}")
    yield from _run_at_import(tree, source)
    yield from uses_of_class(tree, source.name)


def of_class(source: Source, *, is_record: bool) -> Iterator[Iterator[Refusal]]:
    yield definition(source)
    tree = _parsed(source.module)
    for found in _classes(tree, source.name)[:1]:
        yield body(source, found, is_record)


def definition(source: Source) -> Iterator[Refusal]:
    """A class that is not defined once, at the top of its module."""
    tree = _parsed(source.module)
    found = _classes(tree, source.name)
    if len(found) != 1 or found[0] not in tree.body:
        yield Refusal(found[-1], f"{source.name} where it is not defined once, by its module")


def unbound(source: Source) -> Iterator[Refusal]:
    """Names that a method reads, and that nothing binds: neither the method, nor Python, nor the
    top of its module whatever happens."""
    tree = _parsed(source.module)
    certain = certainly_bound(tree)
    own = {
        one.name
        for found in _classes(tree, source.name)
        for one in found.body
        if isinstance(one, ast.FunctionDef)
    }
    for method in source.methods.values():
        if source.inherits and method.name not in own:
            continue  # read where it stands
        nodes = list(ast.walk(method))
        local = {one.arg for one in nodes if isinstance(one, ast.arg)}
        local |= {name for one in nodes for name in _bound_by(one)} - {method.name}
        notes = {id(n) for one in nodes for note in _beside(one) for n in ast.walk(note)}
        for node in nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Load()) if id(node) not in notes:
                    if name not in {*local, *certain} and not hasattr(builtins, name):
                        yield Refusal(node, f"{name}, which nothing is certain to bind")


def body(source: Source, found: ast.ClassDef, is_record: bool) -> Iterator[Refusal]:
    """Classes with decorators or keywords (`ghost.py`'s records may be dataclasses), with bases
    from elsewhere, that are bound twice or of which a scheduler calls a method that is not read,
    with a body that binds anything but methods, one twice, or a method that begins with two
    underscores, `__init__` aside."""
    tree = _parsed(source.module)
    decorators = [ast.unparse(one).partition("(")[0] for one in found.decorator_list]
    if found.keywords or decorators not in ([], ["dataclass"] if is_record else []):
        yield Refusal(found, "a class with decorators or keywords")
    for base in found.bases:
        bases = _classes(tree, ast.unparse(base))
        for node in _at_import(tree):
            if bases and not isinstance(node, ast.ClassDef) and bases[0].name in _bound_by(node):
                yield Refusal(node, f"the base {bases[0].name} bound to something else")
        if len(bases) != 1 and not source.inherits and ast.unparse(base) not in _PLAIN_BASES:
            yield Refusal(base, f"the base {ast.unparse(base)}, which is not in this module")
        for inherited in bases:
            yield from body(source, inherited, is_record)
            for method in inherited.body:
                if (
                    isinstance(method, ast.FunctionDef)
                    and method.name not in source.methods
                    and method.name in _CALLED
                ):
                    yield Refusal(method, f"{method.name}, which is inherited and not read")
    seen: set[str] = set()
    for one in found.body:
        match one:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                continue
            case ast.FunctionDef(name=name) if name not in seen:
                seen.add(name)
                if name.startswith("__") and name != "__init__":
                    yield Refusal(one, f"the method {name}")
            case ast.AnnAssign(target=ast.Name(), value=value) if is_record and (
                value is None or _is_field(value)
            ):
                continue
            case _:
                words = ast.unparse(one).splitlines()[0]
                yield Refusal(one, f"a class body with {words}")


_PLAIN_BASES = ("object",)


def _is_field(value: ast.expr) -> bool:
    """What a record has at first: a constant, or something empty."""
    match value:
        case ast.Constant():
            return True
        case ast.Call(func=ast.Name(id="field"), args=[], keywords=[only]):
            return only.arg == "default_factory" and ast.unparse(only.value) in BUILTINS
    return False


def _run_at_import(tree: ast.Module, source: Source) -> Iterator[Refusal]:
    """What runs more than definitions; of the class itself `body` says it."""
    names = _Names.of(tree)
    for scope in ast.walk(tree):
        if (
            isinstance(scope, ast.Module | ast.ClassDef)
            and getattr(scope, "name", "") != source.name
        ):
            for statement in scope.body:
                if not _only_defines(statement, names):
                    words = ast.unparse(statement).splitlines()[0]
                    yield Refusal(statement, f"a module that runs {words}")
        if isinstance(scope, ast.ClassDef):
            yield from _bound_in_body(scope)
            for base in scope.bases:
                is_read = source.inherits and scope.name == source.name
                if not is_read and not names.is_base(base):
                    yield Refusal(base, f"the base {ast.unparse(base)}, which may run something")
        if isinstance(scope, ast.ClassDef | ast.FunctionDef):
            for decorator in scope.decorator_list:
                if not names.is_decorator(decorator):
                    yield Refusal(decorator, f"the decorator {ast.unparse(decorator)}")
        for beside in _beside(scope):
            if not _is_inert(beside, names):
                yield Refusal(beside, f"what runs where it is defined: {ast.unparse(beside)}")
            for node in ast.walk(beside):
                if isinstance(node, ast.Name) and not names.is_bound(node.id):
                    yield Refusal(node, f"{node.id}, which nothing has bound by then")


def _bound_in_body(scope: ast.ClassDef) -> Iterator[Refusal]:
    """What a class binds that Python looks at by itself: names of builtins, which its decorators
    and annotations would have, and methods that are run where a class is defined or asked."""
    for node in _at_import(scope):
        for bound in _bound_by(node):
            is_special = bound.startswith("__") and bound not in _OF_OBJECTS
            if bound in _GUARDED or is_special:
                yield Refusal(node, f"a class that binds {bound}")


_OF_OBJECTS = frozenset(
    {"__init__", "__post_init__", "__repr__", "__str__", "__eq__", "__hash__", "__lt__", "__len__"}
)
"""Methods that only an object runs, of which a module that is imported makes none."""


@dataclass(frozen=True)
class _Names:
    """What a module's names are as it is imported.

    Attributes:
        imported: those that it has from elsewhere, each with the module that it comes from; "?"
            where that is not known.
        own: all others that it binds; `classes` those that are a class and nothing else.
        certain: those that it binds whatever happens.
    """

    imported: Mapping[str, str]
    own: Collection[str]
    classes: Collection[str]
    certain: Collection[str]

    @classmethod
    def of(cls, tree: ast.Module) -> "_Names":
        imported = dict(_imported(tree))
        bound = Counter(name for node in _at_import(tree) for name in _bound_by(node))
        defined = [one.name for one in tree.body if isinstance(one, ast.ClassDef)]
        classes = [name for name in defined if bound[name] == 1]
        return cls(imported, bound.keys() - imported.keys(), classes, certainly_bound(tree))

    def place_of(self, name: str) -> str:
        """The module that a name comes from; "" where it is a builtin's."""
        return "?" if name in self.own else self.imported.get(name, "")

    def is_bound(self, name: str) -> bool:
        return name in self.certain or hasattr(builtins, name)

    def is_base(self, node: ast.expr) -> bool:
        """Whether a class of the module, or one of those that run nothing of what is derived from
        them."""
        base = _root(node)
        if base in _BASES and self.place_of(base) == _BASES[base]:
            return True
        return isinstance(node, ast.Name) and base in self.classes

    def is_decorator(self, node: ast.expr) -> bool:
        """Whether it is one of those that run nothing of the module's own."""
        called = node.func if isinstance(node, ast.Call) else node
        plain = not isinstance(node, ast.Call) or (
            not node.args and all(isinstance(one.value, ast.Constant) for one in node.keywords)
        )
        used = ast.unparse(called)
        return plain and used in _DECORATORS and self.place_of(used) == _DECORATORS[used]


def certainly_bound(tree: ast.Module) -> frozenset[str]:
    """The names that a module binds at its top, whatever happens."""
    return frozenset(
        name
        for statement in tree.body
        if not isinstance(statement, ast.If)
        for node in _at_import(ast.Module([statement], []))
        for name in _bound_by(node)
    )


def _is_inert(node: ast.expr, names: _Names) -> bool:
    """Whether to evaluate an expression runs nothing that the module itself says."""

    def inert(one: ast.expr) -> bool:
        return _is_inert(one, names)

    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.Attribute(value=of, attr=name):
            return not name.startswith("__") and inert(of) and _root(of) not in {*names.own, ""}
        case ast.Subscript(value=of, slice=item):
            return inert(of) and inert(item) and _root(of) not in {*names.own, ""}
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(inert, parts))
        case ast.Dict(keys=keys, values=values):
            return all(isinstance(one, ast.Constant) for one in keys) and all(map(inert, values))
        case ast.Set(elts=parts):
            return all(isinstance(one, ast.Constant) for one in parts)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):  # types
            return inert(left) and inert(right)
        case ast.BinOp(left=ast.Constant(), right=ast.Constant()):
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
    return False


def _root(node: ast.expr) -> str:
    """The name that an expression of attributes and items begins with; "" where it has none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _beside(scope: ast.AST) -> list[ast.expr]:
    """What Python evaluates of a definition beside its body: defaults, bases and annotations."""
    match scope:
        case (
            ast.FunctionDef(args=given, returns=returns)
            | ast.AsyncFunctionDef(args=given, returns=returns)
        ):
            notes = [one.annotation for one in ast.walk(given) if isinstance(one, ast.arg)]
            found = [*given.defaults, *given.kw_defaults, *notes, returns]
        case ast.ClassDef(bases=bases):
            found = [*bases]
        case ast.AnnAssign(annotation=note):
            found = [note]
        case _:
            found = []
    return [one for one in found if one is not None]


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a module has from others, each with the module that it comes from; that of a
    name that is bound once more is not known."""
    bound = [name for node in _at_import(tree) for name in _bound_by(node)]
    for node in _at_import(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            for name in _bound_by(node):
                place = node.module if isinstance(node, ast.ImportFrom) else name
                yield name, (place or "?") if bound.count(name) == 1 else "?"


_BASES = {
    "ABC": "abc",
    "Exception": "",
    "Generic": "typing",
    "NamedTuple": "typing",
    "Protocol": "typing",
    "object": "",
}
"""Those that run nothing of a class that is derived from them, and where they come from."""

_DECORATORS = {
    "abstractmethod": "abc",
    "classmethod": "",
    "dataclass": "dataclasses",
    "overload": "typing",
    "property": "",
    "staticmethod": "",
}
"""Those that run nothing of the module's own, and the module that they come from."""


def _only_defines(one: ast.stmt, names: _Names) -> bool:
    match one:
        case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Import() | ast.ImportFrom():
            return True
        case ast.ClassDef(keywords=[]) | ast.FunctionDef():
            return True
        case ast.Assign(targets=[ast.Name()], value=value):
            return _is_inert(value, names) or _is_made(value, names)
        case ast.AnnAssign(target=ast.Name(), value=None):
            return True
        case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value):
            is_field = names.place_of("field") == "dataclasses" and _is_field(value)
            return is_field or _is_inert(value, names) or _is_made(value, names)
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in body)
    return False


_MAKERS = {"TypeVar": "typing", "init_logger": "vllm.logger"}
"""What a module may call as it is imported, and the module that it comes from."""


def _is_made(value: ast.expr, names: _Names) -> bool:
    """A value that is made by what is known to run nothing of the module's own, such as a
    logger."""
    match value:
        case ast.Call(func=ast.Name(id=called), args=given, keywords=[]):
            plain = all(
                isinstance(one, ast.Constant) or ast.unparse(one) == "__name__" for one in given
            )
            return plain and called in _MAKERS and names.place_of(called) == _MAKERS[called]
    return False


def uses_of_class(tree: ast.Module, name: str) -> Iterator[Refusal]:
    """The class may be a base, be called, and stand in annotations; else it may be changed."""
    allowed: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(bases=bases):
                allowed |= {id(one) for one in bases}
            case ast.Call(func=ast.Name() as called):
                allowed.add(id(called))
            case ast.FunctionDef(args=given, returns=returns):
                notes = [one.annotation for one in ast.walk(given) if isinstance(one, ast.arg)]
                allowed |= {id(n) for one in (*notes, returns) if one for n in ast.walk(one)}
            case ast.AnnAssign(annotation=note):
                allowed |= {id(one) for one in ast.walk(note)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and id(node) not in allowed:
            yield Refusal(node, f"{name} where it may be changed")


def _bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node binds, by itself."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            for one in names:
                yield one.asname or one.name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.Global(names=named):
            yield from named


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What a module runs when it is imported; of functions and classes their definitions alone,
    but for names that functions bind in the module."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from (one for one in ast.walk(child) if isinstance(one, ast.Global))
        else:
            yield from _at_import(child)


def named_beside(source: Source) -> frozenset[str]:
    """The statements of a class's module that bind what the class's body, and what these, name;
    annotations, which nothing evaluates, aside."""
    binding: dict[str, list[ast.stmt]] = {}
    for statement in _parsed(source.module).body:
        for one in _one_by_one(statement):
            for node in _at_import(ast.Module([one], [])):
                for name in _bound_by(node):
                    binding.setdefault(name, []).append(one)
    found: set[ast.stmt] = set()
    to_do = [one for of in ast.parse(source.text).body for one in getattr(of, "body", ())]
    while to_do:
        for name in _named(to_do.pop()):
            new = [one for one in binding.get(name, ()) if one not in found]
            found.update(new)
            to_do += new
    return frozenset(map(ast.unparse, found))


def _one_by_one(statement: ast.stmt) -> list[ast.stmt]:
    """A statement; of an import each name by itself."""
    match statement:
        case ast.Import(names=names):
            return [ast.Import([one]) for one in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            return [ast.ImportFrom(module, [one], level) for one in names]
    return [statement]


def _named(statement: ast.stmt) -> set[str]:
    """The names that a statement reads, but for annotations."""
    notes = [
        note
        for node in ast.walk(statement)
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(note, ast.expr)
    ]
    aside = {id(node) for note in notes for node in ast.walk(note)}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and id(node) not in aside
    }


def _imports_ordered(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module="collections", level=0, names=names):
            return all(one.asname != ORDERED or one.name == ORDERED for one in names)
    return False


def _classes(tree: ast.Module, name: str) -> list[ast.ClassDef]:
    """The classes of that name, wherever they are defined."""
    return [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == name]
