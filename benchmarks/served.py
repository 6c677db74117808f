"""Every engine's OpenAI server, asked for answers of every model that it is searched with.

Runs `cacheproof http` for an engine and a model after the other, and prints a row for each, and
below the table each difference. Exits with 1 where anything differs that no listed fault does, or
where a server could not be asked.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import outputs

from cacheproof.differential.provision import sources
from cacheproof.differential.serving.traffic import SERVED_MODELS

COLUMNS = (
    *("engine", "model", "requests", "whole answers", "tokens", "of which equal"),
    *("preemptions", "failed once", "differ", "contracts broken, by which listed faults"),
)


class Outcome(NamedTuple):
    """What came of the servers of an engine and a model: what was told of each, and why none was
    asked, which is empty where they were."""

    servers: Sequence[dict[str, Any]]
    refusal: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", action="append", help="its version; all by default")
    parser.add_argument("--model", action="append", choices=SERVED_MODELS, help="all by default")
    parser.add_argument("--seeds", default="0:1")
    parser.add_argument("--requests", type=int, default=60)
    options = parser.parse_args()
    notes = []
    print(f"Python {platform.python_version()}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for version in options.engine or reversed(sources.engines()):
        for model in offered(version):
            if model in (options.model or SERVED_MODELS):
                outcome = asked(version, model, options.seeds, options.requests)
                print(f"| {' | '.join(row(version, model, outcome))} |", flush=True)
                notes += [f"{version}, {model}: {said}" for said in wrong(outcome)]
    for note in notes:
        print(note)
    if notes:
        raise SystemExit(1)


def offered(version: str) -> tuple[str, ...]:
    """Models that have a server's clients, and with which an engine of that release is searched."""
    searched = outputs.offered(version, ahead=False, asked=None)
    return tuple(model for model in SERVED_MODELS if model in searched)


def asked(version: str, model: str, seeds: str, requests: int) -> Outcome:
    """What `cacheproof http` says."""
    command = [sys.executable, "-m", "cacheproof", "http", "--target", f"engine@{version}"]
    command += ["--model", model, "--seeds", seeds, "--requests", str(requests), "--json", "-"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ran.stdout:
        return Outcome([], (ran.stderr.splitlines() or [f"it ended with {ran.returncode}"])[-1])
    return Outcome(json.loads(ran.stdout)["servers"], "")


def row(version: str, model: str, outcome: Outcome) -> Iterator[str]:
    """The cells of what was asked of an engine and a model."""
    counts: Counter[str] = Counter()
    broken: dict[str, set[str]] = {}
    for server in outcome.servers:
        counts.update(server["counts"])
        for contract, faults in server["broken"].items():
            broken.setdefault(contract, set()).update(faults or {"not listed"})
    yield version
    yield model
    for name in ("requests", "whole answers", "tokens", "of which equal", "preemptions"):
        yield f"{counts[name]:,}"
    yield f"{counts['failed once, answered when asked again']:,}"
    yield f"{sum(len(server['differences']) for server in outcome.servers):,}"
    by_faults: dict[str, list[str]] = {}
    for contract, faults in sorted(broken.items()):
        by_faults.setdefault(", ".join(sorted(faults)), []).append(contract)
    told = [f"{', '.join(contracts)} ({faults})" for faults, contracts in by_faults.items()]
    yield "; ".join(told) or "none"


def wrong(outcome: Outcome) -> Iterator[str]:
    """What no listed fault does, and what was not looked at."""
    if outcome.refusal:
        yield outcome.refusal
    for server in outcome.servers:
        if server["unlisted"]:
            yield f"seed {server['seed']}: something that no listed fault does"
        yield from (f"seed {server['seed']}: {said}" for said in server["differences"])
        yield from (
            f"seed {server['seed']}: its record breaks {contract}, which is not listed"
            for contract, faults in server["broken"].items()
            if not faults
        )
        if server["died"]:
            yield f"seed {server['seed']}: it died: {server['died']}"
        if server["unjudged"]:
            yield f"seed {server['seed']}: not all was judged: {server['unjudged']}"


if __name__ == "__main__":
    main()
