"""One-statement changes of the text of vLLM 0.33.0: which there are, and a sample of them."""

import ast
import copy
import hashlib
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from branches import REFUSED

from cacheproof.differential.targets.changed import ChangedText
from cacheproof.differential.texts import texts
from cacheproof.differential.texts.modelled import COMPONENTS, ModelledComponent
from cacheproof.proofs.symbolic.checking.mutants import BY_KIND, Change
from cacheproof.reference.releases import NEWEST

RELEASE = NEWEST
CONNECTORS = "vllm/distributed/ec_transfer/ec_connector"
_OF_CONNECTORS = (
    f"{CONNECTORS}/example_connector.py",
    f"{CONNECTORS}/cpu/common.py",
    f"{CONNECTORS}/cpu/connector.py",
    f"{CONNECTORS}/cpu/ec_shared_region.py",
    f"{CONNECTORS}/cpu/scheduler/__init__.py",
    f"{CONNECTORS}/cpu/scheduler/embedding_cache.py",
)
"""What the depth of encoder connectors runs of a release, without their workers on a GPU."""


@dataclass(frozen=True)
class Function:
    """A modelled function of a module: its qualified name, and its syntax."""

    path: str
    name: str
    node: ast.FunctionDef


@dataclass(frozen=True)
class Statement:
    """One change: `key` names it for good, `words` say what it is."""

    key: str
    kind: str
    words: str
    reading: ChangedText


def paths_in(tree: Path) -> list[str]:
    """The modules of a tree that hold what some depth runs, from the tree's root."""
    modelled = [f"vllm/{path}" for one in COMPONENTS for path in one.paths]
    return [path for path in (*modelled, *_OF_CONNECTORS) if _component(tree, path)]


def _component(tree: Path, path: str) -> ModelledComponent | None:
    """What a module holds of what is modelled; None: nothing, in this tree."""
    if not (tree / path).is_file():
        return None
    if path in _OF_CONNECTORS:
        return ModelledComponent("connectors", (path,))
    component = next(one for one in COMPONENTS if path.removeprefix("vllm/") in one.paths)
    defined = {getattr(node, "name", None) for node in ast.parse((tree / path).read_text()).body}
    is_held = not component.only or not defined.isdisjoint(_tops(component))
    return component if is_held else None


def _tops(component: ModelledComponent) -> set[str]:
    return {name.partition(".")[0] for name in component.only}


def functions(tree: Path, path: str) -> Iterator[Function]:
    """The functions of a module whose text the harness models."""
    component = _component(tree, path)
    if component is None:
        return

    def of(body: list[ast.stmt], owner: str) -> Iterator[Function]:
        for node in body:
            if isinstance(node, ast.ClassDef) and not owner:
                yield from of(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                name = f"{owner}{node.name}"
                counts = not component.only or {name, name.partition(".")[0]} & {*component.only}
                if counts and not texts.is_left_out(f"{component.name}:{name}"):
                    yield Function(path, name, node)

    yield from of(ast.parse((tree / path).read_text()).body, "")


def sample(
    tree: Path,
    paths: Collection[str],
    count: int,
    seed: int,
    reached: Mapping[str, Collection[int]],
    unchangeable: Collection[str] = (),
) -> list[Statement]:
    """So many changes, as many of each module and of each kind as there can be.

    A place that no trace reaches (its line is not among those `reached` of its module) and that
    belongs to a feature that no trace can ask for is left out, and so are the functions that are
    `unchangeable` (`path:name`).
    """
    made: list[Statement] = []
    of_modules = {
        path: _of_module(tree, path, seed, reached.get(path, ()), unchangeable) for path in paths
    }
    while of_modules and len(made) < count:
        for path in list(of_modules):
            if len(made) == count:
                break
            statement = next(of_modules[path], None)
            if statement is None:
                del of_modules[path]
            else:
                made.append(statement)
    return made


def _of_module(
    tree: Path, path: str, seed: int, reached: Collection[int], unchangeable: Collection[str]
) -> Iterator[Statement]:
    """The changes of a module, of each kind in turn."""
    found = [one for one in functions(tree, path) if f"{path}:{one.name}" not in unchangeable]
    places = [
        (function, number, node)
        for function in found
        for number, node in _places(function.node)
        if _line(node) in reached or not _is_refused(function, node)
    ]
    text = (tree / path).read_text()
    seen: set[str] = set()
    of_kinds = [
        _of_kind(kind, changes, places, text, random.Random(f"{seed}/{path}/{kind}"), seen)
        for kind, changes in BY_KIND.items()
    ]
    while of_kinds:
        for statements in list(of_kinds):
            statement = next(statements, None)
            if statement is None:
                of_kinds.remove(statements)
            else:
                yield statement


def _of_kind(
    kind: str,
    changes: Collection[Change],
    places: Collection[tuple[Function, int, ast.AST]],
    text: str,
    order: random.Random,
    seen: set[str],
) -> Iterator[Statement]:
    """The changes of one kind, in a random order, each text once."""
    tries = [(*place, change) for place in places for change in changes]
    order.shuffle(tries)
    copies: dict[str, tuple[ast.FunctionDef, list[ast.AST]]] = {}
    for function, number, node, change in tries:
        if function.name not in copies:
            copied = copy.deepcopy(function.node)
            copies[function.name] = copied, list(ast.walk(copied))
        changed, nodes = copies[function.name]
        words = change(changed, nodes[number])
        if words is None:
            continue
        del copies[function.name]
        said = ast.unparse(ast.fix_missing_locations(changed))
        if said != ast.unparse(function.node) and said not in seen:
            seen.add(said)
            module = _short(Path(function.path))
            digest = hashlib.sha256(said.encode()).hexdigest()[:8]
            yield Statement(
                f"{module}:{function.name}:{digest}",
                kind,
                f"line {_line(node)}: {words}",
                ChangedText(function.path, function.name, _spliced(text, function.node, said)),
            )


def _short(path: Path) -> str:
    """A module's name, with its folder's where several are called so."""
    return path.parent.name if path.stem in ("__init__", "base") else path.stem


def _places(function: ast.FunctionDef) -> Iterator[tuple[int, ast.AST]]:
    """Nodes that do something, by their number in a walk: none of the signature, of annotations, of
    messages and of what is logged."""
    quiet = {
        id(inner)
        for node in ast.walk(function)
        for part in _quiet_parts(node)
        for inner in ast.walk(part)
    }
    signature = {
        id(inner) for part in (function.args, *function.decorator_list) for inner in ast.walk(part)
    }
    for number, node in enumerate(ast.walk(function)):
        if hasattr(node, "lineno") and id(node) not in quiet | signature and node is not function:
            yield number, node


def _quiet_parts(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger")))):
            yield node
        case ast.Expr(value=ast.Constant()) | ast.Raise():
            yield node
        case ast.Assert(msg=ast.expr() as message):
            yield message
        case ast.AnnAssign(annotation=annotation):
            yield annotation
        case ast.FunctionDef(returns=ast.expr() as returns):
            yield returns


def _is_refused(function: Function, place: ast.AST) -> bool:
    """Whether the function, or a condition around the place, is of a feature that is refused."""
    from branches import Branch

    around = _conditions_around(function.node, place)
    branch = Branch(function.name, 0, 0, around)
    return branch.reason(REFUSED, RELEASE) is not None


def _conditions_around(function: ast.FunctionDef, place: ast.AST) -> tuple[str, ...]:
    def search(node: ast.AST, around: tuple[str, ...]) -> tuple[str, ...] | None:
        if node is place:
            return around
        test = getattr(node, "test", None)
        within = around if test is None else (*around, ast.unparse(test))
        for child in ast.iter_child_nodes(node):
            found = search(child, within)
            if found is not None:
                return found
        return None

    return search(function, ()) or ()


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _spliced(text: str, function: ast.FunctionDef, said: str) -> str:
    """The module's text with a function's lines replaced; decorators stay where they are."""
    bare = ast.parse(said).body[0]
    assert isinstance(bare, ast.FunctionDef)
    bare.decorator_list = []
    lines = text.splitlines()
    indent = " " * function.col_offset
    new = [indent + line if line else line for line in ast.unparse(bare).splitlines()]
    lines[function.lineno - 1 : function.end_lineno] = new
    return "\n".join(lines) + "\n"
