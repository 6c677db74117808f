"""Two targets over the same traces, base and head: both judged by the contracts, and compared.

What the workers of a review do, each in a process with hosts of both. As in `work`, a job is a
value that says all there is to do, and its outcome depends on nothing else.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.finding import Finding, of_small
from cacheproof.differential.findings.shrinking.shrink import shrink
from cacheproof.differential.judges.examination import Examination, examine
from cacheproof.differential.judges.lockstep import Difference
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.canary import Canary, plant
from cacheproof.differential.search.clocks import monotonic
from cacheproof.differential.search.diff import Comparison, compared, older_release
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.seeded import BATCH_TRACES
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

Broken = tuple[str, str]
"""A broken contract, and the kind of break."""
EXPLAINED_PER_JOB = 2
"""Most partings of a job in one field that are held against the known changes."""
SHRINK_BATCHES = 60
TIMES = 4


@dataclass(frozen=True)
class Parted:
    """Where two targets part, without the values: after which operation and in which field; and the
    known changes that explain it, None where they were not asked for."""

    operation: str
    field: str
    changes: frozenset[str] | None

    @property
    def place(self) -> tuple[str, str]:
        """The operation and the field."""
        return self.operation, self.field


@dataclass(frozen=True)
class Pair:
    """The outcome of a trace on both targets: what each breaks, and which listed fault of its
    release that is. `lane` is None for a trace that was kept under a name. A target that refuses
    the trace breaks nothing."""

    lane: str | None
    name: str
    trace: Trace
    base: Mapping[Broken, Attributed]
    head: Mapping[Broken, Attributed]
    base_refuses: bool
    head_refuses: bool
    parted: Parted | None
    calls: int


@dataclass(frozen=True)
class SmallParting:
    """A minimised trace on which two targets part."""

    trace: Trace
    difference: Difference
    changes: frozenset[str]


@dataclass
class Both:
    """Base and head, side by side in a process."""

    base: Target
    head: Target
    known: Sequence[KnownFault]

    def __post_init__(self) -> None:
        self.comparison = Comparison(self.base, self.head)
        self.reference = reference_for(self.head)
        self._of_base = reference_for(self.base)
        self.attributions = (
            Attribution.of_target(self.known, self.base, self._of_base),
            Attribution.of_target(self.known, self.head, self.reference),
        )

    def examined(
        self, traces: Sequence[Trace]
    ) -> Iterator[tuple[Examination, Examination, TraceResult]]:
        """Each trace judged on base and on head, and head's result."""
        for trace, ours, theirs in zip(
            traces, self.base.run(traces), self.head.run(traces), strict=True
        ):
            yield examine(trace, ours, self.base), examine(trace, theirs, self.head), theirs

    def close(self) -> None:
        """Give back their processes; the next job starts them anew."""
        self.base.close()
        self.head.close()
        for one in (self.reference, self._of_base, *self.attributions):
            if one is not None:
                one.close()


@dataclass(frozen=True)
class StartBoth:
    """Be ready: have the hosts of both started."""

    def run(self, both: Both) -> None:
        assert both.base.protocol
        assert both.head.protocol


@dataclass(frozen=True)
class RunSeeds:
    """Seeds of a lane, with what the older of both releases offers, as far as one comes until a
    moment of the clock."""

    lane: Lane
    seeds: Sequence[int]
    until: float = math.inf

    def run(self, both: Both) -> list[Pair]:
        release = older_release(both.base, both.head)
        traces = [self.lane.trace(seed, release) for seed in self.seeds]
        names = [name_of(seed) for seed in self.seeds]
        return list(_pairs(both, self.lane.name, names, traces, self.until))


@dataclass(frozen=True)
class RunKept:
    """Traces that were kept, by name, as far as one comes until a moment of the clock."""

    names: Sequence[str]
    traces: Sequence[Trace]
    until: float = math.inf

    def run(self, both: Both) -> list[Pair]:
        return list(_pairs(both, None, self.names, self.traces, self.until))


@dataclass(frozen=True)
class PlantInHead:
    """Faults to be planted in head and looked for, as far as one comes until a moment of the clock:
    each by its contract, and, where it `compares`, one of them by the comparison with head as it
    is."""

    lane: Lane
    canaries: tuple[Canary, ...]
    compares: bool
    until: float = math.inf

    def run(self, both: Both) -> dict[str, bool]:
        found = plant(self.canaries, both.head, self.lane, monotonic(self.until))
        is_due = self.compares and time.time() < self.until
        if is_due and (traces := telling_apart(self.lane, both.base, both.head)):
            found[difference_in(self.lane)] = self._is_a_difference_seen(both, traces)
        return found

    def _is_a_difference_seen(self, both: Both, traces: list[Trace]) -> bool:
        sound = both.head.run(traces)
        return any(
            both.comparison.compare(*run) is not None
            for canary in self.canaries
            for run in zip(traces, sound, both.head.run(traces, canary.fault), strict=True)
        )


@dataclass(frozen=True)
class ShrinkParting:
    """A trace on which both part, to be minimised until a moment of the clock: parting in the same
    field after the same operation, explained by `change` where that is not None."""

    trace: Trace
    parted: Parted
    change: str | None
    until: float = math.inf

    def run(self, both: Both) -> SmallParting:
        comparison = both.comparison
        among = None if self.change is None else (self.change,)

        def still(traces: list[Trace]) -> list[bool]:
            return [
                difference is not None
                and (difference.operation, difference.field) == self.parted.place
                and (among is None or bool(comparison.explanation(trace, difference, among)))
                for trace, difference in zip(traces, comparison.of(traces), strict=True)
            ]

        until = monotonic(self.until)
        small = shrink(self.trace, still, batches=SHRINK_BATCHES, until=until).trace
        (difference,) = comparison.of([small])
        assert difference is not None
        return SmallParting(small, difference, comparison.explanation(small, difference))


@dataclass(frozen=True)
class ShrinkBreak:
    """A trace on which head breaks a contract that base keeps, to be minimised until a moment of
    the clock: a finding, as a search of head has them."""

    trace: Trace
    broken: Broken
    until: float = math.inf

    def run(self, both: Both) -> Finding:
        ((_, broken, result),) = both.examined([self.trace])
        parts = self._parts(both, self.trace, broken, result)

        def still(traces: list[Trace]) -> list[bool]:
            return [
                self._is_of_head(ours, theirs, alone=not parts)
                and (not parts or self._parts(both, trace, theirs, result))
                for trace, (ours, theirs, result) in zip(traces, both.examined(traces), strict=True)
            ]

        until = monotonic(self.until)
        small = shrink(self.trace, still, batches=SHRINK_BATCHES, until=until).trace
        head = both.head
        return of_small(head, small, *self.broken, both.reference, TIMES, elsewhere=head)

    def _is_of_head(self, base: Examination, head: Examination, *, alone: bool) -> bool:
        kept = self.broken not in base.by_kind
        return base.illegal is None and self.broken in head.by_kind and (kept or not alone)

    def _parts(self, both: Both, trace: Trace, head: Examination, result: TraceResult) -> bool:
        """Whether head decides otherwise than the model of its release before the break: then base
        may break the same contract, by a listed fault."""
        _, of_head = both.attributions
        broken = head.by_kind.get(self.broken)
        return broken is not None and of_head.parts(trace, result, broken.event)


def name_of(seed: int) -> str:
    """What a pair is called that came of a seed."""
    return f"seed {seed}"


def telling_apart(lane: Lane, base: Target, head: Target) -> list[Trace]:
    """Traces of a lane in which the comparison is to see a planted fault: none, where the reference
    models none of them."""
    return compared(base, head, (lane.trace(seed, head.model) for seed in range(BATCH_TRACES)))


def difference_in(lane: Lane) -> str:
    """Name of the planted fault that the comparison is to see."""
    return f"a difference ({lane.name})"


class PairJob(Protocol):
    """A job of a worker."""

    def run(self, both: Both) -> Any: ...


_here: Both | None = None


def begin(base: Target, head: Target, known: Sequence[KnownFault]) -> None:
    """Make this process a worker, which tells breaks apart by the listed faults."""
    global _here
    _here = Both(base, head, known)


def work(job: PairJob) -> Any:
    """The outcome of a job, done in this process; a string where a target broke."""
    assert _here is not None
    try:
        return job.run(_here)
    except HarnessError as error:
        _here.close()
        return str(error)


def _pairs(
    both: Both, lane: str | None, names: Sequence[str], traces: Sequence[Trace], until: float
) -> Iterator[Pair]:
    explained: Counter[tuple[str, str]] = Counter()
    for start in range(0, len(traces), BATCH_TRACES):
        if time.time() > until:
            return
        some = traces[start : start + BATCH_TRACES]
        ours, theirs = both.base.run(some), both.head.run(some)
        for number, (trace, one, other) in enumerate(zip(some, ours, theirs, strict=True)):
            base, head = examine(trace, one, both.base), examine(trace, other, both.head)
            parted = None
            if (difference := both.comparison.compare(trace, one, other)) is not None:
                place = difference.operation, difference.field
                explained[place] += 1
                changes = None
                if explained[place] <= EXPLAINED_PER_JOB:
                    changes = both.comparison.explanation(trace, difference)
                parted = Parted(*place, changes)
            name = names[start + number]
            faults = _attributed(both, trace, (one, other), (base, head), (lane, name))
            yield Pair(
                lane,
                name,
                trace,
                *faults,
                base.illegal is not None,
                head.illegal is not None,
                parted,
                base.calls + head.calls,
            )


def _attributed(
    both: Both,
    trace: Trace,
    results: tuple[TraceResult, TraceResult],
    seen: tuple[Examination, Examination],
    where: tuple[str | None, str],
) -> tuple[Mapping[Broken, Attributed], Mapping[Broken, Attributed]]:
    """What each side breaks, and which listed fault that is. Where head decides otherwise than its
    model before a break that base has too, it is what it is on base, and no news of head."""
    ours, theirs = (
        side.of(trace, result, examination, *where)
        for side, result, examination in zip(both.attributions, results, seen, strict=True)
    )
    alike = {
        broken: ours[broken] for broken, told in theirs.items() if told.parts and broken in ours
    }
    return ours, theirs | alike
