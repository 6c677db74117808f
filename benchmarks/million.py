"""One million operations of the reference in lockstep with a release: no difference is left.

Takes the manager-depth lanes in turn, from seed 0 on, until every release has had its number.
"""

import argparse
import itertools
import platform

from cacheproof.differential.campaign import LANES, search
from cacheproof.differential.examine import LOCKSTEP
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.resolve import reference_for, resolve

OPERATIONS = 1_000_000
RELEASES = ("0.18.1", "0.28.0", "0.33.0")
SEEDS_AT_A_TIME = 500
MANAGER_LANES = [lane for lane in LANES.values() if lane.depth == "manager"]


def compare(version: str, operations: int) -> int:
    """Print what became of one release; returns the number of traces that differ."""
    target = resolve(f"vllm@{version}", report=print)
    reference = reference_for(target)
    assert reference is not None, f"the reference does not model vLLM {version}"
    calls = differences = traces = seeds = 0
    seconds = 0.0
    for first in itertools.count(0, SEEDS_AT_A_TIME):
        if calls >= operations:
            break
        seeds = first + SEEDS_AT_A_TIME
        campaign = search(target, MANAGER_LANES, against=reference, seeds=range(first, seeds))
        if campaign.harness_errors:
            raise SystemExit(f"VOID: {campaign.harness_errors[0]}")
        calls += campaign.calls
        seconds += campaign.seconds
        traces += sum(report.traces for report in campaign.lanes)
        differences += sum(campaign.broken[LOCKSTEP, lane.name] for lane in MANAGER_LANES)
        for found in campaign.breaks:
            if found.contract == LOCKSTEP:
                print(f"{found.lane.name}, seed {found.trace.header.seed}: {found.sentence}")
    target.close()
    print(
        f"| {version} | {calls:,} | 0 to {seeds - 1:,} | {traces:,} | {differences} | "
        f"{seconds:.0f} |",
        flush=True,
    )
    return differences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", action="append", help=f"default: {', '.join(RELEASES)}")
    parser.add_argument("--operations", type=int, default=OPERATIONS)
    options = parser.parse_args()
    calm_collector()
    lanes = ", ".join(lane.name for lane in MANAGER_LANES)
    print(f"Python {platform.python_version()}; lanes: {lanes}")
    print("| release | operations | seeds of each lane | traces | differences | seconds |")
    print("|---|---|---|---|---|---|")
    if sum([compare(version, options.operations) for version in options.release or RELEASES]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
