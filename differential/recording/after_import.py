"""Does something with a module once it is imported, and does not import it before."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Use = Callable[[Any], None]


def after_import(name: str, use: Use) -> None:
    """Call `use` with the module: now if it is imported, else as soon as it is."""
    module = sys.modules.get(name)
    if module is not None:
        use(module)
    else:
        sys.meta_path.insert(0, _Finder(name, use))


class _Finder(MetaPathFinder):
    """Finds one module, once."""

    def __init__(self, name: str, use: Use) -> None:
        self._name = name
        self._use = use

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._use)
        return spec


class _Loader(Loader):
    """Loads a module as another loader does, and hands it on."""

    def __init__(self, loader: Loader, use: Use) -> None:
        self._loader = loader
        self._use = use

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._use(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
