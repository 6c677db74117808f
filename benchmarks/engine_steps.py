"""What a step of a real engine takes, in which every request decodes a token: under either runner.

    .venv/bin/python benchmarks/engine_steps.py --target engine@0.33.0

For each runner and number of requests two traces are timed, which differ in how many tokens are
decoded alone. Each round times both under both runners, one after the other. A step's time is the
difference, divided by the steps: with scheduling, sampling, log probabilities and the way through
the pipe, and without the start.
"""

import argparse
import platform
import statistics
import time
from contextlib import closing
from typing import get_args

from outputs import pair_of

from cacheproof.differential.generators.engine_steps import BLOCK_SIZE
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.traces.base import SCHEMA, Item
from cacheproof.differential.traces.engine import EngineConfig, EngineHeader
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.reference.releases import NEWEST

RUNNERS: tuple[ModelRunner, ...] = get_args(ModelRunner)
REQUESTS = (1, 2, 4)
FEW, MANY = 4, 44
"""Tokens that are decoded."""
PICTURE = 16
PROMPT = 24


def decoding(requests: int, tokens: int) -> Trace:
    """So many requests of a picture and eight tokens each, which decode in the same steps."""
    config = EngineConfig(
        capacity=requests * PICTURE,
        compute_budget=requests * PICTURE,
        max_num_batched_tokens=160,
        max_num_seqs=requests,
        max_model_len=96,
        block_size=BLOCK_SIZE,
        num_blocks=1 + 3 * requests,
        model="llava",
    )
    adds = [
        Add(f"r{number}", PROMPT, (Item(f"picture {number}", 0, PICTURE),), max_tokens=tokens)
        for number in range(requests)
    ]
    steps = [event for _ in range(tokens) for event in (Schedule(), Update())]
    return Trace(EngineHeader(SCHEMA, "encoder_cache", config), (*adds, *steps))


def seconds(target: HostTarget, trace: Trace) -> float:
    """How long the target takes for a trace, in which every step executes something."""
    begun = time.perf_counter()
    (result,) = target.run([trace])
    taken = time.perf_counter() - begun
    decoded = [one.outcome["outputs"] for one in result.records if "outputs" in (one.outcome or ())]
    requests = sum(isinstance(event, Add) for event in trace.events)
    if any(len(outputs) != requests for outputs in decoded) or not decoded:
        raise SystemExit(f"a step without {requests} requests: {result.illegal or decoded}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", default=f"engine@{NEWEST}")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    engine, reference = pair_of(options.target)
    reference.close()
    taken: dict[tuple[ModelRunner, int], list[float]] = {}
    with closing(engine):
        for number in range(1 + options.rounds):
            for requests in REQUESTS:
                for runner in RUNNERS:
                    few, many = (
                        seconds(engine, decoding(requests, tokens).under_runner(runner))
                        for tokens in (FEW, MANY)
                    )
                    if number:  # the first makes the engine
                        step = (many - few) / (MANY - FEW)
                        taken.setdefault((runner, requests), []).append(step)
    print(f"Python {platform.python_version()}, {options.target}, {options.rounds} rounds")
    print("\n| runner | requests | ms a step, median | least | most |\n|---|--:|--:|--:|--:|")
    for (runner, requests), steps in sorted(taken.items()):
        middle, least, most = statistics.median(steps), min(steps), max(steps)
        print(
            f"| {runner} | {requests} | {1e3 * middle:.1f} | {1e3 * least:.1f} | {1e3 * most:.1f} |"
        )


if __name__ == "__main__":
    main()
