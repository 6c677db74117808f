"""A contract that does not hold of what a target did."""

from collections.abc import Mapping
from dataclasses import dataclass

from cacheproof.spec.registry import Contract


@dataclass(frozen=True)
class Violation:
    """A contract that does not hold: where, and both sides of the broken equation.

    `kind` tells apart the ways in which one contract can break, where a judge knows of several.
    """

    contract: Contract
    event: int
    operation: str
    request: str
    identifier: str
    why: str
    kind: str = ""

    @property
    def sentence(self) -> str:
        """One line: contract, place, request and identifier."""
        place = f"event {self.event + 1} ({self.operation})"
        subject = ", ".join(part for part in (self.request, self.identifier) if part)
        return f"{self.contract.id} at {place}{' on ' + subject if subject else ''}: {self.why}"


def by_kind(violations: Mapping[str, Violation]) -> dict[tuple[str, str], Violation]:
    """Violations by contract and kind, where a judge keeps one of each contract."""
    return {(contract, one.kind): one for contract, one in violations.items()}


def first_of_each(violations: Mapping[tuple[str, str], Violation]) -> dict[str, Violation]:
    """The first violation of each contract, where a judge keeps one of each contract and kind."""
    first: dict[str, Violation] = {}
    for (contract, _), violation in violations.items():
        first.setdefault(contract, violation)
    return first
