"""Times the reference's block hashing beside a release's own, in the release's interpreter.

    .venv/bin/python benchmarks/block_hash.py --rounds 9

Both hash the same prompts in one process, in turns, with each function that the release offers:
under the release's semantics, whose digests must be equal, and under the ideal ones.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import beside

BLOCK_SIZE = 16
PROMPT_TOKENS = 32_768
IMAGE_TOKENS = 576
PROMPTS = {"text": 0, "8 images": 8, "48 images": 48}


def main() -> None:
    chosen = beside.options(__doc__)
    print(f"A prompt of {PROMPT_TOKENS:,} tokens in blocks of {BLOCK_SIZE}; milliseconds, median "
          f"(least to most) of {chosen.rounds} rounds\n")  # fmt: skip
    release = f"vllm@{chosen.release}"
    print(f"| prompt | function | {release} | reference, the same digests | reference / {release} "
          f"| reference, ideal |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for name, algorithm, theirs, ours, ideal in beside.run(__file__, chosen.release, chosen.rounds):
        columns = [
            beside.spread(theirs, 1000),
            beside.spread(ours, 1000),
            beside.spread(beside.ratios(ours, theirs)),
            beside.spread(ideal, 1000),
        ]
        print(f"| {name} | {algorithm} | {' | '.join(columns)} |")


def inside(release: str, rounds: int) -> None:
    """Runs beside the release: one line of JSON for each prompt and function."""
    beside.make_importable()
    from cacheproof.reference.hash_functions import algorithms
    from cacheproof.reference.semantics import Semantics

    offered = algorithms(Semantics.of_vllm(release).block_keys)
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
    from host.managers.block_hash_release import block_hasher, make_request

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
    for semantics in (Semantics.of_vllm(release).block_keys, Semantics.ideal().block_keys):
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
