"""Classes by their source text, which is read and never changed."""

import ast
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import decode_source
from pathlib import Path

DEPTH_MAX = 100
"""Most nodes within each other, so that what follows them by recursion comes to an end."""


@dataclass(frozen=True)
class Source:
    """A class as it stands in a file.

    Attributes:
        methods: by their names, as they are read.
        text: the whole class; module: that of the module that it is in.
        inherits: whether what it has from another module is among its methods.
        given: its methods as they stand there.
        read: what its methods were as they are read, before anybody changed one.
    """

    name: str
    path: str
    methods: Mapping[str, ast.FunctionDef]
    text: str
    module: str
    given: Mapping[str, ast.FunctionDef]
    read: Mapping[str, ast.FunctionDef]
    inherits: bool = False

    def of_base(self, base: "Source") -> "Source":
        """The class with the methods that it inherits."""
        return replace(
            self,
            methods={**base.methods, **self.methods},
            given={**base.given, **self.given},
            read={**base.read, **self.read},
            inherits=True,
        )

    @property
    def tree(self) -> ast.Module:
        """The module, with the class's methods as they are given; or, if one was changed, as they
        are here: a change of them is not in the file, and those of a base that is in another file
        are not either."""
        tree = ast.parse(self.module)
        found = next(
            one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == self.name
        )
        left = dict(self.given if self.methods == self.read else self.methods)
        found.body = [
            left.pop(one.name, one) if isinstance(one, ast.FunctionDef) else one
            for one in found.body
        ]
        found.body += left.values()
        return ast.fix_missing_locations(tree)

    @property
    def properties(self) -> frozenset[str]:
        """The methods that are read as attributes."""
        return frozenset(
            name
            for name, method in self.methods.items()
            if any(
                isinstance(one, ast.Name) and one.id == "property" for one in method.decorator_list
            )
        )

    @property
    def attributes(self) -> frozenset[str]:
        """What `__init__` sets on the object."""
        begun = [self.methods[name] for name in ("__init__",) if name in self.methods]
        return frozenset(
            node.attr
            for method in begun
            for node in ast.walk(method)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )

    def named(self, names: Mapping[str, str]) -> "Source":
        """The class with other names of attributes, from old to new; the text is not changed."""
        if not names:
            return self
        read = {name: _with_names(one, names) for name, one in self.read.items()}
        given = {name: _with_names(one, names) for name, one in self.given.items()}
        return replace(self, methods=read, given=given, read=read)

    def annotated(self) -> dict[str, str]:
        """The annotations of what `__init__` sets on the object."""
        begun = [self.methods[name] for name in ("__init__",) if name in self.methods]
        return {
            one.target.attr: ast.unparse(one.annotation)
            for method in begun
            for one in ast.walk(method)
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Attribute)
        }

    def is_counter(self, name: str) -> bool:
        """Whether an attribute begins as a number that is written there, as a statement of
        `__init__` itself, and is bound to nothing but such numbers and sums."""
        nodes = [one for method in self.methods.values() for one in ast.walk(method)]
        counted = {id(_counted(one)) for one in nodes}
        bound = [
            one
            for one in nodes
            if isinstance(one, ast.Attribute) and one.attr == name and not _is_read(one)
        ]
        first = self.methods["__init__"].body if "__init__" in self.methods else []
        begun = {id(_counted(one)) for one in first if not isinstance(one, ast.AugAssign)}
        return all(id(one) in counted for one in bound) and any(id(one) in begun for one in bound)


def _with_names(method: ast.FunctionDef, names: Mapping[str, str]) -> ast.FunctionDef:
    changed = copy.deepcopy(method)
    for one in ast.walk(changed):
        if isinstance(one, ast.Attribute):
            one.attr = names.get(one.attr, one.attr)
    return changed


def _is_read(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _counted(node: ast.AST) -> ast.expr | None:
    """The target of an assignment of a number that is written there, or of an augmented one."""
    match node:
        case (
            ast.Assign(targets=[target], value=ast.Constant(value=int() as number))
            | ast.AnnAssign(target=target, value=ast.Constant(value=int() as number))
        ) if not isinstance(number, bool):
            return target
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub()):
            return target
    return None


def defaults_of(method: ast.FunctionDef) -> dict[str, object]:
    """What parameters are that a call leaves out, where that is a constant."""
    given = method.args
    by_place = [one.arg for one in given.args][len(given.args) - len(given.defaults) :]
    pairs = (
        *zip(by_place, given.defaults, strict=True),
        *zip((one.arg for one in given.kwonlyargs), given.kw_defaults, strict=True),
    )
    return {name: one.value for name, one in pairs if isinstance(one, ast.Constant)}


def place_of_loop(source: Source, method: str, kind: type[ast.stmt]) -> str:
    """The one method that has a loop of a kind among those that a call of a method may run; the
    method itself where there is none, or are several."""
    found = [
        name
        for name in sorted(reached_among(method, source.methods))
        if any(isinstance(one, kind) for one in ast.walk(source.methods[name]))
    ]
    return found[0] if len(found) == 1 else method


def reached_from(method: str, sources: Iterable[Source]) -> frozenset[str]:
    """The methods of these classes that a call of one may run."""
    methods: dict[str, list[ast.FunctionDef]] = {}
    for source in sources:
        for name, definition in source.methods.items():
            methods.setdefault(name, []).append(definition)
    return _reached(method, methods)


def reached_among(method: str, methods: Mapping[str, ast.FunctionDef]) -> frozenset[str]:
    """The methods, among these, that a call of one may run."""
    return _reached(method, {name: [one] for name, one in methods.items()})


def _reached(method: str, methods: Mapping[str, Sequence[ast.FunctionDef]]) -> frozenset[str]:
    found: set[str] = set()
    to_do = [method]
    while to_do:
        name = to_do.pop()
        if name in methods and name not in found:
            found.add(name)
            to_do += [
                node.attr
                for definition in methods[name]
                for node in ast.walk(definition)
                if isinstance(node, ast.Attribute)
            ]
    return frozenset(found)


def source_of(path: Path, name: str, within: str | None = None) -> Source:
    """A class by its file and name.

    Args:
        path: the file.
        name: of the class.
        within: what messages call the file; its name by default.

    Raises:
        LookupError: the file has no such class.
        SyntaxError: it is no Python, or Python does not know its encoding.
        ValueError: it is nested too deeply, or its encoding is another one.
    """
    return source_in(decode_source(path.read_bytes()), name, within or path.name)


def source_in(text: str, name: str, within: str) -> Source:
    """A class by its module's text and its name; `within` is what messages call the module.

    Raises:
        LookupError: the module has no such class.
        ValueError: it is nested too deeply.
    """
    try:
        tree = ast.parse(text)
    except (MemoryError, RecursionError):
        raise ValueError("nested too deeply") from None
    if _depth(tree) > DEPTH_MAX:
        raise ValueError("nested too deeply")
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            given = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
            segment = ast.get_source_segment(text, node) or ""
            return Source(name, within, given, segment, text, given, given)
    raise LookupError(f"{within}: no class {name}")


def _depth(tree: ast.AST) -> int:
    """How many nodes stand within each other at most."""
    depth, level = 0, [tree]
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return depth
