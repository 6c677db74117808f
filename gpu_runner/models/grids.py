"""Models whose items are grids of patches, of any size: what is alike in Qwen2.5-VL and Qwen3-VL.

What the encoder needs to know of an item follows from its grid, and is made on the host: encoding
does not wait for the device.
"""

from collections.abc import Sequence

import torch

from cacheproof.gpu_runner import paged_attention
from cacheproof.gpu_runner.models.base import DecoderOnlyModel, Encoded
from cacheproof.gpu_runner.requests import MediaItem
from cacheproof.gpu_runner.rotary import Grid

ATTENTION = {"text_config": paged_attention.NAME, "vision_config": "sdpa"}
_INPUTS = {
    "image": ("pixel_values", "image_grid_thw"),
    "video": ("pixel_values_videos", "video_grid_thw"),
}
"""Names of the encoder's inputs, by modality: patches of [patches, values], and a grid of [3]."""


class GridModel(DecoderOnlyModel):
    """A model whose encoder takes items of one grid in one call."""

    _merge: int
    """Patches along a side of what becomes one row."""

    def encode(self, items: Sequence[MediaItem]) -> list[Encoded]:
        of_grid: dict[Grid, list[int]] = {}
        for number, item in enumerate(items):
            of_grid.setdefault(self._grid(item), []).append(number)
        encoded: dict[int, Encoded] = {}
        for grid, numbers in of_grid.items():
            rows = self._rows([items[number] for number in numbers], grid)
            encoded |= dict(zip(numbers, rows, strict=True))
        return [encoded[number] for number in range(len(items))]

    def _grid(self, item: MediaItem) -> Grid:
        """The grid of an item's rows."""
        frames, height, width = item.inputs[_INPUTS[item.modality][1]].tolist()
        return Grid(frames, height // self._merge, width // self._merge)

    def _pixels(self, items: Sequence[MediaItem]) -> torch.Tensor:
        """Patches of items of one modality, one item after another, [patches, values]."""
        patches, _ = _INPUTS[items[0].modality]
        pixels = torch.cat([item.inputs[patches] for item in items])
        return pixels.to(self.device, self.dtype, non_blocking=True)

    def _rows(self, items: Sequence[MediaItem], grid: Grid) -> list[Encoded]:
        """The rows of items of one modality and grid."""
        raise NotImplementedError
