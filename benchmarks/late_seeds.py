"""The seeds that show a planted fault late, in the releases that are searched by default.

    .venv/bin/python benchmarks/late_seeds.py

writes differential/search/late_seeds.toml: a search that plants a fault tries them first. A fault
that one of the first few seeds shows is left out.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.canary import (
    CANARY_TRACES,
    LATE_SEEDS,
    Canary,
    Planting,
    canaries_in,
)
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.resolve import resolve
from cacheproof.output.console import CommandOutput
from cacheproof.reference.releases import SEARCHED
from cacheproof.search.lane_choice import lanes_for

FEW = 2
"""Seeds that are no worse than to look one up."""
Seeds = dict[str, dict[str, list[int]]]


def late(lane: Lane, target: Target) -> Iterator[tuple[Canary, int]]:
    """The canaries of a lane whose first seed that shows them is a late one, with that seed."""
    plantings = [
        Planting(target, [lane.trace(seed, target.model)]) for seed in range(CANARY_TRACES)
    ]
    for canary in canaries_in(lane, target):
        found = (seed for seed, planting in enumerate(plantings) if planting.finds(canary))
        if (first := next(found, 0)) >= FEW:
            yield canary, first


def all_late() -> Seeds:
    """Lane -> canary -> its late seeds."""
    seeds: Seeds = defaultdict(dict)
    for release in SEARCHED:
        with closing(resolve(f"vllm@{release}", report=print)) as target:
            for lane in lanes_for(list(LANES.values()), target, CommandOutput(None)):
                for canary, seed in late(lane, target):
                    own = seeds[lane.name].setdefault(canary.name, [])
                    own += [seed] * (seed not in own)
    return seeds


def as_toml(seeds: Seeds) -> str:
    """The table as it is kept."""
    lines = []
    for lane in sorted(seeds):
        lines += ["", f"[{json.dumps(lane)}]"]
        lines += [f"{json.dumps(name)} = {own}" for name, own in sorted(seeds[lane].items())]
    return "\n".join(["# benchmarks/late_seeds.py writes this.", *lines, ""])


if __name__ == "__main__":
    LATE_SEEDS.write_text(as_toml(all_late()))
