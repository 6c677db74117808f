"""Traces run on a release with a recorder around its scheduler."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cacheproof.differential.targets import releases
from cacheproof.differential.targets.releases import host_command
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump

PACKAGE = Path(__file__).parents[3] / "cacheproof"


def lines_of(trace: Trace) -> dict[str, Any]:
    """A trace as a host is sent it."""
    header, *events = map(json.loads, dump(trace).splitlines())
    return {"header": header, "events": events}


def run_recorded(
    release: str, traces: Sequence[Trace], folder: Path, fault: str | None = None
) -> list[tuple[Path, TraceResult, dict[str, bool]] | None]:
    """For each trace the folder of its record, what the host saw, and the release's protocol; None
    for one that the release refuses before it begins."""
    found = releases.find(release)
    assert found is not None
    command, environment = host_command(found)
    job = {"folder": str(folder), "traces": list(map(lines_of, traces)), "fault": fault}
    done = subprocess.run(
        [*command, str(Path(__file__).with_name("drive.py")), str(PACKAGE)],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[tuple[Path, TraceResult, dict[str, bool]] | None] = []
    begun = 0
    for line in done.stdout.splitlines():
        told = json.loads(line)
        protocol, recorded = told.pop("protocol"), told.pop("recorded")
        if not recorded:
            results.append(None)
            continue
        results.append((folder / str(begun), msgspec.convert(told, TraceResult), protocol))
        begun += 1
    return results
