"""The two model runners of a worker: where each keeps what a trace asks for."""

import os
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Protocol

from ..vllm_objects.worker import EncoderOutputs, GPUModelRunner, SecondModelRunner

if TYPE_CHECKING:
    from torch import Tensor

SECOND_SETTING = "VLLM_USE_V2_MODEL_RUNNER"


def is_second() -> bool:
    """Whether this process was started with the second model runner."""
    return os.environ.get(SECOND_SETTING) == "1"


class ModelRunner(Protocol):
    """A model runner, and what is asked of it."""

    store: EncoderOutputs
    """Encoder outputs by identifier, each of [rows, hidden]."""

    @property
    def requests(self) -> Collection[str]:
        """Requests of which the runner has a state."""
        ...

    def rows_of(self, request_id: str, numbers: Iterable[int]) -> list["Tensor | None"]:
        """The store's rows of a request's items, given by their numbers in its prompt."""
        ...

    def forget(self) -> None:
        """Forget what a request of the next step would be given, had one of its name been in the
        last."""
        ...


class FirstRunner:
    """`vllm.v1.worker.gpu_model_runner`."""

    def __init__(self, runner: GPUModelRunner, *, prunes: bool) -> None:
        self._runner = runner
        # The GPU's worker notes it when it has loaded a model. That of CPUs, the same class with a
        # loading of its own, does not, and fails at the first item.
        runner.is_multimodal_pruning_enabled = prunes

    @property
    def store(self) -> EncoderOutputs:
        return self._runner.encoder_cache

    @store.setter
    def store(self, store: EncoderOutputs) -> None:
        self._runner.encoder_cache = store

    @property
    def requests(self) -> Collection[str]:
        return set(self._runner.requests)

    def rows_of(self, request_id: str, numbers: Iterable[int]) -> list["Tensor | None"]:
        features = self._runner.requests[request_id].mm_features
        return [self.store.get(features[number].identifier) for number in numbers]

    def forget(self) -> None:
        self._runner._draft_token_ids = None
        batch = self._runner.input_batch
        batch.prev_sampled_token_ids = batch.prev_req_id_to_index = None
        batch.sampled_token_ids_cpu = None


class SecondRunner:
    """`vllm.v1.worker.gpu.model_runner`, which GPUs use by default."""

    def __init__(self, runner: SecondModelRunner) -> None:
        self._runner = runner

    @property
    def store(self) -> EncoderOutputs:
        return self._runner.encoder_cache.encoder_outputs

    @store.setter
    def store(self, store: EncoderOutputs) -> None:
        self._runner.encoder_cache.encoder_outputs = store

    @property
    def requests(self) -> Collection[str]:
        return set(self._runner.req_states.req_id_to_index)

    def rows_of(self, request_id: str, numbers: Iterable[int]) -> list["Tensor | None"]:
        features = self._runner.encoder_cache.mm_features[request_id]
        return [self.store.get(features[number].identifier) for number in numbers]

    def forget(self) -> None:
        """Each state is written anew when a request is added."""
