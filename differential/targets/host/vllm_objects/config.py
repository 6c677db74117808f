"""Configurations of an engine, as the host sets and reads them."""

from typing import Protocol


class ModelConfig(Protocol):
    """`vllm.config.ModelConfig`."""

    max_model_len: int
    is_encoder_decoder: bool

    def get_hidden_size(self) -> int: ...


class CacheConfig(Protocol):
    """`vllm.config.CacheConfig`.

    kv_cache_layout: from 0.30.0 on.
    """

    block_size: int
    enable_prefix_caching: bool
    num_gpu_blocks: int | None
    kv_cache_layout: str


class SchedulerConfig(Protocol):
    """`vllm.config.SchedulerConfig`."""

    async_scheduling: bool
    encoder_cache_size: int
    max_num_encoder_input_tokens: int
    disable_hybrid_kv_cache_manager: bool


class LoRAConfig(Protocol):
    """`vllm.config.LoRAConfig`."""

    max_loras: int


class SpeculativeConfig(Protocol):
    """`vllm.config.SpeculativeConfig`.

    method: "ngram", or "eagle" where a drafter reads ahead.
    """

    method: str


class ParallelConfig(Protocol):
    """`vllm.config.ParallelConfig`; the host hands it on."""


class VllmConfig(Protocol):
    """`vllm.config.VllmConfig`.

    validate_block_size: from 0.19.0 on.
    """

    model_config: ModelConfig
    cache_config: CacheConfig
    scheduler_config: SchedulerConfig
    lora_config: LoRAConfig | None
    parallel_config: ParallelConfig
    speculative_config: SpeculativeConfig | None

    def validate_block_size(self) -> None: ...
