"""A digest of all that is decided about fixed seeds: to be the same before and after a change of
structure.

    .venv/bin/python benchmarks/same_decisions.py --seeds 300 > before.json
    .venv/bin/python benchmarks/same_decisions.py --seeds 300 --against before.json

For each target and lane: the bytes of the traces, of what the target did, and what contracts and
lockstep say of it, sentence for sentence; of what breaks first in each place the finding as well,
minimised, which takes most of the time: `--small N` does so for the first N seeds alone. The
engine's lanes are left out. With `--against` a file of as many seeds it prints what
differs, and exits with 1 where anything does.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.reference.releases import SEARCHED
from cacheproof.work.workplace import Workplace

TARGETS = (
    "reference",
    "vllm@0.15.1",
    *(f"vllm@{release}" for release in reversed(SEARCHED)),
)
BATCH = 20
_DRAWN = re.compile(rb"\.tmp\w{6}\b")
"""Names of files that a release draws anew in each run."""
WHEN_FOUND = {"seconds", "tool"}
"""Fields of a finding that are about the run."""


@dataclass(frozen=True)
class Task:
    """The seeds of a lane on a target."""

    target: str
    lane: str
    seeds: int
    small: int

    @property
    def name(self) -> str:
        return f"{self.target} {self.lane}"


def decided(task: Task) -> dict[str, Any]:
    """Digests of the lane's traces, records and verdicts, and of its findings by their place."""
    target = resolve(task.target, report=_say)
    reference = reference_for(target)
    lane = LANES[task.lane]
    traces = [lane.trace(seed, target.model) for seed in range(task.seeds)]
    done = [
        result
        for first in range(0, len(traces), BATCH)
        for result in target.run(traces[first : first + BATCH])
    ]
    reach = Reachability()
    said, found = [], {}
    for seed, (trace, result) in enumerate(zip(traces, done, strict=True)):
        seen = examine(trace, result, target, reference, reach)
        said.append([seen.illegal, seen.calls, sorted(seen.breaks())])
        for contract, kind, *_ in seen.breaks():
            if seed < task.small and f"{contract} {kind}" not in found:
                small = found_in(target, trace, contract, reference, kind=kind, times=2)
                found[f"{contract} {kind}"] = digest(_of_the_code(small))
    target.close()
    return {
        "traces": digest(traces),
        "records": digest(done),
        "verdicts": digest(said),
        "rare states": dict(sorted(reach.met.items())),
        "findings": found,
    }


def _of_the_code(finding: Any) -> Any:
    fields = msgspec.to_builtins(finding)
    return fields and {name: value for name, value in fields.items() if name not in WHEN_FOUND}


def digest(value: Any) -> str:
    return hashlib.sha256(_DRAWN.sub(b".tmp", msgspec.json.encode(value))).hexdigest()


def tasks(seeds: int, small: int) -> Iterator[Task]:
    """Each lane that a target offers."""
    for name in TARGETS:
        target = resolve(name, report=_say)
        for lane in LANES.values():
            if lane.is_offered_by(target.model) and target.runs_depth(lane.depth):
                yield Task(name, lane.name, seeds, small)
        target.close()


def _say(line: str) -> None:
    """Tell of what goes on; the output is the digests alone."""
    print(line, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--small", type=int)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Ray cluster that does the work")
    options = parser.parse_args()
    before: dict[str, Any] = {}
    if options.against is not None:
        try:
            before = json.loads(options.against.read_text())
        except (OSError, ValueError) as error:
            parser.error(f"--against {options.against}: no digests of a run before: {error}")
    small = options.seeds if options.small is None else options.small
    todo = list(tasks(options.seeds, small))
    now: dict[str, Any] = {}
    for number, outcome in Workplace(cluster=options.cluster).results(decided, todo):
        now[todo[number].name] = outcome
        _say(f"{len(now)} of {len(todo)}: {todo[number].name}")
    if options.against is None:
        print(json.dumps(dict(sorted(now.items())), indent=1))
        return
    differ = [
        f"{name}: {what}"
        for name in sorted(before.keys() | now.keys())
        for what in ("traces", "records", "verdicts", "rare states", "findings")
        if before.get(name, {}).get(what) != now.get(name, {}).get(what)
    ]
    print("\n".join(differ) or f"all the same: {len(now)} lanes of {len(TARGETS)} targets")
    raise SystemExit(1 if differ else 0)


if __name__ == "__main__":
    main()
