"""Tables of faults: each goes by the name of its function."""

from collections.abc import Callable
from typing import Any, TypeVar

Fault = TypeVar("Fault", bound=Callable[..., Any])


def by_name(*faults: Fault) -> dict[str, Fault]:
    """Faults by what users and jobs call them."""
    return {fault.__name__: fault for fault in faults}
