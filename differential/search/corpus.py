"""The smallest traces of a register, run on a target before any seed is searched."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.breaks import Attributed, Break
from cacheproof.differential.findings.question import Question
from cacheproof.differential.findings.register import FaultRecord, broke, held
from cacheproof.differential.judges.examination import LOCKSTEP, Examination, examine
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.bisection import tellings
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace


class Reply(msgspec.Struct, frozen=True):
    """What a target makes of a record's trace: it breaks what the record says, or `holds`. Neither
    says nothing: it refuses the trace, or lacks a setting of it and holds, or the record is of the
    lockstep and there is no reference."""

    broken: Break | None = None
    holds: bool = False

    def recorded(
        self, record: FaultRecord, target: str, release: str | None, date: str
    ) -> Iterator[FaultRecord]:
        """The record with this sighting alone, if it is one, to be merged into a register."""
        alone = msgspec.structs.replace(record, sightings=())
        if self.broken is not None:
            yield broke(alone, target, release, date)
        elif self.holds:
            yield held(alone, target, release, date)


def asked(
    records: Iterable[FaultRecord], lanes: Collection[str], *, compared: bool
) -> list[FaultRecord]:
    """The records whose traces are run on a target: those of its lanes, and of a parting from the
    reference only where that runs beside."""
    return [one for one in records if one.lane in lanes and (compared or one.contract != LOCKSTEP)]


def ask(
    target: Target,
    record: FaultRecord,
    reference: ReferenceTarget | None,
    attribution: Attribution,
) -> Reply:
    """Run the trace of a record. A release that lacks a setting of it is asked without it.

    Raises:
        HarnessError: the target broke.
    """
    question = Question(record.trace, record.contract, record.kind)
    judged_by = reference if record.contract == LOCKSTEP else None
    if record.contract == LOCKSTEP and judged_by is None:
        return Reply()
    for without, trace in tellings(record.trace):
        (result,) = target.run([trace])
        seen = examine(trace, result, target, judged_by)
        if seen.illegal is not None:
            continue
        if question.broken(seen):
            listed = attribution.of(trace, result, seen, record.lane)
            return Reply(_break(question, seen, record, trace, listed))
        # Without a setting that the release lacks, holding proves nothing about the fault.
        return Reply(holds=not without)
    return Reply()


def refusal(record: FaultRecord, error: HarnessError) -> str:
    """The message about a trace that could not be run."""
    return f"trace of {record.name}: {error}"


def _break(
    question: Question,
    seen: Examination,
    record: FaultRecord,
    trace: Trace,
    listed: Mapping[tuple[str, str], Attributed],
) -> Break:
    """The break of a trace that breaks what its record says."""
    for contract, kind, event, sentence in seen.breaks():
        if question.asks(contract, kind):
            asked = seen.operation(contract, kind)
            fault = listed.get((contract, kind), Attributed())
            return Break(contract, kind, record.lane, trace, event, sentence, 0.0, asked, fault)
    raise AssertionError(f"{record.name} breaks nothing")
