"""What changed from one release to the next, as the same traces on both show it.

    .venv/bin/python benchmarks/changelog.py --depth scheduler --seeds 400

For every two neighbouring releases: how many traces part, which change explains it, and how large
the smallest trace is that shows it. `cacheproof diff` prints those traces.
"""

import argparse
from collections.abc import Sequence
from itertools import pairwise

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.diff import ExplainedParting, Partings, find_partings
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.resolve import resolve
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import CHANGES

DEPTHS = sorted({lane.depth for lane in LANES.values()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", choices=DEPTHS, default="scheduler")
    parser.add_argument("--seeds", type=int, default=400, help="of each lane")
    parser.add_argument("--release", action="append", help=f"default: {', '.join(MODELLED)}")
    options = parser.parse_args()
    calm_collector()
    unexplained = 0
    for older, newer in pairwise(options.release or MODELLED):
        found = compare(older, newer, options.depth, options.seeds)
        unexplained += sum(not parting.flags for parting in found.partings)
        report(older, newer, found)
    print(f"Partings that no single change explains: {unexplained}")


def compare(older: str, newer: str, depth: str, seeds: int) -> Partings:
    """The two releases on the same traces, of what the older one offers."""
    left, right = (resolve(f"vllm@{release}", report=print) for release in (older, newer))
    lanes = [lane for lane in LANES.values() if lane.depth == depth and lane.is_offered_by(older)]
    try:
        return find_partings(left, right, lanes, seeds=seeds)
    finally:
        left.close()
        right.close()


def report(older: str, newer: str, found: Partings) -> None:
    """Print a section: a line for each change that the traces show."""
    print(f"## {older} to {newer}\n")
    print(f"{found.apart:,} of {found.traces:,} traces part.\n")
    if found.partings:
        print("| change | thread | events | lane |")
        print("|---|---|---|---|")
    for parting in found.partings:
        print(f"| {changes(parting)} | {len(parting.trace.events)} | {parting.lane} |")
    if found.partings:
        print(flush=True)


def changes(parting: ExplainedParting) -> str:
    """What explains it, and where that is told of."""
    said: Sequence[tuple[str, str]] = [
        (CHANGES[flag].sentence, CHANGES[flag].source) for flag in sorted(parting.flags)
    ] or [("none alone", "")]
    return " | ".join("; ".join(dict.fromkeys(column)) for column in zip(*said, strict=True))


if __name__ == "__main__":
    main()
