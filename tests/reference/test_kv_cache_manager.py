"""The KV cache manager: what is hit, who gets slots, what is given back."""

import pytest

from cacheproof.reference.block_hash import get_request_block_hasher
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.kv_cache_manager import KVCacheBlocks, KVCacheManager
from cacheproof.reference.kv_cache_specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    NotModelledCache,
    SlidingWindowSpec,
)
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics

FULL = FullAttentionSpec(2)
WINDOW = SlidingWindowSpec(2, 3)


def make(*specs: KVCacheSpec, blocks: int = 13, **options: object) -> KVCacheManager:
    config = KVCacheConfig(blocks, tuple(KVCacheGroupSpec(spec) for spec in specs))
    return KVCacheManager(config, 64, log_stats=True, **options)  # type: ignore[arg-type]


def request(name: str, tokens: int, size: int = 2, **options: bool) -> ScheduledRequest:
    """A request with the first `tokens` tokens of the one text there is."""
    ideal = Semantics.ideal()
    hasher = get_request_block_hasher(size, hash_function(ideal), semantics=ideal, seed="0")
    return ScheduledRequest(name, list(range(tokens)), block_hasher=hasher, **options)


def admit(
    manager: KVCacheManager, shown: ScheduledRequest, tokens: int | None = None, **options: int
) -> KVCacheBlocks | None:
    """Look up and allocate as a scheduler does for a request that waits."""
    blocks, hit, _ = manager.get_computed_blocks(shown)
    external = options.get("num_external_computed_tokens", 0)
    new = shown.num_tokens - hit - external if tokens is None else tokens
    granted = manager.allocate_slots(shown, new, hit, blocks, **options)  # type: ignore[arg-type]
    if granted is not None:
        manager.record_prefix_cache_stats(shown, hit)
        shown.num_computed_tokens = hit + external + new
    return granted


def test_a_request_gets_blocks_for_its_tokens() -> None:
    manager = make(FULL)
    granted = admit(manager, request("r1", 5))
    assert granted is not None
    assert granted.get_block_ids() == ([1, 2, 3],)
    assert manager.get_block_ids("r1") == ([1, 2, 3],)
    assert manager.usage == 0.25


def test_a_second_request_hits_full_blocks_and_computes_the_last_token() -> None:
    manager = make(FULL)
    admit(manager, request("r1", 4))
    blocks, hit, boundary = manager.get_computed_blocks(request("r2", 4))
    assert (blocks.get_block_ids(), hit, boundary) == (([1],), 2, 0)
    assert manager.get_computed_blocks(request("r3", 5))[1] == 4


def test_without_prefix_caching_nothing_is_hit() -> None:
    manager = make(FULL, enable_caching=False)
    admit(manager, request("r1", 4))
    assert manager.get_computed_blocks(request("r2", 5))[1] == 0


def test_a_request_may_skip_reading_the_cache() -> None:
    manager = make(FULL)
    admit(manager, request("r1", 4))
    shy = request("r2", 5, skip_reading_prefix_cache=True)
    assert manager.get_computed_blocks(shy) == (manager.empty_kv_cache_blocks, 0, 0)


def test_a_hit_that_nobody_holds_counts_as_taken() -> None:
    manager = make(FULL, blocks=4)
    first = request("r1", 4)
    admit(manager, first)
    manager.free(first)
    assert admit(manager, request("r2", 7)) is None
    assert admit(manager, request("r3", 6)) is not None


def test_a_refusal_changes_no_table() -> None:
    manager = make(FULL, blocks=3)
    assert admit(manager, request("r1", 7)) is None
    assert manager.get_block_ids("r1") == ([],)
    assert manager.block_pool.get_num_free_blocks() == 2


def test_slots_for_no_token_are_an_error() -> None:
    with pytest.raises(ValueError, match="r1: slots for no token"):
        make(FULL).allocate_slots(request("r1", 4), 0)


def test_look_ahead_gets_slots_but_is_not_cached() -> None:
    manager = make(FULL)
    shown = request("r1", 4)
    granted = admit(manager, shown, num_lookahead_tokens=3)
    assert granted is not None
    assert len(granted.blocks[0]) == 4
    assert manager.get_computed_blocks(request("r2", 9))[1] == 4


def test_drafts_that_may_be_rejected_are_not_cached() -> None:
    manager = make(FULL)
    shown = request("r1", 3)
    admit(manager, shown)
    manager.allocate_slots(shown, 3)
    assert manager.get_computed_blocks(request("r2", 9))[1] == 2


def test_a_load_under_way_is_cached_when_it_has_arrived() -> None:
    manager = make(FULL)
    shown = request("r1", 4)
    granted = manager.allocate_slots(
        shown, 0, num_external_computed_tokens=4, delay_cache_blocks=True
    )
    assert granted is not None
    assert manager.get_block_ids("r1") == ([1, 2],)
    assert manager.get_computed_blocks(request("r2", 9))[1] == 0
    manager.cache_blocks(shown, 4)
    assert manager.get_computed_blocks(request("r2", 9))[1] == 4


def test_a_window_gives_back_what_it_no_longer_reads() -> None:
    manager = make(WINDOW)
    shown = request("r1", 9)
    admit(manager, shown)
    manager.remove_skipped_blocks("r1", 9)
    assert manager.get_block_ids("r1") == ([0, 0, 0, 4, 5],)
    blocks, hit, _ = manager.get_computed_blocks(request("r2", 9))
    assert (blocks.get_block_ids(), hit) == (([0, 0, 0, 4],), 8)


def test_what_a_step_in_flight_reads_is_not_given_back() -> None:
    manager = make(WINDOW)
    shown = request("r1", 9)
    admit(manager, shown)
    shown.num_in_flight_tokens = 9
    manager.allocate_slots(shown, 1)
    assert 0 not in manager.get_block_ids("r1")[0]


def test_local_attention_reads_its_chunk_alone() -> None:
    manager = make(ChunkedLocalAttentionSpec(2, 4))
    blocks, hit, _ = manager.get_computed_blocks(request("r1", 7))
    assert (blocks.get_block_ids(), hit) == (([0, 0],), 4)


def test_all_groups_hit_the_same_prefix() -> None:
    manager = make(FULL, WINDOW)
    admit(manager, request("r1", 9))
    window = manager.get_block_ids("r1")[1]
    manager.evict_blocks(window[3:4])
    blocks, hit, boundary = manager.get_computed_blocks(request("r2", 9))
    assert (hit, boundary) == (6, 8)
    assert blocks.get_block_ids() == ([1, 2, 3], [0, 0, window[2]])


def test_a_group_of_coarse_blocks_shortens_the_hit() -> None:
    manager = make(FullAttentionSpec(4), WINDOW)
    admit(manager, request("r1", 8))
    assert manager.get_computed_blocks(request("r2", 7))[1] == 4


def test_cross_attention_gets_blocks_for_the_encoder() -> None:
    manager = make(FULL, CrossAttentionSpec(4), enable_caching=False)
    admit(manager, request("r1", 2), num_encoder_tokens=9)
    assert manager.get_block_ids("r1") == ([1], [2, 3, 4])


def test_the_whole_sequence_must_fit_where_that_is_asked() -> None:
    manager = make(FULL, blocks=4)
    assert admit(manager, request("r1", 8), 2, full_sequence_must_fit=True) is None
    assert admit(manager, request("r1", 8), 2) is not None


def test_admission_leaves_reserved_blocks_and_a_watermark() -> None:
    manager = make(FULL, blocks=5, watermark=0.5)
    assert admit(manager, request("r1", 6)) is None
    assert admit(manager, request("r1", 6), has_scheduled_reqs=False, reserved_blocks=2) is None
    assert admit(manager, request("r1", 6), has_scheduled_reqs=False) is not None


def test_blocks_may_be_given_back_after_the_request_has_ended() -> None:
    manager = make(FULL)
    shown = request("r1", 5)
    admit(manager, shown)
    blocks = manager.pop_blocks_for_free(shown)
    assert manager.get_block_ids("r1") == ([],)
    assert manager.block_pool.get_num_free_blocks() == 9
    manager.block_pool.free_blocks(reversed(blocks))
    assert manager.block_pool.get_num_free_blocks() == 12


def test_statistics_tell_new_requests_from_preempted_ones() -> None:
    manager = make(FULL)
    admit(manager, request("r1", 4))
    again = request("r2", 5)
    again.num_preemptions = 1
    admit(manager, again)
    stats = manager.make_prefix_cache_stats()
    assert stats is not None
    assert (stats.requests, stats.queries, stats.hits) == (1, 4, 0)
    assert (stats.preempted_requests, stats.preempted_hits) == (1, 4)


def test_no_statistics_are_kept_unasked() -> None:
    config = KVCacheConfig(4, (KVCacheGroupSpec(FULL),))
    assert KVCacheManager(config, 64).make_prefix_cache_stats() is None


def test_events_say_which_kind_of_group_they_are_about() -> None:
    manager = make(WINDOW, enable_kv_cache_events=True)
    admit(manager, request("r1", 2))
    (event,) = manager.take_events()
    shown = vars(event)
    assert (shown["kv_cache_spec_kind"], shown["kv_cache_spec_sliding_window"]) == (
        "sliding_window",
        3,
    )


def test_answers_can_be_joined_and_emptied() -> None:
    manager = make(FULL)
    granted = admit(manager, request("r1", 2))
    assert granted is not None
    assert (granted + granted).get_block_ids() == ([1, 1],)
    assert granted.new_empty().get_block_ids(allow_none=True) is None
    assert granted.get_unhashed_block_ids() == []


@pytest.mark.parametrize(
    ("specs", "options", "what"),
    [
        ((FULL, CrossAttentionSpec(2)), {}, "beside cross-attention"),
        ((ChunkedLocalAttentionSpec(2, 4),), {"use_eagle": True}, "a drafter beside chunked"),
        ((FullAttentionSpec(4), ChunkedLocalAttentionSpec(2, 4)), {}, "other block sizes"),
        ((KVCacheSpec(2),), {}, "KVCacheSpec groups"),
        ((FULL, FULL), {"semantics": Semantics.of_vllm("0.28.0")}, "all of one kind"),
        (
            (FULL, WINDOW),
            {"semantics": Semantics.of_vllm("0.18.1"), "use_eagle": True},
            "drops twice",
        ),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(
    specs: tuple[KVCacheSpec, ...], options: dict[str, object], what: str
) -> None:
    with pytest.raises(NotModelledCache, match=what):
        make(*specs, **options)  # type: ignore[arg-type]


def test_external_tokens_are_not_modelled_before_allocation_was_told_of_them() -> None:
    manager = make(FULL, semantics=Semantics.of_vllm("0.13.0"))
    with pytest.raises(NotModelledCache, match="external tokens"):
        manager.allocate_slots(request("r", 4), 1, num_external_computed_tokens=2)
