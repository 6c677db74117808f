"""Cohere2Vision: a SigLIP tower in front of a decoder of which some layers see a window of tokens.

A picture is cut into tiles of one size, with a small one of the whole beside several. Layers under
a sliding window have rotary positions, those of full attention have none.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Cohere2VisionForConditionalGeneration

from cacheproof.gpu_runner import paged_attention
from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.models.base import DecoderOnlyModel, Encoded, pretrained
from cacheproof.gpu_runner.requests import MediaItem


class Cohere2Vision(DecoderOnlyModel):
    """A MultiModalModel from a local directory of weights."""

    places_rows = False

    def __init__(self, directory: Path, *, dtype: torch.dtype, device: torch.device) -> None:
        attention = {"text_config": paged_attention.NAME, "vision_config": "sdpa"}
        self._whole = pretrained(
            Cohere2VisionForConditionalGeneration, directory, attention, dtype=dtype, device=device
        )
        text = self._whole.config.text_config
        # As vLLM since 0.29.0: a token sees as many as the configuration says beside itself.
        windows = {"sliding_attention": text.sliding_window + 1, "full_attention": None}
        self.kv_shape = KVShape(
            text.num_hidden_layers,
            text.num_key_value_heads,
            text.head_dim,
            tuple(windows[kind] for kind in text.layer_types),
        )
        self.hidden_size = text.hidden_size
        self.dtype, self.device = dtype, device

    def encode(self, items: Sequence[MediaItem]) -> list[Encoded]:
        """Pictures with the same number of tiles each, all tiles in one call."""
        tiles = self._stacked(items, "pixel_values")
        rows = self._whole.get_image_features(tiles.flatten(0, 1)).pooler_output
        return [Encoded(one) for one in rows.reshape(len(items), -1, self.hidden_size)]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scaled, as vLLM's are; transformers leaves that out, and so chooses the same tokens."""
        return super().logits(hidden) * self._whole.config.text_config.logit_scale
