"""Times the reference scheduler beside a release's own, in the release's interpreter.

    .venv/bin/python benchmarks/scheduler.py --rounds 9

Both schedule and update the same steps in one process, in turns: so many requests that decode, each
with an image in its prompt. The decisions must be equal.
"""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import beside

if TYPE_CHECKING:
    from cacheproof.differential.traces.scheduler import SchedulerHeader

PROMPT_TOKENS = 40
BLOCK_SIZE = 16
BLOCKS_OF_A_REQUEST = 16
STEPS_OF_A_ROUND = 12
WORKLOADS = [
    *((running, running * BLOCKS_OF_A_REQUEST + 1_000) for running in (2, 8, 64, 256, 1_000)),
    *((8, blocks) for blocks in (10_000, 100_000, 1_000_000)),
]
"""Running requests, and KV blocks."""


def main() -> None:
    import msgspec

    chosen = beside.options(__doc__)
    release = f"vllm@{chosen.release}"
    print(f"Microseconds of a step, scheduled and updated: median (least to most) of "
          f"{chosen.rounds} rounds of {STEPS_OF_A_ROUND} steps\n")  # fmt: skip
    print(f"| running requests | KV blocks | {release} | reference | reference / {release} |")
    print("|---|---|---|---|---|")
    traces = [msgspec.to_builtins(_trace(*workload)) for workload in WORKLOADS]
    for running, blocks, theirs, ours in beside.run(
        __file__, chosen.release, chosen.rounds, given=traces
    ):
        columns = [
            beside.spread(theirs, 1e6, digits=0),
            beside.spread(ours, 1e6, digits=0),
            beside.spread(beside.ratios(ours, theirs)),
        ]
        print(f"| {running:,} | {blocks:,} | {' | '.join(columns)} |")


def inside(release: str, rounds: int) -> None:
    """Runs beside the release: one line of JSON for each workload."""
    beside.make_importable()
    for trace in json.load(sys.stdin):
        running, blocks = len(trace["events"]), trace["header"]["config"]["num_blocks"]
        sides = _sides(release, trace)
        seconds: list[list[float]] = [[] for _ in sides]
        for _ in range(rounds):
            for timed, kit in zip(seconds, sides, strict=True):
                timed.append(_time(kit))
        orders = [[request.request_id for request in kit.scheduler.running] for kit in sides]
        assert orders[0] == orders[1]
        assert len(orders[0]) == running
        print(json.dumps([running, blocks, *seconds]), flush=True)


def _time(kit: Any) -> float:
    """Seconds of a step."""
    spent = 0.0
    for _ in range(STEPS_OF_A_ROUND):
        started = time.process_time()
        output = kit.scheduler.schedule()
        spent += time.process_time() - started
        sampled = {name: [7] for name in output.num_scheduled_tokens}
        assert output.total_num_scheduled_tokens == len(sampled)
        started = time.process_time()
        kit.update(output, sampled, None)
        spent += time.process_time() - started
    return spent / STEPS_OF_A_ROUND


def _sides(release: str, trace: Any) -> list[Any]:
    """The release's scheduler and the reference's, with the trace's requests decoding."""
    from host.scheduler import scheduler as scheduler_depth
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

    from cacheproof.differential.targets import reference_scheduler
    from cacheproof.reference.semantics import Semantics

    sides = [
        scheduler_depth.build(trace, lambda size: EncoderCacheManager(cache_size=size)),
        reference_scheduler.build(trace, Semantics.of_vllm(release)),
    ]
    for kit in sides:
        beside.unrecorded(kit.recorder.manager)
        for number, event in enumerate(trace["events"]):
            kit.scheduler.add_request(kit.make_request(event, float(number)))
        output = kit.scheduler.schedule()
        assert output.total_num_scheduled_tokens == len(trace["events"]) * PROMPT_TOKENS
        kit.update(output, {name: [7] for name in output.num_scheduled_tokens}, None)
    return sides


def header_of(running: int, blocks: int) -> "SchedulerHeader":
    """A configuration in which one step can take so many requests, each with an image."""
    from cacheproof.differential.traces.base import SCHEMA
    from cacheproof.differential.traces.scheduler import SchedulerConfig, SchedulerHeader

    config = SchedulerConfig(
        capacity=running * 8,
        compute_budget=running * 8,
        max_num_batched_tokens=running * PROMPT_TOKENS,
        max_num_seqs=running,
        max_model_len=BLOCKS_OF_A_REQUEST * BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        num_blocks=blocks,
    )
    return SchedulerHeader(SCHEMA, "encoder_cache", config)


def _trace(running: int, blocks: int) -> Any:
    """So many requests, each with an image, that one step can take."""
    from cacheproof.differential.traces.base import Item
    from cacheproof.differential.traces.manager import Add
    from cacheproof.differential.traces.trace import Trace

    arrivals = [
        Add(f"r{number}", PROMPT_TOKENS, (Item(f"h{number}", 2, 8),), max_tokens=200)
        for number in range(running)
    ]
    return Trace(header_of(running, blocks), tuple(arrivals))


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(sys.argv[2], int(sys.argv[3]))
    else:
        main()
