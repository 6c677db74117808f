"""Windows that attend together answer what transformers' own tower does, one window a call."""

from typing import Any

import pytest
import torch
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel as Tower,
)

from cacheproof.gpu_runner import windowed_attention
from cacheproof.gpu_runner.rotary import Grid
from cacheproof.gpu_runner.windowed_attention import WindowedAttention, arrangement, window_order

FRAMES = 3
MERGE = 2
SPREAD = 0.25
"""Standard deviation of the weights: with transformers' own it hardly matters who attends."""


@pytest.fixture(scope="module")
def tower(device: torch.device) -> Tower:
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
    made = Tower._from_config(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, SPREAD)
    return made.to(device)


@torch.inference_mode()
def answers(tower: Tower, grid: Grid) -> tuple[torch.Tensor, torch.Tensor]:
    """A tower's rows of a grid with windows that attend together, and as transformers has them."""
    patches = torch.randn(grid.num_rows * MERGE**2, 3 * 2 * 14 * 14).to(tower.device)
    sides = torch.tensor([[grid.frames, MERGE * grid.height, MERGE * grid.width]]).to(tower.device)
    own = tower(patches, grid_thw=sides).pooler_output
    kept = [block.attn for block in tower.blocks]
    try:
        for block in tower.blocks:
            block.attn = WindowedAttention(block.attn)
        arranged = arrangement(grid, MERGE, side=4, device=tower.device)
        together = tower(patches, grid_thw=None, **arranged._asdict()).pooler_output
    finally:
        for block, attention in zip(tower.blocks, kept, strict=True):
            block.attn = attention
    return together, own


@pytest.mark.parametrize(("height", "width"), [(13, 23), (4, 8), (1, 3), (5, 9)])
def test_a_tower_answers_alike(tower: Tower, height: int, width: int) -> None:
    together, own = answers(tower, Grid(FRAMES, height, width))
    torch.testing.assert_close(together, own, atol=1e-4, rtol=1e-4)


def _whole_frames(order: windowed_attention.WindowOrder) -> windowed_attention.WindowOrder:
    return order._replace(lengths=(sum(order.lengths),))


def _another_order(order: windowed_attention.WindowOrder) -> windowed_attention.WindowOrder:
    return order._replace(index=order.index.flip(0))


@pytest.mark.parametrize("broken", [_whole_frames, _another_order])
def test_other_windows_answer_otherwise(
    tower: Tower, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    monkeypatch.setattr(windowed_attention, "window_order", lambda *of: broken(window_order(*of)))
    together, own = answers(tower, Grid(FRAMES, 5, 9))
    assert not torch.allclose(together, own, atol=1e-3)


def test_patches_in_other_places_answer_otherwise(
    tower: Tower, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = windowed_attention.patch_places
    monkeypatch.setattr(windowed_attention, "patch_places", lambda *of: places(*of).flip(1))
    together, own = answers(tower, Grid(FRAMES, 5, 9))
    assert not torch.allclose(together, own, atol=1e-3)


def test_windows_of_one_length_stand_behind_one_another() -> None:
    order = window_order(5, 9, side=4)
    assert order.lengths == (16, 16, 4, 4, 4, 1)
    assert sorted(order.index.tolist()) == list(range(45))
    assert order.index[32:36].tolist() == [8, 17, 26, 35]
