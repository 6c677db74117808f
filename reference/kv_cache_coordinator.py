"""Several groups of layers over one pool: their tables grow together and hit the same prefix."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from cacheproof.reference.attention_kinds import CrossAttentionManager, manager_for
from cacheproof.reference.block_pool import BlockPool, KVCacheBlock
from cacheproof.reference.kv_cache_checks import (
    check_groups,
    check_retention_interval,
    check_sizes,
)
from cacheproof.reference.kv_cache_metrics import KVCacheMetricsCollector
from cacheproof.reference.kv_cache_specs import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
)
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics

Blocks = tuple[Sequence[KVCacheBlock], ...]


class CacheHit(NamedTuple):
    """Blocks per group, the prefix's tokens, and how many more a single group would hit."""

    blocks: tuple[list[KVCacheBlock], ...]
    num_tokens: int
    num_uncached_common_prefix_tokens: int


class KVCacheCoordinator:
    """The groups' managers and the pool they share.

    Attributes:
        single_type_managers: in the order of the configuration's groups.
        eagle_group_ids: the groups that a drafter reads: those that are marked, else all.
        drop_eagle_group_ids: those of them whose hits lose their last block.
        retention_interval: in tokens, as in the configuration.

    Raises:
        NotModelledCache: groups or a configuration that the reference does not model.
        ValueError: block sizes that do not divide each other, or a retention interval that is none.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        max_in_flight_tokens: int,
        use_eagle: bool,
        enable_caching: bool,
        enable_kv_cache_events: bool,
        dcp_world_size: int,
        pcp_world_size: int,
        scheduler_block_size: int,
        hash_block_size: int,
        metrics_collector: KVCacheMetricsCollector | None = None,
        *,
        semantics: Semantics | None = None,
    ) -> None:
        semantics = semantics or Semantics.ideal()
        check_sizes(kv_cache_config, scheduler_block_size, hash_block_size if enable_caching else 1)
        check_retention_interval(kv_cache_config, scheduler_block_size, use_eagle, semantics)
        self.kv_cache_config = kv_cache_config
        self.semantics = semantics
        self.scheduler_block_size = scheduler_block_size
        self.hash_block_size = hash_block_size
        self.retention_interval = kv_cache_config.prefix_cache_retention_interval
        self.eagle_group_ids = _eagle_group_ids(kv_cache_config, use_eagle)
        self.drop_eagle_group_ids = self.eagle_group_ids
        # a key that looks ahead covers the token after its block, which a drafter's KV depends on
        if semantics.block_keys.looks_ahead and not use_eagle:
            self.drop_eagle_group_ids = frozenset()
        self.block_pool = BlockPool(
            kv_cache_config.num_blocks,
            enable_caching,
            hash_block_size,
            enable_kv_cache_events,
            metrics_collector,
            semantics=semantics,
        )
        self.single_type_managers = tuple(
            manager_for(group.kv_cache_spec)(
                kv_cache_spec=group.kv_cache_spec,
                block_pool=self.block_pool,
                enable_caching=enable_caching,
                kv_cache_group_id=number,
                scheduler_block_size=scheduler_block_size,
                dcp_world_size=dcp_world_size,
                pcp_world_size=pcp_world_size,
                max_admission_blocks_per_request=(
                    group.kv_cache_spec.max_admission_blocks_per_request(
                        max_in_flight_tokens, max_model_len
                    )
                    if semantics.kv_cache.caps_admission
                    else None
                ),
            )
            for number, group in enumerate(kv_cache_config.kv_cache_groups)
        )
        self._skipping_managers = tuple(one for one in self.single_type_managers if one.skips)

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Blocks,
        num_encoder_tokens: int,
        total_computed_tokens: int,
        num_local_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
        prefill_end: int = 0,
    ) -> int:
        """Blocks that leave the free queue when the request gets `num_tokens` slots."""
        need = 0
        for manager in self.single_type_managers:
            # its table grows with the encoder's tokens, and nothing of it is ever hit
            if isinstance(manager, CrossAttentionManager):
                need += manager.get_num_blocks_to_allocate(
                    request_id,
                    num_encoder_tokens,
                    (),
                    0,
                    0,
                    num_encoder_tokens,
                    apply_admission_cap,
                )
            else:
                need += manager.get_num_blocks_to_allocate(
                    request_id,
                    num_tokens,
                    new_computed_blocks[manager.kv_cache_group_id],
                    total_computed_tokens,
                    num_local_computed_tokens,
                    num_tokens_main_model,
                    apply_admission_cap,
                    prefill_end,
                )
        return need

    def allocate_new_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Blocks,
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        skip_zeroing_group_ids: tuple[int, ...] = (),
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
            # vLLM #33775: before 0.24.0 a load took what a later group had hit
            if loads and not self.semantics.kv_cache.touches_before_loading:
                manager.allocate_external_computed_blocks(request_id, *tokens)
        if loads and self.semantics.kv_cache.touches_before_loading:
            for manager in self.single_type_managers:
                manager.allocate_external_computed_blocks(request_id, *tokens)

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        num_encoder_tokens: int = 0,
    ) -> tuple[list[KVCacheBlock], ...]:
        """Grow the request's tables; the blocks that are new."""
        return tuple(
            manager.allocate_new_blocks(
                request_id,
                num_encoder_tokens if isinstance(manager, CrossAttentionManager) else num_tokens,
                num_tokens_main_model,
            )
            for manager in self.single_type_managers
        )

    def get_num_cacheable_tokens(self, num_computed_tokens: int, kv_cache_group_id: int) -> int:
        """How many of the request's computed tokens are worth caching in the group."""
        return num_computed_tokens

    def cache_blocks(self, request: ScheduledRequest, num_computed_tokens: int) -> None:
        """Let the full blocks of the request's computed tokens be found.

        A request of the same prompt goes on before its last token, which is always computed.
        """
        for manager in self.single_type_managers:
            manager.cache_blocks(
                request,
                self.get_num_cacheable_tokens(num_computed_tokens, manager.kv_cache_group_id),
                self.retention_interval,
                replay_boundaries=(request.num_prompt_tokens - 1,),
            )

    def reset_prefix_cache(self) -> bool:
        """Let no block be found any more. False, and nothing done, while a block is held."""
        return self.block_pool.reset_prefix_cache()

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

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
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
        """The longest prefix, of at most `max_cache_hit_length` tokens, that all groups have."""
        raise NotImplementedError


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Nothing is cached, nothing is hit."""

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        max_in_flight_tokens: int,
        use_eagle: bool,
        enable_kv_cache_events: bool,
        dcp_world_size: int,
        pcp_world_size: int,
        scheduler_block_size: int,
        hash_block_size: int,
        metrics_collector: KVCacheMetricsCollector | None = None,
        *,
        semantics: Semantics | None = None,
    ) -> None:
        super().__init__(
            kv_cache_config,
            max_model_len,
            max_in_flight_tokens,
            use_eagle,
            False,
            enable_kv_cache_events,
            dcp_world_size,
            pcp_world_size,
            scheduler_block_size,
            hash_block_size,
            metrics_collector,
            semantics=semantics,
        )

    def cache_blocks(self, request: ScheduledRequest, num_computed_tokens: int) -> None:
        """Do nothing: no block can be found."""

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        return [0] * len(self.single_type_managers)

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> CacheHit:
        return CacheHit(tuple([] for _ in self.single_type_managers), 0, 0)


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """One group: its hit is the hit.

    Raises:
        ValueError: hashes are not of the group's blocks.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        manager = self.single_type_managers[0]
        if manager.block_size != self.hash_block_size:
            raise ValueError(
                f"hashes of {self.hash_block_size} tokens for the one group, whose blocks have "
                f"{manager.block_size}; expected as many"
            )
        manager.use_eagle = 0 in self.drop_eagle_group_ids

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> CacheHit:
        manager = self.single_type_managers[0]
        blocks, length = manager.find_longest_cache_hit(
            block_hashes,
            max_cache_hit_length,
            [0],
            self.block_pool,
            manager.kv_cache_spec,
            manager.use_eagle,
            manager.block_size,
        )
        return CacheHit(blocks, length, 0)


class HybridKVCacheCoordinator(KVCacheCoordinator):
    """Several groups: a hit is a prefix that all of them have, ending where their blocks do.

    Groups of one kind are cached and looked up together, so what a drafter drops of one of them it
    drops of all.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for _, groups in self._kinds:
            for number in groups:
                drops = not self.drop_eagle_group_ids.isdisjoint(groups)
                self.single_type_managers[number].use_eagle = drops

    @cached_property
    def _kinds(self) -> list[tuple[KVCacheSpec, list[int]]]:
        """Each kind with the numbers of its groups, full attention first: it bounds the others."""
        kinds: dict[KVCacheSpec, list[int]] = {}
        for number, group in enumerate(self.kv_cache_config.kv_cache_groups):
            kinds.setdefault(group.kv_cache_spec, []).append(number)
        return sorted(kinds.items(), key=lambda item: not isinstance(item[0], FullAttentionSpec))

    def get_num_cacheable_tokens(self, num_computed_tokens: int, kv_cache_group_id: int) -> int:
        """Only what a hit can end at is worth caching, and the block that a drafter drops."""
        if not self.semantics.kv_cache.caches_aligned:
            return num_computed_tokens
        aligned = num_computed_tokens - num_computed_tokens % self.scheduler_block_size
        manager = self.single_type_managers[kv_cache_group_id]
        # a look-up must find the block that the drafter then drops (faults/dropped-block)
        if manager.use_eagle and aligned > 0:
            return min(num_computed_tokens, aligned + manager.block_size)
        return aligned

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
        # beside one other kind: full attention has whatever prefix that kind leaves
        simple = len(self._kinds) == 2 and isinstance(self._kinds[0][0], FullAttentionSpec)
        while True:
            shortened = length
            for spec, groups in self._kinds:
                if isinstance(spec, FullAttentionSpec) and groups[0] in found:
                    shortened = min(shortened, found[groups[0]][1])
                    continue
                manager = self.single_type_managers[groups[0]]
                # once per length: dropping in every round would shorten the hit in every round
                drop = manager.use_eagle and spec not in dropped
                limit = shortened
                if drop:
                    most = max_cache_hit_length
                    # the block that is dropped may hold the last prompt token: it is not used
                    if self.semantics.kv_cache.looks_past_limit_to_drop:
                        most = len(block_hashes) * self.hash_block_size
                    limit = min(shortened + spec.block_size, most)
                blocks, hit = manager.find_longest_cache_hit(
                    block_hashes,
                    limit,
                    groups,
                    self.block_pool,
                    spec,
                    drop,
                    self.scheduler_block_size,
                )
                if drop:
                    dropped.add(spec)
                elif hit < shortened:
                    # a shorter prefix ends elsewhere, and another block is dropped there
                    dropped.clear()
                shortened = hit
                found.update((group, (blocks[i], hit)) for i, group in enumerate(groups))
                longest = max(longest, hit)
            # every kind was asked at this length and kept it; else the next round is shorter
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

    def _cut(self, blocks: list[KVCacheBlock], number: int, length: int) -> list[KVCacheBlock]:
        """Cut full attention's blocks, which were found before the prefix was shortened."""
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
    dcp_world_size: int,
    pcp_world_size: int,
    scheduler_block_size: int,
    hash_block_size: int,
    metrics_collector: KVCacheMetricsCollector | None = None,
    *,
    semantics: Semantics | None = None,
) -> KVCacheCoordinator:
    """The coordinator for these groups.

    Raises:
        NotModelledCache: the reference has none for them.
        ValueError: as the coordinators.
    """
    semantics = semantics or Semantics.ideal()
    limits = (kv_cache_config, max_model_len, max_in_flight_tokens, use_eagle)
    rest = (dcp_world_size, pcp_world_size, scheduler_block_size, hash_block_size)
    if not enable_caching:
        return KVCacheCoordinatorNoPrefixCache(
            *limits, enable_kv_cache_events, *rest, metrics_collector, semantics=semantics
        )
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    check_groups(specs, use_eagle, semantics)
    kind = UnitaryKVCacheCoordinator if len(specs) == 1 else HybridKVCacheCoordinator
    return kind(
        *limits, True, enable_kv_cache_events, *rest, metrics_collector, semantics=semantics
    )


def _eagle_group_ids(kv_cache_config: KVCacheConfig, use_eagle: bool) -> frozenset[int]:
    groups = kv_cache_config.kv_cache_groups
    marked = frozenset(number for number, group in enumerate(groups) if group.is_eagle_group)
    return frozenset(range(len(groups))) if use_eagle and not marked else marked
