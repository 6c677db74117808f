"""Whether lanes that still meet something new should get more of a search.

    .venv/bin/python benchmarks/guided_lanes.py --bases 0:3

A search deals its seeds to all lanes in turn. Here the lanes' traces are run on the reference once,
and what each one costs and meets is written down. Then two orders of the same traces are compared:
in turn, and by yield. A fault is found when its lane has come to the trace that guided.jsonl names,
so this runs no fault. What comes of it is appended to guided_lanes.jsonl.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
from guided_choices import as_today, pairs_met
from guided_faults import IDEAL
from guided_ratios import outcomes, span

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.session import calm_collector

OUTCOMES = Path(__file__).parent / "guided_lanes.jsonl"
DEPTHS = ("manager", "scheduler", "kv_cache", "block_hash")
TRACES = 250
BATCH = 5
EVEN_SHARE = 0.3
"""Of the cost that is dealt to all lanes alike, whatever they yield."""
LOOKS_BACK = 40
"""Traces of a lane by which its yield is told."""


@dataclass(frozen=True)
class Step:
    """What a trace costs, and how much it meets that none of its lane met before it."""

    events: int
    microseconds: float
    news: int


class LaneOutcome(msgspec.Struct, frozen=True):
    """What a search of all lanes had spent when a fault was found."""

    order: str
    lane: str
    fault: str
    base: int
    events: int
    microseconds: float


def steps_of(lane: str, base: int, traces: int = TRACES) -> list[Step]:
    """The first traces of a lane, run and judged on the reference."""
    met: set[str] = set()
    steps = []
    for trace in islice(as_today(lane, base), traces):
        started = time.process_time()
        reach = Reachability()
        examine(trace, IDEAL.run([trace])[0], IDEAL, None, reach)
        spent = 1e6 * (time.process_time() - started)
        here = pairs_met(reach)
        steps.append(Step(len(trace.events), spent, len(here - met)))
        met |= here
    return steps


def in_turn(lanes: Mapping[str, Sequence[Step]]) -> Iterator[str]:
    """Every lane a batch, again and again."""
    while True:
        yield from lanes


def by_yield(lanes: Mapping[str, Sequence[Step]]) -> Iterator[str]:
    """Every lane a batch, then the lane that is furthest behind its share. Shares go by what was
    met anew for the cost of the last traces, a part of them to all alike."""
    done = dict.fromkeys(lanes, BATCH)
    owed = dict.fromkeys(lanes, 0.0)
    yield from lanes
    while True:
        yields = {}
        for lane, steps in lanes.items():
            last = steps[max(0, done[lane] - LOOKS_BACK) : done[lane]] or steps[-LOOKS_BACK:]
            news = sum(step.news for step in last) if done[lane] <= len(steps) else 0
            yields[lane] = (1 + news) / sum(step.microseconds for step in last)
        whole = sum(yields.values())
        chosen = max(lanes, key=lambda lane: owed[lane])
        spent = sum(step.microseconds for step in batch_of(lanes[chosen], done[chosen]))
        for lane in lanes:
            share = EVEN_SHARE / len(lanes) + (1 - EVEN_SHARE) * yields[lane] / whole
            owed[lane] += share * spent
        owed[chosen] -= spent
        done[chosen] += BATCH
        yield chosen


def batch_of(steps: Sequence[Step], first: int) -> list[Step]:
    """The next traces of a lane; beyond those that were run, they cost as the first did."""
    return [steps[number % len(steps)] for number in range(first, first + BATCH)]


ORDERS = {"in turn": in_turn, "by yield": by_yield}


def spent_until(
    order: str, lanes: Mapping[str, Sequence[Step]], firsts: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, int, int, float]]:
    """When an order has come to each of some traces (`firsts`, from 1 on, by lane): the lane, the
    trace, and events and microseconds by then."""
    events, microseconds = 0, 0.0
    done = dict.fromkeys(lanes, 0)
    left = {(lane, first) for lane, some in firsts.items() for first in some}
    for lane in ORDERS[order](lanes):
        for step in batch_of(lanes[lane], done[lane]):
            events, microseconds = events + step.events, microseconds + step.microseconds
            done[lane] += 1
            if (lane, done[lane]) in left:
                left.remove((lane, done[lane]))
                yield lane, done[lane], events, microseconds
        if not left:
            return


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bases", type=span, default="0:3", help="A:B; default: %(default)s")
    calm_collector()
    for base in parser.parse_args().bases:
        lanes = {name: steps_of(name, base) for name, lane in LANES.items() if lane.depth in DEPTHS}
        found = [
            one
            for one in outcomes()
            if (one.way, one.base) == ("today", base) and one.first is not None
        ]
        firsts: dict[str, list[int]] = {}
        for one in found:
            firsts.setdefault(one.lane, []).append(one.first or 0)
        for order in ORDERS:
            reached = {at[:2]: at[2:] for at in spent_until(order, lanes, firsts)}
            with OUTCOMES.open("ab") as file:
                for one in found:
                    spent = reached[one.lane, one.first or 0]
                    line = LaneOutcome(order, one.lane, one.fault, base, *spent)
                    file.write(msgspec.json.encode(line) + b"\n")


if __name__ == "__main__":
    main()
