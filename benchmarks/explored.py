"""Transitions that an exploration judges: per second, and the CPU time of each.

    .venv/bin/python benchmarks/explored.py --target vllm@0.33.0 --target reference

The small scopes of each kind of manager, and of the scheduler, one after another in one process,
without red twins. A release's objects run in a process of their own meanwhile, those of the
reference in the same.
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from cacheproof.differential.search.explore.job import SUBJECTS
from cacheproof.differential.search.explore.scope import Scope
from cacheproof.differential.search.explore.scopes import SCOPES
from cacheproof.differential.search.explore.search import Explorable, explore
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve


def cpu_seconds_of(target: Explorable) -> float:
    """CPU seconds that the target's own process has taken; 0 where it has none."""
    if not isinstance(target, HostTarget) or target._process is None:
        return 0.0
    stat = Path(f"/proc/{target._process.pid}/stat").read_text(encoding="utf-8")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def rows(name: str, target: Explorable) -> Iterator[str]:
    """A row of the table for each subject of a target."""
    for subject in SUBJECTS:
        if subject == "scheduler" and not isinstance(target, ReferenceTarget):
            continue
        scopes = [s for s in SCOPES["small"] if isinstance(s, Scope) and s.subject == subject]
        assert target.protocol
        before = time.perf_counter(), time.process_time(), cpu_seconds_of(target)
        try:
            found = [explore(target, one, transitions_max=one.transitions_max) for one in scopes]
        except Illegal:
            continue
        after = time.perf_counter(), time.process_time(), cpu_seconds_of(target)
        transitions = sum(one.transitions for one in found)
        wall, here, there = (then - now for now, then in zip(before, after, strict=True))
        yield (
            f"| {name} | {subject} | {transitions:,} | {transitions / wall:,.0f} | "
            f"{1e6 * here / transitions:.0f} | {1e6 * there / transitions:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", required=True)
    arguments = parser.parse_args()
    calm_collector()
    print("| target | subject | transitions | per second | CPU us each | in the target's process |")
    print("|---|---|--:|--:|--:|--:|")
    for name in arguments.target:
        with closing(resolve(name, report=lambda line: None)) as target:
            assert isinstance(target, Explorable)
            for row in rows(name, target):
                print(row, flush=True)


if __name__ == "__main__":
    main()
