"""The KV cache as a scheduler sees it: what is hit, who gets slots, who holds what."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cacheproof.reference.block_pool import KVCacheBlock
from cacheproof.reference.kv_cache_coordinator import get_kv_cache_coordinator
from cacheproof.reference.kv_cache_metrics import KVCacheMetricsCollector
from cacheproof.reference.kv_cache_specs import KVCacheConfig, NotModelledCache
from cacheproof.reference.kv_events import BlockStored, KVCacheEvent
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.semantics import Semantics


@dataclass(frozen=True)
class KVCacheBlocks:
    """Blocks for each group, in the order of its tokens."""

    blocks: tuple[Sequence[KVCacheBlock], ...]

    def __add__(self, other: "KVCacheBlocks") -> "KVCacheBlocks":
        """Group by group, the other's blocks behind these."""
        pairs = zip(self.blocks, other.blocks, strict=True)
        return KVCacheBlocks(tuple([*ours, *theirs] for ours, theirs in pairs))

    def get_block_ids(self, allow_none: bool = False) -> tuple[list[int], ...] | None:
        """Block ids for each group; with `allow_none`, None when there are no blocks at all."""
        if allow_none and not any(self.blocks):
            return None
        return tuple([block.block_id for block in group] for group in self.blocks)

    def get_unhashed_block_ids(self) -> list[int]:
        """Ids of the blocks that cannot be found. Raises ValueError with several groups."""
        (group,) = self.blocks
        return [block.block_id for block in group if block.block_hash is None]

    def new_empty(self) -> "KVCacheBlocks":
        """As many groups, without blocks."""
        return KVCacheBlocks(tuple(() for _ in self.blocks))


@dataclass
class PrefixCacheStats:
    """What was looked up since the last take, in requests and tokens.

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

    `max_in_flight_tokens` bounds what the steps whose output is outstanding compute; `watermark`
    is the part of all blocks that stays free when a request is admitted beside others.

    Raises:
        NotModelledCache: the configuration is not modelled; the message names what of it.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        max_in_flight_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        metrics_collector: KVCacheMetricsCollector | None = None,
        watermark: float = 0.0,
        *,
        semantics: Semantics | None = None,
    ) -> None:
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.use_eagle = use_eagle
        self.log_stats = log_stats
        self.prefix_cache_stats = PrefixCacheStats()
        self.semantics = semantics or Semantics.ideal()
        self.coordinator = get_kv_cache_coordinator(
            kv_cache_config,
            max_model_len,
            max_model_len if max_in_flight_tokens is None else max_in_flight_tokens,
            use_eagle,
            enable_caching,
            enable_kv_cache_events,
            metrics_collector,
            semantics=self.semantics,
        )
        self.block_pool = self.coordinator.block_pool
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        self.empty_kv_cache_blocks = KVCacheBlocks(
            tuple(() for _ in kv_cache_config.kv_cache_groups)
        )

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

    def record_prefix_cache_stats(self, request: ScheduledRequest, num_hits: int) -> None:
        """A request was admitted that had looked for its prefix and found `num_hits` tokens."""
        if self.semantics.counts_admitted_hits:
            self._record(request, num_hits)

    def get_computed_blocks(self, request: ScheduledRequest) -> tuple[KVCacheBlocks, int, int]:
        """What of the request's tokens is cached: blocks, tokens, and a boundary.

        At least one token is left to compute, for the logits. The boundary is where the longest
        hit of a single group ends, 0 when no group has more than all of them.
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0, 0
        blocks, tokens, more = self.coordinator.find_longest_cache_hit(
            request.block_hashes, request.num_tokens - 1
        )
        if not self.semantics.counts_admitted_hits:
            self._record(request, tokens)
        return self.create_kv_cache_blocks(blocks), tokens, tokens + more if more else 0

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
            ValueError: there is no new token and nothing is loaded.
            NotModelledCache: loads are not modelled before 0.14.0.
        """
        if num_external_computed_tokens > 0 and not self.semantics.tells_external_tokens:
            raise NotModelledCache("external tokens before 0.14.0")
        if num_new_tokens == 0 and num_external_computed_tokens == 0:
            raise ValueError(f"request {request.request_id}: slots for no token")
        hit = (new_computed_blocks or self.empty_kv_cache_blocks).blocks
        local = request.num_computed_tokens + num_new_computed_tokens
        computed = min(local + num_external_computed_tokens, self.max_model_len)
        loaded = num_external_computed_tokens
        if delay_cache_blocks and self.semantics.keeps_window_of_last_token:
            loaded = min(loaded, request.num_tokens - 1 - local)
        kept = 0
        if self.watermark_blocks:
            kept = self._watermark(request, has_scheduled_reqs)
        if full_sequence_must_fit:
            whole = min(request.num_tokens, self.max_model_len)
            need = self.coordinator.get_num_blocks_to_allocate(
                request.request_id, whole, hit, num_encoder_tokens, local + loaded, True
            )
            if need + kept > self.block_pool.get_num_free_blocks():
                return None

        processed = computed
        if self.semantics.keeps_window_in_flight:
            processed = max(0, computed - request.num_in_flight_tokens)
        self.coordinator.remove_skipped_blocks(request.request_id, processed)
        slots = min(computed + num_new_tokens + num_lookahead_tokens, self.max_model_len)
        need = self.coordinator.get_num_blocks_to_allocate(
            request.request_id, slots, hit, num_encoder_tokens, local + loaded
        )
        asked = need + kept + reserved_blocks
        if asked > 0 and asked > self.block_pool.get_num_free_blocks():
            return None

        if any(hit) or num_external_computed_tokens > 0:
            self.coordinator.allocate_new_computed_blocks(request.request_id, hit, local, loaded)
        new = self.empty_kv_cache_blocks
        if need > 0 or not self.semantics.caps_admission_alone:
            new = self.create_kv_cache_blocks(
                self.coordinator.allocate_new_blocks(request.request_id, slots, num_encoder_tokens)
            )
        if not delay_cache_blocks:
            certain = min(computed + num_new_tokens, request.num_tokens)
            self.coordinator.cache_blocks(request, certain)
        return new

    def free(self, request: ScheduledRequest) -> None:
        """Give the request's blocks back: it ended or was preempted."""
        self.coordinator.free(request.request_id)

    def pop_blocks_for_free(self, request: ScheduledRequest) -> list[KVCacheBlock]:
        """End the request's tables; its blocks, to be given back later, the last of them first."""
        return self.coordinator.pop_blocks_for_free(request.request_id)

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int) -> None:
        """Give back what the request no longer reads, so many of its tokens being processed."""
        self.coordinator.remove_skipped_blocks(request_id, processed_computed_tokens)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Let these blocks not be found any more: their content is not what it should be."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Let no block be found any more. False, and nothing done, while a block is held."""
        if not self.block_pool.reset_prefix_cache():
            return False
        self.prefix_cache_stats.reset = True
        return True

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """For each group the blocks at the start that every request holds; since cascade attention
        is gone, 0."""
        if self.semantics.shares_no_prefix_reads:
            return [0] * len(self.kv_cache_config.kv_cache_groups)
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def take_events(self) -> list[KVCacheEvent]:
        """What can be found, and no longer be found, since the last take."""
        events = self.block_pool.take_events()
        for event in events:
            if isinstance(event, BlockStored):
                spec = self.kv_cache_config.kv_cache_groups[event.group_idx].kv_cache_spec
                event.kv_cache_spec_kind = spec.kind
                event.kv_cache_spec_sliding_window = spec.window
        return events

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """The request's tables."""
        return self.create_kv_cache_blocks(self.coordinator.get_blocks(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """The request's tables as block ids."""
        ids = self.get_blocks(request_id).get_block_ids()
        assert ids is not None
        return ids

    def cache_blocks(self, request: ScheduledRequest, num_computed_tokens: int) -> None:
        """Let the full blocks of so many of the request's tokens be found."""
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def create_kv_cache_blocks(self, blocks: tuple[list[KVCacheBlock], ...]) -> KVCacheBlocks:
        """The blocks as an answer; always the same object when there are none."""
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    def _record(self, request: ScheduledRequest, num_hits: int) -> None:
        looked_up = self.enable_caching and not request.skip_reading_prefix_cache
        if self.log_stats and looked_up:
            self.prefix_cache_stats.record(
                request.num_tokens, num_hits, request.num_preemptions > 0
            )

    def _watermark(self, request: ScheduledRequest, has_scheduled_reqs: bool) -> int:
        waits = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        return self.watermark_blocks if waits and has_scheduled_reqs else 0
