"""What the recorder costs an OpenAI server: two servers of one release, one of them recorded,
answer the same requests of many clients in turns.

    .venv/bin/python benchmarks/recorded_server.py [--turns 12] [--processed-media lru]

Prints requests a second of both, and the median of the paired ratios of time.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from cacheproof.differential.provision import environment, releases
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.serving import recorder
from cacheproof.differential.serving.clients import ask_all
from cacheproof.differential.serving.server import Server
from cacheproof.differential.serving.traffic import MAX_MODEL_LEN, Settings, traffic
from cacheproof.serving.serving import truths_of

CLIENTS = 16
SETTINGS = Settings(
    max_num_batched_tokens=192,
    max_num_seqs=16,
    num_blocks=257,
    block_size=32,
    max_model_len=MAX_MODEL_LEN,
    prefix_caching=True,
    is_priority=False,
    whole_items=False,
    processor_cache="shm",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--release", default="0.32.0")
    parser.add_argument("--processed-media", choices=("lru", "shm"), default="shm")
    arguments = parser.parse_args()
    release = releases.install(arguments.release, report=print, kind=releases.ENGINE)
    libraries = environment.ensure(Cache.locate(), environment.SERVER, report=print)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        directory, _ = truths_of("llava", traffic(0, "llava", 0), folder, report=print)
        seconds: dict[str, list[float]] = {"off": [], "on": []}
        (folder / "on").mkdir()
        (folder / "off").mkdir()
        settings = replace(SETTINGS, processor_cache=arguments.processed_media)
        common = release, "llava", directory, settings
        search = *libraries.overlays, recorder.installed(folder)
        variables = recorder.variables(folder / "records")
        with (
            Server(*common, folder / "off", search=search) as off,
            Server(*common, folder / "on", search=search, variables=variables) as on,
        ):
            for turn in range(-1, arguments.turns):
                asked = traffic(turn, "llava", arguments.requests)
                asked = replace(asked, asks=tuple(replace(one, leaves_after=None)
                                                  for one in asked.asks))  # fmt: skip
                pair = [("off", off), ("on", on)]
                for which, server in pair[:: 1 if turn % 2 else -1]:
                    begun = time.perf_counter()
                    answers = ask_all(server.url, asked, CLIENTS)
                    if any(answer.failed for answer in answers):
                        raise SystemExit(f"a request failed: {server.last_words()}")
                    if turn >= 0:  # caches are cold before
                        seconds[which].append(time.perf_counter() - begun)
    for which, times in seconds.items():
        rates = [arguments.requests / one for one in times]
        print(f"recorder {which}: {statistics.median(rates):.1f} requests a second "
              f"({min(rates):.1f} to {max(rates):.1f})")  # fmt: skip
    ratios = [one / other for one, other in zip(seconds["on"], seconds["off"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"paired: {middle:.3f} times as long (quartiles {low:.3f} to {high:.3f}, "
          f"{len(ratios)} turns of {arguments.requests} requests)")  # fmt: skip


if __name__ == "__main__":
    main()
