"""Limits for which an engine is made once, for all configurations of the traces that it runs."""

MODELS_SETTING = "CACHEPROOF_MODELS"
BLOCK_SIZE = 32  # the CPU's attention wants a multiple of it
ITEMS_MAX = {
    "cohere2_vision": {"image": 8},
    "llava": {"image": 8},
    "qwen2_5_vl": {"image": 8, "video": 4},
    "qwen2_audio": {"audio": 8},
    "qwen3_vl": {"image": 8, "video": 4},
    "whisper": {"audio": 1},
}
"""Most items of a prompt, by model and modality."""
LIMITS = {
    "max_model_len": 512,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "num_blocks": 256,
}
NUM_DRAFTS = 3
MAX_ADAPTERS = 2
"""Most adapters of a step, and in a worker's memory."""
ADAPTER_RANK_MAX = 8
LOOKUP_LONGEST = 3
"""Most tokens that prompt lookup compares."""
