"""Where two targets part: the first step record, and in it the first field, that differs."""

from collections.abc import Set
from dataclasses import dataclass

from cacheproof.differential.judges.outputs import compare_outputs, has_outputs
from cacheproof.differential.traces.records import (
    UNDER_FIRST,
    CallRecord,
    Delta,
    StepRecord,
    TraceResult,
)

OF_A_WORKER = frozenset({"memory", "origins", UNDER_FIRST})
"""How a worker lays out its memory is its own affair, and only one side's rows say where they came
from, or what the other model runner does."""
MISS = "EncoderCacheMiss"
"""What a torch runner raises in the place of a row that its store does not hold."""
CALL_FIELDS = CallRecord._fields
DELTA_FIELDS = tuple(name.replace("_", " ") for name in Delta._fields)


_UNCHANGED: tuple[object, ...] = (None, None, {}, None, None)
PARTS = (*CALL_FIELDS[:-1], "entries", "queue", "notices", "freeable slots", "free slots")
"""Parts of a call in the order in which they follow from each other: what it asks and answers, then
what is in the cache, then how much of it."""


@dataclass(frozen=True)
class Difference:
    """Two targets disagree at an event: which field, and what each says. `parts` are all parts of
    the call, or of the outcome, that differ there: the one that the others follow from first."""

    event: int
    call: int | None
    operation: str
    field: str
    left: object
    right: object
    parts: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """One line that names the place and the field."""
        call = "" if self.call is None else f", call {self.call + 1} ({self.operation})"
        return f"event {self.event + 1}{call}: {self.field}: {self.left!r} against {self.right!r}"


def compare(
    left: TraceResult, right: TraceResult, its_own: Set[str] = frozenset()
) -> Difference | None:
    """The first difference between two targets' records of one trace; None when they agree. In
    `its_own` fields of an outcome each may say what it likes."""
    if left.records == right.records:  # most often, and cheaper than to look record by record
        return None
    hidden = its_own | OF_A_WORKER
    for number, (ours, theirs) in enumerate(zip(left.records, right.records, strict=False)):
        ours, theirs = _without(ours, hidden), _without(theirs, hidden)
        if has_outputs(ours) and has_outputs(theirs):
            decoded = compare_outputs(ours, theirs)
            if decoded.difference is not None:
                return Difference(number, None, "", *decoded.difference)
            if decoded.ends:
                return None
            ours, theirs = decoded.ours, decoded.theirs
        raised = ours.raised is not None or theirs.raised is not None
        if (
            ours.outcome != theirs.outcome
            or ours.calls != theirs.calls
            or (raised and not _raise_alike(ours, theirs))
        ):
            return _first_difference(number, ours, theirs)
        if None not in (ours.state, theirs.state) and ours.state != theirs.state:
            return Difference(number, None, "", "state", ours.state, theirs.state)
    if len(left.records) != len(right.records):
        number = min(len(left.records), len(right.records))
        return Difference(
            number, None, "", "number of records", len(left.records), len(right.records)
        )
    return None


def _without(record: StepRecord, fields: Set[str]) -> StepRecord:
    if not isinstance(record.outcome, dict) or fields.isdisjoint(record.outcome):
        return record
    kept = {name: value for name, value in record.outcome.items() if name not in fields}
    return record._replace(outcome=kept)


def _raise_alike(ours: StepRecord, theirs: StepRecord) -> bool:
    """Whether both raise the same; what a release's worker raises where it has not got a row is its
    own, the model's or the cache's, and SC-8 tells its kind."""
    if None in (ours.raised, theirs.raised):
        return ours.raised == theirs.raised
    return MISS in (_type(ours), _type(theirs)) or _type(ours) == _type(theirs)


def _type(record: StepRecord) -> str | None:
    """The exception's type: its text is the release's own."""
    return None if record.raised is None else record.raised.type


def _first_difference(number: int, left: StepRecord, right: StepRecord) -> Difference:
    for index, (ours, theirs) in enumerate(zip(left.calls, right.calls, strict=False)):
        if ours == theirs:
            continue
        parts = _parts_of_calls(ours, theirs)
        for name, mine, other in zip(CALL_FIELDS, ours, theirs, strict=True):
            if mine == other:
                continue
            if name == "delta" and mine is not None and other is not None:
                for part, one, two in zip(DELTA_FIELDS, mine, other, strict=True):
                    if one != two:
                        return Difference(number, index, ours.operation, part, one, two, parts)
            return Difference(number, index, ours.operation, name, mine, other, parts)
    if len(left.calls) != len(right.calls):
        shorter = min(len(left.calls), len(right.calls))
        rest = (left.calls[shorter:], right.calls[shorter:])
        return Difference(number, shorter, "", "calls", *rest)
    if not _raise_alike(left, right):
        return Difference(number, None, "", "exception", left.raised, right.raised)
    return _of_outcomes(number, left.outcome, right.outcome)


def _parts_of_calls(left: CallRecord, right: CallRecord) -> tuple[str, ...]:
    """Where one side changes nothing, all that the other changes differs."""
    differing = {
        name
        for name, ours, theirs in zip(CALL_FIELDS, left, right, strict=True)
        if ours != theirs and name != "delta"
    }
    if left.delta != right.delta:
        sides = zip(DELTA_FIELDS, left.delta or _UNCHANGED, right.delta or _UNCHANGED, strict=True)
        differing |= {name for name, ours, theirs in sides if ours != theirs}
    return tuple(name for name in PARTS if name in differing)


def _of_outcomes(number: int, left: object, right: object) -> Difference:
    if isinstance(left, dict) and isinstance(right, dict):
        names = [n for n in dict.fromkeys((*left, *right)) if left.get(n) != right.get(n)]
        for name in names:
            ours, theirs = left.get(name), right.get(name)
            return Difference(number, None, "", name, ours, theirs, tuple(names))
    return Difference(number, None, "", "outcome", left, right)
