"""Schedulers, and what a step tells the workers and the engine."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from .encoder_cache import EncoderCacheManager
from .kv_cache import BlockIds, KVCacheManager
from .requests import MultiModalFeatureSpec, Request, RequestStatus, VllmDataclass

if TYPE_CHECKING:
    from torch import Tensor


class RequestQueue(Protocol):
    """`vllm.v1.core.sched.request_queue.RequestQueue`."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Request]: ...
    def pop_request(self) -> Request: ...
    def add_request(self, request: Request, /) -> None: ...


class NewRequestData(VllmDataclass, Protocol):
    """`vllm.v1.core.sched.output.NewRequestData`: a request that the workers see first, or anew.

    mm_features: from 0.11.0 on; before, the items are `mm_kwargs`, or `mm_inputs`.
    prompt_embeds: from 0.11.0 on. prompt_is_token_ids: in 0.28.0, not yet in 0.15.1.
    prefill_token_ids: from 0.12.0 on, told to the second model runner.
    withheld_inputs: of the reference, whose items have no data.
    """

    req_id: str
    num_computed_tokens: int
    block_ids: BlockIds
    prompt_token_ids: Sequence[int] | None
    prefill_token_ids: Sequence[int] | None
    prompt_embeds: "Tensor | None"
    prompt_is_token_ids: list[bool] | None
    mm_features: list[MultiModalFeatureSpec]
    withheld_inputs: list[int]


class CachedRequestData(Protocol):
    """`vllm.v1.core.sched.output.CachedRequestData`: requests that the workers know.

    resumed_from_preemption: up to 0.11.0, side by side with req_ids; then resumed_req_ids.
    all_token_ids, num_output_tokens: from 0.11.1 on.
    """

    req_ids: Sequence[str]
    resumed_from_preemption: Sequence[bool]
    new_block_ids: Sequence[BlockIds | None]
    num_computed_tokens: Sequence[int]

    @property
    def resumed_req_ids(self) -> set[str]: ...
    @property
    def all_token_ids(self) -> Mapping[str, Sequence[int]]: ...
    @property
    def num_output_tokens(self) -> Sequence[int]: ...


class SchedulerOutput(Protocol):
    """`vllm.v1.core.sched.output.SchedulerOutput`: a step.

    free_encoder_mm_hashes: from 0.10.2 on; before, free_encoder_input_ids.
    encoder_input_updates: in 0.33.0, not yet in 0.28.0.
    kv_connector_metadata: what the host's own connector says, where a trace has one.

    Read by name: num_common_prefix_blocks (up to 0.31.0), ec_connector_metadata (from 0.11.1 on),
    preempted_req_ids, num_spec_tokens_to_schedule, has_sync_kv_loads (from 0.29.0 on), skip_drafts
    (from 0.33.0 on).
    """

    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    scheduled_encoder_inputs: dict[str, list[int]]
    free_encoder_mm_hashes: list[str]
    free_encoder_input_ids: list[tuple[str, int]]
    finished_req_ids: set[str]
    encoder_input_updates: dict[str, dict[int, MultiModalFeatureSpec | None]]

    @property
    def total_num_scheduled_tokens(self) -> int: ...
    @property
    def kv_connector_metadata(self) -> "KVTold": ...


class KVTold(TypedDict):
    """What the host's own KV connector tells the workers: [request, tokens computed] of whom it was
    asked for; request -> [tokens, whether they come later, all of its blocks]; [request, blocks] of
    what is sent."""

    kv_asked: list[list[Any]]
    kv_loads: dict[str, list[Any]]
    kv_sends: list[list[Any]]


class EngineCoreOutput(Protocol):
    """`vllm.v1.engine.EngineCoreOutput`: what a step brought a request."""

    request_id: str
    new_token_ids: list[int]
    finish_reason: object | None


class EngineCoreOutputs(Protocol):
    """`vllm.v1.engine.EngineCoreOutputs`: those of a client's requests."""

    outputs: list[EngineCoreOutput]


class DraftTokenIds(Protocol):
    """`vllm.v1.outputs.DraftTokenIds`."""

    req_ids: list[str]
    draft_token_ids: list[list[int]]


class SchedulerState(Protocol):
    """Where a scheduler has its queues and managers: itself, and in the reference an object of its
    own.

    Read by name, where they are: skipped_waiting, kv_holding_waiting, and in the reference
    passed_over.
    """

    running: list[Request]
    waiting: RequestQueue
    encoder_cache_manager: EncoderCacheManager


class Scheduler(Protocol):
    """`vllm.v1.core.sched.scheduler.Scheduler`, and AsyncScheduler beside it.

    update_draft_token_ids: from 0.10.2 on.
    reset_encoder_cache: from 0.16.0 on.
    set_pause_state, pause_state: from 0.17.0 on.

    Read by name: connector and ec_connector, the host's own, where a trace has one;
    encoder_cache_mismatch_reqs, requests that the next update ends, from 0.31.0 on.
    """

    update_from_output: Callable[..., dict[int, EngineCoreOutputs]]
    reset_prefix_cache: Callable[..., bool]

    @property
    def requests(self) -> Mapping[str, Request]: ...
    @property
    def running(self) -> Sequence[Request]: ...
    @property
    def waiting(self) -> Iterable[Request]: ...
    @property
    def encoder_cache_manager(self) -> EncoderCacheManager: ...
    @property
    def kv_cache_manager(self) -> KVCacheManager: ...
    @property
    def pause_state(self) -> Enum: ...
    def add_request(self, request: Request, /) -> None: ...
    def schedule(self, *throttle: bool) -> SchedulerOutput: ...
    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus, /
    ) -> object: ...
    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds, /) -> None: ...
    def set_pause_state(self, pause_state: Enum, /) -> None: ...
    def reset_encoder_cache(self) -> None: ...


class ConfiguredScheduler(Scheduler, Protocol):
    """A `Scheduler` in an engine, with what it was made with; the fields of its configurations
    differ with the release."""

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


class KVConnectorOutput(VllmDataclass, Protocol):
    """`vllm.v1.outputs.KVConnectorOutput`, and the reference's: what workers report of KV.

    invalid_block_ids: in 0.13.0, not yet in 0.11.0.
    """

    invalid_block_ids: Collection[int]


class ModelRunnerReport(VllmDataclass, Protocol):
    """`vllm.v1.outputs.ModelRunnerOutput`, as far as it carries a report."""

    kv_connector_output: KVConnectorOutput | None
