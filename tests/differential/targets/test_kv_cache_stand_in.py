"""A reference manager made with a release's arguments."""

from types import SimpleNamespace
from typing import Any

from cacheproof.differential.targets.host.managers.kv_cache_stand_in import stand_in
from cacheproof.reference import kv_cache_specs as specs
from cacheproof.reference.kv_cache_manager import KVCacheManager


class SlidingWindowSpec:
    """As a release describes a window: with more than a cache needs."""

    block_size = 2
    sliding_window = 3
    head_size = 64


def config() -> Any:
    group = SimpleNamespace(kv_cache_spec=SlidingWindowSpec(), is_eagle_group=True)
    return SimpleNamespace(
        num_blocks=5, kv_cache_groups=[group], prefix_cache_retention_interval=None
    )


def test_groups_are_described_anew() -> None:
    manager = stand_in(
        KVCacheManager,
        kv_cache_config=config(),
        max_model_len=8,
        scheduler_block_size=2,
        hash_block_size=2,
    )
    group = specs.KVCacheGroupSpec(specs.SlidingWindowSpec(2, 3), is_eagle_group=True)
    assert manager.kv_cache_config == specs.KVCacheConfig(5, (group,))


def test_every_other_argument_is_handed_on() -> None:
    given: dict[str, Any] = {
        "max_model_len": 8,
        "log_stats": True,
        "enable_kv_cache_events": True,
        "metrics_collector": object(),
    }
    taken = stand_in(lambda _, **arguments: arguments, kv_cache_config=config(), **given)
    assert taken == given
