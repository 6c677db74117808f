"""What is read of the objects of the vLLM that runs, of which mypy sees nothing: what every release
that is recorded has. What only some have is asked for by `getattr`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol


class EngineBlock(Protocol):
    """A KV block; as long as it is free, it is linked with those before and after it."""

    block_id: int
    ref_cnt: int
    is_null: bool
    block_hash: object
    next_free_block: "EngineBlock"
    prev_free_block: "EngineBlock"


class EngineBlocks(Protocol):
    """KV blocks that a request was answered, by group."""

    def get_block_ids(self) -> Sequence[Sequence[int]]: ...


class ItemPlace(Protocol):
    """Where a media item stands in its prompt."""

    offset: int
    length: int
    is_embed: Any


class EngineFeature(Protocol):
    """A media item."""

    identifier: str
    mm_position: ItemPlace


class EngineRequest(Protocol):
    """A request."""

    request_id: str
    status: Enum
    num_prompt_tokens: int
    num_tokens: int
    num_computed_tokens: int
    num_preemptions: int
    max_tokens: int
    priority: int
    arrival_time: float
    block_hashes: Sequence[bytes]
    mm_features: Sequence[EngineFeature]


class NewRequestTold(Protocol):
    """A request that a step tells the workers of as new."""

    req_id: str
    num_computed_tokens: int


class CachedRequestsTold(Protocol):
    """The requests of a step that the workers know."""

    req_ids: list[str]
    num_computed_tokens: list[int]
    new_block_ids: Sequence[object]


class EngineStep(Protocol):
    """What schedule() returns."""

    scheduled_new_reqs: Sequence[NewRequestTold]
    scheduled_cached_reqs: CachedRequestsTold
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: Mapping[str, Sequence[int]]
    scheduled_encoder_inputs: Mapping[str, Sequence[int]]
    finished_req_ids: Collection[str]


class RequestAnswered(Protocol):
    """What a step brought a request."""

    request_id: str
    new_token_ids: Sequence[int]
    finish_reason: object


class ClientAnswered(Protocol):
    """What a step brought the requests of a client."""

    outputs: Sequence[RequestAnswered]


class EngineEncoderCache(Protocol):
    """A manager of encoder outputs."""

    cache_size: int


class EngineScheduler(Protocol):
    """A scheduler. Its configurations, and its manager of KV blocks, differ with the release."""

    requests: Mapping[str, EngineRequest]
    running: Sequence[EngineRequest]
    encoder_cache_manager: EngineEncoderCache
    kv_cache_manager: Any
    kv_cache_config: Any
    scheduler_config: Any
    cache_config: Any
    lora_config: Any
    vllm_config: Any
    max_num_encoder_input_tokens: int
    max_num_scheduled_tokens: int
    max_num_running_reqs: int
    max_model_len: int
    block_size: int


class EngineRunner(Protocol):
    """A model runner; `encoder_cache` is its store of encoder outputs, or has it."""

    encoder_cache: Any
    execute_model: Callable[..., Any]
