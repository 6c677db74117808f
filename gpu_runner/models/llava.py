"""LLaVA: a CLIP vision tower in front of a Llama decoder."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlavaForConditionalGeneration

from cacheproof.gpu_runner import paged_attention
from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.models.base import DecoderOnlyModel, Encoded, pretrained
from cacheproof.gpu_runner.requests import MediaItem


class Llava(DecoderOnlyModel):
    """A MultiModalModel from a local directory of weights."""

    places_rows = False

    def __init__(self, directory: Path, *, dtype: torch.dtype, device: torch.device) -> None:
        attention = {"text_config": paged_attention.NAME, "vision_config": "sdpa"}
        self._whole = pretrained(
            LlavaForConditionalGeneration, directory, attention, dtype=dtype, device=device
        )
        text = self._whole.config.text_config
        self.kv_shape = KVShape(text.num_hidden_layers, text.num_key_value_heads, text.head_dim)
        self.hidden_size = text.hidden_size
        self.dtype, self.device = dtype, device

    def encode(self, items: Sequence[MediaItem]) -> list[Encoded]:
        features = self._whole.get_image_features(self._stacked(items, "pixel_values"))
        return [Encoded(rows) for rows in features.pooler_output]
