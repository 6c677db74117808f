"""Connectors of external encoder caches: what releases and LMCache break, and what ours keeps."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import msgspec
import pytest

from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.findings.standalone.writing import standalone_test, why_none
from cacheproof.differential.judges.encoder_connector import OF_MORE_ROWS, OF_PREEMPTED
from cacheproof.differential.judges.examination import Examination, examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.connectors import redis_server
from cacheproof.differential.targets.host.connectors.encoder_connector import DEPTH_OF_STORE
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.encoder_connector import Execute, Plan, Start
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import NEWEST

OURS = "cacheproof.gpu_runner.encoder_connector.vllm_connector:EncoderConnector"
BROKEN = {
    "promise-evicted": {"EX-1", "EX-2"},
    "promise-evicted-save": {"EX-1", "EX-2", "EX-3"},
    "save-of-the-preempted": {"EX-3"},
    "larger-than-the-region": {"EX-5"},
    "another-model-in-the-folder": {"EX-4"},
    "unchecked-entries": {"EX-5"},
    "unchecked-entries-served": {"EX-4"},
    "connector-not-reset": {"EX-7"},
    "connector-not-reset-in-memory": {"EX-7"},
    "drafts-of-the-killed": {"EX-9"},
}
"""What the newest release breaks, by kept trace."""
BROKEN_BY_LMCACHE = {
    "contains-and-get": {"EX-1"},
    "two-storages": {"EX-12"},
    "drafts-of-the-killed": {"EX-9"},
    "lmcache-never-closes": {"EX-5"},
    "lost-connection": {"EX-12"},
}
LAST_WITH_GAPS = "0.31.0"
LEADS_OUT = "leads out of the trace's folder"
"""What is said of a path that would stay among temporary files, if it were followed."""
OVER_A_SERVER = pytest.mark.skipif(not redis_server.is_there(), reason="no redis-server on PATH")


def target_of(name: str) -> Iterator[Target]:
    with closing(resolve(name, report=print)) as target:
        yield target


@pytest.fixture(scope="module")
def release() -> Iterator[Target]:
    yield from target_of(f"vllm@{NEWEST}")


@pytest.fixture(scope="module")
def ours() -> Iterator[Target]:
    yield from target_of(f"{OURS}@{NEWEST}")


@pytest.fixture(scope="module")
def lmcache() -> Iterator[Target]:
    yield from target_of("lmcache@0.5.6")


FAULTS_OVER_A_SERVER = {
    "forgets_to_load": {"EX-1"},
    "serves_another_item": {"EX-4"},
    "ignores_new_weights": {"EX-7"},
    "sees_its_own_alone": {"EX-10"},
    "remembers_what_it_promised": {"EX-11"},
    "promises_nothing": {"EX-12"},
}


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceTarget]:
    with closing(ReferenceTarget()) as target:
        yield target


def examined(trace: Trace, target: Target) -> Examination:
    return examine(trace, target.run([trace])[0], target)


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", BROKEN)
def test_a_release_breaks_what_its_page_says_and_ours_does_not(
    name: str, release: Target, ours: Target, finding: Callable[[str], Trace]
) -> None:
    trace = finding(name)
    assert examined(trace, release).broken == BROKEN[name]
    of_ours = examined(trace, ours)
    assert of_ours.illegal is None
    assert not of_ours.broken


@pytest.mark.full
def test_a_release_writes_outside_its_folder_and_ours_does_not(
    release: Target, ours: Target
) -> None:
    """The names of items are drawn from seeds, in folders of the traces' own."""
    lane = LANES["connectors on a disk"]
    found = {
        target.name: search(target, [lane], against=None, seeds=range(6)).kinds
        for target in (release, ours)
    }
    assert any(rule == "EX-8" for rule, _, _ in found[release.name])
    assert not found[ours.name]


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=OVER_A_SERVER if name == "lmcache-never-closes" else ())
        for name in BROKEN_BY_LMCACHE
    ],
)
def test_lmcache_breaks_what_its_page_says(
    name: str, lmcache: Target, finding: Callable[[str], Trace]
) -> None:
    assert examined(finding(name), lmcache).broken == BROKEN_BY_LMCACHE[name]


@pytest.mark.full
@pytest.mark.parametrize("lane", ["connectors on a disk", "connectors in memory"])
def test_ours_keeps_all_contracts_with_real_tensors(lane: str, ours: Target) -> None:
    found = search(ours, [LANES[lane]], against=None, seeds=range(40))
    assert not found.kinds
    assert not found.harness_errors
    assert found.calls > 1000


@OVER_A_SERVER
def test_the_reference_keeps_all_contracts_over_a_server_and_faults_are_found(
    reference: ReferenceTarget,
) -> None:
    lane = LANES["connectors over a server"]
    found = search(reference, [lane], against=None, seeds=range(40))
    assert not found.kinds
    assert not found.harness_errors
    assert found.calls > 1000
    for fault in FAULTS_OVER_A_SERVER:
        broken = (
            examine(trace, reference.run([trace], fault)[0], reference).broken
            for trace in map(lane.make, range(1, 100))
        )
        assert any(FAULTS_OVER_A_SERVER[fault] <= some for some in broken)


@pytest.mark.full
def test_ours_decides_as_the_reference_does_where_all_connectors_do(
    ours: Target, reference: ReferenceTarget
) -> None:
    found = search(ours, [LANES["connectors on a disk"]], against=reference, seeds=range(40))
    compared = found.lanes[0].compared
    assert not found.kinds
    assert compared is not None
    assert compared.traces > 5


@pytest.mark.full
def test_a_finding_is_small_and_fails_as_a_file_of_its_own(
    release: Target, tmp_path: Path, verdicts: Callable[[str, Iterable[Path]], list[str]]
) -> None:
    lane = LANES["connectors in memory"]
    trace = next(
        trace
        for trace in map(lane.make, range(100))
        if "EX-1" in examined(trace, release).violations
    )
    found = found_in(release, trace, "EX-1", times=2, batches=150)
    assert found is not None
    assert len(found.trace.events) <= 10
    source = standalone_test(found)
    assert source is not None
    assert "cacheproof" not in source
    file = tmp_path / "test_it.py"
    file.write_text(source)
    assert [one.partition(":")[0] for one in verdicts(NEWEST, [file])] == ["AssertionError"]


def with_fields(trace: Trace, kind: type, **fields: Any) -> Trace:
    """A trace whose events of that kind have other values."""
    events = tuple(
        msgspec.structs.replace(event, **fields) if isinstance(event, kind) else event
        for event in trace.events
    )
    return msgspec.structs.replace(trace, events=events)


@pytest.mark.full
def test_a_save_that_is_reported_before_its_copy_ends_serves_other_rows(release: Target) -> None:
    made = map(LANES["connectors in memory"].make, range(60))
    late = [with_fields(trace, Plan, preempted=()) for trace in made]  # else nothing is saved
    at_once = [with_fields(trace, Execute, late=0) for trace in late]

    def served_wrong(traces: list[Trace]) -> int:
        results = zip(traces, release.run(traces, "reports_saves_early"), strict=True)
        broken = [examine(trace, result, release).by_kind.keys() for trace, result in results]
        return sum(("EX-4", "") in kinds for kinds in broken)

    assert served_wrong(late) > 0
    assert served_wrong(at_once) == 0


@pytest.mark.full
def test_a_preempted_save_fails_as_a_file_of_its_own(
    release: Target,
    finding: Callable[[str], Trace],
    tmp_path: Path,
    verdicts: Callable[[str, Iterable[Path]], list[str]],
) -> None:
    trace = finding("save-of-the-preempted")
    found = found_in(release, trace, "EX-3", kind=OF_PREEMPTED, times=2, batches=0)
    assert found is not None
    source = standalone_test(found)
    assert source is not None
    file = tmp_path / "test_it.py"
    file.write_text(source)
    assert [one.partition(":")[0] for one in verdicts(NEWEST, [file])] == ["AssertionError"]


@pytest.mark.full
def test_rows_of_gaps_fail_as_a_file_of_its_own_in_the_releases_that_load_them(
    finding: Callable[[str], Trace],
    tmp_path: Path,
    verdicts: Callable[[str, Iterable[Path]], list[str]],
) -> None:
    with closing(resolve(f"vllm@{LAST_WITH_GAPS}", report=print)) as older:
        trace = finding("rows-of-the-gaps")
        found = found_in(older, trace, "EX-4", kind=OF_MORE_ROWS, times=2, batches=50)
    assert found is not None
    assert len(found.trace.events) <= 6
    source = standalone_test(found)
    assert source is not None
    file = tmp_path / "test_it.py"
    file.write_text(source)
    assert [one.partition(":")[0] for one in verdicts(LAST_WITH_GAPS, [file])] == ["AssertionError"]
    assert verdicts(NEWEST, [file]) == ["passes"]


def test_what_is_at_a_server_is_not_played_with_a_release(
    release: Target, finding: Callable[[str], Trace]
) -> None:
    illegal = examined(finding("lmcache-never-closes"), release).illegal
    assert illegal == "no connector has a client of Redis here"


@pytest.mark.full
def test_what_is_of_processes_has_no_file(release: Target, finding: Callable[[str], Trace]) -> None:
    found = found_in(release, finding("drafts-of-the-killed"), "EX-9", times=2, batches=0)
    assert found is not None
    assert standalone_test(found) is None
    assert "replay" in why_none(found)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("items", [{"identifier": f"{gettempdir()}/x", "rows": 1}], LEADS_OUT),
        ("items", [{"identifier": "../" * (DEPTH_OF_STORE + 1) + "x", "rows": 1}], LEADS_OUT),
        ("items", [{"identifier": "y", "rows": 1}], "is not among the configuration's"),
        ("store", "remote", "no remote folder"),
    ],
)
def test_what_cannot_be_played_is_refused_with_a_reason(
    field: str, value: Any, reason: str, reference: ReferenceTarget, finding: Callable[[str], Trace]
) -> None:
    lines = msgspec.to_builtins(finding("unchecked-entries"))
    lines["header"]["config"][field] = value
    header = msgspec.convert(lines["header"], type(finding("unchecked-entries").header))
    illegal = examined(Trace(header, finding("unchecked-entries").events), reference).illegal
    assert illegal is not None
    assert reason in illegal


@pytest.mark.full
def test_an_engine_is_killed_at_any_byte_of_an_entry_and_leaves_it_whole_or_not_at_all(
    reference: ReferenceTarget, finding: Callable[[str], Trace]
) -> None:
    trace = finding("unchecked-entries")
    traces = [
        trace.with_events(
            (
                Start("a"),
                Plan("a", ("x",)),
                Execute("a", dies_at=byte),
                Start("a"),
                Plan("a", ("x",)),
                Execute("a"),
            )
        )
        for byte in range(0, 500, 3)
    ]
    results = reference.run(traces)
    died = [bool(result.records[2].outcome.get("died")) for result in results]
    assert died == sorted(died, reverse=True)
    assert 10 < sum(died) < len(died)
    for one, result in zip(traces, results, strict=True):
        assert not examine(one, result, reference).broken
