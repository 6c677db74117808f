"""Findings of one target, by cause: those that likely have one are faces of it.

The criterion, and where it is wrong: docs/explain/identity.md.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.findings.finding import LOCKSTEP, Finding
from cacheproof.differential.findings.first_wrong import FirstWrong
from cacheproof.differential.findings.identity import ingredients

Key = tuple[object, ...]
_DEPTHS = list(DEPTHS)


@dataclass(frozen=True)
class FindingCause:
    """Findings that likely have one cause: the one that shows it best, and its other faces."""

    head: Finding
    faces: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.head, *self.faces


def causes_of(
    findings: Sequence[Finding],
    is_worse: Callable[[Finding], bool],
    changed_once: Collection[str] = (),
) -> list[FindingCause]:
    """The causes of findings that no list covers, in the order in which they were first met.

    `is_worse` says which findings are worth an exit code: one of those is never a face of another
    that is not. `changed_once` are the definitions in which the target differs from the nearest
    release in one place: all that they decide otherwise is one change.
    """
    grouping = _Grouping(findings, changed_once)
    groups: dict[Key, list[Finding]] = {}
    for one in findings:
        groups.setdefault(grouping.key_of(one), []).append(one)
    causes = []
    for group in groups.values():
        head, *faces = sorted(group, key=lambda one: (not is_worse(one), *_place(one)))
        causes.append(FindingCause(head, tuple(faces)))
    return causes


def _place(one: Finding) -> tuple[bool, bool, int, int]:
    """Rank of a finding among the faces of a cause: what its first wrong step breaks before what
    comes of that, contracts before the lockstep, managers before their callers."""
    first = one.first_wrong
    comes_later = first is not None and first.event < one.event
    depth = _DEPTHS.index(one.trace.depth)
    return comes_later, one.contract == LOCKSTEP, depth, len(one.events)


class _Grouping:
    """The findings and what is known of them, before any is given a cause."""

    def __init__(self, findings: Sequence[Finding], changed_once: Collection[str]) -> None:
        self._once = changed_once
        self._cores: dict[Key, set[str]] = {}
        self._alone: set[str] = set()
        self._rules: dict[Key, list[frozenset[str]]] = {}
        for one in findings:
            first = one.first_wrong
            if first is not None and len(first.functions) == 1 and first.parts:
                self._alone.add(first.place)
                if one.contract != LOCKSTEP:
                    self._cores.setdefault(self._decision(first), set()).update(first.parts)
            if first is not None and not first.parts and first.event == one.event:
                rule = (first.functions, one.contract, one.kind)
                self._rules.setdefault(rule, []).append(_ingredients(one))

    def key_of(self, one: Finding) -> Key:
        """Findings with equal keys have one cause."""
        first = one.first_wrong
        if first is None:
            return one.key
        return self._by_decision(one, first) if first.parts else self._by_rule(one, first)

    def _decision(self, first: FirstWrong) -> Key:
        """The function that decided, and what it decided otherwise, as far as that tells changes
        apart; a judge's kinds where no text does."""
        if not first.changed:
            return first.place, first.parts[0], *sorted({kind for _, kind in first.broken if kind})
        return (first.place,) if first.place in self._once else (first.place, first.parts[0])

    def _by_decision(self, one: Finding, first: FirstWrong) -> Key:
        if not self._alone.issuperset(first.functions):
            return "several", *first.functions, first.parts[0]
        decision = self._decision(first)
        if one.contract == LOCKSTEP and decision not in self._cores:
            for other, parts in self._cores.items():
                if other[0] == first.place and not parts.isdisjoint(first.parts):
                    return other
        return decision

    def _by_rule(self, one: Finding, first: FirstWrong) -> Key:
        """Group findings by the contract that is broken first, where a finding of that very break
        is there: then what is broken later comes of it. Two breaks of one contract are told apart
        by the ingredients of their traces, as in identities."""
        own = _ingredients(one)
        for contract, kind in first.broken:
            rule = (first.functions, contract, kind)
            there = self._rules.get(rule, [])
            if first.event == one.event and (one.contract, one.kind) == (contract, kind):
                return *rule, own
            within = [some for some in there if some <= own]
            if within:
                return *rule, max(within, key=lambda some: (len(some), sorted(some)))
        return one.key


def _ingredients(one: Finding) -> frozenset[str]:
    return frozenset(ingredients(one.trace))
