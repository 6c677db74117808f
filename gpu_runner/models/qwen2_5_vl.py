"""Qwen2.5-VL: a vision encoder of any resolution in front of a decoder with three rotary axes."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from cacheproof.gpu_runner.devices import upload
from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.models.base import Encoded, pretrained
from cacheproof.gpu_runner.models.grids import ATTENTION, GridModel
from cacheproof.gpu_runner.requests import GIVEN, MediaItem, RunnerPrompt
from cacheproof.gpu_runner.rotary import Grid, RotaryPositions, in_grid, of_prompt
from cacheproof.gpu_runner.video_pruning import retained
from cacheproof.gpu_runner.windowed_attention import WindowedAttention, arrangement


class Qwen25VL(GridModel):
    """A MultiModalModel around transformers' own, whose attention must be `ATTENTION`; the modules
    of its vision tower's attention are replaced.

    Of videos it keeps all but the `video_pruning_rate` of rows that say least new; 0: all of them.
    """

    def __init__(
        self, whole: Qwen2_5_VLForConditionalGeneration, video_pruning_rate: float = 0.0
    ) -> None:
        self._whole = whole.eval()
        config = whole.config
        text = config.text_config
        vision = config.vision_config
        self._merge = vision.spatial_merge_size
        self._window_side = vision.window_size // vision.patch_size // vision.spatial_merge_size
        self._tower = whole.model.visual
        for block in self._tower.blocks:
            block.attn = WindowedAttention(block.attn)
        self._tokens_per_second = vision.tokens_per_second
        self._pruning_rate = video_pruning_rate
        self.places_rows = video_pruning_rate > 0
        self.kv_shape = KVShape(
            text.num_hidden_layers,
            text.num_key_value_heads,
            text.hidden_size // text.num_attention_heads,
        )
        self.hidden_size = text.hidden_size
        self.dtype, self.device = whole.dtype, whole.device

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        dtype: torch.dtype,
        device: torch.device,
        video_pruning_rate: float = 0.0,
    ) -> "Qwen25VL":
        """The model of a local directory of weights."""
        whole = pretrained(
            Qwen2_5_VLForConditionalGeneration, directory, ATTENTION, dtype=dtype, device=device
        )
        return cls(whole, video_pruning_rate)

    def rotary_positions(self, prompt: RunnerPrompt) -> RotaryPositions:
        """Rotary positions of a prompt; rows that a user gives stand as text does."""
        placed = [
            (item.feature.mm_position, self._grid(item))
            for item in prompt.items
            if item.modality != GIVEN
        ]
        return of_prompt(len(prompt.token_ids), placed, pruned=self.places_rows)

    def _grid(self, item: MediaItem) -> Grid:
        """The grid of an item's rows; a video's seconds are spread over its time axis."""
        grid = super()._grid(item)
        if item.modality == "image":
            return grid
        seconds = float(item.inputs["second_per_grid_ts"])
        return grid._replace(interval=seconds * self._tokens_per_second)

    def _rows(self, items: Sequence[MediaItem], grid: Grid) -> list[Encoded]:
        frames = grid._replace(frames=grid.frames * len(items))
        arranged = arrangement(frames, self._merge, self._window_side, self.device)
        whole = self._tower(self._pixels(items), grid_thw=None, **arranged._asdict())
        rows = whole.pooler_output.chunk(len(items))
        if not self.places_rows:
            return [Encoded(of_item) for of_item in rows]
        return [self._pruned(item, of_item) for item, of_item in zip(items, rows, strict=True)]

    def _pruned(self, item: MediaItem, rows: torch.Tensor) -> Encoded:
        """The rows of an item that are kept, and their places in its grid."""
        grid = self._grid(item)
        positions = upload(in_grid(grid), rows.device)
        if item.modality == "image":
            return Encoded(rows, positions)
        keep = retained(rows, grid, self._pruning_rate)
        return Encoded(rows[keep], positions[:, keep])
