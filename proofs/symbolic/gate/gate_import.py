"""What a module may run when it is imported: nothing that it says itself."""

import ast
import builtins
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.values.language import BUILTINS, GUARDED, Refusal
from cacheproof.proofs.text.bindings import (
    UNKNOWN,
    at_import,
    beside_body,
    bound_by,
    certainly_bound,
    imports,
    root_of,
)


def run_at_import(tree: ast.Module, source: Source) -> Iterator[Refusal]:
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
        for beside in beside_body(scope):
            if not _is_inert(beside, names):
                yield Refusal(beside, f"what runs where it is defined: {ast.unparse(beside)}")
            for node in ast.walk(beside):
                if isinstance(node, ast.Name) and not names.is_bound(node.id):
                    yield Refusal(node, f"{node.id}, which nothing has bound by then")


def _bound_in_body(scope: ast.ClassDef) -> Iterator[Refusal]:
    """What a class binds that Python looks at by itself: names of builtins, which its decorators
    and annotations would have, and methods that are run where a class is defined or asked."""
    for node in at_import(scope):
        for bound in bound_by(node):
            is_special = bound.startswith("__") and bound not in _OF_OBJECTS
            if bound in GUARDED or is_special:
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
        imported = imports(tree)
        bound = Counter(name for node in at_import(tree) for name in bound_by(node))
        defined = [one.name for one in tree.body if isinstance(one, ast.ClassDef)]
        classes = [name for name in defined if bound[name] == 1]
        return cls(imported, bound.keys() - imported.keys(), classes, certainly_bound(tree))

    def place_of(self, name: str) -> str:
        """What a name is that a module binds, as it is called where it comes from; its own name
        where it is a builtin's."""
        return UNKNOWN if name in self.own else self.imported.get(name, name)

    def is_bound(self, name: str) -> bool:
        return name in self.certain or hasattr(builtins, name)

    def is_base(self, node: ast.expr) -> bool:
        """Whether a class of the module, or one of those that run nothing of what is derived from
        them."""
        base = root_of(node)
        if self.place_of(base) in _BASES:
            return True
        return isinstance(node, ast.Name) and base in self.classes

    def is_decorator(self, node: ast.expr) -> bool:
        """Whether it is one of those that run nothing of the module's own."""
        called = node.func if isinstance(node, ast.Call) else node
        plain = not isinstance(node, ast.Call) or (
            not node.args and all(isinstance(one.value, ast.Constant) for one in node.keywords)
        )
        is_name = isinstance(called, ast.Name)
        return plain and is_name and self.place_of(ast.unparse(called)) in _DECORATORS


def _is_inert(node: ast.expr, names: _Names) -> bool:
    """Whether to evaluate an expression runs nothing that the module itself says."""

    def inert(one: ast.expr) -> bool:
        return _is_inert(one, names)

    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.Attribute(value=of, attr=name):
            return not name.startswith("__") and inert(of) and root_of(of) not in {*names.own, ""}
        case ast.Subscript(value=of, slice=item):
            return inert(of) and inert(item) and root_of(of) not in {*names.own, ""}
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


def is_field_default(value: ast.expr) -> bool:
    """What a record has at first: a constant, or something empty."""
    match value:
        case ast.Constant():
            return True
        case ast.Call(func=ast.Name(id="field"), args=[], keywords=[only]):
            return only.arg == "default_factory" and ast.unparse(only.value) in BUILTINS
    return False


_BASES = frozenset(
    {"Exception", "abc.ABC", "object", "typing.Generic", "typing.NamedTuple", "typing.Protocol"}
)
"""Bases that run nothing of a class that is derived from them."""
_DECORATORS = frozenset(
    {"abc.abstractmethod", "classmethod", "dataclasses.dataclass", "property", "staticmethod"}
    | {"typing.overload"}
)
"""Decorators that run nothing of the module's own."""


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
            is_field = names.place_of("field") == "dataclasses.field" and is_field_default(value)
            return is_field or _is_inert(value, names) or _is_made(value, names)
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in body)
    return False


_MAKERS = frozenset({"typing.TypeVar", "vllm.logger.init_logger"})
"""What a module may call as it is imported."""


def _is_made(value: ast.expr, names: _Names) -> bool:
    """A value that is made by what is known to run nothing of the module's own, such as a
    logger."""
    match value:
        case ast.Call(func=ast.Name(id=called), args=given, keywords=[]):
            plain = all(
                isinstance(one, ast.Constant) or ast.unparse(one) == "__name__" for one in given
            )
            return plain and names.place_of(called) in _MAKERS
    return False
