"""Classes by their source text, which is read and never changed."""

import ast
from collections.abc import Mapping
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
    def attributes(self) -> frozenset[str]:
        """What `__init__` sets on the object."""
        return frozenset(
            node.attr
            for node in ast.walk(self.methods["__init__"])
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )

    def reached_from(self, method: str) -> frozenset[str]:
        """The methods that a call of one may run."""
        found: set[str] = set()
        to_do = [method]
        while to_do:
            name = to_do.pop()
            if name in self.methods and name not in found:
                found.add(name)
                to_do += [
                    node.attr
                    for node in ast.walk(self.methods[name])
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
