"""Times the reference's block hashing beside a release's own, in the release's interpreter.

    .venv/bin/python benchmarks/block_hash.py --rounds 9

Both hash the same prompts in one process, in turns, with each function that the release offers:
under the release's semantics, whose digests must be equal, and under the ideal ones.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BLOCK_SIZE = 16
PROMPT_TOKENS = 32_768
IMAGE_TOKENS = 576
PROMPTS = {"text": 0, "8 images": 8, "48 images": 48}


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
    print(f"A prompt of {PROMPT_TOKENS:,} tokens in blocks of {BLOCK_SIZE}; milliseconds, median "
          f"(least to most) of {chosen.rounds} rounds\n")  # fmt: skip
    release = f"vllm@{chosen.release}"
    print(f"| prompt | function | {release} | reference, the same digests | reference / {release} "
          f"| reference, ideal |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for line in done.stdout.splitlines():
        name, algorithm, theirs, ours, ideal = json.loads(line)
        ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
        columns = [spread(theirs, 1000), spread(ours, 1000), spread(ratios), spread(ideal, 1000)]
        print(f"| {name} | {algorithm} | {' | '.join(columns)} |")


def spread(values: list[float], scale: float = 1) -> str:
    """Median, least and most, times `scale`."""
    middle, *ends = (scale * f(values) for f in (statistics.median, min, max))
    return f"{middle:.2f} ({ends[0]:.2f} to {ends[1]:.2f})"


def inside(release: str, rounds: int) -> None:
    """Runs beside the release: one line of JSON for each prompt and function."""
    package = types.ModuleType("cacheproof")
    package.__path__ = [str(ROOT)]
    sys.modules["cacheproof"] = package
    sys.path.append(str(ROOT / "differential" / "targets"))
    from cacheproof.reference.hash_functions import algorithms
    from cacheproof.reference.semantics import Semantics

    offered = algorithms(Semantics.of_vllm(release))
    for (name, images), algorithm in itertools.product(PROMPTS.items(), offered):
        hashers = list(_hashers(release, _prompt(images), algorithm))
        seconds: list[list[float]] = [[] for _ in hashers]
        for _ in range(rounds):
            digests = []
            for timed, (hasher, request) in zip(seconds, hashers, strict=True):
                started = time.process_time()
                digests.append(hasher(request))
                timed.append(time.process_time() - started)
            assert len(digests[0]) == PROMPT_TOKENS // BLOCK_SIZE
            assert digests[0] == digests[1]
        print(json.dumps([name, algorithm, *seconds]), flush=True)


def _prompt(images: int) -> dict[str, Any]:
    tokens = [10 + position % 1000 for position in range(PROMPT_TOKENS)]
    items = []
    for number in range(images):
        offset = 5 + number * (IMAGE_TOKENS + 20)
        tokens[offset : offset + IMAGE_TOKENS] = [3] * IMAGE_TOKENS
        items.append({"identifier": f"{number:064x}", "offset": offset, "length": IMAGE_TOKENS})
    return {"tokens": tokens, "items": items}


def _hashers(
    release: str, prompt: dict[str, Any], algorithm: str
) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """The release's hasher and the reference's, each with the request that it hashes."""
    from host.block_hash_release import block_hasher, make_request

    from cacheproof.reference.block_hash import get_request_block_hasher
    from cacheproof.reference.hash_functions import hash_function
    from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, TokenRequest
    from cacheproof.reference.semantics import Semantics

    event = {"request": "r", "lora": None, "salt": None, "embeds": None, **prompt}
    event["items"] = [{**item, "mm_hash": None, "is_embed": None} for item in prompt["items"]]
    config = {"block_size": BLOCK_SIZE, "lookahead": 0, "algorithm": algorithm}
    yield block_hasher(config), make_request(event, None)
    features = [
        MultiModalFeature(item["identifier"], PlaceholderRange(item["offset"], item["length"]), "")
        for item in prompt["items"]
    ]
    request = TokenRequest("r", prompt["tokens"], features)
    for semantics in (Semantics.of_vllm(release), Semantics.ideal()):
        hash_fn = hash_function(semantics, algorithm)
        yield (
            get_request_block_hasher(BLOCK_SIZE, hash_fn, semantics=semantics, seed="0"),
            request,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(sys.argv[2], int(sys.argv[3]))
    else:
        main()
