"""Entries of encoder outputs in each tier of the store, beside a copy of as many bytes.

    .venv/bin/python benchmarks/encoder_connector.py --disk /var/tmp

*Put* makes an entry of rows that are in memory and keeps it; *take* promises one, reads it and has
its rows in memory: with its digest checked twice, as a scheduler and its worker do. *Copy* is
torch's clone. All three take turns, and begin with memory that was not used before. Sizes are those
of a video of 32 and of 128 frames for Qwen2.5-VL-7B. The disk's figures are of the page cache.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import beside
import torch_side

HIDDEN_SIZE = 3584
ROWS = (4784, 19136)


def main() -> None:
    parser = torch_side.arguments(__doc__)
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on a disk")
    parser.add_argument("--memory", default="/dev/shm", help="a folder in memory")
    chosen = parser.parse_args()
    told = torch_side.run(__file__, chosen)
    print(f"GB/s, wall time: median (least to most) of {chosen.rounds} rounds; {next(told)}\n")
    print("| tier | MB | copy | put | take | copy / put, time | copy / take, time |")
    print("|---|---|---|---|---|---|---|")
    for line in told:
        size, seconds = line["bytes"], line["seconds"]
        speeds = [[size / one / 1e9 for one in seconds[what]] for what in ("copy", "put", "take")]
        columns = [
            line["tier"],
            f"{size / 1e6:.1f}",
            *(beside.spread(speed, digits=2) for speed in speeds),
            *(
                beside.spread(beside.ratios(seconds["copy"], seconds[what]))
                for what in ("put", "take")
            ),
        ]
        print(f"| {' | '.join(columns)} |", flush=True)


def inside(job: Any) -> None:
    """Runs where torch is: one line of JSON for each tier and size, seconds."""
    beside.make_importable()
    torch_side.device("cpu")
    print(json.dumps(torch_side.machine("cpu")), flush=True)
    for tier in ("memory", "disk"):
        for rows in ROWS:
            folder = Path(tempfile.mkdtemp(dir=job[tier], prefix="cacheproof-"))
            try:
                line = {"tier": tier, "bytes": rows * HIDDEN_SIZE * 2}
                line["seconds"] = measure(folder, rows, job["rounds"])
                print(json.dumps(line), flush=True)
            finally:
                shutil.rmtree(folder)


def measure(folder: Path, rows: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round."""
    import torch

    from cacheproof.gpu_runner.encoder_connector import entry_file
    from cacheproof.reference.encoder_connector.entry_file import fault_of
    from cacheproof.reference.encoder_connector.entry_key import EntryKey
    from cacheproof.reference.encoder_connector.tiers import TierConfig, Tiers

    source = torch.randn(rows, HIDDEN_SIZE, generator=torch.Generator().manual_seed(0))
    source = source.to(torch.bfloat16)
    seconds: dict[str, list[float]] = {"copy": [], "put": [], "take": []}
    room = TierConfig(folder, 2 * source.nbytes + (1 << 20))
    with closing(Tiers([room], fault_of)) as store:
        for round_ in range(rounds + 1):
            key = EntryKey(f"video {round_}", "model", "", "", "bfloat16", HIDDEN_SIZE)

            def put(key: EntryKey = key) -> None:
                assert store.put(key, entry_file.parts_of(source, key))

            def take(key: EntryKey = key) -> None:
                promise = store.promise(key)
                assert promise is not None
                with promise.file.open("rb", buffering=0) as entry:
                    taken = entry_file.load(entry, key)
                store.give_back(promise)
                assert torch.equal(taken[-1], source[-1])

            sides: dict[str, Callable[[], Any]] = {
                "copy": source.clone,
                "put": put,
                "take": take,
            }
            for name, side in sides.items():
                begun = time.perf_counter()
                side()
                if round_:
                    seconds[name].append(time.perf_counter() - begun)
    return seconds


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(json.loads(sys.argv[2]))
    else:
        main()
