"""Each flag alone changes a decision, and each release has the flags of its time."""

import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.releases import MODELLED, model_of
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request
from cacheproof.reference.semantics import FIRST_MODELLED, NotModelled, Semantics, UnknownRelease

OF_THE_SCHEDULER = {
    "counts_embeds",
    "frees_stalled",
    "resets",
    "releases_on_update",
    "refuses_resized",
    "claims_duplicates",
    "takes_drafts",
    "drafts_past_the_end",
    "encodes_ahead",
    "fits_reserved_drafts",
    "spares_sure_ends",
    "unschedules_victims",
    "waits_for_long_prompts",
    "forgets_drafts",
    "keeps_passed_over_in_order",
    "skips_reading",
    "pauses",
    "restarts_running",
    "sets_passed_over_apart",
    "spares_lone_prefill",
    "rejoins_passed_over",
    "marks_stale_output",
    "releases_confirmed",
    "rolls_back_for_drafter",
    "counts_no_rows",
    "pads_drafts",
    "looks_ahead_at_once",
    "reads_ahead_sparsely",
    "omits_nobody",
    "pads_wholly",
    "pads_lone_requests",
    "keeps_hits_whole",
    "passes_over_unschedulable",
    "reads_ahead_without",
    "releases_ahead",
    "holds_prefills",
    "forgets_withdrawn_prefills",
    "counts_running_loras",
    "caches_processed",
    "keeps_items_whole",
    "goes_on_after_preempting_itself",
    "pads_within_threshold",
    "takes_after_blocks",
    "passes_sparse_items",
    "runs_urgent_first",
    "loads_encodings",
    "awaits_transfers",
    "awaits_later_transfers",
    "fails_lost_transfers",
    "counts_listening_sessions",
    "admits_holders_first",
    "drops_output_of_ended_turns",
    "takes_max_tokens_of_chunks",
    "drains_when_paused",
    "keeps_decoded_of_sessions",
    "keeps_sessions_that_waited",
    "uncounts_trimmed",
    "restarts_sessions",
    "releases_between_turns",
    "sorts_continued_sessions",
    "spares_whole_items",
    "refuses_long_whole_items",
    "sends_all_items",
    "ends_at_whole_items",
    "fits_cross_attention",
    "retains_sparsely",
    "counts_all_holders",
    "ends_once",
    "ignores_unknown_sendings",
    "retries_failed_loads",
    "ends_failed_loads",
    "resumes_loaded",
    "counts_loaded_tokens",
    "keeps_until_loaded",
    "cuts_behind_the_step",
    "reserves_for_prefills",
    "sends_computed_blocks",
    "spares_unfreeable_victims",
    "reserves_for_drafts",
    "skips_reading_elsewhere",
    "gives_back_items_ahead",
    "tries_all_holders",
    "spares_lone_loads",
    "reserves_for_holders",
    "caches_loads_when_right",
    "drops_output_of_failed_loads",
    "refuses_reset_beside_transfers",
    "counts_tables",
    "forgets_refused",
    "tells_known_tokens",
    "has_second_runner",
    "spares_second_runner_tokens",
    "tells_preemptions_by_reset",
    "tells_loads_within_step",
    "sends_items_again",
    "skips_unused_drafts",
    "admits_whole_sequences",
    "caps_admission",
    "caps_admission_alone",
    "reuses_unfindable_in_windows",
}
"""The first six shape how a manager is called; the others are shown in test_scheduler_semantics."""

OF_THE_MEDIA_HASH = {
    "hashes_image_modes",
    "hashes_array_views",
    "hashes_original_bytes",
    "hashes_none_by_key",
    "chooses_media_digest",
    "hashes_array_scalars",
    "sorts_keywords",
    "hashes_decode_settings",
    "hashes_video_bytes",
    "hashes_video_tensors",
    "frames_media_chunks",
    "hashes_media_content",
    "identifies_adapters",
    "separates_user_ids",
    "measures_adapter_names",
}
"""Shown in test_media_hash and test_media_identifier."""

OF_BLOCK_KEYS = {
    "keys_adapter_names",
    "keys_prompt_embeds",
    "digests_prompt_embeds",
    "zeroes_embed_positions",
    "keys_item_offsets",
    "passes_items_at_boundary",
    "tags_block_keys",
    "keys_adapter_paths",
    "finds_items_when_grown",
    "keys_embed_masks",
    "keys_by_content",
    "offers_xxhash",
    "continues_requests",
    "drops_keys_of_discarded",
    "looks_ahead",
}
"""Shown in test_block_hash."""

OF_THE_KV_CACHE = {
    "events_tell_kinds",
    "admits_in_allocation",
    "keeps_watermark",
    "adopts_hits_alone",
    "trims_null_heads",
    "reuses_unfindable_first",
    "stacks_without_caching",
    "tells_external_tokens",
    "touches_before_loading",
    "keeps_window_of_last_token",
    "loads_by_token",
    "leaves_out_unreachable",
    "leaves_out_in_lone_windows",
    "caches_aligned",
    "caches_prompt_tail",
    "spares_last_prompt_token",
    "events_carry_extra_keys",
    "events_name_groups",
    "events_name_sessions",
    "keeps_window_in_flight",
    "counts_admitted_hits",
    "tells_longer_hits",
    "knows_prefix_tokens",
    "reserves_blocks",
    "defers_frees",
    "aligns_behind_drop",
    "aligns_first_hit_once",
    "caches_block_to_drop",
    "looks_past_limit_to_drop",
    "joins_equal_groups",
    "tells_tokens_of_hashes",
    "shares_no_prefix_reads",
}
"""Shown in test_kv_cache_semantics, the first two in test_kv_cache_manager."""


def request(name: str, *sizes: tuple[str, int]) -> Request:
    """A request that shows items of the given identifiers and sizes one after the other."""
    features, offset = [], 0
    for identifier, size in sizes:
        features.append(MultiModalFeature.of(identifier, PlaceholderRange(offset, size)))
        offset += size
    return Request(name, offset, features)


def encode(manager: EncoderCacheManager, shows: Request, input_id: int = 0) -> bool:
    admitted = manager.can_allocate(shows, input_id, 100, 0)
    if admitted:
        manager.allocate(shows, input_id)
    return admitted


def reported_in_the_step_of_its_encode(semantics: Semantics) -> Any:
    manager = EncoderDecoderCacheManager(10, semantics)
    encode(manager, request("r1", ("a", 4)))
    return manager.get_freed_mm_hashes(), manager.get_freed_mm_hashes()


def releasable_inputs_of_who_claimed_nothing(semantics: Semantics) -> Any:
    manager = EncoderCacheManager(10, semantics)
    encode(manager, request("r1", ("a", 4)))
    return manager.get_cached_input_ids(request("r2", ("a", 4)))


def notices_of_an_entry_that_came_back(semantics: Semantics) -> Any:
    manager = EncoderCacheManager(4, semantics)
    first = request("r1", ("a", 4))
    encode(manager, first)
    manager.free(first)
    encode(manager, request("r2", ("b", 1)))
    manager.free(request("r2", ("b", 1)))
    encode(manager, request("r3", ("a", 4)))
    return manager.get_freed_mm_hashes()


def holders_after_the_first_occurrence(semantics: Semantics) -> Any:
    manager = EncoderCacheManager(10, semantics)
    twice = request("r1", ("a", 4), ("a", 4))
    encode(manager, twice)
    manager.check_and_update_cache(twice, 1)
    manager.free_encoder_input(twice, 0)
    return manager.cached["a"], manager.num_freeable_slots


def credit_for_a_smaller_release(semantics: Semantics) -> Any:
    manager = EncoderCacheManager(10, semantics)
    large, small = request("r1", ("a", 4)), request("r2", ("a", 1))
    encode(manager, large)
    manager.check_and_update_cache(small, 0)
    manager.free(large)
    manager.free(small)
    return manager.num_freeable_slots


def slots_after_a_second_release(semantics: Semantics) -> Any:
    manager = EncoderDecoderCacheManager(10, semantics)
    shows = request("r1", ("a", 4))
    encode(manager, shows)
    manager.free_encoder_input(shows, 0)
    manager.free_encoder_input(shows, 0)
    return manager.num_free_slots


DECISIONS: dict[str, tuple[Callable[[Semantics], Any], Any, Any]] = {
    "delays_decoder_notices": (reported_in_the_step_of_its_encode, ([], ["a"]), (["a"], [])),
    "remembers_claims": (releasable_inputs_of_who_claimed_nothing, set(), {0}),
    "drops_stale_notices": (notices_of_an_entry_that_came_back, ["b"], ["a", "b"]),
    "holds_until_last_occurrence": (holders_after_the_first_occurrence, ({"r1"}, 6), (set(), 10)),
    "remembers_sizes": (credit_for_a_smaller_release, 10, 7),
    "releases_decoder_once": (slots_after_a_second_release, 10, 14),
}


@pytest.mark.parametrize("flag", DECISIONS)
def test_a_flag_alone_changes_a_decision(flag: str) -> None:
    decide, ideal, without = DECISIONS[flag]
    assert decide(Semantics.ideal()) == ideal
    assert decide(replace(Semantics.ideal(), **{flag: False})) == without


def test_every_flag_of_a_manager_has_its_decision() -> None:
    elsewhere = OF_THE_SCHEDULER | OF_THE_MEDIA_HASH | OF_BLOCK_KEYS | OF_THE_KV_CACHE
    elsewhere = elsewhere | {"pairs_decoder_rows"}  # of the worker
    assert {flag.name for flag in fields(Semantics)} == set(DECISIONS) | elsewhere


def test_the_ideal_has_every_change() -> None:
    ideal = Semantics.ideal()
    assert all(getattr(ideal, flag.name) for flag in fields(Semantics))


@pytest.mark.parametrize("flag", fields(Semantics), ids=lambda flag: flag.name)
def test_a_change_comes_with_its_release_and_stays_until_another(flag: Any) -> None:
    changes = {
        flag.metadata[name]: name != "until"
        for name in ("since", "until", "again")
        if flag.metadata[name] is not None
    }
    expected = False
    for release in MODELLED:
        expected = changes.pop(release, expected)
        assert getattr(Semantics.of_vllm(release), flag.name) is expected
    assert not changes  # each names a release


@pytest.mark.parametrize("flag", fields(Semantics), ids=lambda flag: flag.name)
def test_a_change_names_its_thread_and_says_one_sentence(flag: Any) -> None:
    assert flag.metadata["thread"]
    assert flag.metadata["sentence"]


def test_what_a_release_lost_its_predecessor_has() -> None:
    assert Semantics.of_vllm("0.28.0").sends_all_items
    assert not Semantics.of_vllm("0.29.0").sends_all_items


def test_what_a_release_lost_a_later_one_can_have_again() -> None:
    stacks = [
        Semantics.of_vllm(release).stacks_without_caching
        for release in ("0.23.0", "0.24.0", "0.26.0", "0.27.0", "0.27.1", "0.28.0")
    ]
    assert stacks == [False, True, True, False, False, True]


def test_a_release_before_sharing_is_not_modelled_and_says_what_to_do() -> None:
    with pytest.raises(NotModelled, match=r"vLLM 0\.10\.1\.1 .* run it with contracts only"):
        Semantics.of_vllm("0.10.1.1")
    assert Semantics.of_vllm(FIRST_MODELLED)


def test_what_is_no_release_is_refused() -> None:
    with pytest.raises(ValueError, match="not a release number"):
        Semantics.of_vllm("newest")


def test_a_release_that_is_not_modelled_is_warned_of_and_has_the_one_before_it() -> None:
    with pytest.warns(UnknownRelease, match=r"0\.99\.0 .* those of 0\.33\.0"):
        assert Semantics.of_vllm("0.99.0") == Semantics.of_vllm("0.33.0")
    assert model_of("0.20.7") == "0.20.2"


def test_a_modelled_release_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for release in MODELLED:
            Semantics.of_vllm.cache_clear()
            assert Semantics.of_vllm(release)
