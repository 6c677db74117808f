"""Tables of faults: each has the name of its function, and knows which contracts it breaks."""

from collections.abc import Callable, Mapping
from typing import TypeVar

Fault = TypeVar("Fault", bound=Callable[..., object])


def by_name(*faults: Fault) -> dict[str, Fault]:
    """Faults by the names of their functions, which users and jobs use."""
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


def breaks(*contracts: str, kind: str = "", event: str = "") -> Callable[[Fault], Fault]:
    """Mark a fault as the canary of these contracts; of one kind of break, where their judge tells
    kinds apart. A trace without that `event` is not worth its run: the fault shows in none."""

    def mark(fault: Fault) -> Fault:
        vars(fault).setdefault("breaks", []).extend((contract, kind) for contract in contracts)
        vars(fault)["event"] = event
        return fault

    return mark


def canaries_of(*tables: Mapping[str, Fault]) -> dict[str, dict[str, str]]:
    """By contract and kind of break the name of the fault that is to show as one.

    Raises:
        ValueError: two faults are to show as the same break.
    """
    found: dict[str, dict[str, str]] = {}
    for name, fault in joined(*tables).items():
        for contract, kind in vars(fault).get("breaks", ()):
            kinds = found.setdefault(contract, {})
            if kind in kinds:
                raise ValueError(f"{kinds[kind]} and {name} break {contract} {kind}; expected one")
            kinds[kind] = name
    return {contract: dict(sorted(kinds.items())) for contract, kinds in found.items()}
