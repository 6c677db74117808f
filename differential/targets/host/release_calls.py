"""Calls of a release's own functions, whose parameters differ between releases."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


@functools.cache
def parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Names of the parameters that this release's function takes."""
    return frozenset(inspect.signature(function).parameters)


def known_to(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that this release's function takes."""
    known = parameters(function)
    return {name: value for name, value in arguments.items() if name in known}


def call_known(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function with the keyword arguments that this release's takes."""
    return function(**known_to(function, arguments))
