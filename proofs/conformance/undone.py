"""The translator with one reading undone: a changed text of one of its modules."""

import ast
import copy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from cacheproof.proofs.symbolic.checking.mutants import put_in_place

FOLDER = Path(__file__).resolve().parents[1] / "symbolic"
PACKAGE = "cacheproof.proofs.symbolic"
MODULES = (
    "execution", "containers", "comprehensions", "builtin_calls", "expressions", "operands",
    "loops", "statements", "machine", "state", "gate", "plain",
)  # fmt: skip


@dataclass(frozen=True)
class Undone:
    """A change of a module: the function that it is in, its number among those of the module, the
    lines that are run where it is, if not `at_import` alone, and in words."""

    module: str
    function: str
    number: int
    lines: range
    at_import: bool
    words: str
    _place: int
    _change: "Change"

    @property
    def key(self) -> str:
        """Its name in a file of results: the same as long as its statement reads the same, and as
        many such statements stand before it in its function."""
        return f"{self.module}.{self.function}: {self.words}"

    @property
    def tree(self) -> ast.Module:
        """The changed module."""
        tree = _tree(self.module)
        self._change(tree, list(ast.walk(tree))[self._place])
        return ast.fix_missing_locations(tree)


def _tree(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text())


def path_of(module: str) -> Path:
    """The file of a module of the translator, in whichever of its rooms it is."""
    (found,) = FOLDER.rglob(f"{module}.py")
    return found


def _name_of(module: str) -> str:
    return f"{PACKAGE}.{path_of(module).parent.name}.{module}"


def undone(module: str) -> Iterator[Undone]:
    """Every change of a module's text."""
    number = 0
    met: Counter[tuple[str, str]] = Counter()
    tree = _tree(module)
    within: dict[int, str] = {}
    for found in ast.walk(tree):  # the outer before the inner
        if isinstance(found, ast.FunctionDef):
            within |= dict.fromkeys(map(id, ast.walk(found)), found.name)
    for place, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.Match):
            continue
        function = within.get(id(node), "")
        for change in CHANGES:
            probe = copy.deepcopy(node)
            words = change(probe, probe)
            if words is not None:
                met[function, words] += 1
                words += f" ({met[function, words]})" if met[function, words] > 1 else ""
                at_import = id(node) not in within
                yield Undone(
                    module, function, number, _lines(node), at_import, words, place, change
                )
                number += 1


def _lines(node: ast.AST) -> range:
    """The lines of a node, without the bodies below it."""
    match node:
        case ast.If(test=head) | ast.For(iter=head) | ast.While(test=head):
            first, last = node.lineno, head.end_lineno
        case ast.match_case(pattern=pattern, guard=guard):
            first, last = pattern.lineno, (guard or pattern).end_lineno
        case ast.stmt() | ast.expr():
            first, last = node.lineno, node.end_lineno
        case _:
            first, last = 0, 0
    return range(first, (last or first) + 1)


Change = Callable[[ast.AST, ast.AST], str | None]


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:90]


_GIVES_STATE = {"require": 1, "detach": 3, "refuse_misfit": 4, "assuming": -1}
"""Functions that go on with a state, by the number of the argument that it is; -1: of `self`."""


def _without_call(tree: ast.AST, node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=given):
            if name not in _GIVES_STATE or any(isinstance(one, ast.Starred) for one in given[:1]):
                return None
            words = f"without {_short(node)}"
            place = _GIVES_STATE[name]
            if place >= len(given):
                return None
            if place >= 0:
                put_in_place(tree, node, given[place])
            elif isinstance(node.func, ast.Attribute):
                put_in_place(tree, node, node.func.value)
            return words
    return None


def _without_refusal(tree: ast.AST, node: ast.AST) -> str | None:
    match node:
        case ast.Raise():
            put_in_place(tree, node, ast.Pass())
            return f"without {_short(node)}"
        case ast.Expr(value=ast.Yield(value=ast.Call(func=ast.Name(id="Refusal")))):
            words = f"without {_short(node)}"
            put_in_place(tree, node, ast.parse("yield from ()").body[0])
            return words
    return None


def _other_way(tree: ast.AST, node: ast.AST) -> str | None:
    if isinstance(node, ast.If | ast.IfExp):
        words = f"not {_short(node.test)}"
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return f"if {words}"
    if isinstance(node, ast.match_case) and node.guard is not None:
        words = f"case without if {_short(node.guard)}"
        node.guard = None
        return words
    return None


def _part_left_out(tree: ast.AST, node: ast.AST) -> str | None:
    if isinstance(node, ast.BoolOp):
        words = f"{_short(node)} without its last part"
        if len(node.values) == 2:
            put_in_place(tree, node, node.values[0])
        else:
            node.values.pop()
        return words
    return None


def _other_operator(tree: ast.AST, node: ast.AST) -> str | None:
    others: dict[type[ast.cmpop], type[ast.cmpop]] = {
        ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
        ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In,
    }  # fmt: skip
    if isinstance(node, ast.Compare) and type(node.ops[0]) in others:
        before = _short(node)
        node.ops[0] = others[type(node.ops[0])]()
        return f"{_short(node)} for {before}"
    return None


def _other_state(tree: ast.AST, node: ast.AST) -> str | None:
    """What was evaluated in a state is gone on with in the state before."""
    match node:
        case ast.For(target=ast.Tuple(elts=[ast.Name(id="after"), _]), body=body):
            before = ast.parse("after = state").body
            node.body = [*before, *body]
            return f"the state before {_short(node.iter)}"
    return None


CHANGES: tuple[Change, ...] = (
    _without_call,
    _without_refusal,
    _other_way,
    _part_left_out,
    _other_operator,
    _other_state,
)


class _Finder(MetaPathFinder, Loader):
    """Gives a changed text for a module."""

    def __init__(self, change: Undone) -> None:
        self._change = change

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _name_of(self._change.module):
            return None
        return ModuleSpec(name, self, origin=str(path_of(self._change.module)))

    def exec_module(self, module: ModuleType) -> None:
        code = compile(self._change.tree, f"{self._change.module}.py", "exec")
        exec(code, vars(module))


def undo(change: Undone) -> None:
    """Give the changed text to whoever imports its module from now on in this process.

    Raises:
        RuntimeError: the module stands there already.
    """
    name = _name_of(change.module)
    if name in sys.modules:
        raise RuntimeError(f"{name} is imported already, unchanged")
    sys.meta_path.insert(0, _Finder(change))
