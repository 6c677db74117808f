"""Times the reference's block hashing beside a release's own, in the release's interpreter.

    .venv/bin/python benchmarks/block_hash.py --rounds 9

Both hash the same prompts in one process, in turns: under the release's semantics, whose digests
must be equal, and under the ideal ones.
"""

import argparse
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
    print(f"| prompt | vllm@{chosen.release} | reference, the same digests | reference, ideal |")
    print("|---|---|---|---|")
    for line in done.stdout.splitlines():
        name, *columns = json.loads(line)
        print(f"| {name} | {' | '.join(map(spread, columns))} |")


def spread(seconds: list[float]) -> str:
    """Median, least and most, in milliseconds."""
    middle, *ends = (1000 * f(seconds) for f in (statistics.median, min, max))
    return f"{middle:.1f} ({ends[0]:.1f} to {ends[1]:.1f})"


def inside(release: str, rounds: int) -> None:
    """Runs beside the release: one line of JSON for each prompt."""
    package = types.ModuleType("cacheproof")
    package.__path__ = [str(ROOT)]
    sys.modules["cacheproof"] = package
    sys.path.append(str(ROOT / "differential" / "targets"))
    for name, images in PROMPTS.items():
        hashers = list(_hashers(release, _prompt(images)))
        seconds: list[list[float]] = [[] for _ in hashers]
        for _ in range(rounds):
            digests = []
            for timed, (hasher, request) in zip(seconds, hashers, strict=True):
                started = time.process_time()
                digests.append(hasher(request))
                timed.append(time.process_time() - started)
            assert len(digests[0]) == PROMPT_TOKENS // BLOCK_SIZE
            assert digests[0] == digests[1] != digests[2]
        print(json.dumps([name, *seconds]), flush=True)


def _prompt(images: int) -> dict[str, Any]:
    tokens = [10 + position % 1000 for position in range(PROMPT_TOKENS)]
    items = []
    for number in range(images):
        offset = 5 + number * (IMAGE_TOKENS + 20)
        tokens[offset : offset + IMAGE_TOKENS] = [3] * IMAGE_TOKENS
        items.append({"identifier": f"{number:064x}", "offset": offset, "length": IMAGE_TOKENS})
    return {"tokens": tokens, "items": items}


def _hashers(release: str, prompt: dict[str, Any]) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """The release's hasher and the reference's, each with the request that it hashes."""
    from host.block_hash_release import make_request
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_utils

    from cacheproof.reference.block_hash import get_request_block_hasher, hash_function
    from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, TokenRequest
    from cacheproof.reference.semantics import Semantics

    kv_cache_utils.init_none_hash(sha256)
    event = {"request": "r", "lora": None, "salt": None, "embeds": None, **prompt}
    event["items"] = [{**item, "mm_hash": None, "is_embed": None} for item in prompt["items"]]
    theirs = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, sha256)
    yield theirs, make_request(event, None)
    features = [
        MultiModalFeature(item["identifier"], PlaceholderRange(item["offset"], item["length"]), "")
        for item in prompt["items"]
    ]
    request = TokenRequest("r", prompt["tokens"], features)
    for semantics in (Semantics.of_vllm(release), Semantics.ideal()):
        hash_fn = hash_function(semantics)
        yield (
            get_request_block_hasher(BLOCK_SIZE, hash_fn, semantics=semantics, seed="0"),
            request,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(sys.argv[2], int(sys.argv[3]))
    else:
        main()
