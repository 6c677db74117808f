"""An engine's worker: its two model runners, and the models that they run."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from .kv_cache import BlockIds
from .requests import MultiModalFeatureSpec
from .scheduler import DraftTokenIds, NewRequestData, SchedulerOutput

if TYPE_CHECKING:
    import numpy
    from torch import Tensor

EncoderOutputs = dict[str, "Tensor"]
"""Encoder outputs of [rows, hidden size], by identifier."""


class CpuGpuBuffer(Protocol):
    """`vllm.v1.utils.CpuGpuBuffer`: numbers on the device and on the host."""

    gpu: "Tensor"
    np: "numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.generic]]"


class BlockTable(Protocol):
    """`vllm.v1.worker.block_table.BlockTable`: that of a group."""

    slot_mapping: CpuGpuBuffer


class MultiGroupBlockTable(Protocol):
    """`vllm.v1.worker.block_table.MultiGroupBlockTable`."""

    block_tables: list[BlockTable]
    compute_slot_mapping: Callable[..., None]

    def add_row(self, block_ids: BlockIds, row_idx: int, /) -> None: ...
    def append_row(self, block_ids: BlockIds, row_idx: int, /) -> None: ...


class CachedRequestState(Protocol):
    """`vllm.v1.worker.gpu_input_batch.CachedRequestState`: a request in the first runner."""

    req_id: str
    prompt_token_ids: list[int] | None
    num_prompt_tokens: int
    output_token_ids: list[int]
    mm_features: list[MultiModalFeatureSpec]
    block_ids: BlockIds
    mrope_positions: "Tensor | None"
    mrope_position_delta: int | None


class InputBatch(Protocol):
    """`vllm.v1.worker.gpu_input_batch.InputBatch`."""

    vocab_size: int
    num_reqs: int
    req_ids: list[str]
    req_id_to_index: dict[str, int]
    block_table: MultiGroupBlockTable
    token_ids_cpu: "numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.int32]]"
    prev_sampled_token_ids: "Tensor | None"
    prev_req_id_to_index: dict[str, int] | None
    sampled_token_ids_cpu: "Tensor | None"


class SamplerOutput(Protocol):
    """`vllm.v1.outputs.SamplerOutput`: tokens by request, [requests, most of one], -1 for none."""

    sampled_token_ids: "Tensor"


class AudioTower(Protocol):
    """The tower of transformers' model of sounds."""

    def forward(self, features: "Tensor", /, *, attention_mask: "Tensor") -> object: ...


class Projector(Protocol):
    """The module between a tower and the decoder."""

    def forward(self, rows: "Tensor", /) -> "Tensor": ...


class QuantMethod(Protocol):
    """The method by which a layer multiplies, and prepares its weights."""

    def process_weights_after_loading(self, layer: "ParallelLMHead", /) -> None: ...


class ParallelLMHead(Protocol):
    """`ParallelLMHead`: the layer that makes logits."""

    quant_method: QuantMethod


class TextConfig(Protocol):
    """What a model's configuration says of its decoder."""

    hidden_size: int


class ModelsConfig(Protocol):
    """The configuration of a model with a tower."""

    text_config: TextConfig


class LoadedModel(Protocol):
    """A model that a runner has loaded; only some have each of these parts."""

    audio_tower: AudioTower
    multi_modal_projector: Projector
    proj_out: ParallelLMHead
    config: ModelsConfig

    def embed_input_ids(self, input_ids: "Tensor", /) -> "Tensor": ...
    def _set_deepstack_input_embeds(self, deepstack_input_embeds: "Tensor", /) -> None: ...


class GPUModelRunner(Protocol):
    """`vllm.v1.worker.gpu_model_runner.GPUModelRunner`, and that of CPUs.

    is_token_ids, is_multimodal_pruning_enabled: from 0.11.0 on.
    discard_request_mask, _copy_valid_sampled_token_count: in 0.13.0, not yet in 0.11.0.
    _update_streaming_request: from 0.15.0 on.
    reset_encoder_cache, _cache_encoder_output: in 0.28.0, not yet in 0.15.1.

    A fault of what a release has not is refused in it.
    """

    requests: dict[str, CachedRequestState]
    input_batch: InputBatch
    encoder_cache: EncoderOutputs
    kv_caches: list["Tensor"]
    num_spec_tokens: int
    is_multimodal_pruning_enabled: bool
    is_token_ids: CpuGpuBuffer
    discard_request_mask: CpuGpuBuffer
    _draft_token_ids: "Tensor | None"
    _sample: Callable[..., SamplerOutput]
    _cache_encoder_output: Callable[..., None]
    _set_active_loras: Callable[..., None]
    _prepare_input_ids: Callable[..., None]
    propose_draft_token_ids: Callable[..., "Tensor"]
    execute_model: Callable[..., object]
    reload_weights: Callable[..., None]

    def get_model(self) -> LoadedModel: ...
    def reset_encoder_cache(self) -> None: ...
    def _update_states(self, scheduler_output: SchedulerOutput, /) -> object: ...
    def _execute_mm_encoder(self, scheduler_output: SchedulerOutput, /) -> object: ...
    def _update_streaming_request(
        self, req_id: str, new_req_data: NewRequestData, /
    ) -> CachedRequestState: ...
    def _copy_valid_sampled_token_count(
        self, next_token_ids: "Tensor", valid_sampled_tokens_count: "Tensor", /
    ) -> None: ...


class EncoderCache(Protocol):
    """`vllm.v1.worker.gpu.mm.encoder_cache.EncoderCache`, of the second runner."""

    encoder_outputs: EncoderOutputs
    mm_features: dict[str, list[MultiModalFeatureSpec]]

    def add_request(self, req_id: str, mm_features: list[MultiModalFeatureSpec], /) -> None: ...
    def free_encoder_cache(self, mm_hash: str, /) -> None: ...
    def reset_encoder_cache(self) -> None: ...


class RequestStateTable(Protocol):
    """`vllm.v1.worker.gpu.states.RequestState`, of the second runner."""

    req_id_to_index: dict[str, int]
    free_indices: list[int]
    add_request: Callable[..., None]


class EncoderRunner(Protocol):
    """`vllm.v1.worker.gpu.mm.encoder_runner.EncoderRunner`."""

    gather_mm_embeddings: Callable[..., tuple[list["Tensor"], "Tensor"]]

    def execute_mm_encoder(self, mm_kwargs: Sequence[object], /) -> list["Tensor"]: ...


class RopeState(Protocol):
    """The positions of requests of a model with several rotary axes."""

    init_prefill_positions: Callable[..., None]


class ModelState(Protocol):
    """`vllm.v1.worker.gpu.model_states.interface.ModelState`."""

    encoder_runner: EncoderRunner
    rope_state: RopeState


class SecondBlockTables(Protocol):
    """`vllm.v1.worker.gpu.block_table.BlockTables`."""

    gather_block_tables: Callable[..., object]
    compute_slot_mappings: Callable[..., object]

    def append_block_ids(
        self, req_index: int, new_block_ids: BlockIds, overwrite: bool, /
    ) -> None: ...


class SecondBatch(Protocol):
    """`vllm.v1.worker.gpu.input_batch.InputBatch`."""

    req_ids: list[str]


class Speculator(Protocol):
    """A drafter of the second runner."""

    propose: Callable[..., "Tensor"]


class SecondModelRunner(Protocol):
    """`vllm.v1.worker.gpu.model_runner.GPUModelRunner`, which GPUs use by default."""

    vocab_size: int
    kv_caches: list["Tensor"]
    encoder_cache: EncoderCache
    req_states: RequestStateTable
    model_state: ModelState
    block_tables: SecondBlockTables
    speculator: Speculator
    execute_model: Callable[..., object]
    sample: Callable[..., tuple[SamplerOutput, "Tensor", "Tensor"]]
    postprocess_sampled: Callable[..., None]

    def get_model(self) -> LoadedModel: ...
    def reset_encoder_cache(self) -> None: ...


class LogprobsLists(Protocol):
    """`vllm.v1.outputs.LogprobsLists`: rows of the chosen token and the best ones.

    cu_num_generated_tokens: where each request's rows begin; None: one row each. In 0.13.0, not yet
        in 0.11.0.
    """

    cu_num_generated_tokens: list[int] | None
    logprobs: Sequence[Sequence[float]]


class ModelRunnerOutput(Protocol):
    """`vllm.v1.outputs.ModelRunnerOutput`: what a step's execution gave."""

    req_id_to_index: dict[str, int]
    sampled_token_ids: Sequence[Sequence[int]]
    logprobs: LogprobsLists


class FutureOutput(Protocol):
    """The future of an executor's answer."""

    def result(self) -> ModelRunnerOutput | None: ...


class UniProcExecutor(Protocol):
    """`vllm.v1.executor.uniproc_executor.UniProcExecutor`."""

    collective_rpc: Callable[..., object]

    def execute_model(self, output: SchedulerOutput, non_block: bool, /) -> FutureOutput: ...
    def sample_tokens(self, grammar_output: None, non_block: bool, /) -> FutureOutput: ...
    def take_draft_token_ids(self) -> DraftTokenIds | None: ...
