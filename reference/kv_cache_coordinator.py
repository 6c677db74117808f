"""Several groups of layers over one pool: their tables grow together and hit the same prefix."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from cacheproof.reference.attention_kinds import CrossAttentionManager, manager_for
from cacheproof.reference.block_pool import BlockPool, KVCacheBlock
from cacheproof.reference.kv_cache_metrics import KVCacheMetricsCollector
from cacheproof.reference.kv_cache_specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    NotModelledCache,
)
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.single_type_kv_cache import SingleTypeKVCacheManager

Blocks = tuple[Sequence[KVCacheBlock], ...]


class CacheHit(NamedTuple):
    """Blocks for each group, the prefix's tokens, and how many more one group alone would hit."""

    blocks: tuple[list[KVCacheBlock], ...]
    num_tokens: int
    num_uncached_common_prefix_tokens: int


class KVCacheCoordinator:
    """The groups' managers and the pool they share.

    `single_type_managers` are in the order of the configuration's groups.

    Raises:
        NotModelledCache: groups that the reference does not model together.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        max_in_flight_tokens: int,
        use_eagle: bool,
        enable_caching: bool,
        enable_kv_cache_events: bool,
        metrics_collector: KVCacheMetricsCollector | None = None,
        *,
        semantics: Semantics,
    ) -> None:
        self.kv_cache_config = kv_cache_config
        self.semantics = semantics
        self.use_eagle = use_eagle
        self.scheduler_block_size = kv_cache_config.scheduler_block_size
        self.hash_block_size = kv_cache_config.hash_block_size
        self.block_pool = BlockPool(
            kv_cache_config.num_blocks,
            enable_caching,
            self.hash_block_size,
            enable_kv_cache_events,
            metrics_collector,
            semantics=semantics,
        )
        self.single_type_managers = tuple(
            manager_for(group.kv_cache_spec)(
                group.kv_cache_spec,
                self.block_pool,
                enable_caching,
                number,
                self.scheduler_block_size,
                group.kv_cache_spec.max_admission_blocks_per_request(
                    max_in_flight_tokens, max_model_len
                )
                if semantics.caps_admission
                else None,
            )
            for number, group in enumerate(kv_cache_config.kv_cache_groups)
        )
        for manager in self.single_type_managers:
            manager.use_eagle = use_eagle
            manager.retention_interval = kv_cache_config.prefix_cache_retention_interval
        self._skipping_managers = tuple(one for one in self.single_type_managers if one.skips)

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Blocks,
        num_encoder_tokens: int,
        total_computed_tokens: int,
        apply_admission_cap: bool = False,
    ) -> int:
        """Blocks that leave the free queue when the request gets `num_tokens` slots."""
        need = 0
        for manager in self.single_type_managers:
            if isinstance(manager, CrossAttentionManager):
                need += manager.get_num_blocks_to_allocate(
                    request_id, num_encoder_tokens, (), 0, apply_admission_cap
                )
            else:
                hit = new_computed_blocks[manager.kv_cache_group_id]
                need += manager.get_num_blocks_to_allocate(
                    request_id, num_tokens, hit, total_computed_tokens, apply_admission_cap
                )
        return need

    def allocate_new_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Blocks,
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        """Begin the request's tables with its hit and with blocks for what is loaded.

        Every group touches its hit before any group takes a block for what is loaded, so that none
        is handed a block that another group has hit. Nothing happens for a request that has begun.
        """
        if any(request_id in one.num_cached_block for one in self.single_type_managers):
            return
        tokens = (num_local_computed_tokens, num_external_computed_tokens)
        loads = num_external_computed_tokens > 0
        for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True):
            manager.add_local_computed_blocks(request_id, blocks, *tokens)
            if loads and not self.semantics.touches_before_loading:
                manager.allocate_external_computed_blocks(request_id, *tokens)
        if loads and self.semantics.touches_before_loading:
            for manager in self.single_type_managers:
                manager.allocate_external_computed_blocks(request_id, *tokens)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_encoder_tokens: int = 0
    ) -> tuple[list[KVCacheBlock], ...]:
        """Grow the request's tables; the blocks that are new."""
        return tuple(
            manager.allocate_new_blocks(
                request_id,
                num_encoder_tokens if isinstance(manager, CrossAttentionManager) else num_tokens,
            )
            for manager in self.single_type_managers
        )

    def cache_blocks(self, request: ScheduledRequest, num_computed_tokens: int) -> None:
        """Let the full blocks of the request's computed tokens be found."""
        for manager in self.single_type_managers:
            manager.cache_blocks(request, num_computed_tokens)

    def free(self, request_id: str) -> None:
        """Give the request's blocks back, group by group."""
        for manager in self.single_type_managers:
            manager.free(request_id)

    def pop_blocks_for_free(self, request_id: str) -> list[KVCacheBlock]:
        """End the request's tables; its blocks, to be given back the last of them first."""
        return [
            block
            for manager in self.single_type_managers
            for block in manager.pop_blocks_for_free(request_id)
        ]

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int) -> None:
        """Give back what the request no longer reads."""
        for manager in self._skipping_managers:
            manager.remove_skipped_blocks(request_id, processed_computed_tokens)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """For each group the blocks at the start that every request holds."""
        return [
            manager.get_num_common_prefix_blocks(running_request_id)
            for manager in self.single_type_managers
        ]

    def get_blocks(self, request_id: str) -> tuple[list[KVCacheBlock], ...]:
        """The request's tables."""
        return tuple(
            manager.req_to_blocks.get(request_id, []) for manager in self.single_type_managers
        )

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> CacheHit:
        """The longest prefix of at most so many tokens that every group has cached."""
        raise NotImplementedError


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Nothing is cached, nothing is hit."""

    def cache_blocks(self, request: ScheduledRequest, num_computed_tokens: int) -> None:
        """Nothing."""

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        return [0] * len(self.single_type_managers)

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> CacheHit:
        return CacheHit(tuple([] for _ in self.single_type_managers), 0, 0)


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """One group: its hit is the hit."""

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> CacheHit:
        manager = self.single_type_managers[0]
        blocks, length = manager.find_longest_cache_hit(
            block_hashes, max_cache_hit_length, [0], self.use_eagle, manager.block_size
        )
        return CacheHit(blocks, length, 0)


class HybridKVCacheCoordinator(KVCacheCoordinator):
    """Several groups: a hit is a prefix that all of them have, ending where their blocks do."""

    @cached_property
    def _kinds(self) -> list[tuple[KVCacheSpec, list[int]]]:
        """Each kind with the numbers of its groups, full attention first: it bounds the others."""
        kinds: dict[KVCacheSpec, list[int]] = {}
        for number, group in enumerate(self.kv_cache_config.kv_cache_groups):
            kinds.setdefault(group.kv_cache_spec, []).append(number)
        return sorted(kinds.items(), key=lambda item: not isinstance(item[0], FullAttentionSpec))

    def cache_blocks(self, request: ScheduledRequest, num_computed_tokens: int) -> None:
        """Only what a hit can end at is worth caching, and the block that a drafter drops."""
        if not self.semantics.caches_aligned:
            super().cache_blocks(request, num_computed_tokens)
            return
        aligned = num_computed_tokens - num_computed_tokens % self.scheduler_block_size
        for manager in self.single_type_managers:
            worth = aligned
            if manager.use_eagle and aligned > 0:
                worth = min(num_computed_tokens, aligned + manager.block_size)
            manager.cache_blocks(request, worth)

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> CacheHit:
        """Shorten the prefix until no kind shortens it any more.

        Full attention has every prefix of what it has, so it is asked once; the other kinds are
        asked again whenever one of them shortened the prefix.
        """
        found: dict[int, tuple[list[KVCacheBlock], int]] = {}
        length = max_cache_hit_length
        longest = 0
        dropped: set[KVCacheSpec] = set()
        simple = len(self._kinds) == 2 and isinstance(self._kinds[0][0], FullAttentionSpec)
        while True:
            shortened = length
            for spec, groups in self._kinds:
                if isinstance(spec, FullAttentionSpec) and groups[0] in found:
                    shortened = min(shortened, found[groups[0]][1])
                    continue
                drop = self.use_eagle and spec not in dropped
                limit = shortened
                if drop:
                    most = max_cache_hit_length
                    if self.semantics.looks_past_limit_to_drop:
                        most = len(block_hashes) * self.hash_block_size
                    limit = min(shortened + spec.block_size, most)
                blocks, hit = self._manager(groups).find_longest_cache_hit(
                    block_hashes, limit, groups, drop, self.scheduler_block_size
                )
                if drop:
                    dropped.add(spec)
                elif hit < shortened:
                    dropped.clear()
                shortened = hit
                found.update((group, (blocks[i], hit)) for i, group in enumerate(groups))
                longest = max(longest, hit)
            if shortened >= length:
                break
            length = shortened
            if simple:
                break
        tables = tuple(
            self._cut(found[number][0], number, length)
            for number in range(len(self.single_type_managers))
        )
        return CacheHit(tables, length, longest - length)

    def _manager(self, groups: Sequence[int]) -> SingleTypeKVCacheManager:
        return self.single_type_managers[groups[0]]

    def _cut(self, blocks: list[KVCacheBlock], number: int, length: int) -> list[KVCacheBlock]:
        """Full attention was asked before the prefix was shortened."""
        spec = self.kv_cache_config.kv_cache_groups[number].kv_cache_spec
        if not isinstance(spec, FullAttentionSpec):
            return blocks
        return blocks[: length // spec.block_size]


def get_kv_cache_coordinator(
    kv_cache_config: KVCacheConfig,
    max_model_len: int,
    max_in_flight_tokens: int,
    use_eagle: bool,
    enable_caching: bool,
    enable_kv_cache_events: bool,
    metrics_collector: KVCacheMetricsCollector | None = None,
    *,
    semantics: Semantics,
) -> KVCacheCoordinator:
    """The coordinator for these groups. Raises NotModelledCache where the reference has none."""
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    if enable_caching:
        _refuse(specs, use_eagle, semantics)
    if kv_cache_config.prefix_cache_retention_interval is not None and (
        use_eagle or not semantics.retains_sparsely
    ):
        raise NotModelledCache("windows cached sparsely, beside a drafter or before 0.29.0")
    kind: type[KVCacheCoordinator] = HybridKVCacheCoordinator
    if not enable_caching:
        kind = KVCacheCoordinatorNoPrefixCache
    elif len(specs) == 1:
        kind = UnitaryKVCacheCoordinator
    return kind(
        kv_cache_config,
        max_model_len,
        max_in_flight_tokens,
        use_eagle,
        enable_caching,
        enable_kv_cache_events,
        metrics_collector,
        semantics=semantics,
    )


def _refuse(specs: Sequence[KVCacheSpec], use_eagle: bool, semantics: Semantics) -> None:
    if any(isinstance(spec, CrossAttentionSpec) for spec in specs):
        raise NotModelledCache("prefix caching beside cross-attention")
    if len(specs) > len(set(specs)) == 1 and not semantics.joins_equal_groups:
        raise NotModelledCache("several groups that are all of one kind")
    if len(specs) > 1 and use_eagle and not semantics.caches_block_to_drop:
        raise NotModelledCache(
            "a drafter over several groups, in a release that drops twice or caches too little"
        )
    if any(isinstance(spec, ChunkedLocalAttentionSpec) for spec in specs):
        if use_eagle:
            raise NotModelledCache("a drafter beside chunked local attention")
        if len({spec.block_size for spec in specs}) > 1:
            raise NotModelledCache("chunked local attention beside groups of other block sizes")
