"""What a runner asks of a model."""

from collections.abc import Sequence
from typing import Protocol

import torch

from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.paged_attention import PagedStep
from cacheproof.gpu_runner.requests import MediaItem


class MultiModalModel(Protocol):
    """A decoder over a stream of embeddings, and encoders that put items into it."""

    kv_shape: KVShape
    hidden_size: int
    dtype: torch.dtype
    device: torch.device

    def encode(self, items: Sequence[MediaItem]) -> list[torch.Tensor]:
        """The rows of each item, [embeddings, hidden size], in one call of the encoder.

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
