"""A trace's configuration of a scheduler, in vLLM's names."""

from ..protocol import Event

# What not every release has, with the value that says nothing.
LATER = {
    "long_prefill_token_threshold_adaptive": False,
    "max_num_active_seqs": None,
    "scheduler_reserve_full_isl": True,
    "watermark": 0.0,
    "prefill_schedule_interval": 1,
}
# Every release takes this one; a refusal means that the driver does not know the release.
PLAIN: Event = {
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "max_model_len": 64,
    "block_size": 16,
    "num_blocks": 16,
    "prefix_caching": True,
    "chunked_prefill": True,
    "disable_chunked_mm_input": False,
    "policy": "fcfs",
    "long_prefill_token_threshold": 0,
    "async_scheduling": False,
    **LATER,
    "max_loras": 0,
    "num_speculative_tokens": 0,
    "drafter": False,
    "v2_model_runner": False,
    "ec_connector": False,
    "kv_connector": None,
    "groups": [],
    "prefix_cache_retention_interval": None,
    "encoder_decoder": False,
}


def settings_of(config: Event) -> Event:
    """The arguments of SchedulerConfig that every release takes, and the reference's too."""
    return {
        "max_num_seqs": config["max_num_seqs"],
        "max_num_batched_tokens": config["max_num_batched_tokens"],
        "max_model_len": config["max_model_len"],
        "enable_chunked_prefill": config["chunked_prefill"],
        "disable_chunked_mm_input": config["disable_chunked_mm_input"],
        "long_prefill_token_threshold": config["long_prefill_token_threshold"],
        "policy": config["policy"],
    }
