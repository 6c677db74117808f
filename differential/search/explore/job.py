"""Explores a kind of manager, or the scheduler, of one target: every scope, red twins beside it, as
evidence.

Red twins of the reference are those of the gallery. Those of a release are faults that are planted
in its own manager, in its own process, one for each contract; and so are further ones of the
reference's scheduler, for contracts that the gallery's do not break.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.judges.examination import SERVED
from cacheproof.differential.judges.rules import SCHEDULER, rules_for
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.canary import (
    NO_CANARY,
    NO_CANARY_WHERE_PLANNED,
    Canary,
    canaries,
)
from cacheproof.differential.search.explore.explored import digest_of_class, row_of
from cacheproof.differential.search.explore.scope import Scope
from cacheproof.differential.search.explore.search import Explorable, Exploration, explore
from cacheproof.differential.search.gallery.kill_matrix import VARIANTS, Variant, target_of
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.reference.semantics import NotModelled, Semantics
from cacheproof.spec.encoder_cache import COMPONENT as ENCODER_CACHE
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin
from cacheproof.spec.kv_transfers import COMPONENT as KV_TRANSFERS

TWIN_TRANSITIONS = {
    "encoder_cache": (600, 10_000),
    "encoder_decoder": (600, 10_000),
    "scheduler": (700, 4_000),
}
"""Transitions of a red twin in each scope: first up to the lower limit in all scopes, one after
another; if no contract has refuted it by then, up to the higher."""
RESIZED = "reused media ids"
UNJUDGED = frozenset({"SC-14", "SC-15", "SC-16", "SC-17", SERVED})
"""Contracts that no scope of a scheduler judges: its requests decode one text, under which the
content of KV blocks is not followed, and an arrival that is refused is no transition."""
_UNJUDGED_VARIANTS = frozenset(
    {
        "scheduler-refuses-requests",
        "scheduler-tells-of-a-block-too-few",
        "scheduler-reads-what-nobody-wrote",
    }
)
"""Faulty schedulers of the gallery that break only these contracts."""
SUBJECTS = {
    "encoder_cache": "EncoderCacheManager",
    "encoder_decoder": "EncoderDecoderCacheManager",
    "scheduler": "Scheduler",
}


@dataclass(frozen=True)
class Task:
    """A subject of a target, which is named as the user named it, and the scopes to explore."""

    target: str
    subject: str
    scopes: tuple[Scope, ...]

    @property
    def manager(self) -> str:
        """The kind of manager that is explored, alone or in a scheduler."""
        return ENCODER_CACHE if self.subject == SCHEDULER else self.subject

    @property
    def depth(self) -> str:
        """The depth at which the subject is driven."""
        return SCHEDULER if self.subject == SCHEDULER else "manager"

    def contracts(self, release: str | None) -> tuple[str, ...]:
        """The contracts that are judged: not those of KV transfers, which no scope has."""
        rules = rules_for(self.manager, release, self.depth).all
        return tuple(
            rule.id for rule in rules if rule.component != KV_TRANSFERS and rule.id not in UNJUDGED
        )


@dataclass
class ExploreReport:
    """The outcome of a task. `twins` are the red twins of each contract, `unrefuted` those that no
    contract refuted. `missing` says why there is no such manager, if so."""

    task: Task
    release: str | None
    contracts: tuple[str, ...] = ()
    explorations: list[Exploration] = field(default_factory=list)
    twins: dict[str, list[RedTwin]] = field(default_factory=dict)
    unrefuted: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    twin_transitions: int = 0
    missing: str | None = None

    def is_listed(self, contract: str) -> bool:
        """Whether the finding about a contract is a listed fault; asked after `annotate`."""
        (found,) = (one for one in self.findings if one.contract == contract)
        return found.known_note is not None

    @property
    def broken(self) -> dict[str, Exploration]:
        """Contracts that the target breaks, each with the first scope in which it does."""
        found: dict[str, Exploration] = {}
        for exploration in self.explorations:
            for contract in exploration.broken:
                found.setdefault(contract, exploration)
        return found

    @property
    def unshown(self) -> list[str]:
        """Contracts that hold and have refuted no red twin: their green says nothing. Empty where
        the manager is missing."""
        return [
            one
            for one in self.contracts
            if self.missing is None
            and one not in self.broken
            and not any(twin.refuted for twin in self.twins.get(one, ()))
        ]

    @property
    def name(self) -> str:
        """Name of the explored class."""
        return SUBJECTS[self.task.subject]

    @property
    def digest(self) -> str:
        """Digest of the text of the explored class."""
        return digest_of_class(self.explorations)

    def excuse(self, contract: str) -> str | None:
        """Why no fault of a manager can break a contract at this depth; None where one can."""
        task = self.task
        # Without a release it is the ideal, whose scheduler plans its walks.
        planned = NO_CANARY_WHERE_PLANNED if self.release is None else {}
        of_depth = NO_CANARY.get((task.manager, task.depth, contract))
        return of_depth or (planned.get(contract) if task.depth == SCHEDULER else None)

    def evidence(self) -> Iterator[Evidence]:
        """A row for each contract; none where the manager is missing."""
        for contract in self.contracts if self.missing is None else ():
            exploration = self.broken.get(contract)
            note = ""
            if exploration is not None:
                violation, trace = exploration.broken[contract]
                note = f"{len(trace.events)} events in {exploration.scope.name}: {violation.why}"
            yield row_of(
                self.explorations,
                contract,
                self.task.target,
                self.name,
                Outcome.HOLDS if exploration is None else Outcome.REFUTED,
                note,
                self.twins.get(contract, ()),
            )

    def annotate(self, faults: Sequence[KnownFault]) -> None:
        """Annotate each finding with the listed fault that it is."""
        model = None
        if self.release is not None:
            with suppress(NotModelled):
                model = ReferenceTarget(Semantics.of_vllm(self.release), release=self.release)
        attribution = Attribution(faults, self.release, model)
        for number, found in enumerate(self.findings):
            told = attribution.of_finding(found, self.broken[found.contract].scope.lane)
            self.findings[number] = attribution.annotated(found, told)


def run(tasks: Sequence[Task]) -> list[ExploreReport]:
    """Explore subjects of one target, in one process of its own.

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


def _report(target: Explorable, elsewhere: Target, task: Task) -> ExploreReport:
    report = ExploreReport(task, target.release, task.contracts(target.release))
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
    """Explores red twins, so that each contract refutes one where it can."""

    def __init__(self, target: Explorable, report: ExploreReport) -> None:
        self._target = target
        self._report = report

    def run(self) -> None:
        planted = canaries(
            self._report.task.manager, self._report.release, depth=self._report.task.depth
        )
        if not isinstance(self._target, ReferenceTarget):
            # The gallery is of the reference; a release's twins are planted in its own text.
            for canary in planted:
                self._explore_fault(canary)
            return
        several = variants(self._report.task.subject)
        self._explore_variants(several)
        if self._report.task.depth != SCHEDULER:
            self._look_for_more(several)
            return
        for canary in planted:
            if canary.contract in self._left:
                self._explore_fault(canary)

    @property
    def _left(self) -> frozenset[str]:
        """Contracts that have refuted no twin, and could."""
        return frozenset(one for one in self._report.unshown if not self._report.excuse(one))

    def _explore_fault(self, canary: Canary) -> None:
        """Explore a planted fault in the scopes where the target keeps the contract by itself."""
        report, contract = self._report, canary.contract
        scopes = [one.scope for one in report.explorations if contract not in one.broken]
        if not scopes:
            return
        broken = self._refuting(self._target, scopes, {contract}.issubset, canary.fault)
        report.twins[contract] = [RedTwin(canary.fault, contract in broken)]
        if contract not in broken:
            report.unrefuted.append(f"{canary.fault}, planted against {contract}")
        if report.task.depth == SCHEDULER:
            self._note(canary.fault, broken & self._left)

    def _explore_variants(self, several: Sequence[Variant]) -> None:
        """Explore each variant until a contract refutes it."""
        for variant in several:
            scopes = self._scopes_for(variant)
            broken = self._refuting(target_of(variant), scopes, bool, variant.fault)
            self._note(variant.name, broken)
            if not broken:
                self._report.unrefuted.append(variant.name)

    def _look_for_more(self, several: Sequence[Variant]) -> None:
        """Explore variants again, for contracts that have refuted none."""
        # Limits outermost: what a little exploring shows anywhere is not sought at length first.
        for limit in self._limits:
            for scope in self._report.task.scopes:
                for variant in several:
                    if scope in self._scopes_for(variant):
                        self._look_again(variant, scope, limit)

    @property
    def _limits(self) -> Sequence[int]:
        return TWIN_TRANSITIONS[self._report.task.subject]

    def _look_again(self, variant: Variant, scope: Scope, limit: int) -> None:
        """Explore a variant for the contracts that have refuted none, if any are left."""
        left = self._left
        if left:
            broken = self._broken(target_of(variant), scope, left.intersection, limit)
            self._note(variant.name, broken & left)

    def _refuting(
        self,
        target: Explorable,
        scopes: Sequence[Scope],
        until: Callable[[Set[str]], object],
        fault: str | None = None,
    ) -> Set[str]:
        """Contracts that a twin breaks in the first scope where `until` holds of them, or none."""
        for limit in self._limits:
            for scope in scopes:
                broken = self._broken(target, scope, until, limit, fault)
                if until(broken):
                    return broken
        return frozenset()

    def _note(self, name: str, broken: Set[str]) -> None:
        for contract in broken:
            twin = RedTwin(name, refuted=True)
            self._report.twins.setdefault(contract, []).append(twin)

    def _scopes_for(self, variant: Variant) -> list[Scope]:
        """The scopes that can show a variant: for a resized one those in which identifiers come
        back with another size, else all."""
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


def variants(subject: str) -> list[Variant]:
    """The gallery's faulty managers of a kind, or its schedulers: of these without those about
    encoder-decoders, KV transfers or windows, and those that break only UNJUDGED contracts."""
    return [
        one
        for one in VARIANTS
        if one.manager == subject and one.lane == SCHEDULER and one.name not in _UNJUDGED_VARIANTS
    ]


def _finding(
    target: Explorable, elsewhere: Target, contract: str, exploration: Exploration
) -> Finding:
    """The finding of a shortest trace, which is not minimised, run by itself in two processes.

    Raises:
        HarnessError: it does not break by itself what it broke when it was explored.
    """
    violation, trace = exploration.broken[contract]
    found = found_in(
        target,
        trace,
        contract,
        kind=violation.kind,
        seconds=exploration.seconds,
        batches=0,  # breadth first, the trace is a shortest one already
        elsewhere=elsewhere,
    )
    if found is None:
        raise HarnessError(
            f"host of {target.name}: it broke {contract} when {exploration.scope.name} was "
            f"explored, and does not when the trace is run by itself"
        )
    return found
