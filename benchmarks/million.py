"""A million checked operations in lockstep with a release: no difference is left.

Takes the lanes of one depth in turn, from one seed on, until every target has had its number; with
`--runner` all traces of schedulers under that model runner. At block-hash depth an operation is a
pair of blocks of requests that are built to be nearly equal, at scheduler depth a step.
"""

import argparse
import itertools
import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from cacheproof.differential.judges.examination import LOCKSTEP
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.reference.releases import SEARCHED

OPERATIONS = 1_000_000
DEPTHS = sorted({lane.depth for lane in LANES.values()})
TARGETS = ("vllm@0.18.1", *(f"vllm@{release}" for release in reversed(SEARCHED)))
SEEDS_AT_A_TIME = 500


def under(runner: ModelRunner, lane: Lane) -> Lane:
    """The lane with all of its traces under that model runner."""
    make: Callable[..., Trace] = lane.make

    def made(*seed: Any, **further: Any) -> Trace:
        return make(*seed, **further).under_runner(runner)

    return replace(lane, make=made)


def compare(name: str, lanes: list[Lane], operations: int, first_seed: int) -> int:
    """Print what became of one target; returns the number of traces that are not as they should be:
    different in lockstep, or, of the ideal reference, breaking a contract."""
    target = resolve(name, report=print)
    reference = reference_for(target)
    if reference is None and not isinstance(target, ReferenceTarget):
        raise SystemExit(f"the reference does not model {name}")
    calls = differences = unexpected = traces = seeds = 0
    broken: set[str] = set()
    seconds = 0.0
    for first in itertools.count(first_seed, SEEDS_AT_A_TIME):
        if calls >= operations:
            break
        seeds = first + SEEDS_AT_A_TIME
        outcome = search(target, lanes, against=reference, seeds=range(first, seeds))
        if outcome.harness_errors:
            raise SystemExit(f"VOID: {outcome.harness_errors[0]}")
        calls += sum(one.steps or one.calls for one in outcome.lanes)
        seconds += outcome.seconds
        traces += sum(report.traces for report in outcome.lanes)
        differences += sum(outcome.broken[LOCKSTEP, lane.name] for lane in lanes)
        broken |= {contract for contract, _ in outcome.broken} - {LOCKSTEP}
        for found in outcome.breaks:
            if found.contract == LOCKSTEP or reference is None:
                print(f"{found.lane}, seed {found.trace.header.seed}: {found.sentence}")
        unexpected += sum(
            count
            for (contract, _), count in outcome.broken.items()
            if contract == LOCKSTEP or reference is None
        )
    target.close()
    if reference is not None:
        reference.close()
    print(
        f"| {name} | {calls:,} | {first_seed:,} to {seeds - 1:,} | {traces:,} | {differences} | "
        f"{', '.join(sorted(broken)) or 'none'} | {seconds:.0f} |",
        flush=True,
    )
    return unexpected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", choices=DEPTHS, default="manager")
    parser.add_argument("--target", action="append", help=f"default: {', '.join(TARGETS)}")
    parser.add_argument("--operations", type=int, default=OPERATIONS)
    parser.add_argument("--first", type=int, default=0, help="the first seed of each lane")
    parser.add_argument("--runner", choices=get_args(ModelRunner), help="default: as drawn")
    options = parser.parse_args()
    calm_collector()
    lanes = [lane for lane in LANES.values() if lane.depth == options.depth]
    if options.runner is not None:
        lanes = [under(options.runner, lane) for lane in lanes]
    print(f"Python {platform.python_version()}; lanes: {', '.join(lane.name for lane in lanes)}")
    print("| target | operations | seeds of each lane | traces | differences | broken | seconds |")
    print("|---|---|---|---|---|---|---|")
    names = options.target or TARGETS
    if sum([compare(name, lanes, options.operations, options.first) for name in names]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
