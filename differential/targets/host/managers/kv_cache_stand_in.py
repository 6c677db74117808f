"""A KV cache manager that builds on the reference, in the place of a release's in its Scheduler.

Both have the same methods, and speak of the same blocks under the same names. What differs is how
groups are described, which is adapted here.

Imported only for such a plug-in: what it builds on can be imported then, and only then.
"""

from collections.abc import Callable

from cacheproof.reference import kv_cache_specs as specs

from ..vllm_objects.kv_cache import KVCacheConfig, KVCacheGroupSpec, KVCacheManager

_WINDOWS = {
    "SlidingWindowSpec": "sliding_window",
    "ChunkedLocalAttentionSpec": "attention_chunk_size",
}


def stand_in(
    manager_class: Callable[..., KVCacheManager],
    *,
    kv_cache_config: KVCacheConfig,
    **arguments: object,
) -> KVCacheManager:
    """The manager of that class for a release's configuration, made with the release's other
    arguments."""
    config = specs.KVCacheConfig(
        kv_cache_config.num_blocks,
        tuple(map(_group, kv_cache_config.kv_cache_groups)),
        kv_cache_config.prefix_cache_retention_interval,
    )
    return manager_class(config, **arguments)


def _group(group: KVCacheGroupSpec) -> specs.KVCacheGroupSpec:
    """The reference's description of a release's group."""
    name = type(group.kv_cache_spec).__name__
    further = [getattr(group.kv_cache_spec, _WINDOWS[name])] if name in _WINDOWS else []
    spec = getattr(specs, name)(group.kv_cache_spec.block_size, *further)
    return specs.KVCacheGroupSpec(spec, group.is_eagle_group)
