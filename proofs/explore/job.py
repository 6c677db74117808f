"""Explores one kind of manager of one target: every scope, red twins beside it, as evidence.

Red twins of the reference are the gallery's faulty managers. Those of a release are faults that are
planted in its own manager, in its own process, one for each contract.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field

from cacheproof.differential.canary import NO_CANARY, canaries
from cacheproof.differential.errors import HarnessError
from cacheproof.differential.examine import rules_for
from cacheproof.differential.finding import Finding, found_in
from cacheproof.differential.gallery import VARIANTS, Variant, target_of
from cacheproof.differential.known import KnownFault, covering
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.proofs.evidence import Evidence, Outcome, RedTwin
from cacheproof.proofs.explore.scope import Scope
from cacheproof.proofs.explore.search import Explorable, Exploration, explore

TWIN_TRANSITIONS = (600, 10_000)
"""A red twin that nothing refutes by the first is tried in the next scope; then in all, further."""
RESIZED = "reused media ids"
SUBJECTS = {
    "encoder_cache": "EncoderCacheManager",
    "encoder_decoder": "EncoderDecoderCacheManager",
}


@dataclass(frozen=True)
class Task:
    """One kind of manager of a target, by what the user calls it, and the scopes to explore."""

    target: str
    manager: str
    scopes: tuple[Scope, ...]


@dataclass
class Report:
    """What came of a task. `twins` are the red twins of each contract, `unrefuted` those that went
    unnoticed. `missing` says why there is no such manager."""

    task: Task
    release: str | None
    contracts: tuple[str, ...] = ()
    explorations: list[Exploration] = field(default_factory=list)
    twins: dict[str, list[RedTwin]] = field(default_factory=dict)
    unrefuted: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    twin_transitions: int = 0
    missing: str | None = None

    @property
    def broken(self) -> dict[str, Exploration]:
        """Contracts that the target breaks, and the first scope in which it does."""
        found: dict[str, Exploration] = {}
        for exploration in self.explorations:
            for contract in exploration.broken:
                found.setdefault(contract, exploration)
        return found

    @property
    def unshown(self) -> list[str]:
        """Contracts that hold, and that no red twin was refuted by: their green says nothing."""
        return [
            one
            for one in self.contracts
            if one not in self.broken and not any(twin.refuted for twin in self.twins.get(one, ()))
        ]

    @property
    def digest(self) -> str:
        """Of the text of the manager's class."""
        return self.explorations[0].source[:12]

    def excuse(self, contract: str) -> str | None:
        """Why no fault of a manager can break a contract at this depth, if that is so."""
        return NO_CANARY.get((self.task.manager, "manager", contract))

    def evidence(self) -> Iterator[Evidence]:
        """A row for each contract; none of a manager that is missing."""
        for contract in self.contracts if self.missing is None else ():
            exploration = self.broken.get(contract)
            note = ""
            if exploration is not None:
                violation, trace = exploration.broken[contract]
                note = f"{len(trace.events)} events in {exploration.scope.name}: {violation.why}"
            yield Evidence(
                contract=contract,
                target=self.task.target,
                subject=SUBJECTS[self.task.manager],
                method="exploration",
                scope="; ".join(f"{one.scope.name}: {one.reach}" for one in self.explorations),
                outcome=Outcome.HOLDS if exploration is None else Outcome.REFUTED,
                note=note,
                digest=self.digest,
                seconds=round(sum(one.seconds for one in self.explorations), 1),
                twins=tuple(self.twins.get(contract, ())),
            )

    def known(self, contract: str, faults: Sequence[KnownFault]) -> KnownFault | None:
        """The listed fault that a broken contract is."""
        return covering(faults, contract, self.release, self.broken[contract].scope.lane)


def run(tasks: Sequence[Task]) -> list[Report]:
    """Explore kinds of manager of one target, in one process of its own.

    Raises:
        HarnessError: the target broke.
        InputError: there is no such target.
    """
    (name,) = {task.target for task in tasks}
    with (
        closing(resolve(name, report=lambda line: None)) as target,
        closing(target.another()) as elsewhere,
    ):
        assert isinstance(target, Explorable)
        return [_report(target, elsewhere, task) for task in tasks]


def _report(target: Explorable, elsewhere: Target, task: Task) -> Report:
    rules = rules_for(task.manager, target.release).all
    report = Report(task, target.release, tuple(rule.id for rule in rules))
    try:
        for scope in task.scopes:
            limit = scope.transitions_max
            report.explorations.append(explore(target, scope, transitions_max=limit))
    except Illegal as reason:
        report.missing = str(reason)
        return report
    _Twins(target, report).run()
    report.findings += [
        _finding(target, elsewhere, contract, exploration)
        for contract, exploration in report.broken.items()
    ]
    return report


class _Twins:
    """Explores red twins until the contracts have refuted what they are to refute."""

    def __init__(self, target: Explorable, report: Report) -> None:
        self._target = target
        self._report = report

    def run(self) -> None:
        if isinstance(self._target, ReferenceTarget):
            self._explore_variants()
        else:
            self._explore_faults()

    def _explore_faults(self) -> None:
        """Each where the release does not break of itself what the fault is planted against."""
        report = self._report
        for canary in canaries(report.task.manager, report.release):
            contract = {canary.contract}
            scopes = [one.scope for one in report.explorations if not contract <= set(one.broken)]
            if not scopes:
                continue
            broken = self._refuting(self._target, scopes, contract.issubset, canary.fault)
            report.twins[canary.contract] = [RedTwin(canary.fault, contract <= broken)]
            if not contract <= broken:
                report.unrefuted.append(f"{canary.fault}, planted against {canary.contract}")

    def _explore_variants(self) -> None:
        """Each until something refutes it; then again for contracts that have refuted none."""
        several = variants(self._report.task.manager)
        for variant in several:
            broken = self._refuting(target_of(variant), self._scopes_for(variant), bool)
            self._note(variant, broken)
            if not broken:
                self._report.unrefuted.append(variant.name)
        for limit in TWIN_TRANSITIONS:
            for scope in self._report.task.scopes:
                for variant in several:
                    if scope in self._scopes_for(variant):
                        self._look_for_more(variant, scope, limit)

    def _look_for_more(self, variant: Variant, scope: Scope, limit: int) -> None:
        """Explore a variant for the contracts that have refuted none, where there are any left."""
        left = {one for one in self._report.unshown if not self._report.excuse(one)}
        if left:
            broken = self._broken(target_of(variant), scope, left.intersection, limit)
            self._note(variant, broken & left)

    def _refuting(
        self,
        target: Explorable,
        scopes: Sequence[Scope],
        until: Callable[[Set[str]], object],
        fault: str | None = None,
    ) -> Set[str]:
        """What a twin breaks in the first scope in which `until` comes true of that; or nothing."""
        for limit in TWIN_TRANSITIONS:
            for scope in scopes:
                broken = self._broken(target, scope, until, limit, fault)
                if until(broken):
                    return broken
        return frozenset()

    def _note(self, variant: Variant, broken: Set[str]) -> None:
        for contract in broken:
            twin = RedTwin(variant.name, refuted=True)
            self._report.twins.setdefault(contract, []).append(twin)

    def _scopes_for(self, variant: Variant) -> list[Scope]:
        """Those in which identifiers come back with another size, where that is what it is about;
        else all."""
        scopes = self._report.task.scopes
        return [one for one in scopes if not variant.resized or one.lane == RESIZED]

    def _broken(
        self,
        target: Explorable,
        scope: Scope,
        until: Callable[[Set[str]], object],
        transitions_max: int,
        fault: str | None = None,
    ) -> Set[str]:
        exploration = explore(
            target, scope, fault=fault, transitions_max=transitions_max, until=until
        )
        self._report.twin_transitions += exploration.transitions
        return exploration.broken.keys()


def variants(manager: str) -> list[Variant]:
    """The gallery's faulty managers of a kind."""
    return [one for one in VARIANTS if one.manager == manager]


def _finding(
    target: Explorable, elsewhere: Target, contract: str, exploration: Exploration
) -> Finding:
    """A shortest trace, which is not cut further, run by itself in two processes.

    Raises:
        HarnessError: it does not break by itself what it broke when it was explored.
    """
    _, trace = exploration.broken[contract]
    seconds = exploration.seconds
    found = found_in(target, trace, contract, seconds=seconds, batches=0, elsewhere=elsewhere)
    if found is None:
        raise HarnessError(
            f"host of {target.name}: it broke {contract} when {exploration.scope.name} was "
            f"explored, and does not when the trace is run by itself"
        )
    return found
