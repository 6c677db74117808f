"""How the price of a judged step grows: with running requests, KV blocks and the trace's length.

    .venv/bin/python benchmarks/growth.py [--release 0.33.0] [--rounds 3]

One trace for each row: so many requests decode at once, each with an image in its prompt, and are
followed by as many when they end. A release's scheduler runs it under its recorder, and the judging
process runs the reference beside it, compares each step and asks every contract. Both are timed in
processor time, with what a trace costs once. Each row is measured in a process of its own, which
has all records of its trace at once: MiB are the most that judge and host have had.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from scheduler import BLOCKS_OF_A_REQUEST, PROMPT_TOKENS, header_of
from search_parts import used

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.reference.releases import NEWEST

ANSWER_TOKENS = 100
STEPS = 1_000
ROWS = [
    *((running, running * BLOCKS_OF_A_REQUEST + 1_000, STEPS) for running in (2, 8, 64, 256)),
    (1_000, 17_000, STEPS // 10),
    *((8, blocks, STEPS) for blocks in (10_000, 100_000, 1_000_000)),
    *((8, 1_128, steps) for steps in (100, 10_000, 100_000)),
]
"""Running requests, KV blocks, and steps of the trace."""


def trace_of(running: int, blocks: int, steps: int) -> Trace:
    """So many steps, in which so many requests decode."""
    events: list[AnyEvent] = []
    for step in range(steps):
        if step % ANSWER_TOKENS == 0:
            events += [
                Add(
                    f"r{step} {number}",
                    PROMPT_TOKENS,
                    (Item(f"h{number}", 2, 8),),
                    max_tokens=ANSWER_TOKENS,
                )
                for number in range(running)
            ]
        events += [Schedule(), Update()]
    return Trace(header_of(running, blocks), tuple(events))


def measured(release: str, running: int, blocks: int, steps: int) -> list[float]:
    """Microseconds of a step for the host and for the judge, and MiB of both."""
    calm_collector()
    target = resolve(f"vllm@{release}", report=lambda line: None)
    assert isinstance(target, HostTarget)
    reference = reference_for(target)
    trace = trace_of(running, blocks, steps)
    times = max(1, 8 * STEPS // (running * steps))  # the clock of another process is coarse
    assert target.hello
    assert target._process is not None
    host = target._process.pid
    target.run([trace_of(running, blocks, 2)])  # what is run first is imported and read first
    began = used(host)
    results = target.run([trace] * times)
    of_host = used(host) - began
    started = time.process_time()
    for result in results:
        assert len(result.records) == len(trace.events), result.illegal
        seen = examine(trace, result, target, reference, Reachability())
        assert seen.compared
        assert seen.difference is None, seen.difference
    of_judge = time.process_time() - started
    of_step = [1e6 * one / (steps * times) for one in (of_host, of_judge)]
    peak = Path(f"/proc/{host}/status").read_text().partition("VmHWM:")[2].split()[0]
    most = int(peak) + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    target.close()
    return [*of_step, most / 1024]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default=NEWEST)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", type=int, nargs=3, help="only measure that row, once")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.release, *options.one)))
        return
    print(f"Microseconds of a step: median (least to most) of {options.rounds} rounds\n")
    print("| running requests | KV blocks | steps | host | judge | MiB |")
    print("|--:|--:|--:|---|---|--:|")
    for row in ROWS:
        command = [sys.executable, __file__, "--release", options.release, "--one", *map(str, row)]
        rounds = [json.loads(subprocess.check_output(command)) for _ in range(options.rounds)]
        host, judge, most = zip(*rounds, strict=True)
        cells = [f"{statistics.median(one):,.0f} ({min(one):,.0f} to {max(one):,.0f})"
                 for one in (host, judge)]  # fmt: skip
        sizes = " | ".join(f"{number:,}" for number in row)
        print(f"| {sizes} | {' | '.join(cells)} | {statistics.median(most):,.0f} |", flush=True)


if __name__ == "__main__":
    main()
