"""A manager that one drives oneself is judged as a search would judge it."""

import pytest

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.monitor import EncoderCacheMonitor
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request
from cacheproof.reference.semantics import Semantics


def showing(name: str, *identifiers: str) -> Request:
    """A request of 4 tokens an item, and one behind them."""
    items = [
        MultiModalFeature.of(one, PlaceholderRange(4 * number, 4))
        for number, one in enumerate(identifiers)
    ]
    return Request(name, 4 * len(items) + 1, items)


def monitor_of(capacity: int, release: str | None = None) -> EncoderCacheMonitor:
    semantics = Semantics.ideal() if release is None else Semantics.of_vllm(release)
    return EncoderCacheMonitor(EncoderCacheManager(capacity, semantics.encoder_cache))


@pytest.mark.parametrize(("release", "broken"), [(None, []), ("0.28.0", ["EC-6a"])])
def test_a_picture_that_is_shown_twice_stays_held_until_both_are_past(
    release: str | None, broken: list[str]
) -> None:
    monitor, request = monitor_of(8, release), showing("a", "x", "x")
    assert all(monitor.schedule(request, item, budget=8) for item in (0, 1))
    monitor.confirm(request, progress=4)
    assert [rule.id for rule, _ in monitor.broken()] == broken


def test_what_is_not_admitted_is_not_claimed() -> None:
    monitor, first, second = monitor_of(4), showing("a", "x"), showing("b", "y")
    assert not monitor.schedule(first, 0, budget=3)
    assert monitor.schedule(first, 0, budget=4)
    assert not monitor.schedule(second, 0, budget=4)
    assert monitor.ghost.needed == {"x": {"a"}}
    assert not list(monitor.broken())


def test_what_a_request_held_is_idle_once_it_is_freed() -> None:
    monitor, request = monitor_of(4), showing("a", "x")
    monitor.schedule(request, 0, budget=4)
    monitor.free(request)
    assert monitor.state.queue == {"x": 4}
    assert not monitor.ghost.owed()
    assert not list(monitor.broken())


def test_a_slot_that_is_lost_is_explained() -> None:
    monitor = monitor_of(4)
    monitor.manager.num_free_slots -= 1
    assert ("EC-1", True) in [(rule.id, "3" in why) for rule, why in monitor.broken()]
