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
from cacheproof.reference.kv_events import BlockStored
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics

FULL = FullAttentionSpec(2)
WINDOW = SlidingWindowSpec(2, 3)


def make(*specs: KVCacheSpec, blocks: int = 13, **options: object) -> KVCacheManager:
    config = KVCacheConfig(blocks, tuple(KVCacheGroupSpec(spec) for spec in specs))
    return of(config, log_stats=True, **options)


def of(config: KVCacheConfig, **options: object) -> KVCacheManager:
    sizes = (config.scheduler_block_size, config.hash_block_size)
    return KVCacheManager(config, 64, *sizes, **options)  # type: ignore[arg-type]


def request(name: str, tokens: int, size: int = 2, **options: bool) -> ScheduledRequest:
    """A request with the first `tokens` tokens of the one text there is."""
    ideal = Semantics.ideal().block_keys
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
    manager = of(KVCacheConfig(4, (KVCacheGroupSpec(FULL),)))
    assert manager.make_prefix_cache_stats() is None
    assert manager.prefix_cache_stats is None
    assert manager.reset_prefix_cache()


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


def test_slots_for_a_hit_alone_are_granted_from_the_release_on_that_grants_them() -> None:
    for adopts in (True, False):
        manager = make(
            FULL, semantics=Semantics.ideal().changed({"kv_cache.adopts_hits_alone": adopts})
        )
        admit(manager, request("r1", 5))
        shown = request("r2", 5)
        blocks, hit, _ = manager.get_computed_blocks(shown)
        if adopts:
            assert manager.allocate_slots(shown, 0, hit, blocks) is not None
            assert manager.get_block_ids("r2") == ([1, 2],)
        else:
            with pytest.raises(ValueError, match="slots for no token"):
                manager.allocate_slots(shown, 0, hit, blocks)


def test_blocks_to_be_given_back_later_begin_with_one_that_is_held() -> None:
    for trims, begins_with_null in ((True, False), (False, True)):
        manager = make(
            WINDOW, semantics=Semantics.ideal().changed({"kv_cache.trims_null_heads": trims})
        )
        shown = request("r1", 8)
        admit(manager, shown)
        manager.remove_skipped_blocks("r1", 8)
        blocks = manager.pop_blocks_for_free(shown)
        assert blocks[0].is_null is begins_with_null
        assert [block.block_id for block in blocks if not block.is_null] == [4]


@pytest.mark.parametrize(
    ("interval", "specs", "expected"),
    [
        (3, (FULL, WINDOW), "non-negative multiple of scheduler_block_size, which is 2"),
        (-2, (FULL, WINDOW), "non-negative multiple of scheduler_block_size"),
        (2, (FULL,), "no sliding-window or Mamba group"),
    ],
)
def test_a_retention_interval_that_is_none_is_refused(
    interval: int, specs: tuple[KVCacheSpec, ...], expected: str
) -> None:
    groups = tuple(map(KVCacheGroupSpec, specs))
    with pytest.raises(ValueError, match=expected):
        of(KVCacheConfig(13, groups, interval))


def test_a_retention_interval_of_0_goes_with_any_groups() -> None:
    assert of(KVCacheConfig(13, (KVCacheGroupSpec(FULL),), 0)).coordinator.retention_interval == 0


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((3, 2), "blocks of 2 tokens"),
        ((2, 4), "blocks of 2 tokens"),
        ((4, 1), "hashes of 1 tokens"),
    ],
)
def test_block_sizes_that_do_not_divide_each_other_are_refused(
    sizes: tuple[int, int], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        KVCacheManager(KVCacheConfig(13, (KVCacheGroupSpec(FULL),)), 64, *sizes)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_prefill_lookahead": 2}, "several modules"),
        ({"num_hash_lookahead_tokens": 1, "enable_kv_cache_events": True}, "look ahead"),
        ({"enable_mamba_shared_prefix_checkpoint": True}, "Mamba"),
        ({"dcp_world_size": 2}, "context parallelism"),
        ({"pcp_world_size": 2}, "context parallelism"),
    ],
)
def test_arguments_of_what_is_not_modelled_are_refused(
    options: dict[str, int], expected: str
) -> None:
    with pytest.raises(NotModelledCache, match=expected):
        make(FULL, **options)


def test_a_negative_watermark_is_refused() -> None:
    with pytest.raises(ValueError, match=r"watermark is -0\.1"):
        make(FULL, watermark=-0.1)


def test_a_window_may_be_asked_at_an_alignment_finer_than_its_block() -> None:
    manager = make(WINDOW)
    admit(manager, request("r1", 8))
    group = manager.coordinator.single_type_managers[0]
    hashes = request("r2", 8).block_hashes
    ask = (hashes, 8, [0], manager.block_pool, WINDOW, False)
    assert group.find_longest_cache_hit(*ask, 1) == group.find_longest_cache_hit(*ask, 2)
    assert group.reachable_block_mask(0, 4, 1, WINDOW, False) is None


def test_hits_of_full_attention_that_end_inside_a_block_are_refused() -> None:
    manager = make(FULL)
    group = manager.coordinator.single_type_managers[0]
    with pytest.raises(NotModelledCache, match="inside a block"):
        group.find_longest_cache_hit([], 8, [0], manager.block_pool, FULL, False, 1)


def test_a_drafter_drops_a_block_of_the_groups_that_it_reads_alone() -> None:
    drops = {}
    for marked in ((), (0,), (1,)):
        groups = tuple(
            KVCacheGroupSpec(spec, is_eagle_group=number in marked)
            for number, spec in enumerate((FULL, WINDOW))
        )
        manager = of(KVCacheConfig(25, groups), use_eagle=True)
        assert manager.coordinator.eagle_group_ids == set(marked or (0, 1))
        drops[marked] = [group.use_eagle for group in manager.coordinator.single_type_managers]
    assert drops == {(): [True, True], (0,): [True, False], (1,): [False, True]}


def test_groups_that_are_marked_drop_nothing_without_a_drafter_where_keys_may_look_ahead() -> None:
    groups = (KVCacheGroupSpec(FULL, is_eagle_group=True),)
    for looks_ahead in (True, False):
        semantics = Semantics.ideal().changed({"block_keys.looks_ahead": looks_ahead})
        coordinator = of(KVCacheConfig(13, groups), semantics=semantics).coordinator
        assert coordinator.eagle_group_ids == {0}
        assert coordinator.single_type_managers[0].use_eagle is not looks_ahead


def test_a_hit_is_bounded_and_cut() -> None:
    manager = make(FULL, WINDOW)
    admit(manager, request("r1", 9))
    shown = request("r2", 9)
    assert manager.get_computed_blocks(shown, 5)[1] == 4
    *found, parts = manager.get_computed_blocks_for_connector(shown)
    assert (found[1], parts) == (8, False)
    cut = manager.truncate_computed_blocks(found[0], 4)
    assert [len(group) for group in cut.blocks] == [2, 2]
    with pytest.raises(AssertionError):
        manager.truncate_computed_blocks(found[0], 3)
    with pytest.raises(AssertionError):
        manager.truncate_computed_blocks(found[0], 10)


def test_block_ids_are_given_for_some_groups_and_for_computed_tokens() -> None:
    manager = make(FULL, CrossAttentionSpec(2), enable_caching=False)
    admit(manager, request("r1", 5), num_encoder_tokens=3)
    blocks = manager.get_blocks("r1")
    assert blocks.get_block_ids() == ([1, 2, 3], [4, 5])
    assert blocks.get_block_ids(group_ids=[1]) == ([4, 5],)
    assert blocks.new_empty().get_block_ids(allow_none=True, group_ids=[0]) is None
    assert manager.get_block_ids_for_computed_tokens("r1", 3) == ([1, 2], [4, 5])


def test_tokens_that_every_group_can_find_are_counted() -> None:
    manager = make(FULL, WINDOW)
    shown = request("r1", 7)
    assert manager.estimate_cached_tokens(shown) == 0
    admit(manager, shown)
    assert manager.estimate_cached_tokens(shown) == 6
    assert manager.get_blocks("r1").get_unhashed_block_ids_all_groups() == [[4], [8]]


def test_what_no_modelled_group_has_is_empty() -> None:
    manager = make(FULL)
    shown = request("r1", 4)
    admit(manager, shown)
    manager.new_step_starts()
    manager.record_blocks_for_zeroing("r1", 0)
    assert manager.take_new_block_ids() == []
    assert manager.take_kv_cache_block_copies() == ([], [])
    assert manager.take_boundary_state_offloads() == {}
    assert manager.finalize_partial_tail_offloads(shown) == []


def test_an_event_names_the_session_of_the_request() -> None:
    manager = make(FULL, enable_kv_cache_events=True)
    shown = request("r1", 4)
    shown.session_id = "s"
    admit(manager, shown)
    (event,) = manager.take_events()
    assert isinstance(event, BlockStored)
    assert event.session_id == "s"
