"""The encoder-decoder manager, decision by decision."""

import pytest

from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request


def request(name: str, identifier: str, size: int = 4) -> Request:
    return Request(name, size, [MultiModalFeature.of(identifier, PlaceholderRange(0, size))])


@pytest.fixture
def manager() -> EncoderDecoderCacheManager:
    return EncoderDecoderCacheManager(10)


def test_nothing_is_ever_a_hit(manager: EncoderDecoderCacheManager) -> None:
    manager.allocate(request("r1", "a"), 0)
    assert not manager.check_and_update_cache(request("r2", "a"), 0)


@pytest.mark.parametrize(
    ("size", "budget", "pending", "admitted"),
    [(10, 10, 0, True), (10, 9, 0, False), (11, 20, 0, False), (6, 9, 4, True), (6, 9, 5, False)],
)
def test_an_item_is_admitted_when_it_fits_budget_and_free_slots(
    manager: EncoderDecoderCacheManager, size: int, budget: int, pending: int, admitted: bool
) -> None:
    assert manager.can_allocate(request("r1", "a", size), 0, budget, pending) is admitted


def test_an_item_is_credited_once_however_often_it_is_released(
    manager: EncoderDecoderCacheManager,
) -> None:
    shows = request("r1", "a")
    manager.allocate(shows, 0)
    assert manager.num_free_slots == 6
    for _ in range(3):
        manager.free_encoder_input(shows, 0)
        assert manager.num_free_slots == 10
    manager.free(shows)
    assert manager.num_free_slots == 10


def test_each_request_is_debited_for_the_same_item(manager: EncoderDecoderCacheManager) -> None:
    for name in ("r1", "r2"):
        manager.allocate(request(name, "a"), 0)
    assert manager.num_free_slots == 2
    manager.free(request("r1", "a"))
    assert manager.num_free_slots == 6


def test_a_scheduler_may_release_every_input(manager: EncoderDecoderCacheManager) -> None:
    assert manager.get_cached_input_ids(request("r1", "a")) == {0}


def test_an_entry_is_reported_in_the_step_after_its_encode(
    manager: EncoderDecoderCacheManager,
) -> None:
    manager.allocate(request("r1", "a"), 0)
    assert manager.get_freed_mm_hashes() == []
    manager.allocate(request("r2", "b"), 0)
    assert manager.get_freed_mm_hashes() == ["a"]
    assert manager.get_freed_mm_hashes() == ["b"]
    assert manager.get_freed_mm_hashes() == []


def test_a_reset_forgets_debits_and_notices(manager: EncoderDecoderCacheManager) -> None:
    shows = request("r1", "a")
    manager.allocate(shows, 0)
    manager.get_freed_mm_hashes()
    manager.allocate(request("r2", "b"), 0)
    manager.reset()
    manager.free(shows)
    assert manager.num_free_slots == 10
    assert manager.get_freed_mm_hashes() == []
