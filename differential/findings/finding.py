"""A finding: a contract that a target breaks, or a difference from the reference, minimised,
replayed and complete: its file alone is enough to show it, to replay it and to report it.
"""

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import msgspec

from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.first_wrong import FirstWrong, first_wrong, tells_itself
from cacheproof.differential.findings.shrinking.edits import shape
from cacheproof.differential.findings.shrinking.shrink import BATCH, BATCHES_MAX, shrink
from cacheproof.differential.judges.examination import Examination, examine
from cacheproof.differential.judges.lockstep import Difference
from cacheproof.differential.judges.retrace import Retrace, RetracedBreak
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.media.differences import parts
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import StepRecord, TraceResult
from cacheproof.differential.traces.trace import AnyEvent, Header, Trace
from cacheproof.spec.registry import by_id

SCHEMA_VERSION = 1
LOCKSTEP = "lockstep"
LOCKSTEP_TITLE = "The target answers every call, and changes by it, as the reference does"
LOCKSTEP_SOURCE = "the reference under the semantics of that release"
DIFFERENCE = "difference"
MODEL_DIFFERENCE = "difference from the model"
"""The harm of a lockstep finding on a target whose modelled text is not that of a release: what it
does otherwise may be its own decision."""
TIMES = 10
Parts = Callable[[Trace, TraceResult, int], bool]
"""Whether a target decided otherwise than its release's model, up to an event of a trace."""


class Parting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a target parts from the reference; both values as JSON has them."""

    call: int | None
    operation: str
    field: str
    reference: Any
    target: Any


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What docs/reference/findings-format.md describes, field by field. `event` counts from 0."""

    schema_version: int
    tool: dict[str, str]
    contract: str
    title: str
    source: str
    harm: str
    target: str
    release: str | None
    sentence: str
    event: int
    why: str
    configuration: Header
    events: tuple[AnyEvent, ...]
    seed: int | None
    generator: str | None
    digest: str
    replays: str
    known: str | None
    known_note: str | None
    fault: str | None = None
    akin: str = ""
    beside: tuple[tuple[str, str], ...] = ()
    shape: str
    kind: str = ""
    seconds: float
    protocol: dict[str, bool]
    capacity: int | None
    parting: Parting | None
    records: list[StepRecord]
    standalone: str = ""
    stopped_early: bool = False
    first_wrong: FirstWrong | None = None

    @property
    def trace(self) -> Trace:
        """The minimised trace."""
        return Trace(self.configuration, self.events)

    @property
    def key(self) -> tuple[str, str]:
        """What a finding breaks, how, and in a trace of which shape."""
        runner = f"{self.trace.runner} runner" if self.trace.runner == "second" else ""
        return self.contract, "; ".join(filter(None, (self.shape, self.kind, runner)))

    @property
    def retrace(self) -> Retrace:
        """The finding's records, to be judged again."""
        return Retrace(
            self.trace, self.records, self.release, Protocol(**self.protocol), self.capacity
        )

    @property
    def first_break(self) -> RetracedBreak | None:
        """Where the records break the contract first, in the finding's kind."""
        return self.retrace.first_break(self.contract, self.kind)

    def annotated(self, known: str | None, note: str | None, fault: str | None = None) -> "Finding":
        """The finding with the thread that is listed for it, None for a listed one without, and the
        name of the listed fault."""
        return msgspec.structs.replace(self, known=known, known_note=note, fault=fault)

    def attributed(self, listed: Attributed) -> "Finding":
        """The finding with the listed fault that it is; or the reason why it is none of those that
        are listed to break the same."""
        return msgspec.structs.replace(self, fault=listed.fault, akin=listed.why)


@dataclass(frozen=True)
class Replay:
    """Runs of one trace on one target.

    `expected` is the digest of the finding when it is replayed where it was found, else that of
    the first run. `verdicts` names per run what was broken; `examination` is of the first run.
    """

    target: str
    contract: str | None
    expected: str
    digests: tuple[str, ...]
    verdicts: tuple[tuple[str, ...], ...]
    examination: Examination
    result: TraceResult

    @property
    def times(self) -> int:
        return len(self.digests)

    @property
    def same(self) -> int:
        """Runs with the expected digest and the verdict of the first run."""
        return sum(
            digest == self.expected and verdict == self.verdicts[0]
            for digest, verdict in zip(self.digests, self.verdicts, strict=True)
        )

    @property
    def broke(self) -> int:
        """Runs that broke the finding's contract, or any when there is no finding."""
        return sum(
            bool(verdict) if self.contract is None else self.contract in verdict
            for verdict in self.verdicts
        )

    @property
    def sentence(self) -> str:
        """One line with the verdict."""
        runs = f"{self.same} of {self.times} runs identical, digest {self.expected[:12]}"
        if self.examination.illegal is not None:
            return f"{self.target} refuses the trace: {self.examination.illegal}"
        if self.contract is None:
            broken = ", ".join(self.verdicts[0]) or "no contract"
            return f"breaks {broken} on {self.target}; {runs}"
        return f"{self.contract} broke in {self.broke} of {self.times} on {self.target}; {runs}"


def found_in(
    target: Target,
    trace: Trace,
    contract: str,
    reference: ReferenceTarget | None = None,
    *,
    kind: str = "",
    times: int = TIMES,
    seconds: float = 0.0,
    batch: int = BATCH,
    batches: int = BATCHES_MAX,
    until: float = math.inf,
    elsewhere: Target | None = None,
    parts: Parts | None = None,
) -> Finding | None:
    """Run the trace, and when it breaks the contract, shrink it, replay it and write it down.

    `contract` is an id, or `lockstep` for a difference from `reference`. A smaller trace must break
    the same contract, by nothing but parts of that `kind`, and before it no other one that `trace`
    keeps; or differ in the same field. `seconds` is how long the search took. Shrinking ends after
    `batches` batches, or at the moment `until` of the monotonic clock. No batch of the target's may
    be in flight. Half of the replays run `elsewhere`, in another process (see `replay`). With
    `parts` a smaller trace must still part from the model before it breaks the contract: else it
    may be a listed fault's.

    Raises:
        HarnessError: the target broke.
    """
    fault = _Fault(target, contract, kind, reference if contract == LOCKSTEP else None, parts)
    first = fault.first(trace)
    if first is None:
        return None
    cut = trace.with_events(trace.events[: first.event + 1])
    # One run says whether all after the break can go, which shrinking would have to search.
    failing = cut if fault.still_in([cut])[0] else trace
    shrunk = shrink(failing, fault.still_in, batch=batch, batches=batches, until=until)
    small, stopped_early = _unsigned(shrunk.trace), not shrunk.is_whole
    runs = replay(small, target, times, fault.reference, elsewhere)
    broken = fault.broken(runs.examination)
    # It does not break in a fresh session: a finding would show nothing.
    if broken is None:
        return None
    found = _written_down(target, trace, small, contract, broken, runs, seconds)
    beside = tuple(_beside(runs.examination, contract, broken.event))
    found = msgspec.structs.replace(found, stopped_early=stopped_early, beside=beside)
    # On a large trace what differs first may have nothing to do with the break.
    if not stopped_early or (batches and tells_itself(target, contract)):
        where = _first_wrong(target, found, runs.result, reference)
        found = msgspec.structs.replace(found, first_wrong=where)
    return found


def _first_wrong(
    target: Target, found: Finding, result: TraceResult, reference: ReferenceTarget | None
) -> FirstWrong | None:
    """Where a finding's trace first goes wrong. What the reference breaks as well does not come of
    anything that the target decides otherwise."""
    trace = found.trace
    seen = examine(trace, result, target, reference)
    if reference is not None and seen.difference is not None and found.contract != LOCKSTEP:
        of_reference = examine(trace, reference.run([trace])[0], reference)
        if (found.contract, found.kind) in of_reference.by_kind:
            seen = replace(seen, difference=None)
    return first_wrong(target, trace, seen, found.event)


def _beside(seen: Examination, contract: str, event: int) -> Iterator[tuple[str, str]]:
    """What else is broken up to that event, as contract and kind, in order."""
    broken = sorted((one.event, *place) for place, one in seen.by_kind.items())
    for first, other, kind in broken:
        if first <= event and other != contract:
            yield other, kind


def replay(
    what: Finding | Trace,
    target: Target,
    times: int = TIMES,
    reference: ReferenceTarget | None = None,
    elsewhere: Target | None = None,
) -> Replay:
    """Run it `times` times, each in a fresh session, the second half in another process.

    `elsewhere` is that process, to be used for many findings; by default one is started and ended.
    `reference` is needed to judge a lockstep finding. Raises HarnessError when the target broke.
    """
    trace = what.trace if isinstance(what, Finding) else what
    other = elsewhere or target.another()
    try:
        results = [
            (target if number < times - times // 2 else other).run([trace])[0]
            for number in range(times)
        ]
    finally:
        if elsewhere is None:
            other.close()
    examinations = [examine(trace, result, target, reference) for result in results]
    digests = tuple(digest(result) for result in results)
    # Another target has other records, so its runs are held against its own first one.
    at_home = isinstance(what, Finding) and what.target == target.name
    return Replay(
        target=target.name,
        contract=what.contract if isinstance(what, Finding) else None,
        expected=what.digest if isinstance(what, Finding) and at_home else digests[0],
        digests=digests,
        verdicts=tuple(map(_verdict, examinations)),
        examination=examinations[0],
        result=results[0],
    )


def of_run(target: Target, trace: Trace, runs: Replay) -> list[Finding]:
    """What the first run of a trace breaks, in the order of its events: a finding of each contract
    and kind, then one of the difference from the reference. The trace stays as it is."""
    seen = runs.examination
    broken: list[tuple[str, Violation | Difference]] = [
        (contract, one) for (contract, _), one in seen.by_kind.items()
    ]
    broken.sort(key=lambda one: one[1].event)
    if seen.difference is not None:
        broken.append((LOCKSTEP, seen.difference))
    return [
        msgspec.structs.replace(
            _written_down(target, trace, trace, contract, one, runs, 0.0),
            beside=tuple(_beside(seen, contract, one.event)),
        )
        for contract, one in broken
    ]


def of_small(
    target: Target,
    small: Trace,
    contract: str,
    kind: str,
    reference: ReferenceTarget | None,
    times: int = TIMES,
    elsewhere: Target | None = None,
) -> Finding:
    """What a trace breaks that was minimised by somebody else, with where it first goes wrong.

    Raises:
        HarnessError: the target broke.
    """
    small = _unsigned(small)
    runs = replay(small, target, times, elsewhere=elsewhere)
    broken = runs.examination.by_kind[contract, kind]
    found = _written_down(target, small, small, contract, broken, runs, 0.0)
    return msgspec.structs.replace(
        found,
        beside=tuple(_beside(runs.examination, contract, broken.event)),
        first_wrong=_first_wrong(target, found, runs.result, reference),
    )


def digest(result: TraceResult) -> str:
    """SHA-256 of the records as JSON."""
    return digest_of(result.records)


def digest_of(records: Sequence[StepRecord]) -> str:
    """SHA-256 of records as JSON."""
    return hashlib.sha256(msgspec.json.encode(records)).hexdigest()


class _Fault:
    """What a smaller trace must still do: break a contract in a kind, or differ in a field.
    Whatever it breaks before that, the trace that was found breaks too: else it may have another
    cause."""

    def __init__(
        self,
        target: Target,
        contract: str,
        kind: str,
        reference: ReferenceTarget | None,
        must_part: Parts | None,
    ) -> None:
        self.reference = reference
        self._must_part = must_part
        self.field: str | None = None
        self._target = target
        self._contract = contract
        self._parts = parts(kind)
        self._beside: frozenset[str] | None = None

    def first(self, trace: Trace) -> Violation | Difference | None:
        """Run the trace that was found; returns what it breaks, or how it differs."""
        examination = self._examined(trace, self._target.run([trace])[0])
        # Before `_beside` and `field` are set: nothing is held against this trace.
        broken = self.broken(examination)
        self._beside = frozenset(examination.violations)
        self.field = getattr(broken, "field", None)
        return broken

    def _examined(self, trace: Trace, result: TraceResult) -> Examination:
        return examine(trace, result, self._target, self.reference)

    def broken(self, examination: Examination) -> Violation | Difference | None:
        if self._contract != LOCKSTEP:
            for (contract, kind), violation in examination.by_kind.items():
                if contract == self._contract and parts(kind) <= self._parts:
                    return None if self._comes_behind_others(violation, examination) else violation
            return None
        difference = examination.difference
        if difference is None or self.field not in (None, difference.field):
            return None
        return difference

    def _comes_behind_others(self, violation: Violation, examination: Examination) -> bool:
        """Whether something is broken before it that the trace that was found does not break."""
        return self._beside is not None and any(
            other.event < violation.event and contract not in self._beside
            for contract, other in examination.violations.items()
        )

    def still_in(self, traces: list[Trace]) -> list[bool]:
        return [
            self._is_in(trace, result)
            for trace, result in zip(traces, self._target.run(traces), strict=True)
        ]

    def _is_in(self, trace: Trace, result: TraceResult) -> bool:
        broken = self.broken(self._examined(trace, result))
        if broken is None:
            return False
        return self._must_part is None or self._must_part(trace, result, broken.event)


def _verdict(examination: Examination) -> tuple[str, ...]:
    if examination.illegal is not None:
        return ("illegal",)
    parted = () if examination.difference is None else (LOCKSTEP,)
    return (*sorted(examination.violations), *parted)


def _unsigned(trace: Trace) -> Trace:
    """The minimised trace without seed and generator, which would make another trace."""
    return Trace(msgspec.structs.replace(trace.header, seed=None, generator=None), trace.events)


def _written_down(
    target: Target,
    found: Trace,
    small: Trace,
    contract: str,
    broken: Violation | Difference,
    runs: Replay,
    seconds: float,
) -> Finding:
    if isinstance(broken, Difference):
        title, source, harm = LOCKSTEP_TITLE, LOCKSTEP_SOURCE, DIFFERENCE
        if target.reading is not None and target.reading.differs:
            source = f"the reference under the semantics of {target.model}, the nearest release"
            harm = MODEL_DIFFERENCE
        why = f"{broken.field}: reference {broken.left!r}, {target.name} {broken.right!r}"
        sentence = f"{LOCKSTEP} at {broken.sentence}"
        parting = Parting(
            broken.call, broken.operation, broken.field, _json(broken.left), _json(broken.right)
        )
        form = f"{broken.field} of {broken.operation}: {shape(small)}"
    else:
        rule = by_id(contract)
        title, source, harm = rule.title, rule.source, rule.harm
        why, sentence, parting, form = broken.why, broken.sentence, None, shape(small)
    return Finding(
        schema_version=SCHEMA_VERSION,
        tool={"cacheproof": version("cacheproof"), "python": sys.version.split()[0]},
        contract=contract,
        title=title,
        source=source,
        harm=harm,
        target=target.name,
        release=target.release,
        sentence=sentence,
        event=broken.event,
        why=why,
        configuration=small.header,
        events=small.events,
        seed=found.header.seed,
        generator=found.header.generator,
        digest=runs.expected,
        replays=f"{runs.same} of {runs.times}",
        known=None,
        known_note=None,
        shape=form,
        kind=broken.kind if isinstance(broken, Violation) else "",
        seconds=round(seconds, 3),
        protocol=target.protocol._asdict(),
        capacity=runs.result.capacity,
        parting=parting,
        records=runs.result.records,
    )


def _json(value: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(value))
