"""What the workers of a search do, each in a process with a host and a judge of its own.

A job is a value that says all there is to do, and its outcome depends on nothing else: so a
search comes out the same whatever number of workers shares it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import TIMES, Finding, found_in
from cacheproof.differential.findings.register import FaultRecord
from cacheproof.differential.findings.shrinking.shrink import BATCHES_MAX
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import corpus
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.canary import Canary, plant
from cacheproof.differential.search.clocks import monotonic
from cacheproof.differential.search.corpus import Reply
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.seeded import SearchOutcome, search
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for


@dataclass
class SearchWorker:
    """A target, another process of the target, the model of its release where there is one, whether
    the target is held against that in lockstep, and what tells its breaks apart."""

    target: Target
    elsewhere: Target
    model: ReferenceTarget | None
    with_reference: bool
    attribution: Attribution

    @classmethod
    def of(
        cls,
        target: Target,
        elsewhere: Target,
        known: Sequence[KnownFault],
        *,
        with_reference: bool = False,
    ) -> "SearchWorker":
        """A worker for a target whose breaks are told apart by these listed faults."""
        model = reference_for(target)
        attribution = Attribution.of_target(known, target, model)
        return cls(target, elsewhere, model, with_reference, attribution)

    @property
    def reference(self) -> ReferenceTarget | None:
        """What runs beside the target in lockstep."""
        return self.model if self.with_reference else None

    def close(self) -> None:
        """Give back its processes; the next job starts them anew."""
        self.target.close()
        self.elsewhere.close()
        self.attribution.close()


@dataclass(frozen=True)
class SearchTask:
    """Seeds of a lane to be searched, as far as one comes until a moment of the clock; the first
    breaks of each place are kept."""

    lane: Lane
    seeds: Sequence[int]
    kept_per_break: int
    until: float = math.inf

    def run(self, worker: SearchWorker) -> SearchOutcome:
        return search(
            worker.target,
            [self.lane],
            against=worker.reference,
            seeds=self.seeds,
            kept_per_break=self.kept_per_break,
            attribution=worker.attribution,
            causes_max=self.kept_per_break,
            until=monotonic(self.until),
        )


@dataclass(frozen=True)
class WriteDown:
    """A break to be written down: minimised in at most `batches` batches of candidates, and until a
    moment of the clock, and then run `times` times."""

    broken: Break
    batches: int = BATCHES_MAX
    times: int = TIMES
    until: float = math.inf

    def run(self, worker: SearchWorker) -> Finding | str:
        """The finding, or why there is none."""
        if self.times > 1 and isinstance(worker.elsewhere, HostTarget):
            worker.elsewhere.prepare()
        try:
            found = found_in(
                worker.target,
                self.broken.trace,
                self.broken.contract,
                worker.reference,
                kind=self.broken.kind,
                times=self.times,
                seconds=self.broken.seconds,
                batches=self.batches,
                until=monotonic(self.until),
                elsewhere=worker.elsewhere,
                parts=worker.attribution.parts if self.broken.attributed.parts else None,
            )
            if found is not None:
                return found.attributed(worker.attribution.of_finding(found, self.broken.lane))
        except HarnessError as error:
            worker.close()
            return f"while shrinking {self.broken.contract}: {error}"
        return (
            f"{self.broken.contract} at seed {self.broken.trace.header.seed} did not come out again"
        )


@dataclass(frozen=True)
class Plant:
    """Faults to be planted, and looked for in traces of a lane, as far as one comes until a moment
    of the clock."""

    lane: Lane
    canaries: tuple[Canary, ...]
    until: float = math.inf

    def run(self, worker: SearchWorker) -> dict[str, bool] | str:
        """Which were found, or why that cannot be said."""
        try:
            return plant(self.canaries, worker.target, self.lane, monotonic(self.until))
        except HarnessError as error:
            worker.close()
            return f"while planting canaries: {error}"


@dataclass(frozen=True)
class ReplayTask:
    """The trace of a record of a register, to be run again."""

    record: FaultRecord

    def run(self, worker: SearchWorker) -> Reply | str:
        """What the target makes of it, or why that cannot be said."""
        try:
            return corpus.ask(worker.target, self.record, worker.reference, worker.attribution)
        except HarnessError as error:
            worker.close()
            return corpus.refusal(self.record, error)


@dataclass(frozen=True)
class StartTask:
    """Be ready: have the target's host started."""

    def run(self, worker: SearchWorker) -> str | None:
        """Why it does not start, if it does not."""
        try:
            assert worker.target.protocol
        except HarnessError as error:
            worker.close()
            return str(error)
        return None


Job = SearchTask | WriteDown | Plant | ReplayTask | StartTask
CameTo = SearchOutcome | Finding | Reply | dict[str, bool] | str
"""What a job comes to; words where it comes to nothing."""


_here: SearchWorker | None = None


def begin(
    target: Target, elsewhere: Target, with_reference: bool, known: Sequence[KnownFault]
) -> None:
    """Make this process a worker, in lockstep with the reference if that is modelled and wanted. It
    tells breaks apart by the listed faults."""
    global _here
    _here = SearchWorker.of(target, elsewhere, known, with_reference=with_reference)


def work(job: Job) -> CameTo | None:
    """The outcome of a job, done in this process."""
    assert _here is not None
    return job.run(_here)
