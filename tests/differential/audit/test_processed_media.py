"""An audit of what both halves of a cache of processed media recorded comes to the harness's own
verdict."""

import math
from collections import Counter
from pathlib import Path

import pytest

from cacheproof.differential.audit.audit import MediaSource, Source, in_order
from cacheproof.differential.audit.processed_media import MediaAudit
from cacheproof.differential.audit.streams import Folder, folder_or_file
from cacheproof.differential.judges.examination import judge_of
from cacheproof.differential.judges.front_end import (
    DOES_NOT_END,
    ONE_TOO_LARGE,
    REFUSED,
    TOGETHER_TOO_LARGE,
    WITHDRAWN,
)
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.traces.front_end import Deliver, FrontEndConfig, Process
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.versions import release_key
from tests.differential.recording.driven import Driven, run_recorded

TRACES = 40
LANES_OF = {
    "front end": 1,
    "front end, every order": 317,
    "front end, shared memory": 1,
    "front end, several answers": 1,
}
"""The lanes whose halves are recorded, and how far apart the seeds are that are taken of each."""
Broken = set[tuple[str, str]]


ALIKE = {REFUSED: WITHDRAWN, ONE_TOO_LARGE: TOGETHER_TOO_LARGE}
"""Kinds that no record tells apart from another: it has neither requests nor sizes."""
OLDER = [
    pytest.param(release, marks=[pytest.mark.full] if release != "0.20.0" else [])
    for release in MODELLED
    if release != NEWEST
]


def whole(trace: Trace) -> Trace:
    """A trace in whose end all messages have come that ever will."""
    requests = [one.request for one in trace.events if isinstance(one, Process)]
    late = [Deliver(request) for request in requests] * 4  # so many may one be sent
    return trace.with_events([*trace.events, *late])


def traces(release: str) -> list[Trace]:
    """The first of each lane whose halves are recorded."""
    lanes = [(LANES[name], step) for name, step in LANES_OF.items()]
    return [
        whole(lane.trace(seed, release))
        for lane, step in lanes
        if lane.since is None or release_key(release) >= release_key(lane.since)
        for seed in range(0, step * TRACES, step)
    ]


def tells_of_room(release: str) -> bool:
    """Whether an item that is missing from its own request had no room beside the others."""
    return Semantics.of_vllm(release).front_end.touches_all_first


def names_all(release: str) -> bool:
    """Whether an engine core says of all items that it lacks them, and not of the first alone."""
    return Semantics.of_vllm(release).front_end.reports_misses


def is_shared(trace: Trace) -> bool:
    config = trace.header.config
    assert isinstance(config, FrontEndConfig)
    return config.store == "shm"


def judged(one: Driven) -> Broken:
    """What the harness finds broken that a record can show, by contract and kind."""
    judge = judge_of(one.trace, one.release, one.protocol, one.result.capacity, Reachability())
    for number, (event, record) in enumerate(
        zip(one.trace.events, one.result.records, strict=False)
    ):
        judge.judge(number, event, record)
    ids = ("PM-8",) if is_shared(one.trace) else ("PM-2", "PM-3")
    return {(rule, ALIKE.get(kind, kind)) for rule, kind in judge.by_kind if rule in ids}


def ends(one: Driven) -> bool:
    """Whether each call has ended by itself: else the host has ended it, and an engine would have
    written nothing more."""
    outcomes = [record.outcome or {} for record in one.result.records]
    return DOES_NOT_END not in [outcome.get("refused") for outcome in outcomes]


def audited(one: Driven) -> Broken:
    """What the audit of its record finds broken."""
    folder = folder_or_file(str(one.folder))
    assert isinstance(folder, Folder)
    media = []
    for stream in folder.streams.values():
        source = Source(stream)
        opened = source.opened(last=True)
        assert opened is not None
        media.append(MediaSource(opened.role, source))
    audit, broken = MediaAudit(), []
    for role, part, now in in_order(media, math.inf, last=True):
        broken += audit.feed(role, part, one.release, now)
    broken += audit.end()
    assert audit.gaps == []
    told = [(one.violation.contract.id, one.violation.kind) for one in broken]
    return {(rule, ALIKE.get(kind, kind)) for rule, kind in told}


def rules_of(broken: Broken) -> set[str]:
    return {rule for rule, _ in broken}


def sends_again(one: Driven) -> bool:
    """Whether the data of an item is sent more than once: a record does not say which has come."""
    sent = Counter(
        item.name
        for event, record in zip(one.trace.events, one.result.records, strict=False)
        if isinstance(event, Process) and record.outcome is not None
        for item, says in zip(event.items, record.outcome.get("sent", event.items), strict=False)
        if says is not None
    )
    return any(count > 1 for count in sent.values())


@pytest.mark.parametrize("release", [NEWEST, *OLDER])
def test_the_audit_of_a_record_is_the_harness_s_verdict(release: str, tmp_path: Path) -> None:
    driven = run_recorded(release, [(trace, None) for trace in traces(release)], tmp_path)
    assert driven
    hidden = set() if tells_of_room(release) else {"PM-3"}
    compared = 0
    for one in filter(ends, driven):
        theirs, ours = judged(one), audited(one)
        assert rules_of(ours) - hidden == rules_of(theirs) - hidden, one.folder
        if not sends_again(one):
            assert ours <= theirs, one.folder
            assert ours == theirs or not names_all(release), one.folder
            compared += bool(ours)
    assert compared > 4
