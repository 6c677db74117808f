"""What a text of keys must be to be read: all else is refused before it is run.

Python itself runs the text on symbolic values. Three things are then not as they are on others. A
loop over many elements is run for one of them, so that nothing may be carried from one round to the
next. A function is run once, so that nothing may be kept for the next call. And what a name means
is put in its place, so that the text may not put something else there.
"""

import ast
import builtins
import hashlib
from functools import cache

from cacheproof.proofs.keys.gate_function import Function, Gate, first_line
from cacheproof.proofs.keys.key_modules import HELPER, Language
from cacheproof.proofs.keys.loops import HELPER as CUT
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.text.bindings import imports
from cacheproof.proofs.text.definitions import functions_of, reading_of


@cache
def refuse_unread(text: str, language: Language) -> None:
    """Refuse a text of which more than the statements of its functions says what they do.

    Raises:
        Unread: names the file, the line, and what stands there.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise Unread(f"{language.path}:{error.lineno}: {error.msg}") from None
    _Module(tree, language).check()


@cache
def unread_functions(text: str, language: Language) -> tuple[str, ...]:
    """Functions and methods of the text that are not read."""
    return tuple(
        name
        for name, one in functions_of(ast.parse(text))
        if one.name not in language.read and not name.endswith(".__init__")
    )


def digest_of_function(text: str, name: str) -> str:
    """The digest of what a function says, layout, comments and docstring aside; "" where there is
    no such function."""
    for found, function in functions_of(ast.parse(text)):
        if found == name:
            return hashlib.sha256(reading_of(function).encode()).hexdigest()[:12]
    return ""


class _Module(Gate):
    """A module: each name is bound once, by what is allowed to bind it."""

    def __init__(self, tree: ast.Module, language: Language) -> None:
        super().__init__(language)
        self._tree = tree
        self._text = ast.unparse(tree)
        self._bound: dict[str, ast.stmt] = {}

    def check(self) -> None:
        """Refuse the module if something in it has no reading.

        Raises:
            Unread: names the file, the line, and what stands there.
        """
        for node in self._tree.body:
            self._statement(node)
        self._origins()
        self._everywhere()
        found = dict(functions_of(self._tree))
        for name, digest in self._language.stated.items():
            if digest_of_function(self._text, name) != digest:
                where = found.get(name, self._tree.body[0])
                self._refuse(where, f"{name}, whose meaning is stated by hand, of another text")
        for function in found.values():
            if function.name in self._language.read:
                Function(function, self._language).check()

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Import() | ast.ImportFrom():
                for one in node.names:
                    self._bind(one.asname or one.name, node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._bind(name, node)
                self._constant(value)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple() as value):
                for target in targets:
                    self._bind(ast.unparse(target), node)
                self._constant(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                self._bind(name, node)
                if value is not None:
                    self._constant(value)
            case ast.FunctionDef(name=name):
                self._bind(name, node)
            case ast.ClassDef(name=name):
                self._bind(name, node)
                self._class(node)
            case _:
                self._refuse(node, f"a module that runs {first_line(node)}")

    def _bind(self, name: str, node: ast.stmt) -> None:
        if name in self._bound:
            self._refuse(node, f"{name}, which is bound twice")
        if name in vars(builtins) or name == "*" or name.startswith(HELPER) or name == CUT:
            self._refuse(node, f"a module that binds {name}")
        self._bound[name] = node

    def _constant(self, value: ast.expr) -> None:
        """What is bound in a module cannot be changed."""
        for node in ast.walk(value):
            match node:
                case ast.Call(func=ast.Name(id="frozenset"), keywords=[]):
                    continue
                case ast.Call() | ast.Dict() | ast.Set() | ast.ListComp() | ast.Lambda():
                    self._refuse(node, f"a module that keeps {ast.unparse(node)}")
                case ast.List() if not _is_annotation(value):
                    self._refuse(node, f"a module that keeps {ast.unparse(node)}")

    def _class(self, node: ast.ClassDef) -> None:
        if node.decorator_list or node.keywords:
            self._refuse(node, f"{node.name}, a class with decorators or keywords")
        for base in node.bases:
            name = ast.unparse(base)
            is_error = isinstance(getattr(builtins, name, None), type)
            if not is_error and imports(self._tree).get(name) != "typing.NamedTuple":
                self._refuse(base, f"the base {name}")
        seen: set[str] = set()
        for one in node.body:
            match one:
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    continue
                case ast.AnnAssign(target=ast.Name(), value=None | ast.Constant()):
                    continue
                case ast.FunctionDef(name=name) if name not in seen:
                    seen.add(name)
                    if name.startswith("__") and name != "__init__":
                        self._refuse(one, f"the method {name}")
                case _:
                    self._refuse(one, f"a class body with {first_line(one)}")

    def _origins(self) -> None:
        """Names whose meaning is known are those that it is known of."""
        found = imports(self._tree)
        for name, origin in {**self._language.given, **self._language.used}.items():
            if name in self._bound and found.get(name) != origin:
                self._refuse(self._bound[name], f"{name}, which is not {origin}")

    def _everywhere(self) -> None:
        """What no function may do, read or not: change its module, a class or a function."""
        for node in ast.walk(self._tree):
            match node:
                case ast.Global(names=names) | ast.Nonlocal(names=names):
                    self._refuse(node, f"names of others, {', '.join(names)}")
                case ast.FunctionDef(decorator_list=[decorator, *_]):
                    self._refuse(decorator, f"{node.name}, which is decorated")
                case ast.FunctionDef(args=given, returns=returns):
                    self._definition(node, given, returns)
                case ast.Constant(value=str(text)) if "\0" in text:
                    self._refuse(node, "a text with a character of no width")
                case ast.AsyncFunctionDef():
                    self._refuse(node, f"{node.name}, which is asynchronous")
                case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                    if name in self._bound:
                        self._refuse(node, f"a change of {name}")
                case ast.Name(id="globals" | "vars" | "setattr" | "exec" | "eval" as name):
                    self._refuse(node, name)

    def _definition(
        self, node: ast.FunctionDef, given: ast.arguments, returns: ast.expr | None
    ) -> None:
        """What a definition itself runs: defaults and annotations."""
        run = [given] if returns is None else [given, returns]
        for one in (one for part in run for one in ast.walk(part)):
            if isinstance(one, ast.Call | ast.NamedExpr):
                self._refuse(one, f"{node.name}, whose definition runs {ast.unparse(one)}")


def _is_annotation(value: ast.expr) -> bool:
    """Whether it is a type, such as Callable[[int], int]."""
    return isinstance(value, ast.Subscript)
