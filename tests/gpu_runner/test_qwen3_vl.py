"""Qwen3-VL under pressure, against transformers' own generation of each prompt alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3VLForConditionalGeneration

from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.models import qwen3_vl
from cacheproof.gpu_runner.models.qwen3_vl import Qwen3VL
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.gpu_runner.rotary import Grid
from cacheproof.gpu_runner.tiny_models import (
    FIRST_TEXT_TOKEN_ID,
    PLACEHOLDER_TOKEN_ID,
    VIDEO_TOKEN_ID,
    VISION_END_TOKEN_ID,
    VISION_START_TOKEN_ID,
)
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from tests.gpu_runner.answers import Make, greedily, prompt_of, under_pressure

BLOCK_SIZE = 8
MODEL_LEN = 128
DECODED = 10
WIDTH = 64
SECONDS = [FIRST_TEXT_TOKEN_ID, FIRST_TEXT_TOKEN_ID + 1]
"""What stands before each frame of a video, in the place of its time."""
GRIDS = {
    "a": Grid(1, 2, 3),
    "b": Grid(1, 4, 1),
    "c": Grid(1, 1, 5),
    "d": Grid(1, 3, 2),
    "v": Grid(2, 2, 3),
    "w": Grid(4, 2, 1),
}
"""Merged rows of images and videos."""
PROMPTS = (("ab", 50), ("v", 40), ("", 20), ("aw", 80), ("wc", 70), ("ab", 50), ("v", 40))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.ensure("qwen3_vl", tmp_path_factory.mktemp("models"))


def item_tokens(grid: Grid) -> list[int]:
    """What stands in a prompt for an item: each frame of a video behind its time."""
    rows = grid.height * grid.width
    if grid.frames == 1:
        return [PLACEHOLDER_TOKEN_ID] * rows
    frame = [VISION_START_TOKEN_ID, *[VIDEO_TOKEN_ID] * rows, VISION_END_TOKEN_ID]
    return (SECONDS + frame) * grid.frames


def item(name: str, offset: int) -> MediaItem:
    grid = GRIDS[name]
    patches = torch.tensor([grid.frames, 2 * grid.height, 2 * grid.width])
    random = torch.Generator().manual_seed(ord(name))
    pixels = torch.randn(int(patches.prod()), 3 * 2 * 14 * 14, generator=random)
    tokens = item_tokens(grid)
    if grid.frames == 1:
        where = PlaceholderRange(offset, len(tokens))
        inputs = {"pixel_values": pixels, "image_grid_thw": patches}
        return MediaItem(MultiModalFeature.of(name, where), "image", inputs)
    where = PlaceholderRange(offset, len(tokens), tuple(one == VIDEO_TOKEN_ID for one in tokens))
    inputs = {"pixel_values_videos": pixels, "video_grid_thw": patches}
    return MediaItem(MultiModalFeature.of(name, where), "video", inputs)


def prompt(names: str, length: int) -> RunnerPrompt:
    return prompt_of(names, length, item, lambda name: item_tokens(GRIDS[name]))


@pytest.fixture(scope="module")
def alone(directory: Path) -> list[list[int]]:
    """What transformers' whole model answers each prompt by itself, without any cache."""
    model = Qwen3VLForConditionalGeneration.from_pretrained(directory, dtype=torch.float32)
    return [_answer(model.eval(), prompt(*one)) for one in PROMPTS]


def _answer(model: Qwen3VLForConditionalGeneration, asked: RunnerPrompt) -> list[int]:
    given: dict[str, Any] = {}
    for kind, names in (
        ("image", ("pixel_values", "image_grid_thw")),
        ("video", ("pixel_values_videos", "video_grid_thw")),
    ):
        of_kind = [one.inputs for one in asked.items if one.modality == kind]
        for name in names if of_kind else ():
            join = torch.cat if name.startswith("pixel") else torch.stack
            given[name] = join([inputs[name] for inputs in of_kind])

    def logits_of(ids: torch.Tensor) -> torch.Tensor:
        kinds = (ids == PLACEHOLDER_TOKEN_ID).int() + 2 * (ids == VIDEO_TOKEN_ID).int()
        return model(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **given).logits

    return greedily(asked, DECODED, logits_of)


def loaded(directory: Path, device: torch.device) -> Qwen3VL:
    return Qwen3VL.load(directory, dtype=torch.float32, device=device)


@pytest.fixture(scope="module")
def make(directory: Path, device: torch.device) -> Make:
    return under_pressure(loaded(directory, device), MODEL_LEN, BLOCK_SIZE)


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize(
    ("tokens", "num_blocks", "rows"),
    [(256, 128, 128), (1, 20, 12), (7, 20, 13), (33, 16, 20), (64, 40, 18)],
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
    if rows == 12:
        assert any(step.free_encoder_mm_hashes for step in steps)
    if num_blocks == 16:
        assert any(step.scheduled_cached_reqs.resumed_req_ids for step in steps)


def test_a_row_of_the_store_has_every_level(make: Make) -> None:
    engine = make(256, 128, 128, True)
    engine.add("0", prompt("a", 20), max_tokens=1)
    list(engine.run())
    (rows,) = engine.runner.encoder_store.entries.values()
    assert rows.shape == (6, 3 * WIDTH)
    levels = rows.split(WIDTH, dim=1)
    assert not any(torch.allclose(one, levels[0]) for one in levels[1:])


@torch.inference_mode()
def _farthest(model: Qwen3VL, directory: Path, name: str) -> list[float]:
    """How far rows are from those of transformers' own tower at most, level by level."""
    own = Qwen3VLForConditionalGeneration.from_pretrained(directory, dtype=torch.float32).eval()
    one = item(name, 0)
    pixels, grid = one.inputs.values()
    made = own.model.get_image_features(pixels, grid[None])
    levels = [torch.cat(list(rows)) for rows in (made.pooler_output, *made.deepstack_features)]
    rows = model.encode([one])[0].rows.cpu().split(WIDTH, dim=1)
    return [float((a - b).abs().max()) for a, b in zip(rows, levels, strict=True)]


@pytest.mark.parametrize("name", GRIDS)
def test_rows_of_every_level_are_those_of_the_whole_tower(
    directory: Path, device: torch.device, name: str
) -> None:
    assert max(_farthest(loaded(directory, device), directory, name)) < 1e-3


def test_a_place_that_is_not_interpolated_shows_in_every_level(
    directory: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = qwen3_vl.upload
    monkeypatch.setattr(qwen3_vl, "upload", lambda numbers, at: own(numbers.trunc(), at))
    assert min(_farthest(loaded(directory, device), directory, "a")) > 0.1


@torch.inference_mode()
def _together_and_alone(model: Qwen3VL) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Rows of items whose inputs have one shape: two of one grid, and another between them."""
    items = [item(name, 0) for name in "ada"]
    items[2].inputs["pixel_values"].neg_()
    alone = [model.encode([one])[0].rows for one in items]
    return [one.rows for one in model.encode(items)], alone


def test_items_of_equal_shape_are_encoded_by_their_own_grids(
    directory: Path, device: torch.device
) -> None:
    for together, alone in zip(*_together_and_alone(loaded(directory, device)), strict=True):
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_items_that_are_encoded_by_one_grid_are_seen(
    directory: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(directory, device)
    _, alone = _together_and_alone(model)
    monkeypatch.setattr(model, "_grid", lambda _: GRIDS["a"])
    together, _ = _together_and_alone(model)
    assert not torch.allclose(together[1], alone[1], atol=1e-3)
