"""What a search spends its processor time on: judging, telling causes apart, planting faults,
writing down.

    .venv/bin/python benchmarks/search_parts.py [--release 0.33.0] [--seeds 60]

One worker does what `check` has it do: seeds of all lanes that this machine has programs for, all
planted faults, and of each listed fault and contract the first break as it is. It is its own
processor time and its hosts', in seconds; what they import is counted apart.
"""

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from worker_memory import below

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search import attribution, work
from cacheproof.differential.search.canary import plantings_in_turns
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.noting import Noting
from cacheproof.differential.search.seeded import SearchOutcome
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.resolve import resolve
from cacheproof.reference.releases import NEWEST

PART_SEEDS = 20
Given = ParamSpec("Given")
Answered = TypeVar("Answered")


class Spending:
    """Processor seconds of this process and of those below it, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._within: list[float] = []

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """What is done in a block; a block within another counts for itself alone."""
        began = spent()
        self._within.append(0.0)
        yield
        took = spent() - began
        self.seconds[what] += took - self._within.pop()
        if self._within:
            self._within[-1] += took

    def of(self, what: str, run: Callable[Given, Answered]) -> Callable[Given, Answered]:
        """A function whose calls are counted as that."""

        def counted(*arguments: Given.args, **by_name: Given.kwargs) -> Answered:
            with self.on(what):
                return run(*arguments, **by_name)

        return counted


def spent() -> float:
    """Seconds until now."""
    return time.process_time() + sum(used(one, reaped=True) for one in below(os.getpid())[1:])


def used(process: int, *, reaped: bool = False) -> float:
    """Processor seconds of a process, with those of its `reaped` children or without; 0 of one that
    has ended."""
    try:
        _, _, fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")
    except OSError:
        return 0.0
    ticks = fields.split()[11 : 15 if reaped else 13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--release", default=NEWEST)
    parser.add_argument("--seeds", type=int, default=60)
    options = parser.parse_args()
    calm_collector()
    spending, known = Spending(), load()
    attribution.Attribution.of = spending.of(  # type: ignore[method-assign]
        "telling causes apart", attribution.Attribution.of
    )
    with closing(resolve(f"vllm@{options.release}", report=print)) as target:
        elsewhere = target.another()
        with spending.on("imports"):
            worker = work.SearchWorker.of(target, elsewhere, known, with_reference=True)
            assert target.protocol
        with closing(worker):
            lanes = [
                lane
                for lane in LANES.values()
                if lane.is_offered_by(target.model, target.projects)
                and target.runs_depth(lane.depth)
                and lane.lacks is None
            ]
            whole = SearchOutcome.begun(target.name, target.release, lanes, compared=True)
            noting = Noting(known, shrinks_listed=False)
            for lane in lanes:
                for first in range(0, options.seeds, PART_SEEDS):
                    seeds = range(first, min(first + PART_SEEDS, options.seeds))
                    with spending.on("seeds"):
                        part = work.SearchTask(lane, seeds, kept_per_break=1).run(worker)
                    for noted in noting.merge(whole, part, 0.0, 1):
                        with spending.on("writing down"):
                            noted.job().run(worker)
            for lane, some in plantings_in_turns(lanes, target):
                with spending.on("planted faults"):
                    work.Plant(lane, some).run(worker)
    traces = sum(one.traces for one in whole.lanes)
    print(f"{target.name}: {traces:,} traces, {whole.calls:,} calls judged\n")
    print("| part | seconds | share without imports |\n|---|--:|--:|")
    of_all = sum(spending.seconds.values()) - spending.seconds["imports"]
    for what, seconds in sorted(spending.seconds.items(), key=lambda one: -one[1]):
        share = "" if what == "imports" else f"{seconds / of_all:.2f}"
        print(f"| {what} | {seconds:.1f} | {share} |")


if __name__ == "__main__":
    main()
