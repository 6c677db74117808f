"""Whisper: an audio encoder beside a decoder, which attends to what the encoder made."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import torch
from transformers import WhisperForConditionalGeneration

from cacheproof.gpu_runner import cross_attention, paged_attention
from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.models.base import Encoded, TransformersModel, pretrained
from cacheproof.gpu_runner.paged_attention import PagedStep
from cacheproof.gpu_runner.requests import MediaItem


class Whisper(TransformersModel):
    """A MultiModalModel from a local directory of weights."""

    places_rows = False

    def __init__(self, directory: Path, *, dtype: torch.dtype, device: torch.device) -> None:
        self._whole = pretrained(
            WhisperForConditionalGeneration, directory, "sdpa", dtype=dtype, device=device
        )
        config, decoder = self._whole.config, self._whole.model.decoder
        # One configuration serves all attentions of the model, and each kind has another here.
        own, cross = deepcopy(config), deepcopy(config)
        own._attn_implementation = paged_attention.NAME
        cross._attn_implementation = cross_attention.NAME
        decoder.config = own
        for layer in decoder.layers:
            layer.self_attn.config = own
            layer.encoder_attn.config = cross
        heads = config.decoder_attention_heads
        self.kv_shape = KVShape(config.decoder_layers, heads, config.d_model // heads)
        self.cross_kv_shape: KVShape | None = self.kv_shape
        self.hidden_size = config.d_model
        self.dtype, self.device = dtype, device

    def encode(self, items: Sequence[MediaItem]) -> list[Encoded]:
        features = self._stacked(items, "input_features")
        return list(map(Encoded, self._whole.model.encoder(features).last_hidden_state))

    def decode(
        self, embeds: torch.Tensor, positions: torch.Tensor, paged: PagedStep
    ) -> torch.Tensor:
        assert paged.cross is not None
        output = self._whole.model.decoder(
            inputs_embeds=embeds[None],
            position_ids=positions[None],
            encoder_hidden_states=paged.cross.rows[None],
            use_cache=False,
            paged=paged,
            cross=paged.cross,
        )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._whole.proj_out(hidden).float()
