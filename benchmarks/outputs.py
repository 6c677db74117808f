"""What a real engine and the runner answer to the same workloads: every token held side by side.

A workload is an engine-depth trace: a handful of requests under one configuration. Prints what was
compared and how far apart it was at most; exits with 1 where anything differs. With `--all` it does
so for every engine and model, and prints a table.
"""

import argparse
import platform
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

from cacheproof.differential.generators.asked import Asked
from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges import lockstep
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.outputs import is_tie
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import FIRST_WITH_SECOND
from cacheproof.differential.provision import sources
from cacheproof.differential.provision.versions import order
from cacheproof.differential.targets.both_runners import EngineTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.engine import EngineConfig, EngineModel
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import ModelRunner

WORKLOADS = 1000
AT_A_TIME = 10
MODELS: tuple[EngineModel, ...] = get_args(EngineModel)
ASKED: tuple[Asked, ...] = get_args(Asked)
RUNNERS: tuple[ModelRunner, ...] = get_args(ModelRunner)
COLUMNS = (
    *("engine", "model", "workloads", "of which refused", "of which differ"),
    *("steps", "tokens", "of which equal"),
    *("log probabilities at most apart", "workloads that break a contract"),
)
Differences = list[tuple[int, str]]
"""Each workload that differs, by its seed."""


@dataclass
class Tally:
    """What was compared: counts, and the farthest apart that two numbers were."""

    counts: Counter[str] = field(default_factory=Counter)
    logprob_apart: float = 0.0
    lead_apart: float = 0.0
    smallest_lead: float = float("inf")
    memory_share: float = 0.0
    broken: Counter[str] = field(default_factory=Counter)
    broken_here: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """What the engine refused workloads for, and how many: these are not compared."""

    def add(self, ours: TraceResult, theirs: TraceResult) -> None:
        """Count one workload's records, the runner's and the engine's."""
        self.counts["workloads"] += 1
        capacity = theirs.capacity or 0
        for (one, *_), (other, *_) in zip(ours.records, theirs.records, strict=True):
            if not isinstance(one, dict) or not isinstance(other, dict):
                continue
            self.counts["steps"] += "scheduled" in other
            drafts = sum(other.get("drafts", {}).values())
            self.counts["drafts"] += drafts
            self.counts["preemptions"] += len(other.get("preempted", ()))
            self.counts["evictions"] += len(other.get("notices", ()))
            self.counts["items encoded"] += sum(map(len, other.get("encode", {}).values()))
            for kind, read in one.get("origins", {}).items():
                self.counts[f"{kind} whose origin was looked at"] += read["read"]
            memory = one.get("memory")
            if memory and memory["bytes_of_row"]:
                share = memory["bytes_held"] / (capacity * memory["bytes_of_row"])
                self.memory_share = max(self.memory_share, share)
            answered = list(_pairs(one.get("outputs", {}), other.get("outputs", {})))
            for mine, their in answered:
                self.counts["tokens"] += 1
                self.counts["ties"] += is_tie(mine) or is_tie(their)
                self.counts["equal tokens"] += mine[0] == their[0]
                self.logprob_apart = max(self.logprob_apart, abs(mine[1] - their[1]))
                self.lead_apart = max(self.lead_apart, abs(mine[2] - their[2]))
                self.smallest_lead = min(self.smallest_lead, mine[2])
            if any(mine[0] != their[0] for mine, their in answered):
                self.counts["workloads that part where rounding decided"] += 1
                return  # two texts are decoded from here on, which nothing compares


def _pairs(one: Any, other: Any) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    for request in one.keys() & other.keys():
        yield from zip(one[request], other[request], strict=True)


def compare(
    engine: EngineTarget,
    runner: ReferenceTarget,
    model: EngineModel,
    seeds: range,
    *,
    ahead: bool = False,
    asked: Asked | None = None,
    under: ModelRunner = "first",
) -> tuple[Tally, Differences]:
    """The tally, and each workload that differs, `under` a model runner of the engine."""
    tally, differences = Tally(), []
    for first in range(seeds.start, seeds.stop, AT_A_TIME):
        numbers = range(first, min(first + AT_A_TIME, seeds.stop))
        traces = [
            engine_trace(seed, model, ahead=ahead, asked=asked).under_runner(under)
            for seed in numbers
        ]
        engine.submit(traces)
        ours = runner.run(traces)
        for seed, trace, mine, theirs in zip(
            numbers, traces, ours, engine.collect(len(traces)), strict=True
        ):
            if mine.illegal is not None:
                raise SystemExit(f"the runner refuses seed {seed}: {mine.illegal}")
            if theirs.illegal is not None:
                tally.refused[theirs.illegal] += 1
                continue
            tally.broken.update(list(examine(trace, theirs, engine).violations))
            tally.broken_here.update(list(examine(trace, mine, runner).violations))
            difference = lockstep.compare(mine, theirs)
            ended = theirs.records[-1].raised
            if difference is not None or ended is not None:
                said = f"ends the engine: {ended}" if difference is None else difference.sentence
                differences.append((seed, said))
                continue
            tally.add(mine, theirs)
    return tally, differences


def pair_of(name: str) -> tuple[EngineTarget, ReferenceTarget]:
    """An engine, and the runner beside it."""
    engine = resolve(name, report=print)
    if not isinstance(engine, EngineTarget):
        raise SystemExit(f"{name} is no engine")
    runner = reference_for(engine)
    if runner is None:
        raise SystemExit(f"the reference does not model {name}")
    return engine, runner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="engine@0.32.0")
    parser.add_argument("--first", type=int, default=0, help="seed of the first workload")
    parser.add_argument("--workloads", type=int, default=WORKLOADS)
    parser.add_argument("--model", choices=MODELS, default="llava")
    parser.add_argument("--ahead", action="store_true", help="two steps in flight, and drafts")
    parser.add_argument("--asked", choices=ASKED, help="what requests ask for beside their prompt")
    parser.add_argument("--all", action="store_true", help="every engine and model, in a table")
    parser.add_argument("--runner", choices=RUNNERS, default="first", help="the engine's")
    options = parser.parse_args()
    differs = every_engine(options) if options.all else one_engine(options)
    if differs:
        raise SystemExit(1)


def every_engine(options: Namespace) -> bool:
    """Prints a row for each engine and model; whether anything differs."""
    seeds = range(options.first, options.first + options.workloads)
    notes = []
    print(f"Python {platform.python_version()}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for version in reversed(sources.engines()):
        engine, runner = pair_of(f"engine@{version}")
        for model in offered(
            version, ahead=options.ahead, asked=options.asked, under=options.runner
        ):
            tally, differences = compare(
                engine,
                runner,
                model,
                seeds,
                ahead=options.ahead,
                asked=options.asked,
                under=options.runner,
            )
            print(f"| {' | '.join(row(version, model, tally, differences))} |", flush=True)
            notes += [f"{version}, {model}, seed {seed}: {said}" for seed, said in differences]
        engine.close()
        runner.close()
    for note in notes:
        print(note)
    return bool(notes)


def offered(
    version: str, *, ahead: bool, asked: Asked | None, under: ModelRunner = "first"
) -> tuple[EngineModel, ...]:
    """Models that an engine of that release is searched with, in lanes with steps ahead or not, of
    requests that ask for that beside their prompt, and under that model runner."""
    models: dict[EngineModel, None] = {}
    if under == "second" and order(version) < order(FIRST_WITH_SECOND):
        return ()
    for lane in (one.under(under) for one in LANES.values()):
        if lane.depth == "engine" and lane.has_runner and lane.is_offered_by(version):
            assert isinstance(lane.make, partial)
            drawn = lane.make.keywords
            config = lane.make(0).header.config
            assert isinstance(config, EngineConfig)
            is_this = (drawn.get("ahead", False), drawn.get("asked")) == (ahead, asked)
            if is_this and not config.video_pruning_rate:
                models[config.model] = None
    return tuple(models)


def row(version: str, model: str, tally: Tally, differences: Differences) -> Iterator[str]:
    """The cells of what was compared of an engine and a model."""
    counts = tally.counts
    yield version
    yield model
    refused = tally.refused.total()
    yield f"{counts['workloads'] + refused + len(differences):,}"
    yield f"{refused:,}"
    yield f"{len(differences):,}"
    for name in ("steps", "tokens", "equal tokens"):
        yield f"{counts[name]:,}"
    yield f"{tally.logprob_apart:.1e}"
    yield ", ".join(f"{name} {count}" for name, count in sorted(tally.broken.items())) or "none"


def one_engine(options: Namespace) -> bool:
    """Prints all that is known of one engine and model; whether anything differs."""
    engine, runner = pair_of(options.target)
    begun = time.perf_counter()
    seeds = range(options.first, options.first + options.workloads)
    tally, differences = compare(
        engine,
        runner,
        options.model,
        seeds,
        ahead=options.ahead,
        asked=options.asked,
        under=options.runner,
    )
    seconds = time.perf_counter() - begun
    engine.close()
    runner.close()
    print(
        f"Python {platform.python_version()}, {options.target}, {options.runner} runner, "
        f"{options.model}, {seconds:.0f} s"
    )
    for name, count in tally.counts.items():
        print(f"{name}: {count:,}")
    print(f"farthest apart: log probability {tally.logprob_apart:.1e}, lead {tally.lead_apart:.1e}")
    print(f"smallest lead: {tally.smallest_lead:.1e}")
    print(f"most of the encoder store's capacity in memory, runner: {tally.memory_share:.0%}")
    print(f"workloads that break a contract on the engine: {dict(tally.broken) or 'none'}")
    print(f"on the runner: {dict(tally.broken_here) or 'none'}")
    for seed, sentence in differences:
        print(f"seed {seed}: {sentence}")
    for refusal, count in tally.refused.items():
        print(f"not compared, as the engine refuses it: {count} ({refusal})")
    return bool(differences)


if __name__ == "__main__":
    main()
