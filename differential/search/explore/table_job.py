"""Explores the table of entries of one target: every scope, red twins beside it, as evidence."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from cacheproof.differential.search.explore.explored import digest_of_class, row_of
from cacheproof.differential.search.explore.search import Explorable
from cacheproof.differential.search.explore.tables import (
    Broken,
    TableBreak,
    TableExploration,
    TableScope,
    explore,
    rules_of,
)
from cacheproof.differential.search.known import KnownFault, may_be
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.variants.entry_table import TABLES
from cacheproof.reference.encoder_connector.entry_table import EntryTable
from cacheproof.spec.entry_table import COMPONENT
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin

TWIN_TRANSITIONS = 20_000
"""Transitions of a red twin in each scope, at most."""
FAULTS = {
    "TB-1": "leaks_a_block",
    "TB-2": "leaves_pinned_in_the_queue",
    "TB-3": "counts_one_pin",
    "TB-4": "refuses_after_evicting",
    "TB-5": "evicts_newest_first",
    "TB-6": "gives_a_block_to_two",
    "TB-7": "says_that_nothing_is_in_use",
    "TB-8": "raises_at_the_second_pin",
}
"""Contract -> the fault that is planted against it in a release's table."""
VARIANTS = {
    "TB-1": "EvictedIsCreditedTwice",
    "TB-2": "PinnedStaysIdle",
    "TB-3": "SecondPinIsNotCounted",
    "TB-4": "RefusesAfterEvicting",
    "TB-5": "EvictsByTheTimeOfWriting",
    "TB-8": "RaisesWhereNothingIsIdle",
}
"""Contract -> the faulty table of the reference that breaks it."""


@dataclass(frozen=True)
class TableTask:
    """The table of a target, which is named as the user named it, and the scopes to explore."""

    target: str
    scopes: tuple[TableScope, ...]
    subject: str = COMPONENT


@dataclass
class TableReport:
    """The outcome for a target's table: its scopes, and for each contract the red twin and the
    calls by which it is refuted. `name` is the class, `missing` says why there is no table, and
    `known` has the listed faults that the table shows."""

    task: TableTask
    name: str
    release: str | None
    contracts: tuple[str, ...] = ()
    explorations: list[TableExploration] = field(default_factory=list)
    twins: dict[str, tuple[RedTwin, TableBreak | None]] = field(default_factory=dict)
    twin_transitions: int = 0
    missing: str | None = None
    known: dict[tuple[str, str], KnownFault] = field(default_factory=dict)

    @property
    def broken(self) -> Broken:
        """The target's breaks, each from the first scope in which it shows."""
        found: Broken = {}
        for exploration in self.explorations:
            found = {**exploration.broken, **found}
        return found

    @property
    def unshown(self) -> list[str]:
        """Contracts that hold, except where TOO_LARGE, and have refuted no red twin."""
        return [
            one
            for one in self.contracts
            if not (one in self.twins and self.twins[one][0].refuted)
            and (one, "") not in self.broken
        ]

    @property
    def digest(self) -> str:
        """Digest of the text of the table's class."""
        return digest_of_class(self.explorations)

    @property
    def unrefuted(self) -> list[str]:
        """Red twins that no contract refuted."""
        return [twin.name for twin, _ in self.twins.values() if not twin.refuted]

    @property
    def unlisted(self) -> Broken:
        """The breaks that are no listed fault."""
        return {what: one for what, one in self.broken.items() if what not in self.known}

    def annotate(self, faults: Sequence[KnownFault]) -> None:
        """Note for each break which listed fault it is."""
        # No lane has tables: symptoms that are narrowed to lanes do not count.
        for contract, kind in self.broken:
            for fault in may_be(faults, contract, kind, self.release, lanes=())[:1]:
                self.known[contract, kind] = fault

    def is_listed(self, contract: str) -> bool:
        """Whether all breaks of a contract are listed faults."""
        return all(broken != contract for broken, _ in self.unlisted)

    def excuse(self, contract: str) -> None:
        """None: no contract of a table is excused from having a red twin."""

    def evidence(self) -> Iterator[Evidence]:
        """A row for each contract; none where there is no table."""
        for contract in self.contracts:
            breaks = [one for (broken, _), one in self.broken.items() if broken == contract]
            yield row_of(
                self.explorations,
                contract,
                self.task.target,
                self.name,
                Outcome.REFUTED if breaks else Outcome.HOLDS,
                " | ".join(map(str, breaks)),
                (self.twins[contract][0],) if contract in self.twins else (),
            )


def run(task: TableTask) -> TableReport:
    """Explore the table of a target, in a process of its own, and its red twins.

    Raises:
        HarnessError: the target broke.
        InputError: there is no such target.
    """
    with closing(resolve(task.target, report=lambda line: None)) as target:
        assert isinstance(target, Explorable)
        return _report(target, task)


def _report(target: Explorable, task: TableTask) -> TableReport:
    is_reference = isinstance(target, ReferenceTarget)
    table = "EntryTable" if is_reference else "EmbeddingCache"
    report = TableReport(task, table, target.release)
    try:
        report.explorations = [explore(target, scope) for scope in task.scopes]
    except Illegal as reason:
        report.missing = str(reason)
        return report
    report.contracts = tuple(rule.id for rule in rules_of(target))
    planted = VARIANTS if is_reference else FAULTS
    for contract, name in planted.items():
        if contract in report.contracts and (contract, "") not in report.broken:
            _explore_twin(target, report, contract, name)
    return report


def with_table(make: type[EntryTable], release: str | None = None) -> ReferenceTarget:
    """The reference with that table in the place of its own."""
    return ReferenceTarget(release=release, managers={COMPONENT: make})


def _explore_twin(target: Explorable, report: TableReport, contract: str, name: str) -> None:
    """Explore a red twin, scope by scope, until one refutes it."""
    fault: str | None = name
    if isinstance(target, ReferenceTarget):
        target, fault = with_table(TABLES[name], target.release), None
    found: TableBreak | None = None
    for scope in report.task.scopes:
        twin = explore(target, scope, fault=fault, until=contract, transitions_max=TWIN_TRANSITIONS)
        report.twin_transitions += twin.transitions
        found = twin.broken.get((contract, ""))
        if found is not None:
            break
    report.twins[contract] = RedTwin(name, found is not None), found
