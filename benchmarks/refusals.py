"""What servers do with the media of requests that they refuse: every engine, every kind of cache.

Starts each engine's OpenAI server with processed media in `lru`, in `shm` and nowhere, has it
refuse requests, each with a medium of its own, and asks twice about each medium. Prints a table.
"""

import argparse
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.provision import environment, releases, sources
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.serving import recorder
from cacheproof.differential.serving.refusals import RefusedRequest, refusals
from cacheproof.differential.serving.server import Server
from cacheproof.differential.serving.traffic import ServedModel, traffic
from cacheproof.serving.serving import truths_of

KINDS: tuple[Literal["lru", "shm"] | None, ...] = ("lru", "shm", None)
COLUMNS = ("engine", "processed media in", "refused", "the next not answered", "nor the one after")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", action="append", help="its version; all by default")
    parser.add_argument("--verbose", action="store_true", help="every way to be refused as well")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for version in options.engine or reversed(sources.engines()):
        for kind in KINDS:
            try:
                told = of_server(version, kind)
            except HarnessError as reason:
                print(f"| {version} | {kind or 'none'} | {reason} | | |", flush=True)
                continue
            print(f"| {' | '.join(row(version, kind, told))} |", flush=True)
            if options.verbose:
                for one in told:
                    print(f"  {one.way}: {one.refused}, then {one.then}")


def of_server(
    version: str, kind: Literal["lru", "shm"] | None, model: ServedModel = "llava"
) -> list[RefusedRequest]:
    """What one server was asked, and did."""
    cache = Cache.locate()
    with cache.writing():
        libraries = environment.ensure(cache, environment.SERVER, report=print)
    release = releases.install(version, report=print, kind=releases.ENGINE)
    asked = traffic(0, model, 0)
    settings = replace(asked.settings, processor_cache=kind)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        directory, _ = truths_of(model, asked, folder, report=print)
        search = (*libraries.overlays, recorder.installed(folder))
        with Server(release, model, directory, settings, folder, search=search) as server:
            return list(refusals(server.url, model, 0))


def row(version: str, kind: str | None, told: list[RefusedRequest]) -> Iterator[str]:
    """The cells of a server."""
    yield version
    yield kind or "none"
    yield f"{sum(one.is_refused for one in told)} of {len(told)}"
    yield str(sum(one.then[0] != 200 for one in told))
    yield str(sum(one.then[1] != 200 for one in told))


if __name__ == "__main__":
    main()
