"""Calls of a release's own functions, whose parameters differ between releases."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

Made = TypeVar("Made")


@functools.cache
def parameters(function: Callable[..., object]) -> frozenset[str]:
    """Names of the parameters that this release's function takes."""
    return frozenset(inspect.signature(function).parameters)


def known_to(function: Callable[..., object], arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments that this release's function takes."""
    known = parameters(function)
    return {name: value for name, value in arguments.items() if name in known}


def call_known(function: Callable[..., Made], **arguments: object) -> Made:
    """Call a function with the keyword arguments that this release's takes."""
    return function(**known_to(function, arguments))
