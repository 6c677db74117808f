"""What a step tells the workers, field by field, over all releases: how each is held to account.

A field that is in neither table is one that nobody has thought of yet.
"""

from collections.abc import Mapping

_BY_REQUEST = "lockstep, by request"
_ITEMS = "lockstep: which items come without their data; SC-9"
_UNASKED = "lockstep: says nothing, since no trace asks for what it is about"
_AS_IT_CAME = "handed through as the request came with it"

READ: Mapping[str, Mapping[str, str]] = {
    "NewRequestData": {
        "req_id": "lockstep: who is new",
        "prompt_token_ids": f"{_BY_REQUEST}: each token",
        "prefill_token_ids": f"{_BY_REQUEST}: each token",
        "mm_features": _ITEMS,
        "mm_kwargs": _ITEMS,
        "mm_inputs": _ITEMS,
        "block_ids": f"{_BY_REQUEST} and group; KT-1, KT-2",
        "num_computed_tokens": f"{_BY_REQUEST}; the window of SC-2 to SC-4",
        "pooling_params": _UNASKED,
        "prompt_embeds": f"{_BY_REQUEST}: where tokens have none, and rows are given",
        "prompt_is_token_ids": f"{_BY_REQUEST}: the same, in a prompt that mixes both",
        "replay_start": _UNASKED,
    },
    "CachedRequestData": {
        "req_id": "lockstep: who goes on",
        "req_ids": "lockstep: who goes on",
        "resumed_req_ids": "lockstep: who has lost the blocks that it had",
        "resumed_from_preemption": "lockstep: who has lost the blocks that it had",
        "all_token_ids": f"{_BY_REQUEST}: each token",
        "new_token_ids": _UNASKED,
        "new_block_ids": f"{_BY_REQUEST} and group; KT-1, KT-2",
        "num_computed_tokens": f"{_BY_REQUEST}; the window of SC-2 to SC-4",
        "num_output_tokens": _BY_REQUEST,
    },
    "SchedulerOutput": {
        "scheduled_new_reqs": "lockstep, in order; its fields are in this table",
        "scheduled_cached_reqs": "its fields are in this table",
        "num_scheduled_tokens": f"{_BY_REQUEST}; SC-1a, SC-3, SC-4",
        "total_num_scheduled_tokens": "lockstep",
        "scheduled_spec_decode_tokens": f"{_BY_REQUEST}: how many drafts",
        "scheduled_encoder_inputs": f"{_BY_REQUEST}; SC-1b, SC-2, SC-5, SC-9",
        "encoder_input_updates": f"{_BY_REQUEST}: whose data is dropped or sent again; SC-9",
        "num_common_prefix_blocks": "lockstep, by group",
        "finished_req_ids": "lockstep",
        "preempted_req_ids": "lockstep",
        "free_encoder_mm_hashes": "lockstep, in order; DF-1, the worker's store of the WM rules",
        "free_encoder_input_ids": "judged: DF-1, the worker's store of the WM rules",
        "kv_connector_metadata": "lockstep: the trace's connector says whose KV is loaded and sent",
        "ec_connector_metadata": "lockstep: the trace's connector says what is loaded, who waits",
        "has_sync_kv_loads": "lockstep",
        "skip_drafts": "lockstep; the session's drafter rests",
        "num_spec_tokens_to_schedule": "lockstep: as many as configured, where nobody adapts them",
        "new_block_ids_to_zero": _UNASKED,
        "kv_cache_block_copies": _UNASKED,
        "block_table_updates": _UNASKED,
        "partial_tail_offloads": _UNASKED,
        "aux_output_connector_metadata": _UNASKED,
        "ec_manager_metadata": _UNASKED,
        "structured_output_request_ids": _UNASKED,
        "grammar_bitmask": _UNASKED,
        "has_structured_output_requests": _UNASKED,
        "pending_structured_output_tokens": _UNASKED,
        "num_invalid_spec_tokens": _UNASKED,
    },
}
"""Fields that are compared or judged: class -> field -> how."""

NOT_DECISIONS: Mapping[str, Mapping[str, str]] = {
    "NewRequestData": {
        "mm_hashes": _AS_IT_CAME,
        "mm_positions": _AS_IT_CAME,
        "sampling_params": _AS_IT_CAME,
        "lora_request": _AS_IT_CAME,
    },
    "CachedRequestData": {},
    "SchedulerOutput": {
        "scheduled_encoder_input_stats": "a statistic",
        "kv_connector_block_state": "the scheduler's own; None when a worker sees the step",
    },
}
"""Fields that nothing is asked about: class -> field -> why."""
