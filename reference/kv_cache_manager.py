"""The KV cache as a scheduler sees it: what is hit, who gets slots, who holds what."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from cacheproof.reference.attention_kinds import CrossAttentionManager
from cacheproof.reference.block_pool import KVCacheBlock
from cacheproof.reference.kv_cache_coordinator import get_kv_cache_coordinator
from cacheproof.reference.kv_cache_metrics import KVCacheMetricsCollector
from cacheproof.reference.kv_cache_specs import KVCacheConfig, NotModelledCache, ceil_div
from cacheproof.reference.kv_events import BlockStored, KVCacheEvent
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics


@dataclass(frozen=True)
class KVCacheBlocks:
    """Blocks for each group, in the order of the tokens that they hold."""

    blocks: tuple[Sequence[KVCacheBlock], ...]

    def __add__(self, other: "KVCacheBlocks") -> "KVCacheBlocks":
        """Group by group, the other's blocks after these."""
        pairs = zip(self.blocks, other.blocks, strict=True)
        return KVCacheBlocks(tuple([*ours, *theirs] for ours, theirs in pairs))

    @overload
    def get_block_ids(
        self, allow_none: Literal[False] = False, *, group_ids: Sequence[int] | None = None
    ) -> tuple[list[int], ...]: ...

    @overload
    def get_block_ids(
        self, allow_none: bool, *, group_ids: Sequence[int] | None = None
    ) -> tuple[list[int], ...] | None: ...

    def get_block_ids(
        self, allow_none: bool = False, *, group_ids: Sequence[int] | None = None
    ) -> tuple[list[int], ...] | None:
        """Block ids of these groups, by default of all; with `allow_none`, None without blocks."""
        groups = self.blocks
        if group_ids is not None:
            groups = tuple(self.blocks[group_id] for group_id in group_ids)
        if allow_none and not any(groups):
            return None
        return tuple([block.block_id for block in group] for group in groups)

    def get_unhashed_block_ids(self) -> list[int]:
        """Ids of the blocks that cannot be found. Raises ValueError with several groups."""
        (group,) = self.blocks
        return [block.block_id for block in group if block.block_hash is None]

    def get_unhashed_block_ids_all_groups(self) -> list[list[int]]:
        """For each group the ids of the blocks that cannot be found, without null blocks."""
        return [
            [block.block_id for block in group if block.block_hash is None and not block.is_null]
            for group in self.blocks
        ]

    def new_empty(self) -> "KVCacheBlocks":
        """An answer without blocks, for as many groups."""
        return KVCacheBlocks(tuple(() for _ in self.blocks))


@dataclass
class PrefixCacheStats:
    """Look-ups since the last take, in requests and tokens.

    Requests that were preempted before count apart: what they hit they had computed themselves.
    """

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """A request of `num_tokens` looked for its prefix and found `num_hits` of it."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


class KVCacheManager:
    """Stands in for vLLM's class of the same name: same methods, arguments and attributes.

    Blocks of all groups end together at each multiple of `scheduler_block_size` tokens; a request's
    hashes are of `hash_block_size` each. `max_in_flight_tokens` bounds what the steps whose output
    is outstanding compute; `watermark` is the part of all blocks that stays free when a request is
    admitted beside others.

    No kind of group that is modelled has blocks that are copied, that workers write zeros into, or
    whose states at boundaries are sent elsewhere; what asks for those answers that there are none.

    Raises:
        NotModelledCache: the configuration is not modelled; the message names what of it.
        ValueError: a negative watermark; or as the coordinators.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        max_in_flight_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        num_hash_lookahead_tokens: int = 0,
        num_prefill_lookahead: int = 0,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
        metrics_collector: KVCacheMetricsCollector | None = None,
        watermark: float = 0.0,
        enable_mamba_shared_prefix_checkpoint: bool = False,
        *,
        semantics: Semantics | None = None,
    ) -> None:
        if num_prefill_lookahead > 1:
            raise NotModelledCache("drafters of several modules")
        if num_hash_lookahead_tokens and enable_kv_cache_events:
            raise NotModelledCache("KV events beside keys that look ahead")
        if enable_mamba_shared_prefix_checkpoint:
            raise NotModelledCache("checkpoints of Mamba's states")
        if watermark < 0.0:
            raise ValueError(f"watermark is {watermark}; expected 0 or more")
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.enable_kv_cache_events = enable_kv_cache_events
        self.use_eagle = use_eagle
        self.log_stats = log_stats
        self.metrics_collector = metrics_collector
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        self.semantics = semantics or Semantics.ideal()
        self.coordinator = get_kv_cache_coordinator(
            kv_cache_config,
            max_model_len,
            max_model_len if max_in_flight_tokens is None else max_in_flight_tokens,
            use_eagle,
            enable_caching,
            enable_kv_cache_events,
            dcp_world_size,
            pcp_world_size,
            scheduler_block_size,
            hash_block_size,
            metrics_collector,
            semantics=self.semantics,
        )
        self.block_pool = self.coordinator.block_pool
        self.num_kv_cache_groups = len(kv_cache_config.kv_cache_groups)
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        self.kv_cache_event_metadata = tuple((spec.kind, spec.window) for spec in specs)
        self.empty_kv_cache_blocks = KVCacheBlocks(tuple(() for _ in specs))

    @property
    def usage(self) -> float:
        """The part of the blocks that is held, from 0.0 to 1.0."""
        return self.block_pool.get_usage()

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        """The statistics since the last take; None when they are not kept."""
        if not self.log_stats:
            return None
        stats, self.prefix_cache_stats = self.prefix_cache_stats, PrefixCacheStats()
        return stats

    def prefix_cache_lookup_enabled(self, request: ScheduledRequest) -> bool:
        """Whether the request's prefix may be looked for."""
        return self.enable_caching and not request.skip_reading_prefix_cache

    def record_prefix_cache_stats(self, request: ScheduledRequest, num_hits: int) -> None:
        """A request was admitted that had looked for its prefix and found `num_hits` tokens."""
        if self.semantics.kv_cache.counts_admitted_hits:
            self._record(request, num_hits)

    def get_computed_blocks(
        self, request: ScheduledRequest, max_cache_hit_length: int | None = None
    ) -> tuple[KVCacheBlocks, int, int]:
        """The cached prefix of the request: blocks, tokens, and a boundary.

        At most `max_cache_hit_length` tokens; by default at least one token is left to compute, for
        the logits. The boundary is where the longest hit of a single group ends, 0 when no group
        has more than all of them.
        """
        if not self.prefix_cache_lookup_enabled(request):
            return self.empty_kv_cache_blocks, 0, 0
        if max_cache_hit_length is None:
            max_cache_hit_length = request.num_tokens - 1
        blocks, tokens, more = self.coordinator.find_longest_cache_hit(
            request.block_hashes, max_cache_hit_length
        )
        if not self.semantics.kv_cache.counts_admitted_hits:
            self._record(request, tokens)
        return self.create_kv_cache_blocks(blocks), tokens, tokens + more if more else 0

    def get_computed_blocks_for_connector(
        self, request: ScheduledRequest, max_cache_hit_length: int | None = None
    ) -> tuple[KVCacheBlocks, int, int, bool]:
        """As `get_computed_blocks`, for a request whose KV a connector may bring; last, whether the
        groups' hits differ, which only those of Mamba may."""
        return *self.get_computed_blocks(request, max_cache_hit_length), False

    def truncate_computed_blocks(
        self, blocks: KVCacheBlocks, num_computed_tokens: int
    ) -> KVCacheBlocks:
        """The first `num_computed_tokens` tokens of a hit.

        Raises:
            AssertionError: a group's blocks do not end there, or the hit is shorter.
        """
        parts = []
        for group, manager in zip(
            blocks.blocks, self.coordinator.single_type_managers, strict=True
        ):
            count, rest = divmod(num_computed_tokens, manager.block_size)
            assert rest == 0
            assert count <= len(group)
            parts.append(list(group[:count]))
        return self.create_kv_cache_blocks(tuple(parts))

    def allocate_slots(
        self,
        request: ScheduledRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        skip_zeroing_group_ids: tuple[int, ...] = (),
    ) -> KVCacheBlocks | None:
        """Slots for `num_new_tokens` more tokens; the new blocks, None when there are too few.

        The request's tokens are, in this order: computed (`request.num_computed_tokens`), hit
        (`num_new_computed_tokens`, in `new_computed_blocks`), loaded from elsewhere
        (`num_external_computed_tokens`), new, and looked ahead (slots for a drafter's tokens).
        First, blocks are given back that no token reads any more, whether or not the request then
        gets its slots. Then the hit is touched and what is loaded gets blocks. Then the new and the
        looked-ahead tokens do, and what is certain of all tokens is cached, unless a load that is
        still under way delays it (`delay_cache_blocks`). `num_encoder_tokens` get blocks in
        cross-attention groups. A load that is still under way may bring all tokens; the last one is
        computed again all the same.

        Admission can ask for more than the new tokens need: that the whole sequence fits, that
        `reserved_blocks` stay free, and the watermark where other requests are scheduled already.

        Raises:
            ValueError: there is no new token, nothing is loaded, and (from 0.31.0 on) nothing hit.
            NotModelledCache: loads are not modelled before 0.14.0.
        """
        if num_external_computed_tokens > 0 and not self.semantics.kv_cache.tells_external_tokens:
            raise NotModelledCache("external tokens before 0.14.0")
        adopted = num_external_computed_tokens
        if self.semantics.kv_cache.adopts_hits_alone:
            adopted += num_new_computed_tokens
        if num_new_tokens == 0 and adopted == 0:
            raise ValueError(f"request {request.request_id}: slots for no token")
        hit = (new_computed_blocks or self.empty_kv_cache_blocks).blocks
        local = request.num_computed_tokens + num_new_computed_tokens
        loaded = num_external_computed_tokens
        loads_all = 0 < loaded == request.num_tokens - local
        # the last token is computed again, and reads one token further back (faults/loaded-prompt)
        if loads_all and delay_cache_blocks and self.semantics.kv_cache.keeps_window_of_last_token:
            loaded -= 1
            num_new_tokens += 1
        computed = min(local + loaded, self.max_model_len)
        kept = 0
        if self.watermark_blocks:
            kept = self._watermark(request, has_scheduled_reqs)
        if full_sequence_must_fit:
            whole = min(request.num_tokens, self.max_model_len)
            # capped: a window holds fewer blocks than the sequence (faults/window-counted-whole)
            need = self.coordinator.get_num_blocks_to_allocate(
                request.request_id,
                whole,
                hit,
                num_encoder_tokens,
                local + loaded,
                local,
                whole,
                apply_admission_cap=True,
            )
            if need + kept > self.block_pool.get_num_free_blocks():
                return None

        processed = computed
        # rejected drafts move the window back, onto blocks that would be gone (faults/moved-window)
        if self.semantics.kv_cache.keeps_window_in_flight:
            processed = max(0, computed - request.num_in_flight_tokens)
        self.coordinator.remove_skipped_blocks(request.request_id, processed)
        own = computed + num_new_tokens
        slots = min(own + num_lookahead_tokens, self.max_model_len)
        need = self.coordinator.get_num_blocks_to_allocate(
            request.request_id, slots, hit, num_encoder_tokens, local + loaded, local, own
        )
        asked = need + kept + reserved_blocks
        if asked > 0 and asked > self.block_pool.get_num_free_blocks():
            return None

        # before new blocks are taken: a hit block may be free, and must not be handed out for them
        if any(hit) or loaded > 0:
            self.coordinator.allocate_new_computed_blocks(request.request_id, hit, local, loaded)
        new = self.empty_kv_cache_blocks
        # a need that was capped may be 0 although places are missing (faults/window-slots)
        if need > 0 or not self.semantics.kv_cache.caps_admission_alone:
            new = self.create_kv_cache_blocks(
                self.coordinator.allocate_new_blocks(
                    request.request_id, slots, own, num_encoder_tokens
                )
            )
        if not delay_cache_blocks:
            # tokens after the known ones are drafts, which may be rejected
            self.coordinator.cache_blocks(request, min(own, request.num_tokens))
        return new

    def free(self, request: ScheduledRequest) -> None:
        """Give the request's blocks back: it ended or was preempted."""
        self.coordinator.free(request.request_id)

    def forget_uncomputed(self, request: ScheduledRequest) -> None:
        """Let no block be found that holds tokens of the request after the computed ones."""
        for manager, blocks in zip(
            self.coordinator.single_type_managers,
            self.coordinator.get_blocks(request.request_id),
            strict=True,
        ):
            behind = blocks[request.num_computed_tokens // manager.block_size :]
            self.block_pool.evict_blocks(block.block_id for block in behind if block.keys)

    def pop_blocks_for_free(self, request: ScheduledRequest) -> list[KVCacheBlock]:
        """End the request's tables; its blocks, to be given back later in reverse order."""
        return self.coordinator.pop_blocks_for_free(request.request_id)

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Give back what the request no longer reads once so many of its tokens are processed."""
        self.coordinator.remove_skipped_blocks(request_id, processed_computed_tokens)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Let these blocks not be found any more: their content is not what it should be.

        Raises:
            IndexError: no such block.
        """
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Let no block be found any more. False, and nothing done, while a block is held."""
        if not self.coordinator.reset_prefix_cache():
            return False
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """For each group how many leading blocks every request holds; 0 where there is no cascade
        attention any more."""
        if self.semantics.kv_cache.shares_no_prefix_reads:
            return [0] * self.num_kv_cache_groups
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def take_events(self) -> list[KVCacheEvent]:
        """What can be found, and no longer be found, since the last take."""
        events = self.block_pool.take_events()
        for event in events:
            if not isinstance(event, BlockStored):
                continue
            group = event.group_idx
            if group is not None and group < self.num_kv_cache_groups:
                kind, window = self.kv_cache_event_metadata[group]
                event.kv_cache_spec_kind = kind
                event.kv_cache_spec_sliding_window = window
        return events

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """The request's tables."""
        return self.create_kv_cache_blocks(self.coordinator.get_blocks(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """The request's tables as block ids."""
        return self.get_blocks(request_id).get_block_ids()

    def get_block_ids_for_computed_tokens(
        self, request_id: str, num_computed_tokens: int
    ) -> tuple[list[int], ...]:
        """The request's tables as block ids, cut after its computed tokens; what an encoder filled,
        whole."""
        tables = zip(
            self.coordinator.single_type_managers, self.get_block_ids(request_id), strict=True
        )
        return tuple(
            ids
            if isinstance(manager, CrossAttentionManager)
            else ids[: ceil_div(num_computed_tokens, manager.block_size)]
            for manager, ids in tables
        )

    def estimate_cached_tokens(self, request: ScheduledRequest) -> int:
        """How many of the request's tokens can be found: those that every group has a block of."""
        tables = zip(
            self.coordinator.single_type_managers,
            self.get_blocks(request.request_id).blocks,
            strict=True,
        )
        covered = [
            max((block.block_hash_num_tokens or 0 for block in blocks), default=0)
            for manager, blocks in tables
            # its blocks hold the encoder's tokens, not the request's own
            if not isinstance(manager, CrossAttentionManager)
        ]
        return min(covered, default=0)

    def cache_blocks(self, request: ScheduledRequest, num_computed_tokens: int) -> None:
        """Let the full blocks of the request's first `num_computed_tokens` tokens be found."""
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def create_kv_cache_blocks(self, blocks: tuple[list[KVCacheBlock], ...]) -> KVCacheBlocks:
        """The blocks as an answer; always the same object when there are none."""
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    def take_new_block_ids(self) -> list[int]:
        """Blocks to write zeros into: none."""
        return []

    def record_blocks_for_zeroing(self, request_id: str, start_token: int) -> None:
        """Nothing: no block is written zeros into."""

    def take_kv_cache_block_copies(self) -> tuple[list[object], list[KVCacheBlock]]:
        """Blocks to be copied, and those that are held until then: none."""
        return [], []

    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        """States to be sent elsewhere: none."""
        return {}

    def finalize_partial_tail_offloads(
        self, request: ScheduledRequest
    ) -> list[tuple[int, int, int]]:
        """States of a request that ends, to be sent elsewhere: none."""
        return []

    def new_step_starts(self) -> None:
        """Nothing is kept by the step."""

    def _record(self, request: ScheduledRequest, num_hits: int) -> None:
        if self.prefix_cache_stats is not None and self.prefix_cache_lookup_enabled(request):
            self.prefix_cache_stats.record(
                request.num_tokens, num_hits, request.num_preemptions > 0
            )

    def _watermark(self, request: ScheduledRequest, has_scheduled_reqs: bool) -> int:
        # By name: in a release's scheduler, requests have its own statuses.
        waits = request.status.name in ("WAITING", "PREEMPTED")
        return self.watermark_blocks if waits and has_scheduled_reqs else 0
