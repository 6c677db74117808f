"""Qwen2.5-VL under pressure, against transformers' own generation of each prompt alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.models.qwen2_5_vl import Qwen25VL
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.gpu_runner.rotary import Grid
from cacheproof.gpu_runner.tiny_models import FIRST_TEXT_TOKEN_ID, PLACEHOLDER_TOKEN_ID
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from tests.gpu_runner.answers import Make, greedily, under_pressure

BLOCK_SIZE = 8
MODEL_LEN = 128
DECODED = 10
GRIDS = {
    "a": Grid(1, 2, 3),
    "b": Grid(1, 4, 1),
    "c": Grid(1, 1, 5),
    "d": Grid(1, 3, 2),
    "v": Grid(2, 2, 3, 2.0),
    "w": Grid(3, 5, 2, 2.0),
}
"""Merged rows of images and videos; transformers goes on behind a video as if its frames took no
longer than its sides, so that none here does."""
PROMPTS = (("ab", 50), ("v", 40), ("", 20), ("aw", 80), ("wc", 70), ("ab", 50), ("v", 40))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.ensure("qwen2_5_vl", tmp_path_factory.mktemp("models"))


def item(name: str, offset: int) -> MediaItem:
    grid = GRIDS[name]
    patches = torch.tensor([grid.frames, 2 * grid.height, 2 * grid.width])
    random = torch.Generator().manual_seed(ord(name))
    pixels = torch.randn(int(patches.prod()), 3 * 2 * 14 * 14, generator=random)
    inputs = {"pixel_values": pixels, "image_grid_thw": patches}
    if grid.frames > 1:
        inputs = {
            "pixel_values_videos": pixels,
            "video_grid_thw": patches,
            "second_per_grid_ts": torch.tensor(1.0),
        }
    where = PlaceholderRange(offset, grid.num_rows)
    return MediaItem(
        MultiModalFeature.of(name, where), "video" if grid.frames > 1 else "image", inputs
    )


def prompt(names: str, length: int) -> RunnerPrompt:
    token_ids = [FIRST_TEXT_TOKEN_ID + at for at in range(length)]
    items = []
    at = 3
    for name in names:
        one = item(name, at)
        where = one.feature.mm_position
        placeholder = (
            PLACEHOLDER_TOKEN_ID if one.modality == "image" else tiny_models.VIDEO_TOKEN_ID
        )
        token_ids[where.offset : where.end] = [placeholder] * where.length
        items.append(one)
        at = where.end + 5
    return RunnerPrompt(tuple(token_ids), tuple(items))


@pytest.fixture(scope="module")
def alone(directory: Path) -> list[list[int]]:
    """What transformers' whole model answers each prompt by itself, without any cache."""
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(directory, dtype=torch.float32)
    return [_answer(model.eval(), prompt(*one)) for one in PROMPTS]


def _answer(model: Qwen2_5_VLForConditionalGeneration, asked: RunnerPrompt) -> list[int]:
    given: dict[str, Any] = {}
    for kind, names in (
        ("image", ("pixel_values", "image_grid_thw")),
        ("video", ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts")),
    ):
        of_kind = [one.inputs for one in asked.items if one.modality == kind]
        for name in names if of_kind else ():
            join = torch.cat if name.startswith("pixel") else torch.stack
            given[name] = join([inputs[name] for inputs in of_kind])

    def logits_of(ids: torch.Tensor) -> torch.Tensor:
        kinds = (ids == PLACEHOLDER_TOKEN_ID).int() + 2 * (ids == tiny_models.VIDEO_TOKEN_ID).int()
        return model(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **given).logits

    return greedily(asked, DECODED, logits_of)


@pytest.fixture(scope="module")
def make(directory: Path, device: torch.device) -> Make:
    return under_pressure(
        Qwen25VL.load(directory, dtype=torch.float32, device=device), MODEL_LEN, BLOCK_SIZE
    )


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize(
    ("tokens", "num_blocks", "rows"),
    [(256, 128, 128), (1, 20, 30), (7, 20, 31), (33, 16, 40), (64, 40, 36)],
)
def test_answers_are_those_of_the_prompt_alone_whatever_the_pressure(
    make: Make, alone: list[list[int]], tokens: int, num_blocks: int, rows: int, caches: bool
) -> None:
    engine = make(tokens, num_blocks, rows, caches)
    for number, one in enumerate(PROMPTS):
        engine.add(str(number), prompt(*one), max_tokens=DECODED)
    steps = list(engine.run())
    assert [engine.completions[str(n)].token_ids for n in range(len(PROMPTS))] == alone
    assert engine.runner.encoder_store.peak_bytes <= rows * engine.runner.model.hidden_size * 4
    if rows == 30:
        assert any(step.free_encoder_mm_hashes for step in steps)
    if num_blocks == 16:
        assert any(step.scheduled_cached_reqs.resumed_req_ids for step in steps)


@torch.inference_mode()
def _together_and_alone(model: Qwen25VL) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Rows of items whose inputs have one shape: two of one grid, and another between them."""
    items = [item(name, 0) for name in "ada"]
    items[2].inputs["pixel_values"].neg_()
    alone = [model.encode([one])[0].rows for one in items]
    return [one.rows for one in model.encode(items)], alone


def test_items_of_equal_shape_are_encoded_by_their_own_grids(
    directory: Path, device: torch.device
) -> None:
    model = Qwen25VL.load(directory, dtype=torch.float32, device=device)
    for together, alone in zip(*_together_and_alone(model), strict=True):
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_items_that_are_encoded_by_one_grid_are_seen(
    directory: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Qwen25VL.load(directory, dtype=torch.float32, device=device)
    _, alone = _together_and_alone(model)
    monkeypatch.setattr(model, "_grid", lambda _: GRIDS["a"])
    together, _ = _together_and_alone(model)
    assert not torch.allclose(together[1], alone[1], atol=1e-3)
