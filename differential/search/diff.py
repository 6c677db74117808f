"""Where two targets part: the same traces on both, and each difference minimised and explained.

Two modelled releases differ by the flags of `Semantics` that one has and the other lacks. A flag
explains a parting when the reference of the left one, with that flag alone as the right one has it,
parts from itself at the same event. So a comparison of two releases is a list of changes, each with
the smallest trace found that shows it.
"""

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.findings.shrinking.shrink import shrink
from cacheproof.differential.judges.lockstep import Difference, compare
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.seeded import BATCH_TRACES
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import StepRecord, TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import NotModelled, Semantics
from cacheproof.spec.versions import release_key


@dataclass(frozen=True)
class ExplainedParting:
    """A small trace on which two targets differ, and the flags that explain it, if any do."""

    lane: str
    trace: Trace
    difference: Difference
    flags: frozenset[str]


@dataclass
class Partings:
    """How many traces ran on both targets and how many told them apart, the partings that were
    kept, the flags that the targets do not share, and the `lanes` of the traces. `is_interrupted`:
    by Ctrl-C, before the end."""

    traces: int = 0
    apart: int = 0
    partings: list[ExplainedParting] = field(default_factory=list)
    flags: frozenset[str] = frozenset()
    is_interrupted: bool = False
    lanes: set[str] = field(default_factory=set)

    @property
    def unseen(self) -> list[str]:
        """The flags that no parting shows."""
        return sorted(self.flags.difference(*(parting.flags for parting in self.partings)))


def find_partings(
    left: Target,
    right: Target,
    lanes: Sequence[Lane],
    seconds: float = math.inf,
    tell: Callable[[Partings], None] = lambda partings: None,
    seeds: int | None = None,
) -> Partings:
    """Run seeds 0, 1, ... of every lane for about `seconds`, or up to `seeds`. `tell` takes what
    there is after each few traces.

    For each flag the first parting that it explains is kept, and for each lane the first that none
    explains. A trace that one target refuses is no difference. Raises HarnessError when one broke.
    """
    comparison = Comparison(left, right)
    outcome = Partings(flags=comparison.flags)
    try:
        _find(outcome, comparison, lanes, seconds, tell, seeds)
    except KeyboardInterrupt:
        outcome.is_interrupted = True
    return outcome


def _find(
    outcome: Partings,
    comparison: "Comparison",
    lanes: Sequence[Lane],
    seconds: float,
    tell: Callable[[Partings], None],
    seeds: int | None,
) -> None:
    left, right = comparison.left, comparison.right
    release = older_release(left, right)
    unshown = comparison.flags | {lane.name for lane in lanes}
    end = time.monotonic() + seconds
    starts = itertools.count(0, BATCH_TRACES) if seeds is None else range(0, seeds, BATCH_TRACES)
    for start in starts:
        for lane in lanes:
            if time.monotonic() > end or not unshown:
                return
            # Without flags a lane has one parting to show, and has shown it.
            if not comparison.flags and lane.name not in unshown:
                continue
            seeds_of_it = range(start, start + BATCH_TRACES)
            traces = compared(left, right, (lane.trace(seed, release) for seed in seeds_of_it))
            differences = comparison.of(traces)
            outcome.traces += len(traces)
            outcome.lanes |= {lane.name} if traces else set()
            outcome.apart += sum(difference is not None for difference in differences)
            tell(outcome)
            for trace, difference in zip(traces, differences, strict=True):
                if difference is None or time.monotonic() > end:
                    continue
                explained = comparison.explanation(trace, difference)
                if new := (explained or {lane.name}) & unshown:
                    flag = min(new) if explained else None
                    parting = comparison.smallest(lane, trace, flag, end)
                    unshown -= parting.flags or {lane.name}
                    outcome.partings.append(parting)


class Comparison:
    """Two targets side by side. `flags` are those that they do not share, where both are modelled
    releases. A reference beside another target is compared on the traces that it models alone."""

    def __init__(self, left: Target, right: Target) -> None:
        self.left, self.right = left, right
        self._model = _model(left, right)
        self._shown = _everything if left.protocol == right.protocol else _decisions
        ours, theirs = _semantics(left), _semantics(right)
        self._changed: dict[str, ReferenceTarget] = {}
        if ours is not None and theirs is not None:
            self._reference = ReferenceTarget(ours)
            self._changed = {
                flag: ReferenceTarget(ours.changed({flag: value}))
                for flag, value in theirs.flags.items()
                if ours.flags[flag] != value
            }

    @property
    def flags(self) -> frozenset[str]:
        return frozenset(self._changed)

    def of(self, traces: list[Trace]) -> list[Difference | None]:
        runs = zip(traces, self.left.run(traces), self.right.run(traces), strict=True)
        return [self.compare(*run) for run in runs]

    def explanation(
        self, trace: Trace, difference: Difference, among: Collection[str] | None = None
    ) -> frozenset[str]:
        """The flags, of all or `among` these, each of which alone makes the reference part from
        itself where the targets part."""
        if trace.depth == "media_hash" or not self._changed or not self._reference.compares(trace):
            return frozenset()
        (ours,) = self._reference.run([trace])
        return frozenset(
            flag
            for flag in (self._changed if among is None else among)
            if self._parts_at(ours, trace, flag) == difference.event
        )

    def smallest(
        self, lane: Lane, trace: Trace, flag: str | None, until: float = math.inf
    ) -> ExplainedParting:
        """The smallest trace found, until that moment of the monotonic clock, on which the targets
        part as the flag explains; where it is None, as no flag explains."""

        among = None if flag is None else (flag,)

        def still(candidates: list[Trace]) -> list[bool]:
            return [
                difference is not None
                and bool(self.explanation(candidate, difference, among)) == (flag is not None)
                for candidate, difference in zip(candidates, self.of(candidates), strict=True)
            ]

        small = shrink(trace, still, until=until).trace
        (difference,) = self.of([small])
        assert difference is not None
        return ExplainedParting(lane.name, small, difference, self.explanation(small, difference))

    def _parts_at(self, ours: TraceResult, trace: Trace, flag: str) -> int | None:
        changed = self._changed[flag]
        if not changed.compares(trace):
            return None
        difference = self.compare(trace, ours, changed.run([trace])[0])
        return None if difference is None else difference.event

    def compare(self, trace: Trace, ours: TraceResult, theirs: TraceResult) -> Difference | None:
        """Where the results of one trace part. A trace that a target refuses or the reference does
        not model is no difference, nor are fields that are a target's own."""
        is_modelled = self._model is None or self._model.compares(trace)
        if ours.illegal or theirs.illegal or not is_modelled:
            return None
        its_own = frozenset() if self._model is None else DEPTHS[trace.depth].its_own
        return compare(self._shown(ours), self._shown(theirs), its_own)


def compared(left: Target, right: Target, traces: Iterable[Trace]) -> list[Trace]:
    """The traces that can tell two targets apart: where one of them alone is a reference, those
    that it models."""
    model = _model(left, right)
    return [trace for trace in traces if model is None or model.compares(trace)]


def _model(left: Target, right: Target) -> ReferenceTarget | None:
    """The reference, where exactly one of the two targets is one; else None."""
    references = [one for one in (left, right) if isinstance(one, ReferenceTarget)]
    return references[0] if len(references) == 1 else None


def _semantics(target: Target) -> Semantics | None:
    """Semantics of the release that a target is; None where it is none, or not modelled."""
    if isinstance(target, ReferenceTarget):
        return target.semantics
    try:
        return None if target.model is None else Semantics.of_vllm(target.model)
    except NotModelled:
        return None


def older_release(left: Target, right: Target) -> str | None:
    """The older release: what it offers, the other offers too."""
    releases = [target.model for target in (left, right) if target.model is not None]
    return min(releases, key=release_key, default=None)


def _everything(result: TraceResult) -> TraceResult:
    return result


def _decisions(result: TraceResult) -> TraceResult:
    """The part that engine and worker see: outcomes, exceptions and notices. Schedulers that call
    their managers differently make other calls even where their decisions are identical."""
    return TraceResult(
        [
            StepRecord(
                one.outcome,
                [call._replace(delta=None) for call in one.calls if call.operation == "notices"],
                one.raised,
                None,
            )
            for one in result.records
        ]
    )
