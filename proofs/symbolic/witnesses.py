"""Witnesses of what is proved of managers: CPython, which runs the class in small scopes.

Nothing of ours reads the text there. A contract that the class breaks in calls that its caller may
make is not proved, whatever the translator says of it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from cacheproof.proofs.evidence import RedTwin, Witness
from cacheproof.proofs.symbolic.calls import Assumption, identifier_fixes_size, items_differ
from cacheproof.proofs.symbolic.conditions import Subject
from cacheproof.proofs.symbolic.mutants import Mutant, mutants
from cacheproof.proofs.symbolic.source import Source
from cacheproof.proofs.witness.classes import class_of
from cacheproof.proofs.witness.exploration import SCOPES, Exploration, Explorer, Scope, Unexplorable
from cacheproof.spec.registry import contracts

CALLS = 6_000
"""In each scope; the call with which it ends finds what is left of its state."""
CALLS_OF_TWIN = (600, 6_000)
"""In each scope, of a change that must be noticed: at first; and where none is noticed so soon."""
NO_TWIN = "any change of the text"
_KEPT: Mapping[Assumption, Callable[[Scope], bool]] = {
    identifier_fixes_size: lambda scope: scope.fixes_sizes,
    items_differ: lambda scope: scope.items_differ,
}


class Exploring:
    """A subject's class, run in the small scopes, each until a number of calls is made."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        judged = {rule for one in subject.operations for rule in subject.judged_at(one)}
        self._rules = [rule for rule in contracts() if rule.id in judged]
        self._of_changes: dict[tuple[str, str, int], Collection[str]] = {}

    @cached_property
    def explorations(self) -> Mapping[str, Exploration]:
        """What came of each scope, by its name."""
        explorer = self._explorer(self._subject.sources["m"])
        return {one.name: explorer.explore(one, CALLS) for one in SCOPES}

    def witness(
        self, contract: str, promises: Sequence[Assumption], twin: Mutant | None
    ) -> Witness:
        """What it says of a contract that is proved of callers who keep these promises; `twin` is
        a change of which the proof refutes it."""
        scopes = _scopes(promises)
        try:
            explorations = self.explorations
        except Unexplorable as reason:
            return Witness("exploration", f"none: {reason}", "", RedTwin(NO_TWIN, refuted=False))
        found = [explorations[one.name] for one in scopes]
        calls = sum(one.calls.total() for one in found)
        against = [
            f"{one.scope.name}: {one.broken[contract]}" for one in found if contract in one.broken
        ]
        return Witness(
            "exploration",
            f"{calls:,} calls in {len(scopes)} scopes",
            against[0] if against else "",
            self._noticed(contract, scopes, twin),
        )

    def _noticed(self, contract: str, scopes: Sequence[Scope], twin: Mutant | None) -> RedTwin:
        """A change of the text that breaks the contract here: the proof's, or the first of all."""
        few, many = CALLS_OF_TWIN
        first = [] if twin is None else [(twin, few), (twin, many)]
        all_changes = list(mutants(self._subject.sources["m"]))
        others = [(one, few) for one in all_changes]
        beside = [(one, many) for one in all_changes if twin and one.method == twin.method]
        for mutant, calls in (*first, *others, *beside):
            if any(contract in self._broken(mutant, scope, calls) for scope in scopes):
                return RedTwin(mutant.name, refuted=True)
        return RedTwin(NO_TWIN if twin is None else twin.name, refuted=False)

    def _broken(self, mutant: Mutant, scope: Scope, calls: int) -> Collection[str]:
        """The contracts that a changed class breaks in a scope."""
        asked = mutant.name, scope.name, calls
        if asked not in self._of_changes:
            found: Collection[str] = ()
            with suppress(LookupError, Unexplorable):  # the change has left no class, or none such
                found = self._explorer(mutant.source).explore(scope, calls).broken
            self._of_changes[asked] = frozenset(found)
        return self._of_changes[asked]

    def _explorer(self, source: Source) -> Explorer:
        subject = self._subject
        assert subject.replay is not None
        return Explorer(
            class_of(source.tree, source.path, source.name),
            [one.name for one in subject.operations],
            {name: value for (_, name), value in subject.constants.items()},
            subject.component,
            self._rules,
            subject.safety,
            subject.replay.state_of,
            has_ledger=subject.replay.has_ledger,
        )


def _scopes(promises: Sequence[Assumption]) -> list[Scope]:
    """Those in which callers keep all of these."""
    return [one for one in SCOPES if all(_KEPT[promise](one) for promise in promises)]
