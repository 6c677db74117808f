"""What the reference scheduler decides for encoder-decoder models, and over windows."""

from typing import Any

import pytest

from cacheproof.reference.block_hash import get_request_block_hasher
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.kv_cache_specs import (
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    NotModelledCache,
    SlidingWindowSpec,
)
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.config import SchedulerConfig
from cacheproof.reference.scheduler.output import SchedulerOutput
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.semantics import Semantics

SIZE = 4
IDEAL = Semantics.ideal()
HASHER = get_request_block_hasher(
    SIZE, hash_function(IDEAL.block_keys), semantics=IDEAL.block_keys, seed="0"
)
FULL, CROSS, WINDOW = FullAttentionSpec(SIZE), CrossAttentionSpec(SIZE), SlidingWindowSpec(SIZE, 5)


def kv_cache(
    blocks: int, *specs: KVCacheSpec, retention: int | None = None, **options: Any
) -> KVCacheManager:
    caches = KVCacheConfig(blocks, tuple(map(KVCacheGroupSpec, specs)), retention)
    return KVCacheManager(
        caches, 64, caches.scheduler_block_size, caches.hash_block_size, **options
    )


def speech_model(
    blocks: int = 33, capacity: int = 8, semantics: Semantics = IDEAL, **options: Any
) -> Scheduler:
    config = SchedulerConfig(
        max_num_batched_tokens=64,
        max_num_seqs=4,
        max_model_len=64,
        encoder_compute_budget=8,
        enable_chunked_prefill=False,
        disable_chunked_mm_input=True,
        is_encoder_decoder=True,
        **options,
    )
    kv_cache_manager = kv_cache(blocks, FULL, CROSS, enable_caching=False, semantics=semantics)
    manager = EncoderDecoderCacheManager(capacity, semantics.encoder_cache)
    return Scheduler(config, kv_cache_manager, manager, semantics=semantics)


def speech(name: str, length: int, prompt: int = 2, **options: Any) -> ScheduledRequest:
    """An input of so many embeddings, which is no part of the decoder's prompt."""
    feature = MultiModalFeature("speech", PlaceholderRange(0, length), "speech")
    return ScheduledRequest(name, [1] * prompt, [feature], is_decoder=True, **options)


def step(scheduler: Scheduler) -> SchedulerOutput:
    output = scheduler.schedule()
    reached = {
        name: scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens
        for name in output.num_scheduled_tokens
    }
    scheduler.update_from_output(output, {name: [7] * end for name, end in reached.items()})
    return output


def test_an_input_longer_than_the_prompt_belongs_to_a_decoder_alone() -> None:
    speech("r", 30)
    feature = MultiModalFeature("x", PlaceholderRange(0, 3), "x")
    with pytest.raises(ValueError, match="reaches past the prompt"):
        ScheduledRequest("r", [1, 2], [feature])


def test_the_first_step_encodes_and_is_reported_a_step_later() -> None:
    scheduler = speech_model()
    scheduler.add_request(speech("r", 6, max_tokens=4))
    steps = [step(scheduler) for _ in range(3)]
    assert [dict(one.scheduled_encoder_inputs) for one in steps] == [{"r": [0]}, {}, {}]
    assert [one.free_encoder_mm_hashes for one in steps] == [[], ["speech"], []]
    assert steps[0].scheduled_new_reqs[0].block_ids == ([1], [2, 3])


def test_two_requests_of_one_input_both_encode_it() -> None:
    scheduler = speech_model()
    for name in ("a", "b"):
        scheduler.add_request(speech(name, 4))
    assert step(scheduler).scheduled_encoder_inputs == {"a": [0], "b": [0]}


def test_a_request_waits_until_its_whole_input_fits_the_step() -> None:
    scheduler = speech_model()
    for name in ("a", "b"):
        scheduler.add_request(speech(name, 5))
    assert [list(step(scheduler).num_scheduled_tokens) for _ in range(2)] == [["a"], ["b"]]


def test_slots_come_back_when_the_output_of_the_encoding_step_does() -> None:
    scheduler = speech_model(capacity=6)
    scheduler.add_request(speech("a", 6, max_tokens=4))
    output = scheduler.schedule()
    assert scheduler.state.encoder_cache_manager.num_free_slots == 0
    scheduler.update_from_output(output, {"a": [7]})
    assert scheduler.state.encoder_cache_manager.num_free_slots == 6
    scheduler.finish_requests(["a"], RequestStatus.FINISHED_ABORTED)
    assert scheduler.state.encoder_cache_manager.num_free_slots == 6


def test_a_preempted_request_encodes_again() -> None:
    scheduler = speech_model(blocks=7)
    for name in ("a", "b"):
        scheduler.add_request(speech(name, 4, prompt=4, max_tokens=12))
    encoded = [list(step(scheduler).scheduled_encoder_inputs) for _ in range(16)]
    assert encoded.count(["b"]) == 1
    assert encoded[0] == ["a", "b"]


def test_before_0_17_every_request_gets_blocks_for_the_longest_input() -> None:
    older = IDEAL.without("scheduler.fits_cross_attention")
    scheduler = speech_model(semantics=older, num_cross_attention_tokens=8)
    scheduler.add_request(speech("r", 1))
    assert step(scheduler).scheduled_new_reqs[0].block_ids == ([1], [2, 3])


def windows(blocks: int = 33, retention: int | None = None) -> Scheduler:
    config = SchedulerConfig(
        max_num_batched_tokens=16, max_num_seqs=4, max_model_len=64, encoder_compute_budget=8
    )
    kv_cache_manager = kv_cache(blocks, FULL, WINDOW, retention=retention)
    return Scheduler(config, kv_cache_manager, EncoderCacheManager(8))


def text(name: str, tokens: int = 17, **options: Any) -> ScheduledRequest:
    return ScheduledRequest(name, list(range(tokens)), block_hasher=HASHER, **options)


def test_blocks_behind_the_window_are_given_back() -> None:
    scheduler = windows()
    scheduler.add_request(text("r", max_tokens=8))
    held = []
    for _ in range(3):
        step(scheduler)
        held.append(32 - scheduler.kv_cache_manager.block_pool.get_num_free_blocks())
    assert held == [8, 7, 7]  # 4 + 4 blocks; then 5 + 5, three of which are behind the window


def test_a_hit_leaves_out_what_its_window_does_not_read() -> None:
    scheduler = windows()
    scheduler.add_request(text("a"))
    step(scheduler)
    step(scheduler)
    scheduler.add_request(text("b"))
    (started,) = step(scheduler).scheduled_new_reqs
    assert started.num_computed_tokens == 16
    full, window = started.block_ids
    assert 0 not in full
    assert window[:3] == [0, 0, 0]
    assert 0 not in window[3:]


def test_windows_cached_at_the_end_of_the_prompt_alone_are_hit_there_alone() -> None:
    found = []
    for retention in (None, 0):
        scheduler = windows(retention=retention)
        scheduler.add_request(text("a"))
        step(scheduler)
        step(scheduler)
        hits = []
        for name, tokens in (("same", 17), ("shorter", 9)):
            scheduler.add_request(text(name, tokens))
            hits.append(step(scheduler).scheduled_new_reqs[0].num_computed_tokens)
        found.append(hits)
    assert found == [[16, 8], [16, 0]]


@pytest.mark.parametrize("without", ["use_eagle", "retains_sparsely"])
def test_sparse_windows_are_not_modelled_everywhere(without: str) -> None:
    semantics = IDEAL.changed({"kv_cache.retains_sparsely": without != "retains_sparsely"})
    with pytest.raises(NotModelledCache, match="cached sparsely"):
        kv_cache(
            9, FULL, WINDOW, retention=0, use_eagle=without == "use_eagle", semantics=semantics
        )
