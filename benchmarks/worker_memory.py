"""The most memory that a search takes: of all its processes, and of those that a worker adds.

    .venv/bin/python benchmarks/worker_memory.py --target vllm@0.33.0 --seconds 60
    .venv/bin/python benchmarks/worker_memory.py --target engine@0.32.0 --traces 300

Proportional set sizes, so that what processes share is counted once. The search is run with one
worker and with two; what the second adds is a worker with its host and the host for replays. With
`--traces` a host alone runs that many traces of each lane (or of those named by `--lane`), and what
it has after each tenth of them is printed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.resolve import resolve
from cacheproof.reference.releases import NEWEST

LOOK_SECONDS = 0.2
LOOKS = 10
COMMAND = Path(sys.executable).parent / "cacheproof"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=f"vllm@{NEWEST}")
    parser.add_argument("--seconds", default="60")
    parser.add_argument("--traces", type=int)
    parser.add_argument("--lane", action="append", choices=LANES, metavar="LANE", help="alone")
    options = parser.parse_args()
    if options.traces is not None:
        of_host(options.target, options.traces, options.lane or LANES)
        return
    one, two = (most(options.target, options.seconds, workers) for workers in (1, 2))
    print(f"{options.target}, MiB at most: {one} with one worker, {two} with two")


def of_host(name: str, traces: int, lanes: Iterable[str]) -> None:
    """Prints for each lane what a target's host has after each tenth of its traces."""
    target = resolve(name, report=print)
    each = max(traces // LOOKS, 1)
    for lane in map(LANES.__getitem__, lanes):
        if not target.runs_depth(lane.depth):
            continue
        had = []
        for first in range(0, each * LOOKS, each):
            target.run([lane.trace(seed, None) for seed in range(first, first + each)])
            had.append(sum(map(mib, below(os.getpid())[1:])))
        print(f"{name}, {lane.name}, MiB after each {each} traces: {' '.join(map(str, had))}")
    target.close()


def most(target: str, seconds: str, workers: int) -> int:
    """MiB that a search and all that it starts take at most."""
    with tempfile.TemporaryDirectory() as findings:
        words = "--target", target, "--seconds", seconds, "--workers", str(workers)
        search = subprocess.Popen(
            [COMMAND, "fuzz", *words, "--findings", findings],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        highest = 0
        while search.poll() is None:
            highest = max(highest, sum(map(mib, below(search.pid))))
            time.sleep(LOOK_SECONDS)
    return highest


def below(process: int) -> list[int]:
    """A process and all that descend from it."""
    found = [process]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue  # it has ended
    return found


def mib(process: int) -> int:
    """Its proportional set size; 0 of one that has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    kib = (line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(next(kib, 0)) // 1024


if __name__ == "__main__":
    main()
