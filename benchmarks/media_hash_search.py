"""Searches a release's media hasher for a while and prints what it confuses, way by way.

    .venv/bin/python benchmarks/media_hash_search.py --release 0.33.0 --seconds 600

From 0.10.2 on the reference with the release's semantics runs beside it, digest by digest.
"""

import argparse
import time

from cacheproof.differential.errors import InputError
from cacheproof.differential.media_hash_search import BATCH, Search
from cacheproof.differential.targets.media_hash import NEWEST, MediaHashTarget
from cacheproof.reference.semantics import NotModelled, Semantics

STEP = 5 * BATCH


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--release", default=NEWEST)
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--algorithm", default="blake3")
    chosen = arguments.parse_args()
    try:
        Semantics.of_vllm(chosen.release)
        reference = MediaHashTarget(chosen.release, semantics=chosen.release)
    except NotModelled:
        reference = None
    search = Search(MediaHashTarget(chosen.release), reference, chosen.algorithm)
    started, seed = time.monotonic(), chosen.first_seed
    while time.monotonic() - started < chosen.seconds:
        try:
            search.run(range(seed, seed + STEP))
        except InputError as error:
            raise SystemExit(f"error: {error}") from None
        seed += STEP
    seconds = time.monotonic() - started
    beside = f"{len(search.parted)} unlike the reference's" if reference else "no reference beside"
    seeds = f"seeds {chosen.first_seed} to {seed - 1}"
    print(f"vllm {chosen.release}, {chosen.algorithm}, {seeds}: {search.hashed:,} digests in "
          f"{seconds:.0f} s, {beside}\n")  # fmt: skip
    print("| way of the pair | pairs hashed | contracts broken (pairs) | first seed |")
    print("|---|---|---|---|")
    for way, reached in sorted(search.reached.items()):
        broken = sorted(key for key in search.counts if key[1] == way)
        counts = ", ".join(f"{key[0]} ({search.counts[key]:,})" for key in broken)
        first = min((search.found[key] for key in broken), default="")
        print(f"| {way} | {reached:,} | {counts or 'none'} | {first} |")
    for target in (search.target, reference):
        if target is not None:
            target.close()


if __name__ == "__main__":
    main()
