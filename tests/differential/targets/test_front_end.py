"""The caches of processed media of real releases, through host processes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.findings.standalone.writing import standalone_test, why_none
from cacheproof.differential.generators.front_end import mixed, orders_in_all
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.targets.changed import ChangingHost
from cacheproof.differential.targets.host.faults.front_end import FRONT_END_FAULTS
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics
from tests.differential.findings.standalone.files import written
from tests.differential.targets.parameters import newest_and
from tests.differential.targets.searched import breaks_in, new_among

LANE, ORDERS = LANES["front end"], LANES["front end, every order"]
SHARED, MIXED = LANES["front end, shared memory"], LANES["front end, mixed media"]
OF_FRONT_ENDS = [lane for lane in LANES.values() if lane.depth == "front_end"]
Hosted = Callable[[str], AbstractContextManager[HostTarget]]


def new_in(real: HostTarget, seeds: range, *lanes: str) -> list[tuple[str, str]]:
    """Differences from the reference, and breaks that are no listed fault."""
    return new_among(breaks_in(real, seeds, [LANES[name] for name in lanes]))


@pytest.mark.parametrize("version", newest_and(*MODELLED[:-1]))
def test_a_release_is_as_the_reference_and_breaks_what_is_listed(
    hosted: Hosted, version: str
) -> None:
    lanes = [lane for lane in OF_FRONT_ENDS if lane.is_offered_by(version)]
    with hosted(version) as real:
        assert new_in(real, range(400), *(lane.name for lane in lanes)) == []


@pytest.mark.parametrize("version", newest_and(*MODELLED[1:-1]))
def test_other_stores_take_mixed_media_as_the_reference_does(hosted: Hosted, version: str) -> None:
    lanes = [SHARED, LANES["front end, processor only"], LANES["front end, several answers"]]
    traces = [mixed(lane.trace(seed, None), "mixed") for lane in lanes for seed in range(100)]
    reference = ReferenceTarget(Semantics.of_vllm(version), release=version)
    with hosted(version) as real:
        assert real.run(traces) == reference.run(traces)


@pytest.mark.full
def test_every_order_of_two_requests_is_as_the_reference_has_it(hosted: Hosted) -> None:
    with hosted(MODELLED[-1]) as real:
        assert new_in(real, range(orders_in_all()), ORDERS.name) == []


def test_a_release_and_the_reference_have_each_planted_fault_alike(newest: HostTarget) -> None:
    reference = ReferenceTarget(Semantics.of_vllm(MODELLED[-1]), release=MODELLED[-1])
    traces = [lane.trace(seed, None) for lane in OF_FRONT_ENDS for seed in range(40)]
    for fault in FRONT_END_FAULTS:
        assert newest.run(traces, fault) == reference.run(traces, fault)


STANDALONE = {
    ("PM-1", "across a reset"): ("0.28.0", "0.33.0"),
    ("PM-2", "overtaken"): ("0.33.0", None),
    ("PM-2", "of items in two orders"): ("0.33.0", None),
    ("PM-2", "of what the front end leaves out"): ("0.33.0", None),
    ("PM-5", ""): ("0.23.0", None),
    ("PM-3", "one too large"): ("0.28.0", "0.29.0"),
    ("PM-3", "though there is room"): ("0.11.2", "0.12.0"),
}


@pytest.mark.full
@pytest.mark.parametrize("broken", STANDALONE, ids=" ".join)
def test_a_standalone_test_is_red_where_it_was_found_and_green_where_it_is_mended(
    broken: tuple[str, str], tmp_path: Path, verdicts: Any
) -> None:
    contract, kind = broken
    release, mended = STANDALONE[broken]
    target = ReferenceTarget(Semantics.of_vllm(release), name=f"vllm@{release}", release=release)
    traces = (lane.trace(seed, None) for lane in (LANE, MIXED) for seed in range(2000))
    trace = next(
        one for one in traces if broken in examine(one, target.run([one])[0], target).by_kind
    )
    found = found_in(target, trace, contract, kind=kind)
    file = written(found, tmp_path / "test_found.py")
    assert verdicts(release, [file])[0] != "passes"
    assert mended is None or verdicts(mended, [file]) == ["passes"]


def test_what_never_ends_has_no_test() -> None:
    target = ReferenceTarget(Semantics.of_vllm("0.23.0"), name="vllm@0.23.0", release="0.23.0")
    broken = ("PM-3", "does not end")
    traces = (LANE.trace(seed, None) for seed in range(2000))
    trace = next(
        one for one in traces if broken in examine(one, target.run([one])[0], target).by_kind
    )
    found = found_in(target, trace, *broken[:1], kind=broken[1])
    assert found is not None
    assert standalone_test(found) is None
    assert "never ends" in why_none(found)


def test_a_release_without_shared_memory_says_so(hosted: Hosted) -> None:
    with hosted("0.10.2") as real:
        (result,) = real.run([SHARED.trace(0, None)])
    assert result.illegal is not None
    assert "0.10.2 keeps no processed media in shared memory" in result.illegal


def test_a_host_leaves_no_shared_memory_behind(newest: HostTarget) -> None:
    before = set(Path("/dev/shm").glob("cacheproof_*"))
    newest.run([SHARED.trace(seed, None) for seed in range(20)])
    assert set(Path("/dev/shm").glob("cacheproof_*")) == before


def test_shared_memory_that_has_no_room_for_its_largest_chunk_is_refused(
    newest: HostTarget,
) -> None:
    trace = SHARED.trace(0, None)
    config = msgspec.structs.replace(trace.header.config, capacity=16, largest=9)
    small = Trace(msgspec.structs.replace(trace.header, config=config), trace.events)
    for target in (newest, ReferenceTarget()):
        (result,) = target.run([small])
        assert result.illegal is not None
        assert "expected room for a chunk of 9 and its header of 8" in result.illegal


def test_a_host_that_can_be_changed_says_which_functions_and_lines_a_trace_reaches() -> None:
    path = "vllm/multimodal/cache/lru.py"
    release = releases.install(MODELLED[-1], report=lambda line: None)
    with closing(ChangingHost(release)) as host:
        traced = host.traced(LANE.trace(0, None), [path])
    assert f"{path}:LruKeyReplicatedReceiverCache.get_and_update_item" in traced.called
    assert len(traced.lines[path]) > 10
