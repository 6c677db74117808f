"""Witnesses of what is proved of classes: CPython, which runs them in small scopes.

Nothing of ours reads the text there. A contract that the class breaks in calls that its caller may
make is not proved, whatever the translator says of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from cacheproof.proofs.symbolic.checking import (
    block_pool_validation,
    entry_table_validation,
    manager_validation,
)
from cacheproof.proofs.symbolic.checking.mutants import ClassMutant, mutants
from cacheproof.proofs.symbolic.checking.validator import PlayedCall, Validator
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.subjects.calls import (
    Assumption,
    identifier_fixes_size,
    items_differ,
)
from cacheproof.proofs.witness import entry_table, exploration, pool
from cacheproof.proofs.witness.classes import class_of
from cacheproof.proofs.witness.exploration import (
    SCOPES,
    Unexplorable,
    WitnessExplorer,
    WitnessScope,
)
from cacheproof.spec.evidence import RedTwin, Witness
from cacheproof.spec.registry import contracts

CALLS = 6_000
"""Calls made in each scope, and then those that are left from the last state."""
CALLS_OF_TWIN = (600, 6_000)
"""Calls in each scope of a change that must be noticed: at first, and where they notice none."""
NO_TWIN = "any change of the text"
_KEPT: Mapping[Assumption, Callable[[WitnessScope], bool]] = {
    identifier_fixes_size: lambda scope: scope.fixes_sizes,
    items_differ: lambda scope: scope.items_differ,
}
Explored = exploration.ScopeExploration | pool.Exploration | entry_table.Exploration


class Exploring(ABC):
    """A subject's class, run in small scopes, each until a number of calls is made.

    Args:
        subject: the class and what is said of it.
        noticed: of classes that were explored before it, contract -> the change that was noticed.
    """

    def __init__(self, subject: Subject, noticed: dict[str, tuple[str, str]] | None = None) -> None:
        self._subject = subject
        self._noticed_before = {} if noticed is None else noticed
        self._explored: dict[str, Explored] = {}
        self._of_changes: dict[tuple[str, str, int], tuple[ClassMutant, Collection[str]]] = {}

    @abstractmethod
    def validator(self) -> Validator:
        """What holds the readings of texts like it against its calls."""

    @abstractmethod
    def calls(self, promises: Sequence[Assumption]) -> Mapping[str, Sequence[PlayedCall]]:
        """Operation -> one call of each kind that was made of it in the scopes in which callers
        keep these promises.

        Raises:
            Unexplorable: the class has states that cannot be saved.
        """

    @abstractmethod
    def _scopes(self, promises: Sequence[Assumption]) -> Sequence[Any]:
        """The scopes in which callers keep these promises, the narrowest first."""

    @abstractmethod
    def _explore(self, source: Source, scope: Any, calls: int) -> Explored:
        """What comes of a scope, of the class in the module of a source."""

    def of(self, promises: Sequence[Assumption]) -> list[Any]:
        """What came of the scopes in which callers keep these promises.

        Raises:
            Unexplorable: the class has states that cannot be saved.
        """
        for one in self._scopes(promises):
            if one.name not in self._explored:
                source = self._subject.sources["m"]
                self._explored[one.name] = self._explore(source, one, CALLS)
        return [self._explored[one.name] for one in self._scopes(promises)]

    def witness(
        self, contract: str, promises: Sequence[Assumption], twin: ClassMutant | None
    ) -> Witness:
        """What it says of a contract that is proved of callers who keep these promises; `twin` is
        a change of which the proof refutes it."""
        try:
            found = self.of(promises)
        except Unexplorable as reason:
            return Witness("exploration", f"none: {reason}", "", RedTwin(NO_TWIN, refuted=False))
        scopes = self._scopes(promises)
        calls = sum(one.calls.total() for one in found)
        against = [
            f"{scope.name}: {one.broken[contract]}"
            for scope, one in zip(scopes, found, strict=True)
            if contract in one.broken
        ]
        return Witness(
            "exploration",
            f"{calls:,} calls in {len(found)} scopes",
            against[0] if against else "",
            self._noticed(contract, scopes, twin),
        )

    def _noticed(self, contract: str, scopes: Sequence[Any], twin: ClassMutant | None) -> RedTwin:
        """A change of the text that breaks the contract here: the proof's, one that was seen to, or
        the first of all."""
        few, many = CALLS_OF_TWIN
        # the narrowest scope goes furthest in many calls; with few the others are asked first
        narrow, wide = scopes[:1], [*scopes[1:], *scopes[:1]]
        first = [] if twin is None else [twin]
        beside = [one for one in self._changes if twin is not None and one.method == twin.method]
        before = [one for one in self._changes if self._was_noticed(one, contract)]
        names = {one.name for one in scopes}
        seen = [
            (one, calls)
            for (_, scope, calls), (one, broken) in self._of_changes.items()
            if scope in names and contract in broken
        ]
        asked = [
            # what is likely to be noticed before the rest, and in few calls before many
            *((one, few, wide) for one in first),
            *((one, calls, scopes) for one, calls in seen),
            *((one, few, wide) for one in before),
            *((one, many, scopes) for one in (*before, *first)),
            *((one, few, wide) for one in beside),
            *((one, many, narrow) for one in beside),
            *((one, few, wide) for one in self._changes),
            *((one, many, scopes) for one in beside),
        ]
        for mutant, calls, among in asked:
            if any(contract in self._broken(mutant, scope, calls) for scope in among):
                self._noticed_before[contract] = mutant.change
                return RedTwin(mutant.name, refuted=True)
        return RedTwin(NO_TWIN if twin is None else twin.name, refuted=False)

    def _was_noticed(self, mutant: ClassMutant, contract: str) -> bool:
        """Whether a class that was explored before, or most classes, break a contract so."""
        method, words = self._subject.noticed_by.get(contract, ("", ""))
        is_likely = mutant.method == method and words in mutant.name
        return is_likely or mutant.change == self._noticed_before.get(contract)

    @cached_property
    def _changes(self) -> Sequence[ClassMutant]:
        subject = self._subject
        return [one for owner in subject.under_proof for one in mutants(subject.sources[owner])]

    def _broken(self, mutant: ClassMutant, scope: Any, calls: int) -> Collection[str]:
        """The contracts that a changed class breaks in a scope."""
        asked = mutant.name, scope.name, calls
        if asked not in self._of_changes:
            found: Collection[str] = ()
            with suppress(LookupError, Unexplorable):  # the change has left no class, or none such
                found = self._explore(mutant.source, scope, calls).broken
            self._of_changes[asked] = mutant, frozenset(found)
        return self._of_changes[asked][1]

    @property
    def _rules(self) -> list[str]:
        judged = {rule for one in self._subject.operations for rule in self._subject.judged_at(one)}
        return [rule.id for rule in contracts() if rule.id in judged]

    def _class_of(self, source: Source) -> type:
        name = self._subject.sources["m"].name
        return class_of(source.tree, source.path, name)


class ManagerExploring(Exploring):
    """A manager, run in the scopes of its exploration."""

    def validator(self) -> Validator:
        return Validator(manager_validation.universe(), manager_validation.run_from)

    def calls(self, promises: Sequence[Assumption]) -> Mapping[str, Sequence[PlayedCall]]:
        return manager_validation.calls_of(self._subject, self.of(promises))

    def _scopes(self, promises: Sequence[Assumption]) -> Sequence[WitnessScope]:
        return [one for one in SCOPES if all(_KEPT[promise](one) for promise in promises)]

    def _explore(self, source: Source, scope: WitnessScope, calls: int) -> Explored:
        return self._explorer(source).explore(scope, calls)

    @property
    def explorer(self) -> WitnessExplorer:
        """What runs the subject's class."""
        return self._explorer(self._subject.sources["m"])

    def _explorer(self, source: Source) -> WitnessExplorer:
        subject = self._subject
        assert subject.replay is not None
        return WitnessExplorer(
            self._class_of(source),
            [one.name for one in subject.operations],
            {name: value for (_, name), value in subject.constants.items()},
            subject.component,
            [rule for rule in contracts() if rule.id in self._rules],
            subject.safety,
            subject.replay.state_of,
            has_ledger=subject.replay.has_ledger,
        )


class PoolExploring(Exploring):
    """A block pool, run in the settings of its exploration."""

    def validator(self) -> Validator:
        return Validator(block_pool_validation.universe())

    def calls(self, promises: Sequence[Assumption]) -> Mapping[str, Sequence[PlayedCall]]:
        return block_pool_validation.calls_of(self.of(promises))

    def _scopes(self, promises: Sequence[Assumption]) -> Sequence[pool.PoolSetting]:
        return pool.SETTINGS

    def _explore(self, source: Source, scope: pool.PoolSetting, calls: int) -> Explored:
        return pool.explore(self._class_of(source), scope, self._rules, calls)


class TableExploring(Exploring):
    """A table of entries, run in the settings of its exploration."""

    def validator(self) -> Validator:
        return Validator(entry_table_validation.universe())

    def calls(self, promises: Sequence[Assumption]) -> Mapping[str, Sequence[PlayedCall]]:
        return entry_table_validation.calls_of(self.of(promises))

    def _scopes(self, promises: Sequence[Assumption]) -> Sequence[entry_table.TableSetting]:
        return entry_table.SETTINGS

    def _explore(self, source: Source, scope: entry_table.TableSetting, calls: int) -> Explored:
        return entry_table.explore(self._class_of(source), scope, self._rules, calls)
