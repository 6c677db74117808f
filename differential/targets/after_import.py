"""Uses a module once it is imported, without importing it."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Use = Callable[[Any], None]


def after_import(name: str, use: Use) -> Callable[[], None]:
    """Call `use` with the module: now if it is imported, else as soon as it is. Returns a function
    that cancels the call."""
    module = sys.modules.get(name)
    if module is not None:
        use(module)
        return lambda: None
    finder = _Finder(name, use)
    sys.meta_path.insert(0, finder)
    return finder.cancel


class _Finder(MetaPathFinder):
    """A finder of one module, which finds it once."""

    def __init__(self, name: str, use: Use) -> None:
        self._name = name
        self._use = use

    def cancel(self) -> None:
        """Find nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, with a loader that passes the module on once it is loaded."""
        if fullname != self._name:
            return None
        self.cancel()
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._use)
        return spec


class _Loader(Loader):
    """Loads a module as another loader does, and passes it on."""

    def __init__(self, loader: Loader, use: Use) -> None:
        self._loader = loader
        self._use = use

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._use(module)
