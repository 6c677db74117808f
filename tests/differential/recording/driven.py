"""Traces run on a release with a recorder around its scheduler."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.kv_cache import KVAudit
from cacheproof.differential.audit.streams import Folder, Numbered, folder_or_file
from cacheproof.differential.judges.examination import judge_of
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.releases import host_command
from cacheproof.differential.recording.engine import KEYFRAME_STEPS
from cacheproof.differential.recording.messages import KVCalls, KVState
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.scheduler import Abort, Schedule
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump
from tests.differential import scheduler_traces

PACKAGE = Path(__file__).parents[3] / "cacheproof"
Run = tuple[Trace, str | None]
"""A trace, and the fault that is planted while it runs."""

Failure = tuple[str, str, str, bool]
"""A module of the recorder, a class, a method that raises at its sixth call, and whether it raises
ever after."""

Break = tuple[str, str, str, Any]
"""A module of the recorder, a class in it or none, a method or function of that, and what it
answers to everything."""


@dataclass(frozen=True)
class Driven:
    """What came of a run: the folder of its record, and what the host saw."""

    release: str
    trace: Trace
    fault: str | None
    folder: Path
    result: TraceResult
    protocol: Protocol

    def harness(self) -> set[str]:
        """The contracts that the harness's judge finds broken."""
        reach = Reachability()
        judge = judge_of(self.trace, self.release, self.protocol, self.result.capacity, reach)
        for number, (event, record) in enumerate(
            zip(self.trace.events, self.result.records, strict=False)
        ):
            judge.judge(number, event, record)
        return set(judge.violations)

    def audited(self) -> Auditor:
        """The audit of its record."""
        return audited(self.folder)


def kv_messages(one: Driven) -> Iterator[KVState | KVCalls]:
    """What its record has of a KV cache manager."""
    where = folder_or_file(str(one.folder))
    assert isinstance(where, Folder)
    (stream,) = where.streams.values()
    for part in stream.end():
        assert isinstance(part, Numbered), part
        if isinstance(part.message, KVState | KVCalls):
            yield part.message


def kv_audited(one: Driven) -> tuple[KVAudit, Counter[str], list[str]]:
    """The audit of a record of a KV cache manager alone: how often each contract is broken, and
    what does not fit."""
    audit, found, missing = KVAudit(), Counter[str](), []

    def take(violations: dict[str, Violation]) -> None:
        found.update(list(violations))
        violations.clear()

    for message in kv_messages(one):
        missing.append(audit.follow(message, one.release, take))
    return audit, found, list(filter(None, missing))


def audited(where: Path) -> Auditor:
    """The audit of a record of one scheduler."""
    audit = Audit(str(where))
    audit.look(last=True)
    (auditor,) = audit.auditors.values()
    return auditor


def found_by(auditor: Auditor) -> set[str]:
    """The contracts that an audit finds broken."""
    return {found.violation.contract.id for found in auditor.found}


def whole_traces(release: str, count: int, lanes: Iterable[str] = ()) -> Iterator[Trace]:
    """Of each lane of schedulers, or of those, the first traces that an audit can follow: without
    requests that are continued."""
    for name, lane in LANES.items():
        if lane.depth != "scheduler" or not lane.is_offered_by(release, frozenset({"vllm"})):
            continue
        if lanes and name not in lanes:
            continue
        left = count
        for seed in range(100):
            trace = lane.trace(seed, release)
            if left and not any(isinstance(one, Add) and one.resumable for one in trace.events):
                left -= 1
                yield trace


def long_trace(rounds: int, steps: int = 12) -> Trace:
    """Requests that decode for a while beside each other; one in four is aborted."""
    events: list[Any] = []
    for number in range(rounds):
        items = Item(f"h{number % 5}", 3, 4), Item(f"h{(number + 1) % 5}", 12, 3)
        events.append(Add(f"q{number}", prompt=20, items=items, max_tokens=25))
        events += [Schedule(), Update()] * steps
        if number % 4 == 3:
            events.append(Abort(f"q{number - 1}"))
    return scheduler_traces.trace(*events, num_blocks=20)


def lines_of(trace: Trace) -> dict[str, Any]:
    """A trace as a host is sent it."""
    header, *events = map(json.loads, dump(trace).splitlines())
    return {"header": header, "events": events}


def _started(
    release: str, job: dict[str, Any], tree: Path | None = None
) -> "subprocess.Popen[str]":
    """The process that runs a job, each record in a folder of its own; with the vLLM in a `tree` in
    the place of the release's own."""
    found = releases.install(release, report=print)
    command, environment = host_command(
        found if tree is None else replace(found, tree=tree, metadata=tree)
    )
    started = subprocess.Popen(
        [*command, str(Path(__file__).with_name("drive.py")), str(PACKAGE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert started.stdin is not None
    with started.stdin as pipe:
        json.dump(job, pipe)
    return started


def run_recorded(
    release: str,
    runs: Sequence[Run],
    folder: Path,
    keyframe_steps: int = KEYFRAME_STEPS,
    fails_in: Failure | None = None,
    *,
    long_way: bool = False,
    with_kv: bool = False,
    tree: Path | None = None,
    breaks: Break | None = None,
) -> list[Driven]:
    """The runs that the release neither refuses before they begin nor calls illegal; with
    `long_way` no step of them is noted the short way, with `with_kv` the calls of the KV cache
    manager are recorded, with a `tree` the release's text is the one there; `breaks` is planted in
    the recorder."""
    job = {
        "folder": str(folder),
        "runs": [(lines_of(trace), fault) for trace, fault in runs],
        "keyframe_steps": keyframe_steps,
        "fails_in": fails_in,
        "long_way": long_way,
        "with_kv": with_kv,
        "breaks": breaks,
    }
    with _started(release, job, tree) as started:
        assert started.stdout is not None
        lines = started.stdout.readlines()
    assert started.returncode == 0
    assert len(lines) == len(runs)
    driven: list[Driven] = []
    begun = 0
    for (trace, fault), line in zip(runs, lines, strict=True):
        told = json.loads(line)
        protocol, recorded = told.pop("protocol"), told.pop("recorded")
        if not recorded:
            continue
        result = msgspec.convert(told, TraceResult)
        if not result.illegal:
            place = folder / str(begun)
            driven.append(Driven(release, trace, fault, place, result, Protocol(**protocol)))
        begun += 1
    return driven
