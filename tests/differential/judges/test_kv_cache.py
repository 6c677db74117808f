"""The judge and the planted faults of the KV cache, on the reference."""

from collections import Counter
from collections.abc import Iterable

import pytest

from cacheproof.differential.generators.kv_cache import drafted_kv_cache_trace, generate
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.kv_cache import FIRST_BLOCKS, KVCacheJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.faults.kv_cache import KV_CACHE_FAULTS
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.reference_kv_cache import step_records
from cacheproof.differential.traces.records import Raised, StepRecord
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import contracts
from tests.differential.judges.kv_cache import judge_records

SEEDS = range(40)
IDEAL = Semantics.ideal()
KILLS = {
    "keeps_hits_queued": "BP-1",
    "loses_a_hash": "BP-2",
    "leaks_a_block": "BP-3",
    "keeps_silent_about_evictions": "BP-4",
    "frees_the_first_block_first": "BP-5",
    "tells_a_token_too_many": "BP-6",
    "hands_out_what_was_used_last": "BP-7",
    "says_that_it_was_reset": "BP-8",
    "evicts_nothing_by_id": "BP-9",
    "tells_no_parent": "BP-10",
    "names_no_items": "BP-11",
    "hits_every_token": "KV-1",
    "hits_backwards": "KV-1",
    "hands_out_a_shared_block": "KV-2",
    "refuses_to_be_reset": "KV-3",
    "hands_out_a_block_twice": "KV-4",
    "takes_a_block_away": "KV-5",
    "takes_a_block_too_many": "KV-6",
    "refuses_every_third_time": "KV-7",
    "caches_what_is_loading": "KV-8",
    "misses_every_third_hit": "KV-9",
    "claims_whole_tables_as_common": "KV-10",
    "caches_nothing_computed": "KV-11",
    "loads_to_nowhere": "KV-12",
    "counts_no_lookups": "KV-13",
    "caches_what_nobody_reads": "KV-14",
    "measures_no_hit": "KV-15",
}


def broken(
    seeds: Iterable[int],
    semantics: Semantics,
    fault: str | None = None,
    release: str | None = None,
) -> Counter[str]:
    """In how many of these traces the reference breaks each contract that the release promises."""
    found: Counter[str] = Counter()
    for seed in seeds:
        config, events = generate(seed)
        try:
            records = step_records(config, events, semantics, fault)
        except Illegal:
            continue
        judge = judge_records(config, events, records, semantics, release)
        found.update(list(judge.violations))
    return found


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("release", "further"),
    [
        ("0.14.0", {"KV-5"}),
        ("0.18.1", {"KV-5", "BP-11"}),
        ("0.22.1", set()),
        ("0.28.0", {"KV-10"}),
        ("0.33.0", set()),
    ],
)
def test_as_a_release_the_reference_breaks_what_is_known_of_it(
    release: str, further: set[str]
) -> None:
    found = set(broken(SEEDS, Semantics.of_vllm(release), release=release))
    assert found == {"BP-6", "KV-12"} | further


@pytest.mark.full
def test_the_ideal_keeps_every_contract_and_meets_every_rare_state() -> None:
    reach = Reachability()
    for seed in range(120):
        config, events = generate(seed)
        judge = judge_records(
            config, events, step_records(config, events, IDEAL), IDEAL, reach=reach
        )
        assert not judge.violations
        assert judge.calls_judged > len(events)
    # It caches no tail of a prompt that nobody finds, and counts no common prefix.
    tails = ["prompt tail cached", "several prompt tails on one block"]
    assert reach.never(LANES["KV cache"].rare) == [*tails, "common prefix"]


@pytest.mark.sample(13)
@pytest.mark.parametrize(("fault", "contract"), KILLS.items())
def test_a_planted_fault_is_killed_by_its_contract(fault: str, contract: str) -> None:
    assert broken(range(15), IDEAL, fault)[contract] > 0


def test_a_fault_that_is_none_breaks_nothing() -> None:
    assert not broken(range(15), IDEAL, "nothing")


def test_a_load_that_takes_another_groups_hit_is_found() -> None:
    """vLLM #33775, which releases before 0.24.0 have."""
    assert broken([60], Semantics.of_vllm("0.22.1"))["KV-4"] == 1
    assert not broken([60], IDEAL)


def test_a_window_that_moved_with_rejected_tokens_is_found() -> None:
    """Releases before 0.26.0 give back what a step in flight may still need."""
    assert broken([128], Semantics.of_vllm("0.22.1"))["KV-5"] == 1
    assert not broken([128], IDEAL)


def test_a_hit_that_is_aligned_twice_beside_a_drafter_is_found() -> None:
    """Releases up to 0.33.0 lose the whole hit."""
    trace = drafted_kv_cache_trace(10)
    release = ReferenceTarget(Semantics.of_vllm("0.33.0"))
    found = examine(trace, release.run([trace])[0], release).by_kind
    assert found.keys() == {("KV-9", FIRST_BLOCKS)}
    ideal = ReferenceTarget()
    assert not examine(trace, ideal.run([trace])[0], ideal).by_kind


def test_the_ideal_keeps_every_contract_beside_a_drafter() -> None:
    ideal = ReferenceTarget()
    for trace in map(drafted_kv_cache_trace, SEEDS):
        assert not examine(trace, ideal.run([trace])[0], ideal).by_kind


def test_every_fault_and_every_contract_is_in_the_table() -> None:
    assert set(KILLS) | {"nothing"} == set(KV_CACHE_FAULTS)
    assert {rule.id for rule in contracts("kv_cache")} == set(KILLS.values())


def test_a_violation_names_place_and_request() -> None:
    config, events = generate(0)
    records = step_records(config, events, IDEAL, "hands_out_a_shared_block")
    violation = judge_records(config, events, records, IDEAL).violations["KV-2"]
    assert violation.sentence.startswith(f"KV-2 at event {violation.event + 1} (slots) on r")


def test_an_exception_is_judged_and_ends_the_trace() -> None:
    config, events = generate(0)
    judge = KVCacheJudge(config, IDEAL, None, Reachability())
    judge.judge(0, events[0], StepRecord(None, [], Raised("KeyError", "r1"), None))
    assert "KV-3" in judge.violations


@pytest.mark.parametrize(("mended", "breaks"), [(("loaded-prompt",), False), ((), True)])
def test_a_mended_release_is_to_find_the_blocks_that_it_needs_with_its_mends(
    mended: tuple[str, ...], breaks: bool
) -> None:
    semantics = Semantics.of_vllm("0.33.0").changed({"kv_cache.keeps_window_of_last_token": True})
    target = ReferenceTarget(semantics, release="0.33.0")
    target.mended = mended
    trace = LANES["KV cache"].trace(14, "0.33.0")
    (result,) = target.run([trace])
    assert ("KV-7" in examine(trace, result, target).violations) is breaks
