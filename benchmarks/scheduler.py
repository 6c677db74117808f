"""Times the reference scheduler beside a release's own, in the release's interpreter.

    .venv/bin/python benchmarks/scheduler.py --rounds 9

Both schedule and update the same steps in one process, in turns: so many requests that decode, each
with an image in its prompt. The decisions must be equal.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
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
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--release", default="0.33.0")
    arguments.add_argument("--rounds", type=int, default=9)
    chosen = arguments.parse_args()
    from cacheproof.differential.targets import releases

    command, environment = releases.host_command(releases.install(chosen.release, report=print))
    done = subprocess.run(
        [*command, __file__, "inside", chosen.release, str(chosen.rounds)],
        env={**environment, "PYTHONHASHSEED": "0"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    release = f"vllm@{chosen.release}"
    print(f"Microseconds of a step, scheduled and updated: median (least to most) of "
          f"{chosen.rounds} rounds of {STEPS_OF_A_ROUND} steps\n")  # fmt: skip
    print(f"| running requests | KV blocks | {release} | reference | reference / {release} |")
    print("|---|---|---|---|---|")
    for line in done.stdout.splitlines():
        running, blocks, theirs, ours = json.loads(line)
        ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
        columns = f"{_spread(theirs, 1e6)} | {_spread(ours, 1e6)} | {_spread(ratios, digits=2)}"
        print(f"| {running:,} | {blocks:,} | {columns} |")


def _spread(values: list[float], scale: float = 1, digits: int = 0) -> str:
    """Median, least and most, times `scale`."""
    middle, *ends = (f"{scale * f(values):,.{digits}f}" for f in (statistics.median, min, max))
    return f"{middle} ({ends[0]} to {ends[1]})"


def inside(release: str, rounds: int) -> None:
    """Runs beside the release: one line of JSON for each workload."""
    package = types.ModuleType("cacheproof")
    package.__path__ = [str(ROOT)]
    sys.modules["cacheproof"] = package
    sys.path.append(str(ROOT / "differential" / "targets"))
    for running, blocks in WORKLOADS:
        sides = _sides(release, running, blocks)
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
        kit.update(output, sampled)
        spent += time.process_time() - started
    return spent / STEPS_OF_A_ROUND


def _sides(release: str, running: int, blocks: int) -> list[Any]:
    """The release's scheduler and the reference's, with so many requests that decode."""
    from host import scheduler_depth
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

    from cacheproof.differential.targets import reference_scheduler
    from cacheproof.reference.semantics import Semantics

    trace = _trace(running, blocks)
    sides = [
        scheduler_depth.build(trace, lambda size: EncoderCacheManager(cache_size=size)),
        reference_scheduler.build(trace, Semantics.of_vllm(release)),
    ]
    for kit in sides:
        _unrecorded(kit.recorder.manager)
        for number, event in enumerate(trace["events"]):
            kit.scheduler.add_request(kit.make_request(event, float(number)))
        output = kit.scheduler.schedule()
        assert output.total_num_scheduled_tokens == running * PROMPT_TOKENS
        kit.update(output, {name: [7] for name in output.num_scheduled_tokens})
    return sides


def _unrecorded(manager: Any) -> None:
    """Take the recorder's wrappers off."""
    for name in [name for name in vars(manager) if hasattr(type(manager), name)]:
        delattr(manager, name)


def _trace(running: int, blocks: int) -> dict[str, Any]:
    config = {
        "capacity": running * 8, "compute_budget": running * 8,
        "max_num_batched_tokens": running * PROMPT_TOKENS, "max_num_seqs": running,
        "max_model_len": BLOCKS_OF_A_REQUEST * BLOCK_SIZE, "block_size": BLOCK_SIZE,
        "num_blocks": blocks, "prefix_caching": True, "chunked_prefill": True,
        "disable_chunked_mm_input": False, "policy": "fcfs", "long_prefill_token_threshold": 0,
        "async_scheduling": False, "long_prefill_token_threshold_adaptive": False,
        "max_num_active_seqs": None, "scheduler_reserve_full_isl": True, "watermark": 0.0,
        "prefill_schedule_interval": 1, "max_loras": 0, "num_speculative_tokens": 0,
        "drafter": False, "v2_model_runner": False,
    }  # fmt: skip
    events = [
        {
            "event": "add", "request": f"r{number}", "prompt": PROMPT_TOKENS, "max_tokens": 200,
            "items": [{"identifier": f"h{number}", "offset": 2, "length": 8, "mm_hash": None,
                       "is_embed": None}],
            "priority": 0, "lora": None, "salt": None, "skip_reading": False, "stop_after": None,
        }
        for number in range(running)
    ]  # fmt: skip
    return {"header": {"manager": "encoder_cache", "config": config}, "events": events}


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(sys.argv[2], int(sys.argv[3]))
    else:
        main()
