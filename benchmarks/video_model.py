"""A Qwen2.5-VL of any size with random weights, made on its device: nothing is read or written."""

from typing import TYPE_CHECKING, Any

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.initialization import no_init_weights

from cacheproof.gpu_runner.models.grids import ATTENTION
from cacheproof.gpu_runner.models.qwen2_5_vl import Qwen25VL
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange

if TYPE_CHECKING:
    from time_to_first_token import Size

PATCH = 14
MERGE = 2
WINDOW = 112
FRAMES_OF_A_PATCH = 2
CHANNELS = 3
SPREAD = 0.02
FIRST_TEXT_TOKEN_ID = 10
PLACEHOLDER_TOKEN_ID = 3


class VideoModel(Qwen25VL):
    """A Qwen2.5-VL whose items are videos of one size."""

    def __init__(self, size: "Size", device: torch.device) -> None:
        torch.manual_seed(0)
        with device, no_init_weights():
            whole = Qwen2_5_VLForConditionalGeneration._from_config(
                config(size), dtype=getattr(torch, size.dtype), attn_implementation=ATTENTION
            )
        whole.requires_grad_(False)
        for parameter in whole.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, SPREAD)
            else:
                parameter.fill_(0)
        for name, parameter in whole.named_parameters():
            if "norm" in name or "ln_q" in name:
                parameter.fill_(1)
        super().__init__(whole)
        self.size = size

    def prompt(
        self, identifier: str, patches: torch.Tensor, frames: int, text: int
    ) -> RunnerPrompt:
        """`text` tokens, a video, and as many tokens again."""
        height, width = self.size.grid
        rows = self.size.rows(frames)
        words = self.size.vocabulary - FIRST_TEXT_TOKEN_ID
        token_ids = [FIRST_TEXT_TOKEN_ID + at % words for at in range(2 * text + rows)]
        token_ids[text : text + rows] = [PLACEHOLDER_TOKEN_ID] * rows
        grid = torch.tensor([frames // FRAMES_OF_A_PATCH, height * MERGE, width * MERGE])
        inputs = {
            "pixel_values_videos": patches,
            "video_grid_thw": grid,
            "second_per_grid_ts": torch.ones(()),
        }
        feature = MultiModalFeature.of(identifier, PlaceholderRange(text, rows))
        return RunnerPrompt(tuple(token_ids), (MediaItem(feature, "video", inputs),))

    def patches(self, frames: int) -> torch.Tensor:
        """Noise in the shape of a video as a processor hands it over, in the model's dtype."""
        count = self.size.rows(frames) * MERGE**2
        of_patch = CHANNELS * FRAMES_OF_A_PATCH * PATCH**2
        return torch.randn(count, of_patch, generator=torch.Generator().manual_seed(frames)).to(
            self.dtype
        )


def config(size: "Size") -> Any:
    """What transformers builds such a model from."""
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": size.vocabulary,
            "hidden_size": size.hidden_size,
            "intermediate_size": size.intermediate_size,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_key_value_heads": size.kv_heads,
            "max_position_embeddings": 128_000,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1_000_000.0,
                "mrope_section": [16, 24, 24],
            },
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        vision_config={
            "depth": size.vision_depth,
            "hidden_size": size.vision_hidden_size,
            "intermediate_size": size.vision_intermediate_size,
            "num_heads": size.vision_heads,
            "out_hidden_size": size.hidden_size,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": FRAMES_OF_A_PATCH,
            "window_size": WINDOW,
            "fullatt_block_indexes": list(size.full_attention),
        },
        image_token_id=PLACEHOLDER_TOKEN_ID,
        video_token_id=PLACEHOLDER_TOKEN_ID,
        vision_start_token_id=4,
        vision_end_token_id=5,
    )
