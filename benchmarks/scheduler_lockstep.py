"""Steps per second: a release alone, in lockstep and judged, and the reference judged.

    .venv/bin/python benchmarks/scheduler_lockstep.py --release 0.33.0 --rounds 5

All lanes of scheduler depth, the same traces. Alone, the release's scheduler runs them on one core
under the driver that plays its engine, without recorder, records and pipe. In lockstep traces are
generated, run on both sides, compared at every step, and every contract is judged, by a worker for
each core. The reference judged runs and judges in one process.
"""

import json
import os
import platform
import sys
import time
from contextlib import suppress
from typing import Any

import beside

SEEDS = range(100)


class Measured:
    """A release, and the reference as that release, on the same traces."""

    def __init__(self, release: str) -> None:
        from all_cores import LockstepOnAllCores

        from cacheproof.differential.lanes.all_lanes import LANES
        from cacheproof.differential.targets.resolve import resolve

        self._release = release
        self._lanes = [
            lane
            for lane in LANES.values()
            if lane.depth == "scheduler" and lane.is_offered_by(release)
        ]
        target = resolve(f"vllm@{release}", report=print)
        self._lockstep = LockstepOnAllCores(target, self._lanes, SEEDS)

    def alone(self) -> float:
        """Steps of the release per CPU second."""
        import msgspec

        traces = [lane.trace(seed, self._release) for lane in self._lanes for seed in SEEDS]
        ((steps, seconds),) = beside.run(__file__, self._release, given=msgspec.to_builtins(traces))
        return float(steps / seconds)

    def in_lockstep(self) -> float:
        """Steps of both per second of wall time."""
        outcome = self._lockstep.round()
        return sum(report.steps for report in outcome.lanes) / outcome.seconds

    def judged(self) -> float:
        """Steps of the reference per second, under every contract."""
        from cacheproof.differential.search.seeded import search
        from cacheproof.differential.targets.reference import ReferenceTarget

        outcome = search(ReferenceTarget(), self._lanes, against=None, seeds=SEEDS)
        assert not outcome.broken, outcome.broken
        return sum(report.steps for report in outcome.lanes) / outcome.seconds

    def close(self) -> None:
        self._lockstep.close()


def inside(traces: list[Any]) -> None:
    """Runs in the release's interpreter: prints its steps, and the CPU seconds that they took."""
    beside.make_importable()
    from host import release, session
    from host.protocol import Illegal
    from host.scheduler import scheduler as scheduler_depth
    from host.scheduler import session as scheduler_session
    from vllm.v1.core import encoder_cache_manager

    session.calm_collector()
    steps = 0
    started = time.process_time()
    for trace in traces:
        manager = getattr(encoder_cache_manager, release.CLASSES[trace["header"]["manager"]])
        with suppress(Illegal):
            kit = scheduler_depth.build(trace, lambda size, make=manager: make(cache_size=size))
            beside.unrecorded(kit.recorder.manager)
            driver = scheduler_session.SchedulerSession(kit, trace["header"]["config"])
            for event in trace["events"]:
                try:
                    driver.apply(event)
                except Illegal:
                    raise
                except Exception:
                    break  # a fault of the release: its lockstep ends there as well
                steps += event["event"] == "schedule"
    print(json.dumps([steps, time.process_time() - started]), flush=True)


def main() -> None:
    from cacheproof.differential.targets.host.session import calm_collector

    options = beside.options(__doc__)
    calm_collector()
    measured = Measured(options.release)
    measures = {
        f"vllm@{options.release} alone": measured.alone,
        f"lockstep with vllm@{options.release}, judged": measured.in_lockstep,
        "reference, judged": measured.judged,
    }
    rates: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(options.rounds):
        for name, measure in measures.items():
            rates[name].append(measure())
    measured.close()
    alone, *_ = rates.values()
    print(f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
          f"median (least to most) of {options.rounds} rounds\n")  # fmt: skip
    print("| what | steps a second | of the release alone |\n|---|---|---|")
    for name, of in rates.items():
        shares = beside.ratios(of, alone)
        print(f"| {name} | {beside.spread(of, digits=0)} | {beside.spread(shares)} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(json.load(sys.stdin))
    else:
        main()
