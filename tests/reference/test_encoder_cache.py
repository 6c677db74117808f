"""The encoder cache manager, decision by decision."""

import pytest

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request

PLENTY = 1000


def request(name: str, *identifiers: str, size: int = 2) -> Request:
    features = [
        MultiModalFeature.of(identifier, PlaceholderRange(number * size, size))
        for number, identifier in enumerate(identifiers)
    ]
    return Request(name, len(identifiers) * size, features)


@pytest.fixture
def manager() -> EncoderCacheManager:
    """Room for three items of two embeddings."""
    return EncoderCacheManager(6)


def encode(manager: EncoderCacheManager, *shown: Request) -> None:
    for shows in shown:
        assert not manager.check_and_update_cache(shows, 0)
        assert manager.can_allocate(shows, 0, PLENTY, 0)
        manager.allocate(shows, 0)


def slots(manager: EncoderCacheManager) -> tuple[int, int]:
    return manager.num_free_slots, manager.num_freeable_slots


def test_a_vllm_scheduler_can_create_it() -> None:
    manager = EncoderCacheManager.create_manager(cache_size=6, vllm_config=None)
    assert slots(manager) == (6, 6)
    assert manager.get_manager_metadata() is None


def test_an_allocation_is_debited_and_held(manager: EncoderCacheManager) -> None:
    encode(manager, request("r1", "a"))
    assert slots(manager) == (4, 4)
    assert manager.cached == {"a": {"r1"}}


def test_a_hit_shares_the_entry_and_costs_nothing(manager: EncoderCacheManager) -> None:
    encode(manager, request("r1", "a"))
    assert manager.check_and_update_cache(request("r2", "a"), 0)
    assert slots(manager) == (4, 4)
    assert manager.cached == {"a": {"r1", "r2"}}


def test_a_shared_entry_is_idle_after_its_last_release(manager: EncoderCacheManager) -> None:
    first, second = request("r1", "a"), request("r2", "a")
    encode(manager, first)
    manager.check_and_update_cache(second, 0)
    manager.free_encoder_input(first, 0)
    assert (slots(manager), manager.freeable) == ((4, 4), {})
    manager.free_encoder_input(second, 0)
    assert (slots(manager), manager.freeable) == ((4, 6), {"a": 2})


def test_a_second_release_changes_nothing(manager: EncoderCacheManager) -> None:
    shows = request("r1", "a")
    encode(manager, shows)
    manager.free_encoder_input(shows, 0)
    before = slots(manager), dict(manager.freeable)
    manager.free_encoder_input(shows, 0)
    manager.free_encoder_input(request("stranger", "a"), 0)
    assert (slots(manager), manager.freeable) == before


def test_a_hit_rescues_an_idle_entry(manager: EncoderCacheManager) -> None:
    shows = request("r1", "a")
    encode(manager, shows)
    manager.free(shows)
    assert manager.check_and_update_cache(request("r2", "a"), 0)
    assert (slots(manager), manager.freeable) == ((4, 4), {})


def test_the_oldest_idle_entries_are_evicted_and_no_more_than_needed(
    manager: EncoderCacheManager,
) -> None:
    shown = [request(f"r{number}", name) for number, name in enumerate("abc")]
    encode(manager, *shown)
    for index in (1, 0, 2):
        manager.free(shown[index])
    assert manager.can_allocate(request("r9", "d", size=3), 0, PLENTY, 0)
    assert list(manager.freeable) == ["c"]
    assert manager.get_freed_mm_hashes() == ["b", "a"]
    assert manager.get_freed_mm_hashes() == []


@pytest.mark.parametrize(
    ("size", "budget", "pending", "admitted"),
    [(6, 6, 0, True), (6, 5, 0, False), (7, 9, 0, False), (4, 9, 2, True), (4, 9, 3, False)],
)
def test_an_item_is_admitted_when_it_fits_budget_and_space(
    manager: EncoderCacheManager, size: int, budget: int, pending: int, admitted: bool
) -> None:
    assert manager.can_allocate(request("r1", "a", size=size), 0, budget, pending) is admitted


def test_a_refusal_evicts_nothing(manager: EncoderCacheManager) -> None:
    held, idle = request("r1", "a"), request("r2", "b")
    encode(manager, held, idle)
    manager.free(idle)
    assert not manager.can_allocate(request("r3", "c", size=5), 0, PLENTY, 0)
    assert list(manager.freeable) == ["b"]
    assert manager.get_freed_mm_hashes() == []


def test_what_was_not_admitted_cannot_be_allocated(manager: EncoderCacheManager) -> None:
    with pytest.raises(AssertionError):
        manager.allocate(request("r1", "a", size=7), 0)


def test_the_end_of_a_request_releases_all_that_it_claimed(manager: EncoderCacheManager) -> None:
    shows = request("r1", "a", "b", "a")
    for number in (0, 1):
        manager.allocate(shows, number)
    manager.check_and_update_cache(shows, 2)
    assert manager.get_cached_input_ids(shows) == {0, 1, 2}
    manager.free(shows)
    assert manager.get_cached_input_ids(shows) == set()
    assert list(manager.freeable) == ["b", "a"]


def test_a_resident_entry_tells_its_size(manager: EncoderCacheManager) -> None:
    shows = request("r1", "a")
    assert manager.get_cached_num_encoder_embeds(shows, 0) is None
    encode(manager, shows)
    assert manager.get_cached_num_encoder_embeds(shows, 0) == 2


def test_a_reset_forgets_entries_claims_and_notices(manager: EncoderCacheManager) -> None:
    shown = [request(f"r{number}", name) for number, name in enumerate("abc")]
    encode(manager, *shown)
    manager.free(shown[0])
    encode(manager, request("r9", "d"))
    manager.reset()
    assert slots(manager) == (6, 6)
    assert (manager.cached, manager.freeable, manager.get_freed_mm_hashes()) == ({}, {}, [])
    assert manager.get_cached_input_ids(shown[1]) == set()


def test_claims_are_told_as_a_release_keeps_them(manager: EncoderCacheManager) -> None:
    shown = request("r1", "a", "b", "a")
    for input_id in range(3):
        if not manager.check_and_update_cache(shown, input_id):
            manager.allocate(shown, input_id)
    assert manager.request_cached_ids == {"r1": {0, 1, 2}}
    assert manager.request_hash_refs == {"r1": {"a": 2, "b": 1}}
    manager.free_encoder_input(shown, 0)
    assert manager.request_cached_ids == {"r1": {1, 2}}
    assert manager.request_hash_refs == {"r1": {"a": 1, "b": 1}}
    manager.free(shown)
    assert manager.request_cached_ids == manager.request_hash_refs == {}
