"""How long blocks keep their content, by a clock of the test's own."""

from collections.abc import Iterator

import pytest

from cacheproof.reference.block_pool import KVCacheBlock
from cacheproof.reference.kv_cache_metrics import KVCacheEvictionEvent, KVCacheMetricsCollector

BLOCK = KVCacheBlock(1)


def collector(*seconds: int, draw: float = 0.0) -> KVCacheMetricsCollector:
    """A collector that samples half of the blocks; each look at the clock takes a time."""
    times: Iterator[int] = iter(seconds)
    return KVCacheMetricsCollector(
        0.5, clock=lambda: next(times) * 1_000_000_000, draw=lambda: draw
    )


def test_a_life_is_measured_from_its_birth_to_its_end() -> None:
    metrics = collector(1, 3, 6, 10)
    metrics.on_block_allocated(BLOCK)
    metrics.on_block_accessed(BLOCK)
    metrics.on_block_accessed(BLOCK)
    metrics.on_block_evicted(BLOCK)
    assert metrics.drain_events() == [KVCacheEvictionEvent(9.0, 4.0, (3.0,))]
    assert metrics.drain_events() == []


def test_the_last_four_reuses_are_remembered() -> None:
    metrics = collector(0, 1, 3, 6, 10, 15, 20)
    metrics.on_block_allocated(BLOCK)
    for _ in range(5):
        metrics.on_block_accessed(BLOCK)
    metrics.on_block_evicted(BLOCK)
    assert metrics.drain_events()[0].reuse_gaps_seconds == (3.0, 4.0, 5.0)


def test_a_block_that_is_not_drawn_is_not_measured() -> None:
    metrics = collector(draw=0.5)
    metrics.on_block_allocated(BLOCK)
    metrics.on_block_accessed(BLOCK)
    metrics.on_block_evicted(BLOCK)
    assert metrics.drain_events() == []


def test_a_reset_forgets_lives_and_ends() -> None:
    metrics = collector(1, 2, 3)
    metrics.on_block_allocated(BLOCK)
    metrics.on_block_evicted(BLOCK)
    metrics.on_block_allocated(BLOCK)
    metrics.reset()
    metrics.on_block_evicted(BLOCK)
    assert metrics.drain_events() == []


@pytest.mark.parametrize("rate", [0.0, 1.1])
def test_a_rate_is_above_0_and_at_most_1(rate: float) -> None:
    with pytest.raises(ValueError, match="sample rate"):
        KVCacheMetricsCollector(rate)
