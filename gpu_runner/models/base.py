"""The interface of a model, as the runner uses it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from cacheproof.gpu_runner.adapters import AdaptedLayers, Windows
from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.paged_attention import PagedStep
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.gpu_runner.rotary import RotaryPositions


class Encoded(NamedTuple):
    """An item's rows, [embeddings, hidden size], and where rows have places of their own, their
    rotary positions, [axes, embeddings], as if the item came first."""

    rows: torch.Tensor
    positions: torch.Tensor | None = None


class MultiModalModel(Protocol):
    """A decoder over a stream of embeddings, and encoders that put items into it."""

    kv_shape: KVShape
    cross_kv_shape: KVShape | None
    """What is kept of an encoder's row that the decoder attends to; None: rows are put into its
    stream of embeddings."""
    hidden_size: int
    """Numbers of a row, in the stream of embeddings and in the encoder store."""
    places_rows: bool
    """Whether what it encodes has positions of its own."""
    dtype: torch.dtype
    device: torch.device

    @property
    def embedding_size(self) -> int:
        """Numbers of a token's embedding; rows have more where features go into several layers."""

    def reload(self, directory: Path) -> None:
        """Take the weights of that directory, in place."""

    def rotary_positions(self, prompt: RunnerPrompt) -> RotaryPositions | None:
        """Where a prompt's tokens stand, on each axis; None: they count up from 0, on one."""

    def adapted(self, windows: Windows) -> AbstractContextManager[None]:
        """While this lasts, these rows of what is encoded or decoded run under adapters."""

    def encode(self, items: Sequence[MediaItem]) -> list[Encoded]:
        """The outputs of each item, in one call of the encoder.

        All of one modality, with inputs of one shape.
        """

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings of [tokens, hidden size]; what they are at placeholders does not count."""

    def decode(
        self, embeds: torch.Tensor, positions: torch.Tensor, paged: PagedStep
    ) -> torch.Tensor:
        """Hidden states of [tokens, hidden size]; `positions` of [tokens], or [axes, tokens]."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of [rows, vocabulary] in float32."""


class TransformersModel:
    """What all MultiModalModels around a model of transformers' have in common."""

    _whole: Any
    hidden_size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def embedding_size(self) -> int:
        return self.hidden_size

    def reload(self, directory: Path) -> None:
        other = type(self._whole).from_pretrained(
            directory, dtype=self.dtype, local_files_only=True, use_safetensors=True
        )
        self._whole.load_state_dict(other.state_dict())

    def rotary_positions(self, prompt: RunnerPrompt) -> RotaryPositions | None:
        return None

    def adapted(self, windows: Windows) -> AbstractContextManager[None]:
        is_adapted = any(adapter is not None for _, adapter in windows)
        return self._layers.under(windows) if is_adapted else nullcontext()

    @cached_property
    def _layers(self) -> AdaptedLayers:
        return AdaptedLayers(self._whole)

    def _stacked(self, items: Sequence[MediaItem], name: str) -> torch.Tensor:
        """One input of all items, stacked as the encoder takes it."""
        inputs = torch.stack([item.inputs[name] for item in items])
        return inputs.to(self.device, self.dtype, non_blocking=True)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        embeds: torch.Tensor = self._whole.get_input_embeddings()(token_ids)
        return embeds


def pretrained(
    whole: Any,
    directory: Path,
    attention: str | dict[str, str],
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Any:
    """The model of that class of transformers', from a local directory of weights, to be executed
    under that attention."""
    model = whole.from_pretrained(
        directory,
        dtype=dtype,
        local_files_only=True,
        use_safetensors=True,
        attn_implementation=attention,
    )
    return model.to(device).eval()


class DecoderOnlyModel(TransformersModel):
    """One whose items are rows in the stream of embeddings that its language model decodes."""

    cross_kv_shape: KVShape | None = None

    def decode(
        self, embeds: torch.Tensor, positions: torch.Tensor, paged: PagedStep
    ) -> torch.Tensor:
        output = self._whole.model.language_model(
            inputs_embeds=embeds[None],
            position_ids=positions.unsqueeze(-2),
            use_cache=False,
            paged=paged,
        )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._whole.lm_head(hidden)
        return logits.float()
