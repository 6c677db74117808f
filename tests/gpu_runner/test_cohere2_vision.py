"""Cohere2Vision under pressure, against transformers' own generation of each prompt alone.

Of its tokens layers under a window see one more in vLLM than in transformers: what it is compared
with is told so.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoProcessor, Cohere2VisionForConditionalGeneration

from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.engine import Engine
from cacheproof.gpu_runner.models.cohere2_vision import Cohere2Vision
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.gpu_runner.tiny_models import (
    LINE_BREAK_TOKEN_ID,
    PLACEHOLDER_TOKEN_ID,
    SLIDING_WINDOW,
    TILE_SIDE,
    VISION_END_TOKEN_ID,
    VISION_START_TOKEN_ID,
)
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from tests.gpu_runner.answers import Make, greedily, prompt_of, under_pressure

BLOCK_SIZE = 8
MODEL_LEN = 96
DECODED = 10
SIZES = {"a": (1, 1), "b": (2, 1), "c": (1, 3), "d": (2, 2), "e": (1, 2)}
"""Squares of a tile, up and across."""
PROMPTS = (("ab", 50), ("d", 60), ("", 40), ("ac", 70), ("bc", 60), ("ab", 50), ("d", 60))
WINDOWS, FULL = 0, 1
"""The groups of its KV cache."""

Item = Callable[[str, int], MediaItem]
Whole = Cohere2VisionForConditionalGeneration


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.ensure("cohere2_vision", tmp_path_factory.mktemp("models"))


def _tiles_of(name: str) -> int:
    height, width = SIZES[name]
    return height * width + (height * width > 1)


def _tokens_of(name: str) -> list[int]:
    tile = [*[PLACEHOLDER_TOKEN_ID] * 4, LINE_BREAK_TOKEN_ID]
    return [VISION_START_TOKEN_ID, *tile * _tiles_of(name), VISION_END_TOKEN_ID]


@pytest.fixture(scope="module")
def item(directory: Path) -> Item:
    """The item of a name, at an offset."""
    processor = AutoProcessor.from_pretrained(directory).image_processor

    def made(name: str, offset: int) -> MediaItem:
        height, width = SIZES[name]
        shape = (TILE_SIDE * height, TILE_SIDE * width, 3)
        noise = numpy.random.RandomState(ord(name)).randint(0, 256, shape, dtype=numpy.uint8)
        seen = processor(Image.fromarray(noise), return_tensors="pt")
        assert int(seen["num_patches"][0]) == _tiles_of(name)
        mask = tuple(token == PLACEHOLDER_TOKEN_ID for token in _tokens_of(name))
        where = PlaceholderRange(offset, len(mask), mask)
        inputs = {"pixel_values": seen["pixel_values"]}
        return MediaItem(MultiModalFeature.of(name, where), "image", inputs)

    return made


@pytest.fixture(scope="module")
def prompts(item: Item) -> list[RunnerPrompt]:
    return [prompt_of(*one, item, _tokens_of, first=5) for one in PROMPTS]


def _whole(directory: Path, sliding_window: int) -> Whole:
    """transformers' own model, whose windows hold so many tokens."""
    config = AutoConfig.from_pretrained(directory)
    config.text_config.sliding_window = sliding_window
    return Whole.from_pretrained(directory, config=config, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def whole(directory: Path) -> Whole:
    return _whole(directory, SLIDING_WINDOW + 1)


@pytest.fixture(scope="module")
def alone(whole: Whole, prompts: list[RunnerPrompt]) -> list[list[int]]:
    """What transformers' whole model answers each prompt by itself, without any cache."""
    return [_answer(whole, one) for one in prompts]


def _answer(model: Whole, asked: RunnerPrompt) -> list[int]:
    given: dict[str, Any] = {}
    if asked.items:
        given["pixel_values"] = torch.cat([one.inputs["pixel_values"] for one in asked.items])
    return greedily(
        asked, DECODED, lambda ids: model(input_ids=ids, use_cache=False, **given).logits
    )


@pytest.fixture(scope="module")
def model(directory: Path, device: torch.device) -> Cohere2Vision:
    return Cohere2Vision(directory, dtype=torch.float32, device=device)


@pytest.fixture(scope="module")
def make(model: Cohere2Vision) -> Make:
    return under_pressure(model, MODEL_LEN, BLOCK_SIZE)


def _answers(engine: Engine) -> list[list[int]]:
    return [engine.completions[str(number)].token_ids for number in range(len(PROMPTS))]


def _begin(engine: Engine, prompts: list[RunnerPrompt]) -> None:
    for number, one in enumerate(prompts):
        engine.add(str(number), one, max_tokens=DECODED)


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize(
    ("tokens", "num_blocks", "rows"),
    [(256, 128, 128), (1, 30, 20), (7, 30, 21), (33, 21, 24), (64, 60, 22)],
)
def test_answers_are_those_of_the_prompt_alone_whatever_the_pressure(
    make: Make,
    alone: list[list[int]],
    prompts: list[RunnerPrompt],
    tokens: int,
    num_blocks: int,
    rows: int,
    caches: bool,
) -> None:
    engine = make(tokens, num_blocks, rows, caches)
    _begin(engine, prompts)
    steps = list(engine.run())
    assert _answers(engine) == alone
    assert engine.runner.encoder_store.peak_bytes <= rows * engine.runner.model.hidden_size * 4
    if rows == 20:
        assert any(step.free_encoder_mm_hashes for step in steps)
    if num_blocks == 21:
        assert any(step.scheduled_cached_reqs.resumed_req_ids for step in steps)
    hits = [new.block_ids for step in steps for new in step.scheduled_new_reqs]
    assert not any(0 in of[FULL] for of in hits)
    if caches and num_blocks == 60:
        assert any(0 in of[WINDOWS] for of in hits)


@pytest.mark.parametrize("sliding_window", [SLIDING_WINDOW, SLIDING_WINDOW + 2])
def test_a_model_that_sees_a_token_more_or_fewer_answers_otherwise(
    directory: Path, alone: list[list[int]], prompts: list[RunnerPrompt], sliding_window: int
) -> None:
    other = _whole(directory, sliding_window)
    assert [_answer(other, one) for one in prompts] != alone


def _poisoned(engine: Engine) -> Iterator[int]:
    """Runs the engine with no numbers in the blocks that nobody has; how many of them had some. In
    the null block, where what fills up short windows points to and is masked, are large ones."""
    pool = engine.scheduler.kv_cache_manager.block_pool
    while engine.scheduler.requests:
        free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        layers = engine.runner.kv_store.layers
        yield sum(bool(layers[0][:, one].nan_to_num().any()) for one in free)
        for layer in layers:
            layer[:, free] = float("nan")
            layer[:, 0] = 1e6
        engine.step()


def test_what_nobody_has_is_never_read(
    make: Make, alone: list[list[int]], prompts: list[RunnerPrompt]
) -> None:
    engine = make(33, 60, 24, False)
    _begin(engine, prompts)
    assert sum(_poisoned(engine)) > len(PROMPTS)
    assert _answers(engine) == alone


def test_what_is_behind_a_window_is_nobodys(
    make: Make, alone: list[list[int]], prompts: list[RunnerPrompt]
) -> None:
    """A runner that reads on there is seen."""
    engine = make(33, 60, 24, False)
    group = engine.runner._group
    engine.runner._group = lambda number, window, scheduled: group(
        number, window and MODEL_LEN, scheduled
    )
    _begin(engine, prompts)
    sum(_poisoned(engine))
    assert _answers(engine) != alone


@torch.inference_mode()
def test_pictures_of_as_many_tiles_are_encoded_together(
    whole: Whole, model: Cohere2Vision, item: Item
) -> None:
    items = [item(name, 0) for name in "be"]
    for one, encoded in zip(items, model.encode(items), strict=True):
        rows = whole.get_image_features(one.inputs["pixel_values"]).pooler_output.flatten(0, 1)
        assert encoded.rows.shape == rows.shape
        assert torch.allclose(encoded.rows.cpu(), rows, atol=1e-5)
    first, second = model.encode(items)
    assert not torch.allclose(first.rows, second.rows, atol=1e-2)
