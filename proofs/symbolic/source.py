"""Classes by their source text, which is read and never changed."""

import ast
import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A class as it stands in a file: its methods by their names, and its whole text."""

    name: str
    path: str
    methods: Mapping[str, ast.FunctionDef]
    text: str

    def of_base(self, base: "Source") -> "Source":
        """With the methods that it inherits."""
        return replace(self, methods={**base.methods, **self.methods})

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
        return frozenset(
            node.attr
            for node in ast.walk(self.methods["__init__"])
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )


def reading_of(method: ast.FunctionDef) -> str:
    """A method as it is read: without comments, layout and docstring."""
    bare = copy.copy(method)
    bare.body = method.body[ast.get_docstring(method) is not None :] or [ast.Pass()]
    return ast.unparse(bare)


def reached_from(method: str, sources: Iterable[Source]) -> frozenset[str]:
    """The methods of these classes that a call of one may run."""
    methods: dict[str, list[ast.FunctionDef]] = {}
    for source in sources:
        for name, definition in source.methods.items():
            methods.setdefault(name, []).append(definition)
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
    """
    text = path.read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
            return Source(
                name, within or path.name, methods, ast.get_source_segment(text, node) or ""
            )
    raise LookupError(f"{path}: no class {name}")
