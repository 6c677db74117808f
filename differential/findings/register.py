"""The register of findings: one record per identity, and how records of one are merged.

A record does not depend on where it is stored: a file or a campaign's store holds the same.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Literal

import msgspec

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.identity import identity_of
from cacheproof.differential.findings.shrinking.edits import cost
from cacheproof.differential.traces.trace import AnyEvent, Header, Trace
from cacheproof.spec.versions import release_key

SCHEMA = 1
Status = Literal["new", "listed", "mended", "came back"]
Key = tuple[int, ...]
_BEFORE_ALL: Key = ()
"""Sort key of a target without a release: before all that have one."""


class Sighting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one target: the release that it is, or is held to; whether it breaks, and
    had held before that (`again`), by the run of the day `date` (YYYY-MM-DD)."""

    target: str
    release: str | None
    date: str
    breaks: bool
    again: bool = False


class FaultRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one fault.

    `identity` is its short hash, `fault` the listed fault that it is. `kind` and `lane` are those
    of the finding that began it. `first` and `last` are sightings of the fault, not of its absence.
    The trace is the smallest so far that breaks on `trace_target`.
    """

    schema: int
    identity: str
    contract: str
    kind: str
    lane: str
    fault: str | None
    status: Status
    first: Sighting
    last: Sighting
    sightings: tuple[Sighting, ...]
    trace_target: str
    configuration: Header
    events: tuple[AnyEvent, ...]

    @property
    def name(self) -> str:
        """The hash, and the listed fault if it is one."""
        return self.identity if self.fault is None else f"{self.identity} {self.fault}"

    @property
    def trace(self) -> Trace:
        """The smallest trace so far."""
        return Trace(self.configuration, self.events)

    @property
    def releases(self) -> list[str]:
        """The releases that have the fault, from old to new."""
        have = {one.release for one in self.sightings if one.breaks and one.release is not None}
        return sorted(have, key=release_key)


def record_of(finding: Finding, lane: str, date: str) -> FaultRecord:
    """The record that a finding of a lane begins, on that day."""
    seen = Sighting(finding.target, finding.release, date, breaks=True)
    return FaultRecord(
        SCHEMA,
        identity_of(finding).name,
        finding.contract,
        finding.kind,
        lane,
        finding.fault,
        "new" if finding.fault is None else "listed",
        seen,
        seen,
        (seen,),
        finding.target,
        finding.configuration,
        finding.events,
    )


def held(record: FaultRecord, target: str, release: str | None, date: str) -> FaultRecord:
    """The record after its trace broke nothing on a target."""
    return _settled(record, [Sighting(target, release, date, breaks=False)])


def broke(record: FaultRecord, target: str, release: str | None, date: str) -> FaultRecord:
    """The record after its trace broke the same on a target."""
    return _settled(record, [Sighting(target, release, date, breaks=True)])


def merged(one: FaultRecord, other: FaultRecord) -> FaultRecord:
    """Two records of one identity as one. Of sightings of one target on one day the other's counts.

    The trace of the older record stays, unless the other's is smaller and of the same target.

    Raises:
        ValueError: their identities differ.
    """
    if one.identity != other.identity:
        raise ValueError(f"{one.identity} and {other.identity} are two faults")
    older, newer = sorted((one, other), key=lambda record: _order(record.first))
    kept = older
    if newer.trace_target == older.trace_target and cost(newer.trace) < cost(older.trace):
        kept = newer
    record = msgspec.structs.replace(
        older,
        sightings=one.sightings,
        last=max(one.last, other.last, key=_order),
        fault=older.fault or newer.fault,
        configuration=kept.configuration,
        events=kept.events,
    )
    return _settled(record, other.sightings)


def merge(
    records: Mapping[str, FaultRecord], others: Iterable[FaultRecord]
) -> dict[str, FaultRecord]:
    """Records by identity, with those of others merged in."""
    together = dict(records)
    for record in others:
        known = together.get(record.identity)
        together[record.identity] = record if known is None else merged(known, record)
    return together


def of_run(replayed: Iterable[FaultRecord], found: Iterable[FaultRecord]) -> list[FaultRecord]:
    """What one run says: the records that its search `found`, and those of which it `replayed` the
    traces. That a trace held says nothing where the search met the fault by another."""
    found = list(found)
    met = {(one.identity, one.first.target) for one in found}
    return [
        *(
            one
            for one in replayed
            if not any(
                not seen.breaks and (one.identity, seen.target) in met for seen in one.sightings
            )
        ),
        *found,
    ]


def _settled(record: FaultRecord, news: Iterable[Sighting]) -> FaultRecord:
    """The record with further sightings, and with the status that all of them amount to."""
    latest = {one.target: one for one in record.sightings}
    for new in news:
        latest[new.target] = _later(latest.get(new.target), new)
    sightings = tuple(sorted(latest.values(), key=_order_of_target))
    breaking = sorted((one for one in sightings if one.breaks), key=_order)
    return msgspec.structs.replace(
        record,
        sightings=sightings,
        status=_status(sightings, record.fault),
        first=min((record.first, *breaking), key=_order),
        last=max((record.last, *breaking), key=_order),
    )


def _later(known: Sighting | None, new: Sighting) -> Sighting:
    """What is known of a target after a further sighting of it."""
    if known is None:
        return new
    if known.date > new.date:
        known, new = new, known
    again = new.breaks and (known.again or new.again or not known.breaks)
    return msgspec.structs.replace(new, again=again)


def _status(sightings: Iterable[Sighting], fault: str | None) -> Status:
    """`came back`: a target breaks that had held, or a release between two that break holds. A
    release breaks where any target that is held to it does."""
    breaks: dict[Key, bool] = {}
    for one in sightings:
        breaks[_key(one.release)] = one.breaks or breaks.get(_key(one.release), False)
    in_order = [breaks[key] for key in sorted(breaks)]
    from_first = in_order[in_order.index(True) :] if True in in_order else []
    came_and_went = [breaks for breaks, _ in groupby(from_first)]
    if any(one.again for one in sightings) or came_and_went.count(True) > 1:
        return "came back"
    if not in_order[-1]:
        return "mended"
    return "new" if fault is None else "listed"


def _key(release: str | None) -> Key:
    return _BEFORE_ALL if release is None else release_key(release)


def _order(one: Sighting) -> tuple[str, Key, str]:
    return one.date, _key(one.release), one.target


def _order_of_target(one: Sighting) -> tuple[Key, str]:
    return _key(one.release), one.target
