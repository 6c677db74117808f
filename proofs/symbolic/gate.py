"""What a class's text must be for the translator to read it: all else is refused before it is run.

The translator reads statements and expressions one by one. What they mean depends on more than
their own text: on what the module does with a name, on decorators and bases, on what makes a name
local, on where an effect stands. What is said here of a text makes that plain, so that what is
left means what it says.
"""

import ast
from collections.abc import Collection, Iterator

from cacheproof.proofs.symbolic.predicates import NotTranslated
from cacheproof.proofs.symbolic.source import Source, reached_from

BUILTINS = frozenset(
    {"all", "any", "dict", "enumerate", "frozenset", "iter", "len"}
    | {"list", "next", "range", "reversed", "set", "sorted", "tuple"}
)
"""Functions and types that have a reading, where nothing else bears their names."""
ORDERED = "OrderedDict"
CHANGES = frozenset(
    {"add", "append", "clear", "discard", "move_to_end"}
    | {"pop", "popitem", "remove", "setdefault", "update"}
)
"""Methods of containers that change them."""
_HAS_NO_READING: tuple[type[ast.AST], ...] = (
    ast.AsyncFor,
    ast.AsyncFunctionDef,
    ast.AsyncWith,
    ast.Await,
    ast.ClassDef,
    ast.FunctionDef,
    ast.Global,
    ast.Import,
    ast.ImportFrom,
    ast.Lambda,
    ast.Match,
    ast.NamedExpr,
    ast.Nonlocal,
    ast.Starred,
    ast.Try,
    ast.TryStar,
    ast.With,
    ast.Yield,
    ast.YieldFrom,
)


def refuse_unread(source: Source, operations: Collection[str]) -> None:
    """Refuse a class of which more than the text of its methods says what a call does.

    Args:
        source: the class.
        operations: the methods that are called.

    Raises:
        NotTranslated: names the file, the line, and what stands there.
    """
    _Gate(source, operations).run()


class _Gate:
    def __init__(self, source: Source, operations: Collection[str]) -> None:
        self._source = source
        self._module = ast.parse(source.module)
        reached = {name for one in operations for name in reached_from(one, [source])}
        self._methods = [one for name, one in source.methods.items() if name in reached]
        self._names = frozenset(source.methods)
        self._inherits = source.inherits

    def run(self) -> None:
        self._module_level()
        for method in self._methods:
            self._method(method)
        self._ordered_dicts()

    def _refuse(self, node: ast.AST, what: str) -> None:
        line = getattr(node, "lineno", 0)
        raise NotTranslated(f"{self._source.path}:{line}: no reading of {what}")

    def _ordered_dicts(self) -> None:
        """What a dict has not is asked of attributes that are always an OrderedDict."""
        asked = {}
        for node in (one for method in self._methods for one in ast.walk(method)):
            match node:
                case ast.Call(func=ast.Attribute(value=of, attr="move_to_end" | "popitem")):
                    asked[ast.unparse(of)] = node
        bound = [
            (ast.unparse(target), value)
            for method in self._source.methods.values()
            for node in ast.walk(method)
            for target, value in _assigned(node)
        ]
        for name, node in asked.items():
            values = [ast.unparse(value) for target, value in bound if target == name]
            if not name.startswith("self.") or {*values} != {f"{ORDERED}()"}:
                self._refuse(node, f"{ast.unparse(node)} where it may be no {ORDERED}")

    # the module and the class

    def _module_level(self) -> None:
        name = self._source.name
        for node in _at_import(self._module):
            for bound in _bound_by(node):
                if bound == "*" or bound in BUILTINS:
                    self._refuse(node, f"a module that binds {bound}")
                if bound == ORDERED and not _imports_ordered(node):
                    self._refuse(node, f"an {ORDERED} that is not that of collections")
                if bound == name and not isinstance(node, ast.ClassDef):
                    self._refuse(node, f"{name} bound to something else")
        for node in ast.walk(self._module):
            if _changes_class(node, name):
                self._refuse(node, f"a class that is changed elsewhere: {ast.unparse(node)}")
        found = [one for one in ast.walk(self._module) if _is_class(one, name)]
        if len(found) != 1 or found[0] not in self._module.body:
            self._refuse(found[-1], f"{name} where it is not defined once, by its module")
        self._class(found[0], at_top=True)

    def _class(self, found: ast.AST, *, at_top: bool) -> None:
        assert isinstance(found, ast.ClassDef)
        if found.decorator_list or found.keywords:
            self._refuse(found, "a class with decorators or keywords")
        for base in found.bases:
            bases = [one for one in self._module.body if _is_class(one, ast.unparse(base))]
            if len(bases) == 1:
                self._class(bases[0], at_top=False)
            elif not self._inherits:
                self._refuse(base, f"the base {ast.unparse(base)}, which is not in this module")
        seen = set()
        for one in found.body:
            match one:
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    continue
                case ast.FunctionDef(name=name) if name not in seen:
                    seen.add(name)
                    if name.startswith("__") and name != "__init__":
                        self._refuse(one, f"the method {name}")
                case _:
                    words = ast.unparse(one).splitlines()[0]
                    self._refuse(one, f"a class body with {words}")

    # methods

    def _method(self, method: ast.FunctionDef) -> None:
        if [ast.unparse(one) for one in method.decorator_list] not in ([], ["property"]):
            self._refuse(method, f"a decorated method, {method.name}")
        given = method.args
        if given.vararg or given.kwarg:
            self._refuse(method, f"{method.name}, which takes any number of arguments")
        for node in ast.walk(method):
            if node is not method:
                self._node(node)
            for bound in _bound_by(node) if node is not method else ():
                if bound in BUILTINS or bound in (ORDERED, self._source.name):
                    self._refuse(node, f"a local name {bound}")
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            if one.arg in BUILTINS or one.arg == ORDERED:
                self._refuse(one, f"a parameter named {one.arg}")

    def _node(self, node: ast.AST) -> None:
        if isinstance(node, _HAS_NO_READING):
            self._refuse(node, f"{type(node).__name__} in a method")
        match node:
            case ast.Compare(ops=operators, comparators=others):
                for operator, other in zip(operators, others, strict=True):
                    if isinstance(operator, ast.Is | ast.IsNot) and not _is_none(other):
                        self._refuse(node, ast.unparse(node))
                if len(operators) > 1:
                    self._without_effects(node, "a chained comparison")
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                if len(node.generators) != 1 or node.generators[0].is_async:
                    self._refuse(node, ast.unparse(node))
                self._without_effects(node, "a comprehension")
            case ast.Assert():
                self._without_effects(node, "an assertion")
            case ast.AugAssign(target=target, value=value):
                self._without_effects(target, "an augmented target")
                if isinstance(target, ast.Subscript):  # what it is part of would be looked up again
                    self._without_effects(value, "an augmented assignment")
            case ast.Assign(targets=targets, value=value):
                if any(self._has_effects(one) for one in targets):
                    self._without_effects(value, "an assignment to a target with effects")
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                if name in self._names:
                    self._refuse(node, f"an attribute in the place of the method {name}")
            case ast.Attribute(attr=name) if name.startswith("__"):
                self._refuse(node, ast.unparse(node))
            case ast.For(iter=ast.Call(func=ast.Attribute(value=of, attr="items")), body=body):
                for one in body:
                    self._leaves(one, of)

    def _without_effects(self, node: ast.AST, where: str) -> None:
        if self._has_effects(node):
            self._refuse(node, f"effects in {where}: {ast.unparse(node)}")

    def _has_effects(self, node: ast.AST) -> bool:
        """Whether a method of this class is called there, or one that changes a container."""
        return any(
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and (one.func.attr in CHANGES or one.func.attr in self._names)
            for one in ast.walk(node)
        )

    def _leaves(self, node: ast.AST, container: ast.expr) -> None:
        """A loop over items, which were read before its body ran."""
        text = ast.unparse(container)
        for one in ast.walk(node):
            if isinstance(one, ast.Subscript) and not isinstance(one.ctx, ast.Load):
                if ast.unparse(one.value) == text:
                    self._refuse(one, f"a loop over the items of {text} that changes them")
            elif isinstance(one, ast.Call) and self._has_effects(one):
                words = ast.unparse(one)
                if text in words or ".self" in words or words.startswith("self."):
                    self._refuse(one, f"a loop over the items of {text} that calls {words}")


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


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets of an assignment, and what is put there; of several at once, each what all get."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            yield from zip(targets, values, strict=False)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                of = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from ((one, value) for one in of)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.AugAssign(target=target, value=value):
            yield target, value


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What a module runs when it is imported; of functions and classes their definitions alone,
    but for names that functions bind in the module."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from (one for one in ast.walk(child) if isinstance(one, ast.Global))
        else:
            yield from _at_import(child)


def _imports_ordered(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module="collections", level=0, names=names):
            return all(one.asname != ORDERED or one.name == ORDERED for one in names)
    return False


def _is_class(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == name


def _changes_class(node: ast.AST, name: str) -> bool:
    """Whether an attribute of the class is set, or the class is handed to who may."""
    match node:
        case ast.Attribute(value=ast.Name(id=found), ctx=ast.Store() | ast.Del()):
            return found == name
        case ast.Call(args=arguments):
            return any(isinstance(one, ast.Name) and one.id == name for one in arguments)
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
