"""A seeded search over one target: generate, run, judge, compare, and keep what breaks.

Work is cut into lanes (a depth, a kind of manager, a kind of workload); seeds are dealt to the
lanes in turn. While the host runs a few batches, this process judges the ones before, so that host
and reference work side by side, and neither waits where one lane costs the other more.
"""

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.breaks import Attributed, Break
from cacheproof.differential.judges.examination import Examination, examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.attribution import Attribution, Where
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import AnyEvent, Trace

BATCH_TRACES = 5
BATCHES_AHEAD = 4
HARNESS_ERRORS_MAX = 5


@dataclass
class Work:
    """How much was run: `steps` of a scheduler, `calls` that were judged."""

    traces: int = 0
    events: int = 0
    steps: int = 0
    calls: int = 0

    def add(self, events: Sequence[AnyEvent], calls: int) -> None:
        """Add one trace, of which these events were run."""
        self.traces += 1
        self.events += len(events)
        self.steps += sum([type(event) is Schedule for event in events])
        self.calls += calls

    def sum(self, other: "Work") -> None:
        """Add what was run elsewhere."""
        self.traces += other.traces
        self.events += other.events
        self.steps += other.steps
        self.calls += other.calls


@dataclass
class LaneReport(Work):
    """What a search did in one lane. `compared` is what of it was compared with the reference;
    None where no reference ran beside. `traces` counts those that the release refused too."""

    lane: Lane = field(kw_only=True)
    resident_sum: int = 0
    compared: Work | None = None
    illegal: Counter[str] = field(default_factory=Counter)
    reach: Reachability = field(default_factory=Reachability)

    def merge(self, other: "LaneReport") -> None:
        """Take in what was done in the same lane elsewhere."""
        self.sum(other)
        self.resident_sum += other.resident_sum
        if self.compared is not None and other.compared is not None:
            self.compared.sum(other.compared)
        self.illegal.update(other.illegal)
        self.reach.add(other.reach)

    @property
    def never_met(self) -> list[str]:
        """Rare states of this lane that the search did not meet."""
        # A lane that was not searched has missed nothing.
        return self.reach.never(self.lane.rare) if self.traces else []


@dataclass
class SearchOutcome:
    """The outcome of a search. `breaks` keeps a few traces for each broken contract, lane, kind of
    break and model runner; `broken` and `kinds` count traces by contract and lane, and by kind as
    well; `listed` has those of `kinds` that are a listed fault, by its name as well."""

    target: str
    release: str | None
    lanes: list[LaneReport]
    breaks: list[Break] = field(default_factory=list)
    broken: Counter[tuple[str, str]] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    harness_errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    listed: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    @classmethod
    def begun(
        cls, target: str, release: str | None, lanes: Iterable[Lane], *, compared: bool
    ) -> "SearchOutcome":
        """A search of which nothing was run yet, by its target's name and release, `compared` with
        the reference or not."""
        reports = [LaneReport(lane=lane, compared=Work() if compared else None) for lane in lanes]
        return cls(target, release, reports)

    @property
    def calls(self) -> int:
        return sum(report.calls for report in self.lanes)

    def count(self, one: Break) -> None:
        """Count a trace that breaks a contract in a kind."""
        place = one.contract, one.lane, one.kind
        self.kinds[place] += 1
        if one.attributed.fault is not None:
            self.listed[*place, one.attributed.fault] += 1

    def add_break(self, broken: Break) -> None:
        """Take in a trace that was run by itself, outside of the seeds."""
        self.breaks.append(broken)
        self.broken[broken.contract, broken.lane] += 1
        self.count(broken)

    def listed_in(self, contract: str, lane: str, kind: str) -> dict[str, int]:
        """How many traces that break a contract in that kind are a listed fault, by its name."""
        place = [contract, lane, kind]
        return {name: n for (*where, name), n in sorted(self.listed.items()) if where == place}

    def merge(self, part: "SearchOutcome", began: float, kept_per_break: int) -> list[Break]:
        """Take in a part of the same search, which `began` that many seconds after the search.

        Returns:
            The part's breaks that are kept, of each place at most `kept_per_break` in all.
        """
        reports = {report.lane.name: report for report in self.lanes}
        for report in part.lanes:
            reports[report.lane.name].merge(report)
        self.broken.update(part.broken)
        self.kinds.update(part.kinds)
        self.listed.update(part.listed)
        self.harness_errors += part.harness_errors
        kept = Counter(one.place for one in self.breaks)
        news = []
        for one in part.breaks:
            kept[one.place] += 1
            if kept[one.place] <= kept_per_break:
                news.append(replace(one, seconds=began + one.seconds))
        self.breaks += news
        return news


Batch = tuple[LaneReport, list[Trace]]


def search(
    target: Target,
    lanes: Sequence[Lane],
    *,
    against: ReferenceTarget | None,
    seeds: Sequence[int],
    kept_per_break: int = 3,
    attribution: Attribution | None = None,
    causes_max: int | None = None,
    until: float = math.inf,
) -> SearchOutcome:
    """Search `target` over `seeds` of every lane.

    The first `kept_per_break` traces are kept for each contract, lane, kind, model runner and
    listed fault, as the `attribution` tells faults apart. It asks for the cause of all breaks, or
    of the first `causes_max` of each contract, kind and model runner; a later break is the same
    fault as long as the target decides as its model does. A host that breaks is restarted, and its
    batch counts as a harness error; after HARNESS_ERRORS_MAX of those the search gives up. No batch
    is begun after the moment `until` of the monotonic clock.
    """
    started = time.monotonic()
    outcome = SearchOutcome.begun(target.name, target.release, lanes, compared=against is not None)
    reports = outcome.lanes
    kept: Counter[tuple[str, str, str, str | None, str | None]] = Counter()
    sure: dict[Where, str] = {}
    asked_of: Counter[tuple[Where, str | None]] = Counter()

    batches = _batches(reports, target.model, seeds, until)
    for (report, traces), results in _executed(target, batches, outcome.harness_errors):
        try:  # the reference may have hosts of its own, which may break as well
            for trace, result in zip(traces, results, strict=True):
                reach = Reachability()
                seen = examine(trace, result, target, against, reach)
                report.reach.add_trace(reach)
                # A target that raised has run no further event.
                _tally(report, seen, trace.events[: len(result.records)])
                lane = report.lane.name
                listed: Mapping[tuple[str, str], Attributed] = {}
                if attribution is not None:
                    listed = attribution.of(trace, result, seen, lane, sure=sure)
                    _count_causes(sure, asked_of, (lane, trace.runner), listed, causes_max)
                for contract, kind, event, sentence in seen.breaks():
                    elapsed = time.monotonic() - started
                    asked = seen.operation(contract, kind)
                    found = Break(
                        contract,
                        kind,
                        lane,
                        trace,
                        event,
                        sentence,
                        elapsed,
                        asked,
                        listed.get((contract, kind), Attributed()),
                    )
                    outcome.count(found)
                    kept[found.place] += 1
                    if kept[found.place] <= kept_per_break:
                        outcome.breaks.append(found)
                outcome.broken.update((contract, report.lane.name) for contract in seen.broken)
        except HarnessError as error:
            outcome.harness_errors.append(f"{report.lane.name}: {error}")
    outcome.seconds = time.monotonic() - started
    return outcome


def _count_causes(
    sure: dict[Where, str],
    asked_of: Counter[tuple[Where, str | None]],
    where: tuple[str, str | None],
    listed: Mapping[tuple[str, str], Attributed],
    causes_max: int | None,
) -> None:
    """Note which fault a contract's breaks in a lane are, once `causes_max` of them were asked."""
    for broken, told in listed.items():
        asked_of[(*where, *broken), told.fault] += 1
        if asked_of[(*where, *broken), told.fault] == causes_max and told.fault is not None:
            sure[(*where, *broken)] = told.fault


def _tally(report: LaneReport, seen: Examination, events: Sequence[AnyEvent]) -> None:
    if seen.illegal is not None:
        report.traces += 1
        report.illegal[seen.illegal] += 1
        return
    report.add(events, seen.calls)
    report.resident_sum += seen.resident_sum
    if report.compared is not None and seen.compared:
        report.compared.add(events, seen.calls)


def _batches(
    reports: Sequence[LaneReport], release: str | None, seeds: Sequence[int], until: float
) -> Iterator[Batch]:
    """Batches of every lane in turn, until the seeds or the seconds are used up."""
    for first in range(0, len(seeds), BATCH_TRACES):
        for report in reports:
            if time.monotonic() >= until:
                return
            some = seeds[first : first + BATCH_TRACES]
            yield report, [report.lane.trace(seed, release) for seed in some]


def _executed(
    target: Target, batches: Iterator[Batch], errors: list[str]
) -> Iterator[tuple[Batch, list[TraceResult]]]:
    """Each batch with its results; a host already has the next ones while one is handed out."""
    at_host: deque[Batch] = deque()
    for batch in itertools.chain(batches, [None]):  # None: there is no further one to send
        if batch is not None:
            at_host.append(batch)  # before it is sent: a restart sends all that are queued
            try:
                _submit(target, batch)
            except HarnessError as error:
                _restart(target, at_host, error, errors)
        # Wait for the oldest only when the host has enough ahead: it works while the caller judges.
        while at_host and (batch is None or len(at_host) > BATCHES_AHEAD):
            try:  # it stays queued until it is here: if the host breaks, it is the one to blame
                results = _results(target, at_host[0][1])
            except HarnessError as error:
                _restart(target, at_host, error, errors)
            else:
                yield at_host.popleft(), results
        if len(errors) >= HARNESS_ERRORS_MAX:  # a host that breaks over everything finds nothing
            if at_host:  # what it was sent again would answer the batches of the next search
                target.close()
            return


def _restart(target: Target, at_host: deque[Batch], error: HarnessError, errors: list[str]) -> None:
    """Drop the oldest batch, over which the host broke, and send those after it again."""
    while at_host:  # until a host takes all that are left: it may break again over the next
        report, traces = at_host.popleft()
        errors.append(f"{report.lane.name}, from seed {traces[0].header.seed}: {error}")
        try:
            for later in at_host:
                _submit(target, later)
            return
        except HarnessError as another:
            error = another


def _results(target: Target, traces: list[Trace]) -> list[TraceResult]:
    return target.collect(len(traces)) if isinstance(target, HostTarget) else target.run(traces)


def _submit(target: Target, batch: Batch) -> None:
    # Only a host takes a batch ahead; other targets run it when its results are asked for.
    if isinstance(target, HostTarget):
        target.submit(batch[1])
