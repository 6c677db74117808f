"""What a campaign found over all its targets, by identity: a fault is one however many targets have
it. And how each compares with the register that the campaign began with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.identity import identity_of
from cacheproof.differential.findings.register import FaultRecord, Status, merge
from cacheproof.differential.findings.shrinking.edits import cost

LISTED: Status = "listed"
_ORDER = ("came back", "new", "listed", "mended")
"""Statuses in the order in which faults are to be looked at."""
assert set(_ORDER) == set(get_args(Status))


@dataclass(frozen=True)
class OfTarget:
    """What a campaign says of one target: the records for a register, and the findings."""

    name: str
    records: Sequence[FaultRecord]
    findings: Sequence[Finding]


@dataclass
class Fault:
    """A fault that the campaign found, or a trace of the register that it ran.

    Attributes:
        record: what the register says of it with this campaign; None of a listed fault whose traces
            were not minimised, which has no identity.
        was: its status in the register that the campaign began with.
        breaks: of each target that says something, whether it has the fault.
        findings: the smallest of each target.
    """

    contract: str
    kind: str
    record: FaultRecord | None = None
    was: Status | None = None
    breaks: dict[str, bool] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def status(self) -> Status:
        return LISTED if self.record is None else self.record.status

    @property
    def listed_as(self) -> list[str]:
        """Names of the listed faults that it is: two may have one identity."""
        recorded = None if self.record is None else self.record.fault
        names = (recorded, *(one.fault for one in self.findings))
        return sorted({name for name in names if name is not None})

    @property
    def has_changed(self) -> bool:
        """Whether the status differs from that in the register."""
        return self.status != self.was

    def smallest(self, target: str) -> Finding | None:
        """The smallest finding on a target; None where it has none."""
        own = [one for one in self.findings if one.target == target]
        return min(own, key=lambda one: cost(one.trace), default=None)

    def to_json(self) -> dict[str, object]:
        """The fault as JSON, without dates, so that equal work gives equal JSON."""
        found = {name: self.smallest(name) for name in self.breaks}
        return {
            "identity": None if self.record is None else self.record.identity,
            "contract": self.contract,
            "kind": self.kind or None,
            "listed_as": self.listed_as,
            "status": self.status,
            "was": self.was,
            "targets": {
                name: {
                    "breaks": breaks,
                    "events": None if (one := found[name]) is None else len(one.events),
                }
                for name, breaks in sorted(self.breaks.items())
            },
        }


def faults_of(known: Mapping[str, FaultRecord], targets: Iterable[OfTarget]) -> list[Fault]:
    """The faults of a campaign that began with the records `known`, by identity; first those that
    came back or are new."""
    targets = list(targets)
    after = merge(known, (record for one in targets for record in one.records))
    faults: dict[object, Fault] = {}
    for target in targets:
        for record in target.records:
            fault = faults.setdefault(record.identity, _begun(after[record.identity], known))
            for seen in record.sightings:
                fault.breaks[target.name] = seen.breaks
        for found in target.findings:
            key = (found.contract, found.fault) if found.stopped_early else identity_of(found).name
            fault = faults.setdefault(key, Fault(found.contract, found.kind))
            fault.breaks[target.name] = True
            fault.findings.append(found)
    return sorted(faults.values(), key=_place)


def _begun(record: FaultRecord, known: Mapping[str, FaultRecord]) -> Fault:
    before = known.get(record.identity)
    return Fault(record.contract, record.kind, record, None if before is None else before.status)


def _place(one: Fault) -> tuple[int, str, str, list[str]]:
    identity = "" if one.record is None else one.record.identity
    return _ORDER.index(one.status), one.contract, identity, one.listed_as
