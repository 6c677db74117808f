"""How fast `cacheproof simulate` serves requests, and how much memory it takes with more of them.

    .venv/bin/python benchmarks/simulation.py [KIND [REQUESTS [BLOCK_SIZE]]]

A row for each tenth of the requests: seconds of processor time since the start, requests in such a
second, and the most memory that the process has had. By default a million requests of documents
and blocks of 128 tokens; the encoder cache has 8,192 rows, other settings are the command's.
"""

import resource
import sys
import time

from cacheproof.simulation.run import SimulationSetting, run
from cacheproof.simulation.traffic import TRAFFICS

PARTS = 10
SETTING = {
    "release": "0.33.0",
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 64,
    "encoder_compute_budget": 8192,
    "encoder_cache_size": 8192,
}
KV_TOKENS = 1 << 18


def memory_mib() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(kind: str, num_requests: int, block_size: int) -> None:
    """Print the table."""
    print("| requests | processor seconds | requests a second | MiB at most |\n|--:|--:|--:|--:|")
    begun, done, told = time.process_time(), 0, 0

    def advance(count: int) -> None:
        nonlocal done, told
        done += count
        if done * PARTS // num_requests > told:
            told = done * PARTS // num_requests
            seconds = time.process_time() - begun
            row = f"| {done:,} | {seconds:.1f} | {done / seconds:,.0f} | {memory_mib():.1f} |"
            print(row, flush=True)

    blocks = {"num_blocks": KV_TOKENS // block_size, "block_size": block_size}
    run(TRAFFICS[kind], SimulationSetting(**SETTING, **blocks), num_requests, 0, advance)


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    main(given.get(0, "documents"), int(given.get(1, 1_000_000)), int(given.get(2, 128)))
