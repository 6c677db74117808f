"""Functions and methods as they stand in a module, and as they read."""

import ast
import copy
from collections.abc import Iterator


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module, and the methods of its classes, by `name` and `Class.name`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef):
                    yield f"{node.name}.{one.name}", one


def without_docstring(method: ast.FunctionDef) -> ast.FunctionDef:
    """A method of the same statements, but for its docstring."""
    bare = copy.copy(method)
    bare.body = method.body[ast.get_docstring(method) is not None :] or [ast.Pass()]
    return bare


def reading_of(method: ast.FunctionDef) -> str:
    """A method as it is read: without comments, layout and docstring."""
    return ast.unparse(without_docstring(method))
