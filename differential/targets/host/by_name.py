"""Tables of faults: each goes by the name of its function."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Fault = TypeVar("Fault", bound=Callable[..., Any])


def by_name(*faults: Fault) -> dict[str, Fault]:
    """Faults by what users and jobs call them."""
    return {fault.__name__: fault for fault in faults}


def joined(*tables: Mapping[str, Fault]) -> dict[str, Fault]:
    """These tables as one.

    Raises:
        ValueError: two of them have another fault by one name, of which one would never be planted.
    """
    faults: dict[str, Fault] = {}
    for table in tables:
        for name, fault in table.items():
            if faults.setdefault(name, fault) is not fault:
                raise ValueError(f"two faults are called {name}; expected a name for each")
    return faults
