"""Qwen3-VL: a vision encoder of any resolution, several of whose layers reach the decoder.

The tower's last layer makes what stands in the stream of embeddings. Further rows of the same item,
made from layers in its middle (*levels*), are added to the hidden states behind the decoder's first
layers (deepstack). All levels of a row stand in one row of the encoder store, so that they are
kept, dropped and gathered together.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import torch
from torch.nn.functional import pad
from transformers import Qwen3VLForConditionalGeneration
from transformers.vision_utils import get_vision_interpolation_indices_and_weights

from cacheproof.gpu_runner.devices import upload
from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.models.base import Encoded, pretrained
from cacheproof.gpu_runner.models.grids import ATTENTION, GridModel
from cacheproof.gpu_runner.paged_attention import PagedStep
from cacheproof.gpu_runner.requests import GIVEN, MediaItem, RunnerPrompt
from cacheproof.gpu_runner.rotary import Grid, RotaryPositions, of_prompt
from cacheproof.gpu_runner.windowed_attention import WindowedAttention, patch_places
from cacheproof.reference.request import PlaceholderRange


class Qwen3VL(GridModel):
    """A MultiModalModel around transformers' own, whose attention must be `ATTENTION`; the modules
    of its vision tower's attention are replaced.

    A row of its stream has the decoder's width once for the embedding, and once for each level:
    zeros where no item stands.
    """

    places_rows = False

    def __init__(self, whole: Qwen3VLForConditionalGeneration) -> None:
        self._whole = whole.eval()
        text, vision = whole.config.text_config, whole.config.vision_config
        self._merge = vision.spatial_merge_size
        self._places_per_side = round(vision.num_position_embeddings**0.5)
        self._tower = whole.model.visual
        for block in self._tower.blocks:
            block.attn = WindowedAttention(block.attn)
        self.kv_shape = KVShape(text.num_hidden_layers, text.num_key_value_heads, text.head_dim)
        self.level_size = text.hidden_size
        self._num_levels = len(vision.deepstack_visual_indexes)
        self.hidden_size = self.level_size * (1 + self._num_levels)
        self.dtype, self.device = whole.dtype, whole.device
        # Of the one sequence that a step is: all of it gets the levels, mostly zeros.
        self._everywhere = torch.zeros(1, dtype=torch.int64, device=whole.device)

    @property
    def embedding_size(self) -> int:
        return self.level_size

    @classmethod
    def load(cls, directory: Path, *, dtype: torch.dtype, device: torch.device) -> "Qwen3VL":
        """The model of a local directory of weights."""
        return cls(
            pretrained(
                Qwen3VLForConditionalGeneration, directory, ATTENTION, dtype=dtype, device=device
            )
        )

    def rotary_positions(self, prompt: RunnerPrompt) -> RotaryPositions:
        """Each frame of a video is placed as an image; the text between them says when it is, and
        rows that are given stand as text does.

        Source: what vLLM computes for Qwen3-VL, and `get_rope_index` of transformers.
        """
        encoded = [item for item in prompt.items if item.modality != GIVEN]
        placed = [frame for item in encoded for frame in self._frames(item)]
        return of_prompt(len(prompt.token_ids), placed)

    def _frames(self, item: MediaItem) -> Iterator[tuple[PlaceholderRange, Grid]]:
        """Where in the prompt the rows of each frame stand, which text may separate."""
        where, grid = item.feature.mm_position, self._grid(item)
        at = where.offset
        for is_row, alike in groupby(where.is_embed or (True,) * where.length):
            length = len(list(alike))
            if is_row:
                yield PlaceholderRange(at, length), grid._replace(frames=1)
            at += length

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        return pad(super().embed(token_ids), (0, self._num_levels * self.level_size))

    def decode(
        self, embeds: torch.Tensor, positions: torch.Tensor, paged: PagedStep
    ) -> torch.Tensor:
        first, *levels = embeds.split(self.level_size, dim=-1)
        output = self._whole.model.language_model(
            inputs_embeds=first[None],
            position_ids=positions.unsqueeze(-2),
            use_cache=False,
            paged=paged,
            visual_pos_masks=self._everywhere,
            deepstack_visual_embeds=[level[None] for level in levels],
        )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden

    def _rows(self, items: Sequence[MediaItem], grid: Grid) -> list[Encoded]:
        num_frames = grid.frames * len(items)
        sides = (self._merge * grid.height, self._merge * grid.width)
        indices, weights = get_vision_interpolation_indices_and_weights(
            torch.tensor([[num_frames, *sides]]),
            num_grid_per_side=self._places_per_side,
            align_corners=True,
            spatial_merge_size=self._merge,
        )
        whole = self._tower(
            self._pixels(items),
            grid_thw=None,
            position_ids=upload(patch_places(grid, self._merge).repeat(num_frames, 1), self.device),
            cu_seqlens=(sides[0] * sides[1],),
            interp_indices=upload(indices, self.device),
            interp_weights=upload(weights, self.device),
        )
        rows = torch.cat([whole.pooler_output, *whole.deepstack_features], dim=1)
        return [Encoded(of_item) for of_item in rows.chunk(len(items))]
