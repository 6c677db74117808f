"""Modules of cacheproof itself, in an interpreter where it is not installed."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

PACKAGE = "cacheproof"


def offer() -> None:
    """Make cacheproof importable as a bare package: without its neighbours, and without what its
    own __init__ would import."""
    package = sys.modules.setdefault(PACKAGE, types.ModuleType(PACKAGE))
    if not hasattr(package, "__path__"):
        package.__path__ = [str(Path(__file__).parents[3])]


def ours(module: str) -> Any:
    """A module of cacheproof, by its name within the package."""
    offer()
    return importlib.import_module(f"{PACKAGE}.{module}")
