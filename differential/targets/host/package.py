"""Modules of the product itself, in an interpreter where it is not installed."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

PACKAGE = "cacheproof"


def offer() -> None:
    """Make the package of this host importable, without its neighbours and without what its front
    door asks for (a bare package of that name)."""
    package = sys.modules.setdefault(PACKAGE, types.ModuleType(PACKAGE))
    if not hasattr(package, "__path__"):
        package.__path__ = [str(Path(__file__).parents[3])]


def ours(module: str) -> Any:
    """A module of the product, by its name inside the package."""
    offer()
    return importlib.import_module(f"{PACKAGE}.{module}")
