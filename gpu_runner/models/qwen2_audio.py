"""Qwen2-Audio: an audio encoder whose rows stand in a decoder's prompt, as many as a sound is long.

The encoder is given half a minute, whatever there is of it; what is behind the end of a sound is
hidden from its attention, and makes no rows.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2AudioForConditionalGeneration

from cacheproof.gpu_runner import paged_attention
from cacheproof.gpu_runner.devices import upload
from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.models.base import DecoderOnlyModel, Encoded, pretrained
from cacheproof.gpu_runner.requests import MediaItem


class Qwen2Audio(DecoderOnlyModel):
    """A MultiModalModel from a local directory of weights."""

    places_rows = False

    def __init__(self, directory: Path, *, dtype: torch.dtype, device: torch.device) -> None:
        attention = {"text_config": paged_attention.NAME, "audio_config": "sdpa"}
        self._whole = pretrained(
            Qwen2AudioForConditionalGeneration, directory, attention, dtype=dtype, device=device
        )
        text = self._whole.config.text_config
        heads = text.num_attention_heads
        self.kv_shape = KVShape(
            text.num_hidden_layers, text.num_key_value_heads, text.hidden_size // heads
        )
        self.hidden_size = text.hidden_size
        self.dtype, self.device = dtype, device

    def encode(self, items: Sequence[MediaItem]) -> list[Encoded]:
        """Sounds of any length in one call: all are as long to the encoder."""
        model = self._whole.model
        features = self._stacked(items, "input_features")
        frames = [int(item.inputs["feature_attention_mask"].sum()) for item in items]
        lengths, num_rows = zip(*map(num_audio_rows, frames), strict=True)
        is_heard = torch.arange(features.shape[-1] // 2) < torch.tensor(lengths)[:, None]
        attended = upload(is_heard[:, None, None], self.device)
        heard = model.audio_tower(features, attention_mask=attended).last_hidden_state
        rows = model.multi_modal_projector(heard)
        return [Encoded(one[:own]) for one, own in zip(rows, num_rows, strict=True)]


def num_audio_rows(frames: int) -> tuple[int, int]:
    """How many places the encoder's layers have for so many frames of a sound, and how many rows
    are made of those.

    Source: `Qwen2AudioEncoder._get_feat_extract_output_lengths` of transformers.
    """
    places = (frames - 1) // 2 + 1
    return places, (places - 2) // 2 + 1
