"""Every transition of the schedulers' small scopes on a release, beside the reference.

The reference with the release's decisions is explored, and the release then runs a shortest trace
for each transition, from its start; whatever it does otherwise is a difference.
"""

import argparse
import time
from collections import Counter
from itertools import islice

from cacheproof.differential.judges.examination import LOCKSTEP, examine
from cacheproof.differential.search.explore.scheduler_scopes import LARGE, SMALL
from cacheproof.differential.search.explore.search import traces_of
from cacheproof.differential.targets.resolve import reference_for, resolve

BATCH = 200
SCOPES = {scope.name: scope for scope in (*SMALL, *LARGE)}


def compare(name: str, scopes: list[str]) -> int:
    """Print what became of each scope; returns the number of traces that differ."""
    target = resolve(name, report=print)
    reference = reference_for(target)
    if reference is None:
        raise SystemExit(f"{name} is no release that the reference models")
    differences = 0
    for scope in scopes:
        started = time.monotonic()
        traces = traces_of(reference, SCOPES[scope])
        steps = count = 0
        broken: Counter[str] = Counter()
        while batch := list(islice(traces, BATCH)):
            for trace, result in zip(batch, target.run(batch), strict=True):
                if result.illegal is not None:
                    raise SystemExit(f"VOID: {scope}: {result.illegal}")
                examination = examine(trace, result, target, reference)
                if examination.difference is not None:
                    print(f"{scope}: {examination.difference.sentence}")
                broken.update(examination.broken)
            count += len(batch)
            steps += sum(len(trace.events) for trace in batch)
        differences += broken[LOCKSTEP]
        contracts = ", ".join(sorted(broken.keys() - {LOCKSTEP})) or "none"
        print(
            f"| {name} | {scope} | {count:,} | {steps:,} | {broken[LOCKSTEP]} | {contracts} | "
            f"{time.monotonic() - started:.0f} |",
            flush=True,
        )
    target.close()
    return differences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", required=True)
    parser.add_argument("--scope", action="append", choices=SCOPES)
    arguments = parser.parse_args()
    scopes = arguments.scope or [scope.name for scope in SMALL]
    print("| target | scope | transitions | events | differences | contracts broken | seconds |")
    print("|---|---|--:|--:|--:|---|--:|")
    if sum([compare(target, scopes) for target in arguments.target]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
