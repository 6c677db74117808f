"""The KV cache: what its manager, coordinator, groups and block pool decide."""

from dataclasses import dataclass

from cacheproof.reference.semantics.change import NOT_FOUND, change


@dataclass(frozen=True)
class KVCacheSemantics:
    """The flags of the KV cache manager and of all that it is made of."""

    reuses_unfindable_first: bool = change(
        "0.24.0",
        "BlockPool.free_blocks",
        "a freed block without a hash is reused before all other free blocks",
    )
    reuses_unfindable_in_windows: bool = change(
        "0.23.0",
        "SingleTypeKVCacheManager.remove_skipped_blocks",
        "a block without a hash that a window gives back is reused first, cached or not",
        last="0.23.0",
    )
    stacks_without_caching: bool = change(
        "0.24.0",
        "BlockPool.free_blocks",
        "without prefix caching every freed block is reused before all other free blocks",
        last="0.26.0",
        again="0.28.0",
    )
    tells_external_tokens: bool = change(
        "0.14.0",
        "KVCacheManager.allocate_slots",
        "allocation is told which tokens a connector loads",
    )
    touches_before_loading: bool = change(
        "0.24.0",
        "KVCacheCoordinator.allocate_new_computed_blocks",
        "every group holds its hit before any group takes blocks for a connector load",
        thread="vLLM #33775",
    )
    keeps_window_of_last_token: bool = change(
        None,
        "KVCacheManager.allocate_slots",
        "a connector load of all tokens leaves the window of the last token readable",
        thread=NOT_FOUND,
    )
    loads_by_token: bool = change(
        "0.24.0",
        "SingleTypeKVCacheManager.allocate_external_computed_blocks",
        "nothing is loaded for tokens that are no longer read, even where their block still is",
    )
    leaves_out_unreachable: bool = change(
        "0.22.0",
        "SingleTypeKVCacheManager.cache_blocks",
        "a window group beside a coarser one caches only blocks that a hit can need",
    )
    leaves_out_in_lone_windows: bool = change(
        "0.23.0",
        "SlidingWindowManager.reachable_block_mask",
        "a window group without a coarser one beside it caches only blocks that a hit can need",
    )
    caches_aligned: bool = change(
        "0.22.0",
        "HybridKVCacheCoordinator.cache_blocks",
        "a hybrid cache caches blocks only up to where a hit can end",
    )
    caches_prompt_tail: bool = change(
        "0.26.0",
        "FullAttentionManager._cache_partial_tail_block",
        "the last, partly filled coarse block of a prompt can be hit",
    )
    spares_last_prompt_token: bool = change(
        "0.32.0",
        "FullAttentionManager._cache_partial_tail_block",
        "a hit of a prompt's tail leaves the last prompt token to compute",
    )
    caches_findable_tails: bool = change(
        None,
        "FullAttentionManager.cache_blocks",
        "the partly filled end of a prompt is cached only where a lookup can find it",
        thread=NOT_FOUND,
    )
    events_carry_extra_keys: bool = change(
        "0.17.0", "BlockPool.cache_full_blocks", "a KV event carries the extra keys of each block"
    )
    events_name_groups: bool = change(
        "0.20.0", "BlockPool.cache_full_blocks", "a KV event names the group that it is about"
    )
    events_tell_kinds: bool = change(
        "0.22.0",
        "KVCacheManager.take_events",
        "a KV event says which kind of attention its group has",
    )
    events_name_sessions: bool = change(
        "0.30.0",
        "BlockPool._build_block_stored_event",
        "a KV event names the session that a block was stored for",
    )
    keeps_window_in_flight: bool = change(
        "0.26.0",
        "KVCacheManager.allocate_slots",
        "a block that a step in flight still reads is not given back",
    )
    counts_admitted_hits: bool = change(
        "0.27.0",
        "KVCacheManager.record_prefix_cache_stats",
        "prefix cache statistics count a hit when its request is admitted",
    )
    tells_longer_hits: bool = change(
        "0.26.0",
        "KVCacheManager.get_computed_blocks",
        "a lookup says how far the hit of a single group reaches",
    )
    knows_prefix_tokens: bool = change(
        "0.24.0",
        "BlockPool._insert_block_hash",
        "a cached block knows how long a prefix its hash covers",
    )
    retains_sparsely: bool = change(
        "0.29.0",
        "KVCacheConfig",
        "a cache can be configured to cache windows in few places alone",
    )
    counts_tables: bool = change(
        "0.11.1",
        "FullAttentionManager.get_num_common_prefix_blocks",
        "a common prefix is one of all requests that have a block table",
    )
    forgets_refused: bool = change(
        "0.14.0",
        "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
        "a request that gets no slots has no block table",
    )
    admits_whole_sequences: bool = change(
        "0.19.0",
        "KVCacheManager.can_fit_full_sequence",
        "admission can demand that the whole sequence fits",
    )
    admits_in_allocation: bool = change(
        "0.21.0",
        "KVCacheManager.allocate_slots",
        "allocation itself checks whether the whole sequence fits",
    )
    caps_admission: bool = change(
        "0.20.0",
        "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
        "a window counts for no more blocks than it holds at a time",
    )
    caps_admission_alone: bool = change(
        "0.20.2",
        "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
        "the blocks of a window are capped only in the check that the whole sequence fits",
    )
    reserves_blocks: bool = change(
        "0.23.0",
        "KVCacheManager.allocate_slots",
        "admission can keep blocks free for other requests",
    )
    keeps_watermark: bool = change(
        "0.24.0",
        "KVCacheManager.allocate_slots",
        "admission can keep a fixed share of all blocks free",
    )
    defers_frees: bool = change(
        "0.24.0",
        "KVCacheManager.pop_blocks_for_free",
        "the blocks of a request can be given back after the request has ended",
    )
    aligns_behind_drop: bool = change(
        "0.20.0",
        "SlidingWindowManager.find_longest_cache_hit",
        "a window's hit is aligned without the block that the drafter drops",
    )
    aligns_first_hit_once: bool = change(
        None,
        "SlidingWindowManager.find_longest_cache_hit",
        "a hit of a window's first blocks is aligned once, without the block to be dropped",
    )
    caches_block_to_drop: bool = change(
        "0.23.0",
        "HybridKVCacheCoordinator.cache_blocks",
        "a hybrid cache also caches the block that a drafter then drops",
        thread="vLLM #32802",
    )
    looks_past_limit_to_drop: bool = change(
        "0.32.0",
        "HybridKVCacheCoordinator.find_longest_cache_hit",
        "the block that a drafter drops may hold the last prompt token",
    )
    joins_equal_groups: bool = change(
        "0.29.0",
        "HybridKVCacheCoordinator.verify_and_split_kv_cache_groups",
        "several groups may all be of one kind",
    )
    tells_tokens_of_hashes: bool = change(
        None,
        "BlockPool.cache_full_blocks",
        "a KV event carries the tokens of its hashes and no others",
        thread="vLLM #44451, PR #44488",
    )
    adopts_hits_alone: bool = change(
        "0.31.0",
        "KVCacheManager.allocate_slots",
        "slots can be asked for a hit alone, without a new token",
    )
    trims_null_heads: bool = change(
        "0.33.0",
        "SingleTypeKVCacheManager.pop_blocks_for_free",
        "the blocks to be given back later begin with one that is held",
    )
    shares_no_prefix_reads: bool = change(
        "0.32.0",
        "KVCacheManager.get_num_common_prefix_blocks",
        "common prefixes are not counted, since there is no cascade attention",
    )
