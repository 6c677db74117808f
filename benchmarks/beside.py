"""Runs a benchmark in a release's interpreter, where reference and release take turns."""

import argparse
import json
import statistics
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def options(description: str | None) -> argparse.Namespace:
    """Which release, and how many rounds."""
    from cacheproof.reference.releases import NEWEST

    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--release", default=NEWEST)
    arguments.add_argument("--rounds", type=int, default=9)
    return arguments.parse_args()


def run(file: str, release: str, *arguments: object, given: Any = None) -> Iterator[Any]:
    """What `file` prints beside the release, a line of JSON at a time. It gets the arguments
    `inside`, the release and `arguments`, and `given` as JSON on its standard input."""
    from cacheproof.differential.provision import releases

    command, environment = releases.host_command(releases.install(release, report=print))
    done = subprocess.run(
        [*command, file, "inside", release, *map(str, arguments)],
        env=environment,
        check=True,
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
    )
    return map(json.loads, done.stdout.splitlines())


def make_importable() -> None:
    """Inside: the reference without its front door, whose libraries are not there, and the host."""
    package = types.ModuleType("cacheproof")
    package.__path__ = [str(ROOT)]
    sys.modules["cacheproof"] = package
    sys.path.append(str(ROOT / "differential" / "targets"))


def unrecorded(manager: Any) -> None:
    """Inside: take the recorder's wrappers off a manager."""
    for name in [name for name in vars(manager) if hasattr(type(manager), name)]:
        delattr(manager, name)


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Of each round, our time in terms of theirs."""
    return [our / their for our, their in zip(ours, theirs, strict=True)]


def spread(values: list[float], scale: float = 1, digits: int = 2) -> str:
    """Median, least and most, times `scale`."""
    middle, *ends = (f"{scale * f(values):,.{digits}f}" for f in (statistics.median, min, max))
    return f"{middle} ({ends[0]} to {ends[1]})"
