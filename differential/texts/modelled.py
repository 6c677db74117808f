"""Which of vLLM's text the reference models, and what is left out of it, and why."""

from typing import NamedTuple

from cacheproof.differential.texts.told import READ


class ModelledComponent(NamedTuple):
    """The files under vllm/ that hold a component, in one release or another. `only` are the names
    at their top that count, or methods of their classes; none: all of them."""

    name: str
    paths: tuple[str, ...]
    only: tuple[str, ...] = ()


class LeftOut(NamedTuple):
    """Definitions in which a change is no difference of the model. `names` are patterns."""

    reason: str
    names: tuple[str, ...]


COMPONENTS = (
    ModelledComponent("scheduler", ("v1/core/sched/scheduler.py",)),
    ModelledComponent("async_scheduler", ("v1/core/sched/async_scheduler.py",)),
    ModelledComponent("encoder_cache_manager", ("v1/core/encoder_cache_manager.py",)),
    ModelledComponent(
        "encoder_budget",
        ("multimodal/encoder_budget.py", "v1/worker/utils.py"),
        ("MultiModalBudget", "get_mm_max_toks_per_item"),
    ),
    ModelledComponent("request", ("v1/request.py",)),
    ModelledComponent("request_queue", ("v1/core/sched/request_queue.py",)),
    ModelledComponent("sched_interface", ("v1/core/sched/interface.py",), ("PauseState",)),
    ModelledComponent("sched_output", ("v1/core/sched/output.py",)),
    ModelledComponent("sched_utils", ("v1/core/sched/utils.py",)),
    ModelledComponent(
        "mm_inputs", ("multimodal/inputs.py",), ("PlaceholderRange", "MultiModalFeatureSpec")
    ),
    ModelledComponent(
        "mm_utils",
        ("multimodal/utils.py",),
        ("get_mm_features_in_window", "strip_covered_mm_data"),
    ),
    ModelledComponent("kv_cache_manager", ("v1/core/kv_cache_manager.py",)),
    ModelledComponent("kv_cache_coordinator", ("v1/core/kv_cache_coordinator.py",)),
    ModelledComponent("single_type_kv_cache_manager", ("v1/core/single_type_kv_cache_manager.py",)),
    ModelledComponent("block_pool", ("v1/core/block_pool.py",)),
    ModelledComponent("kv_cache_utils", ("v1/core/kv_cache_utils.py",)),
    ModelledComponent(
        "kv_cache_interface",
        ("v1/kv_cache_interface.py",),
        ("SlidingWindowSpec", "ChunkedLocalAttentionSpec", "CrossAttentionSpec"),
    ),
    ModelledComponent("kv_cache_metrics", ("v1/core/kv_cache_metrics.py",)),
    ModelledComponent("kv_events", ("distributed/kv_events.py",)),
    ModelledComponent(
        "hashing",
        ("utils/hashing.py", "utils/__init__.py"),
        (
            "sha256",
            "sha256_cbor",
            "xxhash",
            "xxhash_cbor",
            "_xxhash_digest",
            "get_hash_fn_by_name",
        ),
    ),
    ModelledComponent("hasher", ("multimodal/hasher.py",)),
    ModelledComponent(
        "media",
        ("multimodal/media/base.py", "multimodal/base.py", "multimodal/image.py"),
        ("MediaWithBytes", "convert_image_mode"),
    ),
    ModelledComponent(
        "processor_cache",
        (
            "multimodal/cache/lru.py",
            "multimodal/cache/base.py",
            "multimodal/cache/shm.py",
            "multimodal/cache.py",
        ),
        (
            "BaseMultiModalCache",
            "BaseMultiModalProcessorCache",
            "BaseMultiModalReceiverCache",
            "MultiModalCache",
            "MultiModalCacheMissError",
            "MultiModalProcessorSenderCache",
            "MultiModalReceiverCache",
            "LruKeyReplicatedSenderCache",
            "LruKeyReplicatedReceiverCache",
            "ShmObjectStoreSenderCache",
            "ShmObjectStoreReceiverCache",
        ),
    ),
    ModelledComponent(
        "shm_object_storage",
        ("distributed/device_communicators/shm_object_storage.py",),
        ("SingleWriterShmRingBuffer", "SingleWriterShmObjectStorage"),
    ),
    ModelledComponent("lru_cache", ("utils/cache.py", "utils/__init__.py"), ("LRUCache",)),
    ModelledComponent(
        "mm_processor",
        ("multimodal/processing/processor.py", "multimodal/processing.py"),
        (
            "BaseMultiModalProcessor._get_mm_hashes",
            "BaseMultiModalProcessor._hash_mm_items",
            "BaseMultiModalProcessor._merge_mm_kwargs",
        ),
    ),
    ModelledComponent(
        "processor_inputs", ("multimodal/processing/inputs.py",), ("ProcessorInputs.get_mm_hashes",)
    ),
    ModelledComponent(
        "renderer",
        ("renderers/base.py",),
        (
            "BaseRenderer._process_mm_uuids",
            "BaseRenderer._process_multimodal",
            "BaseRenderer._validate_mm_uuids",
        ),
    ),
    ModelledComponent(
        "input_processor",
        ("v1/engine/input_processor.py", "v1/engine/processor.py"),
        (
            "InputProcessor._get_mm_identifier",
            "InputProcessor._maybe_build_mm_uuids",
            "Processor._maybe_build_mm_uuids",
        ),
    ),
    ModelledComponent("kv_connector", ("distributed/kv_transfer/kv_connector/v1/base.py",)),
    ModelledComponent("ec_connector", ("distributed/ec_transfer/ec_connector/base.py",)),
    ModelledComponent("outputs", ("v1/outputs.py",)),
)
"""The components, in the order in which what differs is named. A class or a function is known by
the name of its component, so that a release may move it to another file."""

LEFT_OUT = (
    LeftOut(
        "logging, representations, types alone",
        (
            "*:logger",
            "*.__repr__",
            "*.anon_repr",
            "*:RequestStatus.__str__",
            "*:CopyBlocksOp",
            "*:PoolerOutput",
            "*:_BlockSeq",
            "outputs:T",
        ),
    ),
    LeftOut(
        "statistics that the lockstep does not compare, and the events of a request's life",
        (
            "*:Scheduler.make_stats",
            "*:Scheduler.make_spec_decoding_stats",
            "*:Scheduler._make_scheduled_encoder_input_stats",
            "*:Scheduler._*connector_prefix_cache_stats",
            "*:Scheduler._get_encoder_cache_usage",
            "*:Scheduler.get_kv_cache_usage",
            "*:Scheduler._set_kv_fetch_stage",
            "*:ScheduledEncoderInputStats*",
            "*:PrefixCachingMetrics*",
            "*:Request.record_event",
            "*:Request.take_events",
            "*:Request.take_prefill_stats",
            "*:*Connector*.build_*_stats",
            "*:*Connector*.get_*_stats",
            "*:*Connector*.build_prom_metrics",
            "*:KVConnectorBase_V1.get_external_cache_hit_sources",
            "*:KVConnectorBase_V1._cache_hit_source",
        ),
    ),
    LeftOut(
        "publishing of KV events, and their sums over workers",
        (
            "kv_events:*EventPublisher*",
            "kv_events:*EventBatch*",
            "kv_events:KVEventAggregator*",
            "kv_events:KVConnectorKVEvents*",
            "*:*.get_kv_event_publisher_config",
        ),
    ),
    LeftOut(
        "Mamba and other state-space groups; copies, zeroing and offloads of blocks",
        (
            "*:MambaManager*",
            "*:Scheduler._mamba_block_aligned_split",
            "*:Scheduler._free_cow_retained_blocks",
            "*:Scheduler._get_new_block_ids_to_zero",
            "*:KVCacheManager.*zeroing*",
            "*:KVCacheManager.take_boundary_state_offloads",
            "*:KVCacheManager.take_kv_cache_block_copies",
            "*:*KVCacheManager.*partial_tail*",
            "*:SingleTypeKVCacheManager.take_pending_*",
            "*:SingleTypeKVCacheManager._apply_cow",
            "*:FullAttentionManager._cache_partial_tail_block",
            "*:BlockPool.*partial_block*",
            "*:BlockPool.move_block_hashes",
            "*:BlockPool.is_block_writable",
            "*:KVCacheBlockCopy*",
            "*:KVConnectorBlockState*",
            "*:KVConnectorBase_V1.register_finished_partial_tail",
        ),
    ),
    LeftOut(
        "R-SWA, sink, circular-buffer, HiSparse and tail-pool groups",
        (
            "*:RSWAManager*",
            "*:SinkFullAttentionManager*",
            "*:CircularBufferManager*",
            "*:HiSparse*",
            "*:_HiSparse*",
            "*:KpoolTailManager*",
        ),
    ),
    LeftOut(
        "structured output",
        (
            "*:GrammarOutput*",
            "*:Scheduler.get_grammar_bitmask",
            "*:Scheduler.update_draft_token_ids_in_output",
            "*:Request.use_structured_output",
        ),
    ),
    LeftOut(
        "bounded prefix replay, several-module drafters, routed experts, pooling",
        (
            "*:Scheduler._load_restores_replay_window",
            "*:Scheduler._mark_prefix_replay",
            "*:KVCacheCoordinator.get_replay_boundaries",
            "*:replay_boundaries",
            "*:Scheduler._reserve_prefill_lookahead",
            "*:Scheduler._get_routed_experts",
            "*:RoutedExperts*",
            "*:ModelRunnerOutput.routed_experts*",
            "*:ModelRunnerOutput.pooler_output",
        ),
    ),
    LeftOut(
        "repetition of tokens, which no trace has checked",
        ("*:_has_repeating_pattern", "*:check_sequence_repetition"),
    ),
    LeftOut(
        "context parallelism",
        ("kv_cache_utils:*dcp_*",),
    ),
    LeftOut(
        "how much memory there is, and which layers share a group: traces say it",
        (
            "kv_cache_utils:*memory*",
            "kv_cache_utils:*page_size*",
            "kv_cache_utils:*kv_cache_config*",
            "kv_cache_utils:*kv_cache_spec*",
            "kv_cache_utils:get_kv_cache_groups",
            "kv_cache_utils:_get_kv_cache_groups_*",
            "kv_cache_utils:_get_packed_*",
            "kv_cache_utils:_glm5_next_*",
            "kv_cache_utils:create_kv_cache_group_specs",
            "kv_cache_utils:is_kv_cache_type_*",
            "kv_cache_utils:estimate_max_model_len",
            "kv_cache_utils:_estimate_max_model_len_from_groups",
            "kv_cache_utils:_auto_fit_max_model_len",
            "kv_cache_utils:_project_kv_cache_groups_to_worker",
            "kv_cache_utils:get_max_concurrency_for_kv_cache_config",
            "kv_cache_utils:get_num_blocks",
            "kv_cache_utils:may_override_num_blocks",
            "kv_cache_utils:*bytes_per_block*",
            "kv_cache_utils:*kv_cache_capacity",
            "kv_cache_utils:validate_kv_cache_layout",
            "kv_cache_utils:_get_layer_block_stride",
            "kv_cache_utils:_get_per_layer_spec",
            "kv_cache_utils:_approximate_gcd",
            "kv_cache_utils:_largest_divisor_at_most",
            "kv_cache_utils:*annotate*",
            "kv_cache_utils:_is_deepseek_v4_eagle",
            "kv_cache_utils:_uses_trailing_mtp_layers",
            "kv_cache_utils:_groups_partition_layers_exactly",
            "kv_cache_utils:*tp_replicas",
            "kv_cache_utils:_try_get_full_allocation_fallback_groups",
            "kv_cache_utils:_kv_cache_device_name",
            "kv_cache_utils:_pp_balanced_mamba_group_count",
            "kv_cache_interface:*bytes*",
            "kv_cache_interface:*head_size*",
            "kv_cache_interface:*.is_uniform_with_collection",
        ),
    ),
    LeftOut(
        "what workers do with a connector",
        (
            "*:*ConnectorRole*",
            "*:*ConnectorWorkerMetadata*",
            "*:KVConnectorHandshakeMetadata*",
            "*:KVConnectorTransferResults*",
            "*:*Connector*.*handshake_metadata*",
            "*:*Connector*.*connector_metadata",
            "*:*Connector*.register_*cache*",
            "*:*Connector*.unregister_kv_caches",
            "*:*Connector*.restore_kv_caches",
            "*:*Connector*.start_load_*",
            "*:*Connector*.save_*",
            "*:*Connector*.wait_for_*",
            "*:*Connector*.get_finished",
            "*:*Connector*.get_transfer_results",
            "*:*Connector*.get_block_ids_with_load_errors",
            "*:*Connector*.get_kv_connector_kv_cache_events",
            "*:*Connector*.build_connector_worker_meta",
            "*:*Connector*.set_host_xfer_buffer_ops",
            "*:*Connector*.handle_preemptions",
            "*:*Connector*.finish_forward",
            "*:*Connector*.reset_capture_state",
            "*:*Connector*.get_mem_pool_context",
            "*:*Connector*.prefer_cross_layer_blocks",
            "*:*Connector*.get_required_kvcache_layout",
            "*:*Connector*.requires_piecewise_for_cudagraph",
            "*:*Connector*.supports_sleep_mode",
            "*:*Connector*.get_finished_count",
            "*:*Connector*.shutdown",
        ),
    ),
    LeftOut(
        "what models sample, beside its tokens",
        (
            "*:Logprobs*",
            "*:SamplingMask*",
            "*:SamplerOutput*",
            "*:AsyncModelRunnerOutput*",
            "*:make_empty_encoder_model_runner_output",
            "*:ModelRunnerOutput.*logprobs*",
            "*:ModelRunnerOutput.num_nans_in_logits",
            "*:ModelRunnerOutput.cudagraph_stats",
            "*:ModelRunnerOutput.sampling_masks",
            "*:_combine_non_none",
        ),
    ),
    LeftOut(
        "statistics of the caches of processed media; handles of shared memory, and its end",
        (
            "*Cache.make_stats",
            "*Cache._stat",
            "*Cache.stat",
            "*Cache.usage",
            "*Cache.get_item_complexity",
            "*Cache.close",
            "*:SingleWriterShm*.close",
            "*:SingleWriterShm*.__del__",
            "*:SingleWriterShm*.handle",
            "*:SingleWriterShm*.create_from_handle",
        ),
    ),
    LeftOut(
        "rows of an encoder's output, and media as arguments of a processor",
        ("*.extract_embeds_range", "*.gather_kwargs", "media:*.__*__"),
    ),
)
"""Features that docs/explain/scheduler.md and docs/explain/kv-cache.md refuse, and what is no
decision."""

WATCHED = (
    "EncoderCacheManager",
    "EncoderDecoderCacheManager",
    "KVCacheManager",
    "KVConnectorMetadata",
    "ECConnectorMetadata",
    *READ,
)
"""Classes that are read member by member; a member that no known release has is reported as
unread."""
