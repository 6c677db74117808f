"""Windows that attend together answer what transformers' own tower does, one window a call."""

import pytest
import torch
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel as Tower,
)

from cacheproof.gpu_runner.windowed_attention import WindowedAttention, window_order

FRAMES = 3
MERGED = 4


@pytest.fixture(scope="module")
def tower() -> Tower:
    torch.manual_seed(0)
    config = Qwen2_5_VLVisionConfig(
        depth=2,
        hidden_size=32,
        intermediate_size=48,
        num_heads=2,
        out_hidden_size=24,
        fullatt_block_indexes=[1],
        attn_implementation="sdpa",
    )
    return Tower._from_config(config).eval()


@pytest.mark.parametrize(("height", "width"), [(13, 23), (4, 8), (1, 3), (5, 9)])
@torch.inference_mode()
def test_a_tower_answers_alike(tower: Tower, height: int, width: int) -> None:
    patches = torch.randn(FRAMES * height * width * MERGED, 3 * 2 * 14 * 14)
    grid = torch.tensor([[FRAMES, 2 * height, 2 * width]])
    own = tower(patches, grid_thw=grid).pooler_output
    order = window_order(height, width, side=4)
    kept = [block.attn for block in tower.blocks]
    try:
        for block in tower.blocks:
            block.attn = WindowedAttention(block.attn)
        starts = torch.arange(FRAMES)[:, None] * height * width
        together = tower(
            patches,
            grid_thw=grid,
            window_index=(starts + order.index).flatten(),
            cu_seqlens=(height * width * MERGED,),
            cu_window_seqlens=tuple(length * MERGED for length in order.lengths),
        ).pooler_output
    finally:
        for block, attention in zip(tower.blocks, kept, strict=True):
            block.attn = attention
    torch.testing.assert_close(together, own, atol=1e-5, rtol=1e-5)


def test_windows_of_one_length_stand_behind_one_another() -> None:
    order = window_order(5, 9, side=4)
    assert order.lengths == (16, 16, 4, 4, 4, 1)
    assert sorted(order.index.tolist()) == list(range(45))
    assert order.index[32:36].tolist() == [8, 17, 26, 35]
