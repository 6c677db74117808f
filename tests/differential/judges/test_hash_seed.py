"""What the reference of 0.28.0 records, and what is said of it, is the same under two seeds of
Python's hashes: one finding reads one way."""

import os
import subprocess
import sys
import textwrap

import pytest

SEEDS = 12
SCRIPT = textwrap.dedent(
    f"""
    import sys
    import msgspec
    from cacheproof.differential.judges.examination import examine
    from cacheproof.differential.lanes.all_lanes import LANES
    from cacheproof.differential.targets.resolve import resolve

    target = resolve("reference@0.28.0", report=print)
    for lane in LANES.values():
        if lane.is_offered_by(target.model) and target.runs_depth(lane.depth):
            traces = [lane.trace(seed, target.model) for seed in range({SEEDS})]
            for trace, result in zip(traces, target.run(traces), strict=True):
                told = [*examine(trace, result, target).breaks()]
                sys.stdout.write(msgspec.json.encode([lane.name, trace, result, told]).decode())
                sys.stdout.write("\\n")
    """
)


def said(seed: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


@pytest.mark.full
def test_traces_records_and_sentences_are_the_same_under_two_seeds_of_hashes() -> None:
    first, second = said("2"), said("3")
    assert len(first) > 10 * SEEDS
    assert any(" is false: " in line for line in first)
    assert second == first
