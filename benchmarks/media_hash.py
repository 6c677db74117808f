"""Times the reference's media hash beside a release's own, in the release's interpreter.

    .venv/bin/python benchmarks/media_hash.py --rounds 9

Both hash the same objects in one process, in turns. A fetched item (media with their original
bytes) is listed for what it is: the release hashes the file there, the reference what was decoded.
"""

import importlib
import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import beside

REPEATS = 8


def main() -> None:
    chosen = beside.options(__doc__)
    print(f"| input | algorithm | reference, ms | vllm@{chosen.release}, ms | ratio of each pair |")
    print("|---|---|---|---|---|")
    for name, algorithm, ours, theirs in beside.run(__file__, chosen.release, chosen.rounds):
        columns = [
            beside.spread(ours, 1000),
            beside.spread(theirs, 1000),
            beside.spread(beside.ratios(ours, theirs)),
        ]
        print(f"| {name} | {algorithm} | {' | '.join(columns)} |")


def inside(rounds: int) -> None:
    """Runs beside the release: one line of JSON for each input and algorithm."""
    beside.make_importable()
    reference = importlib.import_module("cacheproof.reference.media_hash").MultiModalHasher()
    hasher = importlib.import_module("vllm.multimodal.hasher").MultiModalHasher
    for name, value in inputs():
        for algorithm in ("blake3", "sha256"):
            calls: list[Callable[..., str]] = [reference.hash_kwargs, hasher.hash_kwargs]
            times: list[list[float]] = [[], []]
            for turn in range(-1, rounds):  # the first turn warms up
                order = (0, 1) if turn % 2 else (1, 0)
                for who in order:
                    started = time.process_time()
                    for _ in range(REPEATS):
                        calls[who](algorithm, model_id="model", image=value)
                    if turn >= 0:
                        times[who].append((time.process_time() - started) / REPEATS)
            print(json.dumps([name, algorithm, *times]), flush=True)


def inputs() -> list[tuple[str, Any]]:
    """What is hashed, by name."""
    import numpy
    import torch
    from PIL import Image

    media = importlib.import_module("vllm.multimodal.media").MediaWithBytes
    rng = numpy.random.default_rng(0)
    pixels = rng.integers(0, 256, (1000, 1000, 3), dtype=numpy.uint8)
    frames = rng.integers(0, 256, (32, 336, 336, 3), dtype=numpy.uint8)
    image = Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, "JPEG")
    return [
        ("image of 1 MP", image),
        ("video of 32 frames of 336 x 336, array", frames),
        ("the same with strides", frames[:, ::-1]),
        ("the same, tensor", torch.from_numpy(frames)),
        ("fetched image of 1 MP (JPEG)", media(image, file.getvalue())),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(int(sys.argv[3]))
    else:
        main()
