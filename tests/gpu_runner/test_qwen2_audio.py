"""Qwen2-Audio under pressure, against transformers' own generation of each prompt alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from transformers import AutoProcessor, Qwen2AudioForConditionalGeneration

from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.jobs import SAMPLES_PER_SECOND
from cacheproof.gpu_runner.models.qwen2_audio import Qwen2Audio
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.gpu_runner.tiny_models import PLACEHOLDER_TOKEN_ID
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from tests.gpu_runner.answers import Make, greedily, prompt_of, under_pressure

BLOCK_SIZE = 8
MODEL_LEN = 96
DECODED = 10
SAMPLES_OF_A_ROW = 640
ROWS = {"a": 6, "b": 3, "c": 11, "d": 20}
PROMPTS = (("ab", 30), ("d", 40), ("", 20), ("ac", 50), ("bc", 40), ("ab", 30), ("d", 40))

Item = Callable[[str, int], MediaItem]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.ensure("qwen2_audio", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def item(directory: Path) -> Item:
    """The item of a name, at an offset."""
    extractor = AutoProcessor.from_pretrained(directory).feature_extractor

    def made(name: str, offset: int) -> MediaItem:
        noise = numpy.random.RandomState(ord(name))
        samples = noise.uniform(-1, 1, ROWS[name] * SAMPLES_OF_A_ROW).astype(numpy.float32)
        heard = extractor(
            samples,
            sampling_rate=SAMPLES_PER_SECOND,
            return_attention_mask=True,
            return_tensors="pt",
        )
        where = PlaceholderRange(offset, ROWS[name])
        inputs = {
            "input_features": heard["input_features"][0],
            "feature_attention_mask": heard["attention_mask"][0],
        }
        return MediaItem(MultiModalFeature.of(name, where), "audio", inputs)

    return made


@pytest.fixture(scope="module")
def prompts(item: Item) -> list[RunnerPrompt]:
    return [prompt_of(*one, item, _tokens_of) for one in PROMPTS]


def _tokens_of(name: str) -> list[int]:
    return [PLACEHOLDER_TOKEN_ID] * ROWS[name]


@pytest.fixture(scope="module")
def whole(directory: Path) -> Qwen2AudioForConditionalGeneration:
    """transformers' own model."""
    return Qwen2AudioForConditionalGeneration.from_pretrained(directory, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def alone(
    whole: Qwen2AudioForConditionalGeneration, prompts: list[RunnerPrompt]
) -> list[list[int]]:
    """What transformers' whole model answers each prompt by itself, without any cache."""
    return [_answer(whole, one) for one in prompts]


def _answer(model: Qwen2AudioForConditionalGeneration, asked: RunnerPrompt) -> list[int]:
    given: dict[str, Any] = {}
    if asked.items:
        for name in ("input_features", "feature_attention_mask"):
            given[name] = torch.stack([one.inputs[name] for one in asked.items])
    return greedily(
        asked, DECODED, lambda ids: model(input_ids=ids, use_cache=False, **given).logits
    )


@pytest.fixture(scope="module")
def model(directory: Path, device: torch.device) -> Qwen2Audio:
    return Qwen2Audio(directory, dtype=torch.float32, device=device)


@pytest.fixture(scope="module")
def make(model: Qwen2Audio) -> Make:
    return under_pressure(model, MODEL_LEN, BLOCK_SIZE)


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize(
    ("tokens", "num_blocks", "rows"),
    [(256, 128, 128), (1, 20, 20), (7, 20, 21), (33, 13, 24), (64, 40, 22)],
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
    for number, one in enumerate(prompts):
        engine.add(str(number), one, max_tokens=DECODED)
    steps = list(engine.run())
    assert [engine.completions[str(n)].token_ids for n in range(len(PROMPTS))] == alone
    assert engine.runner.encoder_store.peak_bytes <= rows * engine.runner.model.hidden_size * 4
    if rows == 20:
        assert any(step.free_encoder_mm_hashes for step in steps)
    if num_blocks == 13:
        assert any(step.scheduled_cached_reqs.resumed_req_ids for step in steps)


@torch.inference_mode()
def _farthest(
    whole: Qwen2AudioForConditionalGeneration, model: Qwen2Audio, items: list[MediaItem]
) -> float:
    """How far rows of items that are encoded together are from those that transformers makes of
    each sound, at most; its encoder is told of the end by the mask of the whole model."""
    apart = 0.0
    for one, encoded in zip(items, model.encode(items), strict=True):
        count = one.feature.mm_position.length
        hidden = torch.full((1, 1, 1, 1500), float("-inf"))
        hidden[..., : 2 * count] = 0
        tower = whole.model.audio_tower(one.inputs["input_features"][None], attention_mask=hidden)
        rows = whole.model.multi_modal_projector(tower.last_hidden_state)[0, :count]
        assert encoded.rows.shape == rows.shape
        apart = max(apart, float((encoded.rows.cpu() - rows).abs().max()))
    return apart


def test_sounds_of_other_lengths_are_encoded_together(
    whole: Qwen2AudioForConditionalGeneration, model: Qwen2Audio, item: Item
) -> None:
    assert _farthest(whole, model, [item(name, 0) for name in "abcd"]) < 1e-4


def test_a_sound_whose_end_is_taken_for_anothers_is_seen(
    whole: Qwen2AudioForConditionalGeneration, model: Qwen2Audio, item: Item
) -> None:
    one = item("c", 0)
    one.inputs["feature_attention_mask"][44:] = 1
    one.inputs["feature_attention_mask"][48:] = 0
    rows = model.encode([one])[0].rows
    assert len(rows) == ROWS["c"] + 1
    assert not torch.allclose(rows[:11], model.encode([item("c", 0)])[0].rows, atol=1e-2)
