"""Classes as CPython makes them of a module's whole text, without the package that it belongs to.

What a module does to a class before, in and after its body is done here too. What it imports from
elsewhere than the standard library stands there by name alone: no method that is run may need it.
"""

import __future__

import ast
import builtins
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from cacheproof.proofs.witness.limits import Endless, limited

SECONDS_OF_IMPORT = 3.0
"""Seconds of CPU time in which a module that only defines must have run."""

_UNEVALUATED = __future__.annotations.compiler_flag
"""Annotations are not evaluated: a method may come from a module that imports other names."""


class _Absent(type):
    """The type of what is not there: nothing that is asked of it is there either."""

    def __getattr__(cls, name: str) -> "_Absent":
        if name.startswith("__"):
            # Python looks these up by itself, and takes what it finds for a meaning
            raise AttributeError(name)
        return _absent(name)

    def __getitem__(cls, key: object) -> "_Absent":
        return cls

    def __or__(cls, other: object) -> "_Absent":
        return cls

    __ror__ = __or__

    def __call__(cls, *arguments: object, **named: object) -> Any:
        # a class that is derived from an absent one is there, and makes objects
        return cls if "is_absent" in vars(cls) else super().__call__(*arguments, **named)


def _absent(name: str) -> _Absent:
    return _Absent(name, (), {"is_absent": True})


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = None,
    level: int = 0,
) -> object:
    package = name.partition(".")[0]
    # a class of the reference needs what it imports of this package
    if level == 0 and (package in sys.stdlib_module_names or package == "cacheproof"):
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    return _absent(package)


def class_of(tree: ast.Module, path: str, name: str) -> type[Any]:
    """The class of that name, when its module has been run to its end.

    Args:
        tree: the module.
        path: what messages call it.
        name: of the class.

    Raises:
        LookupError: the module ends without such a class, or does not end.
    """
    module = types.ModuleType(f"<{path}>")
    namespace = vars(module)
    namespace["__builtins__"] = {**vars(builtins), "__import__": _import}
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        code = compile(tree, path, "exec", _UNEVALUATED, dont_inherit=True)
        with limited(SECONDS_OF_IMPORT):
            exec(code, namespace)
    except (Exception, SystemExit, Endless) as error:
        raise LookupError(
            f"{path}: does not run to its end: {type(error).__name__} {error}"
        ) from error
    finally:
        del sys.modules[module.__name__]
    found = namespace.get(name)
    if not isinstance(found, type):
        raise LookupError(f"{path}: no class {name}")
    return found
