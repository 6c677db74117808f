"""A search finds each planted fault, and does not find one that is not there."""

import re
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cacheproof.differential.generators.block_hash import block_hash_trace
from cacheproof.differential.generators.encoder_connector import connector_trace
from cacheproof.differential.generators.kv_cache import kv_cache_trace
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.media_hash import media_hash_trace
from cacheproof.differential.generators.media_identifier import media_identifier_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.rules import rules_for
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.canary import (
    CANARY_TRACES,
    NO_CANARY,
    NO_CANARY_WHERE_ALL_IS_SENT,
    NO_CANARY_WHERE_PLANNED,
    Canary,
    Planting,
    canaries,
    canaries_in,
    late_seeds,
    plant,
)
from cacheproof.differential.targets.host.connectors.faults import CONNECTOR_FAULTS
from cacheproof.differential.targets.host.faults.block_hash import BLOCK_HASH_FAULTS
from cacheproof.differential.targets.host.faults.engine.engine import ENGINE_FAULTS
from cacheproof.differential.targets.host.faults.front_end import FRONT_END_FAULTS
from cacheproof.differential.targets.host.faults.kv_cache import KV_CACHE_FAULTS
from cacheproof.differential.targets.host.faults.manager import FAULTS
from cacheproof.differential.targets.host.faults.media_hash import MEDIA_HASH_FAULTS
from cacheproof.differential.targets.host.faults.media_identifier import MEDIA_IDENTIFIER_FAULTS
from cacheproof.differential.targets.host.faults.scheduler import SCHEDULER_FAULTS
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.scheduler import Abort
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import SEARCHED
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import contracts

TRACES = {
    "encoder_cache": manager_trace,
    "encoder_decoder": lambda seed: manager_trace(seed, "encoder_decoder"),
    "block_hash": block_hash_trace,
    "media_hash": media_hash_trace,
    "kv_cache": kv_cache_trace,
    "encoder_connector": lambda seed: connector_trace(seed // 2, ("disk", "cpu")[seed % 2]),
    "media_identifier": media_identifier_trace,
    "front_end": lambda seed: FRONT_END[seed % len(FRONT_END)](seed // len(FRONT_END)),
}
FRONT_END = [lane.make for lane in LANES.values() if lane.manager == "front_end"]
DEPTHS = {
    lane.manager: lane.depth
    for lane in LANES.values()
    if lane.depth not in ("scheduler", "engine") and lane.is_offered_by(None)
}
KINDS = sorted(TRACES)
SEEDS = range(60)


def test_what_is_planted_here_is_every_kind_below_the_scheduler() -> None:
    assert TRACES.keys() == DEPTHS.keys()


@pytest.mark.sample(11)
@pytest.mark.parametrize(
    ("kind", "canary"),
    [(kind, canary) for kind in KINDS for canary in canaries(kind, depth=DEPTHS[kind])],
    ids=lambda value: value if isinstance(value, str) else f"{value.contract}-{value.fault}",
)
def test_each_canary_is_found(kind: str, canary: Canary) -> None:
    traces = map(TRACES[kind], SEEDS)
    with closing(ReferenceTarget()) as target:
        assert Planting(target, traces).finds(canary)


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", KINDS)
def test_a_canary_without_a_fault_is_missed(kind: str) -> None:
    for canary in canaries(kind, depth=DEPTHS[kind]):
        silent = Canary(canary.contract, "nothing")
        traces = map(TRACES[kind], SEEDS[:5])
        assert not Planting(ReferenceTarget(), traces).finds(silent)


def test_a_break_of_the_targets_own_is_no_canary_found() -> None:
    """Where nothing is planted, and where what is planted is what the target does anyway."""

    class Leaking(ReferenceTarget):
        def run(self, traces: Any, fault: str | None = None) -> Any:
            return super().run(traces, "leaks_a_slot")

    traces = [TRACES["encoder_cache"](seed) for seed in SEEDS[:5]]
    with closing(Leaking()) as target:
        assert not Planting(target, traces).finds(Canary("EC-1", "leaks_a_slot"))
    with closing(ReferenceTarget()) as target:
        assert Planting(target, traces).finds(Canary("EC-1", "leaks_a_slot"))


class Counting(ReferenceTarget):
    runs = 0

    def run(self, traces: Any, fault: str | None = None) -> Any:
        self.runs += 1
        return super().run(traces, fault)


@pytest.mark.parametrize(("event", "is_found"), [("add", True), ("reach", False)])
def test_a_trace_without_a_canarys_event_is_not_run(event: str, is_found: bool) -> None:
    target = Counting()
    traces = [LANES["encoder cache"].trace(seed, None) for seed in range(20)]
    found = Planting(target, traces).finds(Canary("EC-1", "leaks_a_slot", event=event))
    assert (found, target.runs > 0) == (is_found, is_found)


def test_a_trace_that_is_known_to_show_a_canary_comes_first_and_others_follow() -> None:
    lane, canary = LANES["encoder cache"], Canary("EC-1", "leaks_a_slot")
    traces = [lane.trace(seed, None) for seed in range(5)]
    shows, hides = traces[0], traces[0].with_events(())
    for showing, runs in (([], 4), ([(9, shows)], 2), ([(9, hides)], 6)):
        target = Counting()
        assert Planting(target, [hides, *traces]).finds(canary, showing=showing)
        assert target.runs == runs


def test_late_seeds_are_of_canaries_that_are_planted() -> None:
    for name, late in late_seeds().items():
        lane = LANES[name]
        planted = {
            canary.name
            for release in SEARCHED
            for canary in canaries(lane.manager, release, lane.silent_on, lane.depth)
        }
        assert late.keys() <= planted
        assert {seed for own in late.values() for seed in own} <= {*range(CANARY_TRACES)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_contract_has_a_canary_or_a_reason(kind: str) -> None:
    with_canary = {canary.contract for canary in canaries(kind, depth=DEPTHS[kind])}
    with_reason = {
        contract
        for manager, depth, contract in NO_CANARY
        if (manager, depth) == (kind, DEPTHS[kind])
    }
    assert with_canary | with_reason == {rule.id for rule in rules_for(kind, None).all}
    assert not with_canary & with_reason


SCHEDULER_RULES = {
    rule.id
    for rule in rules_for("encoder_cache", None, "scheduler").all
    if rule.kind == "promise" or "scheduler" in rule.applies_to
}
KV_RULES = {rule.id for rule in contracts("scheduler") if rule.component == "kv_transfers"}
OF_SCHEDULER = [
    canary
    for canary in canaries("encoder_cache", depth="scheduler")
    if canary.contract in SCHEDULER_RULES
]


def _scheduler_traces(canary: Canary, release: str | None = None) -> Iterator[Trace]:
    loads = canary.contract in KV_RULES
    return (scheduler_trace(seed, release=release, kv_transfers=loads) for seed in SEEDS)


@pytest.mark.parametrize("canary", OF_SCHEDULER, ids=lambda canary: canary.name)
@pytest.mark.parametrize(
    "release", [None, *(pytest.param(one, marks=pytest.mark.full) for one in ("0.33.0", "0.18.1"))]
)
def test_each_canary_of_a_scheduler_is_found(release: str | None, canary: Canary) -> None:
    semantics = None if release is None else Semantics.of_vllm(release)
    target = ReferenceTarget(semantics)
    assert Planting(target, _scheduler_traces(canary, release)).finds(canary)


def test_the_canary_of_a_promise_to_an_encoder_decoder_cache_is_found() -> None:
    (promise,) = [
        one for one in canaries("encoder_decoder", depth="scheduler") if one.contract == "CP-6"
    ]
    lane = LANES["scheduler of encoder-decoders"]
    traces = [lane.trace(seed, None) for seed in SEEDS[:5]]
    assert Planting(ReferenceTarget(), traces).finds(promise)
    assert not Planting(ReferenceTarget(), traces).finds(Canary("CP-6", "nothing"))


@pytest.mark.sample(4)
@pytest.mark.parametrize("canary", OF_SCHEDULER, ids=lambda canary: canary.name)
def test_a_canary_of_a_scheduler_without_its_fault_is_missed(canary: Canary) -> None:
    silent = Canary(canary.contract, "nothing", canary.kind)
    assert not Planting(ReferenceTarget(), _scheduler_traces(canary)).finds(silent)


def test_every_contract_of_a_scheduler_has_a_canary_or_a_reason() -> None:
    here = ("encoder_cache", "scheduler")
    with_reason = {contract for *where, contract in NO_CANARY if tuple(where) == here}
    with_canary = {canary.contract for canary in OF_SCHEDULER}
    assert with_canary == SCHEDULER_RULES - with_reason


@pytest.mark.parametrize("mended", [(), ("idle-eviction",)])
def test_what_a_mend_leaves_no_room_for_is_not_planted(mended: tuple[str, ...]) -> None:
    target: Any = SimpleNamespace(release="0.33.0", mended=mended)
    planted = {canary.contract for canary in canaries_in(LANES["scheduler"], target)}
    assert planted.isdisjoint(NO_CANARY_WHERE_PLANNED) is bool(mended)


@pytest.mark.parametrize("mended", [(), ("media-overtaken",)])
def test_where_all_data_is_sent_nothing_is_planted_that_takes_an_item_for_sent(
    mended: tuple[str, ...],
) -> None:
    target: Any = SimpleNamespace(release="0.33.0", mended=mended)
    planted = {(one.contract, one.kind) for one in canaries_in(LANES["front end"], target)}
    assert planted.isdisjoint(NO_CANARY_WHERE_ALL_IS_SENT) is bool(mended)
    assert ("PM-2", "though its data came") in planted


@pytest.mark.full
def test_a_campaign_plants_the_canaries_of_all_its_lanes() -> None:
    lanes = [
        lane
        for lane in LANES.values()
        if lane.depth not in ("scheduler", "engine") and lane.is_offered_by(None)
    ]
    target, found = ReferenceTarget(), {}
    for lane in lanes:
        found |= plant(canaries_in(lane, target, {("EC-7", "encoder cache", "")}), target, lane)
    assert all(found.values())
    contracts = {re.split("[ ,]", name)[0] for name in found}
    planted = {canary.contract for kind in KINDS for canary in canaries(kind, depth=DEPTHS[kind])}
    assert contracts == planted - {"EC-7"}


def test_a_release_that_keys_per_request_has_canaries_for_its_own_contracts_only() -> None:
    judged = {canary.contract for canary in canaries("encoder_cache", "0.10.1.1")}
    assert {"EC-1", "EC-3", "EC-5", "EC-9", "EC-11", "EC-13", "WM-1"} <= judged
    assert not judged & {"EC-2", "EC-4", "EC-6", "EC-7", "EC-12"}


def test_a_contract_that_the_release_breaks_of_itself_has_no_canary() -> None:
    assert "ED-2" in {canary.contract for canary in canaries("encoder_decoder", "0.33.0")}
    assert "ED-2" not in {
        canary.contract for canary in canaries("encoder_decoder", "0.33.0", broken={"ED-2"})
    }


def test_every_fault_is_used_or_is_the_one_that_does_nothing() -> None:
    used = {canary.fault for kind in KINDS for canary in canaries(kind, depth=DEPTHS[kind])}
    used |= {canary.fault for canary in OF_SCHEDULER}
    planted = set(FAULTS) | set(BLOCK_HASH_FAULTS) | set(MEDIA_HASH_FAULTS) | set(KV_CACHE_FAULTS)
    planted |= set(SCHEDULER_FAULTS) | set(CONNECTOR_FAULTS) | set(FRONT_END_FAULTS)
    planted |= set(MEDIA_IDENTIFIER_FAULTS)
    of_tests = {"hits_backwards", "forgets_frames", "keeps_drafts", "reports_saves_early"}
    assert planted == used | {"nothing"} | of_tests


def test_an_engine_has_a_canary_for_all_that_it_adds_to_its_scheduler() -> None:
    faults = set()
    for lane in (LANES["LLaVA"], LANES["Whisper"]):
        planted = canaries(lane.manager, "0.32.0", depth="engine")
        faults |= {canary.fault for canary in planted}
        added = {rule.id for rule in contracts("engine")} - lane.silent_on
        assert added <= {canary.contract for canary in planted}
    assert faults == ENGINE_FAULTS.keys()


def test_a_canary_of_a_kind_is_planted_beside_other_kinds_and_not_beside_its_own() -> None:
    lane, ours = LANES["media hash"], {("MH-3", "media hash", "list against map")}
    target = ReferenceTarget()
    found = plant(canaries_in(lane, target, ours), target, lane)
    assert "MH-3, mode of an image (media hash)" in found
    assert "MH-3, list against map (media hash)" not in found


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("release", "otherwise"),
    [("0.11.0", False), ("0.15.1", False), ("0.18.1", True), ("0.33.0", True)],
)
def test_who_ends_inside_an_item_beside_kv_loads_is_found(release: str, otherwise: bool) -> None:
    """Up to 0.19 entries are given back as soon as they are scheduled: between two steps a request
    holds one only inside an item."""
    lane, canary = (
        LANES["scheduler with KV loads"],
        Canary("SC-6", "frees_nothing", "after the end"),
    )
    target = ReferenceTarget(Semantics.of_vllm(release), release=release)
    assert canary in canaries_in(lane, target)
    assert all(plant([canary], target, lane).values())
    without = [trace_without_its_end(lane.trace(seed, release)) for seed in SEEDS]
    assert Planting(target, without).finds(canary) == otherwise


def trace_without_its_end(trace: Trace) -> Trace:
    """Without the request of the lane that is aborted inside an item at the end of a trace."""
    *before, added, _, aborted, _ = trace.events
    if not (isinstance(added, Add) and isinstance(aborted, Abort)):
        return trace
    return msgspec.structs.replace(trace, events=tuple(before))
