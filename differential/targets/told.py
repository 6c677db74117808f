"""What a step tells the workers, field by field, over all releases: how each is held to account.

A field that is in neither table is one that nobody has thought of yet.
"""

from collections.abc import Mapping

_BY_REQUEST = "lockstep, by request"
_NO_GRAMMAR = "set for structured output alone, which no trace asks for"
_STATISTIC = "a statistic"
_AS_IT_CAME = "handed through as the request came with it"

READ: Mapping[str, Mapping[str, str]] = {
    "NewRequestData": {
        "req_id": "lockstep: who is new",
        "mm_features": "lockstep: which items come without their data; SC-9",
        "mm_kwargs": "lockstep: which items come without their data; SC-9",
        "mm_inputs": "lockstep: which items come without their data; SC-9",
        "block_ids": f"{_BY_REQUEST} and group; KT-1, KT-2",
        "num_computed_tokens": f"{_BY_REQUEST}; the window of SC-2 to SC-4",
    },
    "CachedRequestData": {
        "req_id": "lockstep: who goes on",
        "req_ids": "lockstep: who goes on",
        "resumed_req_ids": "lockstep: who has lost the blocks that it had",
        "new_block_ids": f"{_BY_REQUEST} and group; KT-1, KT-2",
        "num_computed_tokens": f"{_BY_REQUEST}; the window of SC-2 to SC-4",
    },
    "SchedulerOutput": {
        "scheduled_new_reqs": "its own fields are in this table",
        "scheduled_cached_reqs": "its own fields are in this table",
        "num_scheduled_tokens": f"{_BY_REQUEST}; SC-1a, SC-3, SC-4",
        "scheduled_spec_decode_tokens": f"{_BY_REQUEST}: how many drafts",
        "scheduled_encoder_inputs": f"{_BY_REQUEST}; SC-1b, SC-2, SC-5, SC-9",
        "num_common_prefix_blocks": "lockstep, by group",
        "finished_req_ids": "lockstep",
        "free_encoder_mm_hashes": "lockstep, in order; DF-1, the worker's store of WM-1 to WM-4",
        "free_encoder_input_ids": "judged: DF-1, the worker's store of WM-1 to WM-4",
        "kv_connector_metadata": "lockstep: the trace's connector says whose KV is loaded and sent",
        "ec_connector_metadata": "lockstep: the trace's connector says what is loaded, who waits",
    },
}
"""Fields that are compared or judged: class -> field -> how."""

NOT_DECISIONS: Mapping[str, Mapping[str, str]] = {
    "NewRequestData": {
        "prompt_token_ids": "not read yet",
        "prefill_token_ids": "not read yet",
        "replay_start": "not read yet",
        "mm_hashes": _AS_IT_CAME,
        "mm_positions": _AS_IT_CAME,
        "sampling_params": _AS_IT_CAME,
        "pooling_params": _AS_IT_CAME,
        "lora_request": _AS_IT_CAME,
        "prompt_embeds": _AS_IT_CAME,
        "prompt_is_token_ids": _AS_IT_CAME,
    },
    "CachedRequestData": {
        "resumed_from_preemption": "not read yet",
        "new_token_ids": "not read yet",
        "all_token_ids": "not read yet",
        "num_output_tokens": "not read yet",
    },
    "SchedulerOutput": {
        "total_num_scheduled_tokens": "not read yet",
        "preempted_req_ids": "not read yet",
        "new_block_ids_to_zero": "not read yet",
        "kv_cache_block_copies": "not read yet",
        "partial_tail_offloads": "not read yet",
        "block_table_updates": "not read yet",
        "has_sync_kv_loads": "not read yet",
        "encoder_input_updates": "not read yet",
        "skip_drafts": "not read yet",
        "num_spec_tokens_to_schedule": "not read yet",
        "aux_output_connector_metadata": "not read yet",
        "ec_manager_metadata": "not read yet",
        "structured_output_request_ids": _NO_GRAMMAR,
        "grammar_bitmask": _NO_GRAMMAR,
        "has_structured_output_requests": _NO_GRAMMAR,
        "pending_structured_output_tokens": _NO_GRAMMAR,
        "num_invalid_spec_tokens": _NO_GRAMMAR,
        "scheduled_encoder_input_stats": _STATISTIC,
        "kv_connector_block_state": "the scheduler's own; None when a worker sees the step",
    },
}
"""Fields that nothing is asked about: class -> field -> why."""
