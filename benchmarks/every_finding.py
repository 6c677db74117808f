"""Every trace of docs/findings on every stable release, under both model runners.

Releases run side by side, each in one host. docs/findings-replayed.md says in which of them a trace
breaks what; a release that lacks what a trace asks for refuses it by name.
"""

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from cacheproof.differential.examine import examine
from cacheproof.differential.finding_file import load
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.targets.sources import pinned_versions
from cacheproof.differential.targets.versions import order
from cacheproof.differential.trace import ModelRunner, Trace
from cacheproof.reference.semantics import FIRST_MODELLED, Semantics
from cacheproof.workers import results

ROOT = Path(__file__).parent.parent
FINDINGS = ROOT / "docs" / "findings"
PAGE = ROOT / "docs" / "findings-replayed.md"
COMMAND = ".venv/bin/python benchmarks/every_finding.py"
DEPTHS = ("scheduler", "block_hash")
RUNNERS: tuple[ModelRunner, ...] = ("first", "second")
REFUSED = "refused"


class Replay(NamedTuple):
    """What became of a trace on a release: contracts that broke, or REFUSED. `runner` is None where
    a trace has none."""

    release: str
    trace: str
    runner: ModelRunner | None
    broken: frozenset[str]


def traces() -> Iterator[tuple[str, Trace]]:
    """The traces that need no engine, by name."""
    for path in sorted(FINDINGS.glob("*.jsonl")):
        trace = load(path)
        assert isinstance(trace, Trace)
        if trace.depth in DEPTHS:
            yield path.stem, trace


def versions() -> list[str]:
    """The releases that are modelled, from old to new."""
    return [one for one in pinned_versions() if order(one) >= order(FIRST_MODELLED)]


def replay(release: str) -> list[Replay]:
    """Run all traces on a release, under each model runner that it has."""
    calm_collector()
    named = [
        (name, runner, trace if runner is None else trace.under_runner(runner))
        for name, trace in traces()
        for runner in runners(trace, release)
    ]
    with closing(resolve(f"vllm@{release}", report=print)) as target:
        found = target.run([trace for _, _, trace in named])
        return [
            Replay(release, name, runner, broken(examine(trace, result, target)))
            for (name, runner, trace), result in zip(named, found, strict=True)
        ]
