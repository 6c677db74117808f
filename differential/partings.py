"""Where two targets part: the same traces on both, the first difference of each lane made small."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cacheproof.differential.campaign import BATCH_TRACES, Lane
from cacheproof.differential.lockstep import Difference, compare
from cacheproof.differential.record import TraceResult
from cacheproof.differential.shrink import shrink
from cacheproof.differential.targets.base import Target
from cacheproof.differential.trace import Trace


@dataclass
class Partings:
    """How many traces ran on both, and per lane the smallest trace found that tells them apart."""

    traces: int = 0
    partings: dict[str, tuple[Trace, Difference]] = field(default_factory=dict)


def first_partings(
    left: Target,
    right: Target,
    lanes: Sequence[Lane],
    seconds: float,
    advance: Callable[[int], None] = lambda count: None,
) -> Partings:
    """Run seeds 0, 1, ... of every lane for about `seconds`; a lane ends at its first difference.

    A trace that one of the targets refuses is no difference. Raises HarnessError when one broke.
    """
    outcome = Partings()
    end = time.monotonic() + seconds
    for start in itertools.count(0, BATCH_TRACES):
        for lane in lanes:
            if time.monotonic() > end:
                return outcome
            if lane.name in outcome.partings:
                continue
            traces = [lane.make(seed) for seed in range(start, start + BATCH_TRACES)]
            differences = _differences(left, right, traces)
            outcome.traces += len(traces)
            advance(len(traces))
            for trace, difference in zip(traces, differences, strict=True):
                if difference is not None:
                    outcome.partings[lane.name] = _smallest(left, right, trace)
                    break
        if len(outcome.partings) == len(lanes):
            return outcome
    return outcome


def _differences(left: Target, right: Target, traces: list[Trace]) -> list[Difference | None]:
    shown = _everything if left.protocol == right.protocol else _decisions
    return [
        None if ours.illegal or theirs.illegal else compare(shown(ours), shown(theirs))
        for ours, theirs in zip(left.run(traces), right.run(traces), strict=True)
    ]


def _everything(result: TraceResult) -> TraceResult:
    return result


def _decisions(result: TraceResult) -> TraceResult:
    """What the engine and the worker see of it: outcomes, exceptions and notices. Schedulers that
    call their managers differently make other calls even where they decide alike."""
    return TraceResult(
        [
            (outcome, [(*call[:6], None) for call in calls if call[0] == "notices"], raised, None)
            for outcome, calls, raised, _ in result.records
        ]
    )


def _smallest(left: Target, right: Target, trace: Trace) -> tuple[Trace, Difference]:
    small = shrink(
        trace, lambda traces: [found is not None for found in _differences(left, right, traces)]
    )
    difference = _differences(left, right, [small])[0]
    assert difference is not None
    return small, difference
