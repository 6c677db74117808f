"""Explores one kind of manager of one target: every scope, red twins beside it, as evidence.

Red twins of the reference are the gallery's faulty managers. Those of a release are faults that are
planted in its own manager, in its own process, one for each contract.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field

from cacheproof.differential.canary import NO_CANARY, canaries
from cacheproof.differential.examine import rules_for
from cacheproof.differential.finding import Finding, found_in
from cacheproof.differential.gallery import VARIANTS, Variant, target_of
from cacheproof.differential.known import KnownFault, covering
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference import MANAGERS, ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.proofs.evidence import Evidence, Outcome, RedTwin
from cacheproof.proofs.explore.scope import Scope
from cacheproof.proofs.explore.search import Explorable, Exploration, explore

VARIANT_TRANSITIONS = 2_000
"""A variant that nothing refutes by then is tried in the next scope."""
FAULT_TRANSITIONS = 10_000
"""The same of a planted fault; some wait for a seventh call."""
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
    """What came of a task. `twins` has for each contract those that it refuted, `unrefuted` are red
    twins that no contract refuted. `missing` says why there is no such manager."""

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
        return [one for one in self.contracts if one not in self.broken and one not in self.twins]

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


def run(task: Task) -> Report:
    """Explore a kind of manager of a target.

    Raises:
        HarnessError: the target broke.
        InputError: there is no such target.
    """
    with closing(resolve(task.target, report=lambda line: None)) as target:
        assert isinstance(target, Explorable)
        rules = rules_for(task.manager, target.release).all
        report = Report(task, target.release, tuple(rule.id for rule in rules))
        try:
            for scope in task.scopes:
                limit = scope.transitions_max
                exploration = explore(target, scope, transitions_max=limit)
                report.explorations.append(exploration)
        except Illegal as reason:
            report.missing = str(reason)
            return report
        _Twins(target, report).run()
        report.findings += _findings(target, report)
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
        report = self._report
        for canary in canaries(report.task.manager, report.release, report.broken):
            for scope in self._scopes(resized=False):
                until = {canary.contract}.issubset
                broken = self._broken(self._target, scope, until, FAULT_TRANSITIONS, canary.fault)
                if canary.contract in broken:
                    report.twins[canary.contract] = [RedTwin(canary.fault, refuted=True)]
                    break
            else:
                report.twins[canary.contract] = [RedTwin(canary.fault, refuted=False)]
                report.unrefuted.append(f"{canary.fault} (planted against {canary.contract})")

    def _explore_variants(self) -> None:
        """Each until something refutes it; then on for contracts that have refuted none."""
        broken_in: dict[Variant, Scope] = {}
        for variant in variants(self._report.task.manager):
            for scope in self._scopes(resized=variant.resized):
                broken = self._broken(target_of(variant), scope, bool, VARIANT_TRANSITIONS)
                self._note(variant, broken)
                if broken:
                    broken_in[variant] = scope
                    break
            else:
                self._report.unrefuted.append(variant.name)
        for variant, scope in broken_in.items():
            without = {one for one in self._report.unshown if not self._report.excuse(one)}
            if not without:
                return
            until = without.issubset
            broken = self._broken(target_of(variant), scope, until, VARIANT_TRANSITIONS)
            self._note(variant, broken & without)

    def _note(self, variant: Variant, broken: Set[str]) -> None:
        for contract in broken:
            twin = RedTwin(variant.name, refuted=True)
            self._report.twins.setdefault(contract, []).append(twin)

    def _scopes(self, *, resized: bool) -> list[Scope]:
        """Where identifiers come back with another size, or all."""
        scopes = self._report.task.scopes
        return [one for one in scopes if not resized or one.lane == "reused media ids"]

    def _broken(
        self,
        target: Explorable,
        scope: Scope,
        until: Callable[[Set[str]], bool],
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
    return [one for one in VARIANTS if one.manager == manager and one.manager in MANAGERS]


def _findings(target: Explorable, report: Report) -> list[Finding]:
    """A finding for each broken contract: its trace is a shortest one, and is not cut further."""
    if not report.broken:
        return []
    with closing(target.another()) as elsewhere:
        found = [
            found_in(
                target,
                exploration.broken[contract][1],
                contract,
                seconds=exploration.seconds,
                batches=0,
                elsewhere=elsewhere,
            )
            for contract, exploration in report.broken.items()
        ]
    return [one for one in found if one is not None]
