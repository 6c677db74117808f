"""Which groups, block sizes and intervals a KV cache can be made of."""

from collections.abc import Sequence

from cacheproof.reference.kv_cache_specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    NotModelledCache,
    SlidingWindowSpec,
)
from cacheproof.reference.semantics import Semantics


def check_sizes(
    kv_cache_config: KVCacheConfig, scheduler_block_size: int, hash_block_size: int
) -> None:
    """Hashed blocks fill each group's blocks, and those fill the scheduler's.

    Raises:
        ValueError: sizes in tokens of which one does not divide the next.
    """
    for size in (*kv_cache_config.block_sizes, scheduler_block_size):
        if size % hash_block_size or scheduler_block_size % size:
            raise ValueError(
                f"blocks of {size} tokens, hashed by {hash_block_size} and scheduled by "
                f"{scheduler_block_size}; expected each to divide the next"
            )


def check_retention_interval(
    kv_cache_config: KVCacheConfig,
    scheduler_block_size: int,
    use_eagle: bool,
    semantics: Semantics,
) -> None:
    """How sparsely the blocks of windows are cached.

    Raises:
        NotModelledCache: sparsely, beside a drafter or in a release that cannot.
        ValueError: an interval in tokens that no hit can end at.
    """
    interval = kv_cache_config.prefix_cache_retention_interval
    if interval is None:
        return
    if use_eagle or not semantics.kv_cache.retains_sparsely:
        raise NotModelledCache("windows cached sparsely, beside a drafter or before 0.29.0")
    groups = kv_cache_config.kv_cache_groups
    if interval and not any(isinstance(one.kv_cache_spec, SlidingWindowSpec) for one in groups):
        raise ValueError(
            f"prefix_cache_retention_interval is {interval} with no sliding-window or Mamba group; "
            "expected 0"
        )
    if interval < 0 or interval % scheduler_block_size:
        raise ValueError(
            f"prefix_cache_retention_interval is {interval}; expected a non-negative "
            f"multiple of scheduler_block_size, which is {scheduler_block_size}"
        )


def check_groups(specs: Sequence[KVCacheSpec], use_eagle: bool, semantics: Semantics) -> None:
    """Which groups of layers have a prefix cache together.

    Raises:
        NotModelledCache: groups that the reference does not model.
    """
    if any(isinstance(spec, CrossAttentionSpec) for spec in specs):
        raise NotModelledCache("prefix caching beside cross-attention")
    if len(specs) > len(set(specs)) == 1 and not semantics.kv_cache.joins_equal_groups:
        raise NotModelledCache("several groups that are all of one kind")
    if len(specs) > 1 and use_eagle and not semantics.kv_cache.caches_block_to_drop:
        raise NotModelledCache(
            "a drafter over several groups, in a release that drops twice or caches too little"
        )
    if any(isinstance(spec, ChunkedLocalAttentionSpec) for spec in specs):
        if use_eagle:
            raise NotModelledCache("a drafter beside chunked local attention")
        if len({spec.block_size for spec in specs}) > 1:
            raise NotModelledCache("chunked local attention beside groups of other block sizes")
