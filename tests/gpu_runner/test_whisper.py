"""Whisper under pressure, against transformers' own generation of each prompt alone."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import WhisperForConditionalGeneration

from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.encoder_store import EncoderCacheMiss
from cacheproof.gpu_runner.engine import Engine
from cacheproof.gpu_runner.models.whisper import Whisper
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.gpu_runner.tiny_models import AUDIO_ROWS, FIRST_TEXT_TOKEN_ID
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduler.config import SchedulerConfig
from tests.gpu_runner.answers import engine_of, greedily

BLOCK_SIZE = 8
CROSS_BLOCKS = -(-AUDIO_ROWS // BLOCK_SIZE)
MODEL_LEN = 64
DECODED = 24
PROMPTS = (("x", 4), ("y", 1), ("x", 4), ("z", 9), ("y", 4), ("z", 4))

Make = Callable[[int, int], Engine]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.ensure("whisper", tmp_path_factory.mktemp("models"))


def prompt(name: str, length: int) -> RunnerPrompt:
    feature = MultiModalFeature.of(name, PlaceholderRange(0, AUDIO_ROWS))
    item = MediaItem(feature, "audio", {"input_features": features(name)})
    return RunnerPrompt(tuple(FIRST_TEXT_TOKEN_ID + at for at in range(length)), (item,))


@cache
def features(name: str) -> torch.Tensor:
    return torch.randn(80, 2 * AUDIO_ROWS, generator=torch.Generator().manual_seed(ord(name)))


@pytest.fixture(scope="module")
def alone(directory: Path) -> list[list[int]]:
    """What transformers' whole model answers each prompt by itself, without any cache."""
    model = WhisperForConditionalGeneration.from_pretrained(directory, dtype=torch.float32).eval()
    return [_answer(model, prompt(*one)) for one in PROMPTS]


def _answer(model: WhisperForConditionalGeneration, asked: RunnerPrompt) -> list[int]:
    heard = asked.items[0].inputs["input_features"][None]
    return greedily(
        asked,
        DECODED,
        lambda ids: model(input_features=heard, decoder_input_ids=ids, use_cache=False).logits,
    )


@pytest.fixture(scope="module")
def make(directory: Path, device: torch.device) -> Make:
    model = Whisper(directory, dtype=torch.float32, device=device)

    def engine(num_blocks: int, items: int) -> Engine:
        rows = items * AUDIO_ROWS
        config = SchedulerConfig(
            max_num_batched_tokens=MODEL_LEN,
            max_num_seqs=4,
            max_model_len=MODEL_LEN,
            encoder_compute_budget=rows,
            enable_chunked_prefill=False,
            disable_chunked_mm_input=True,
            is_encoder_decoder=True,
            num_cross_attention_tokens=AUDIO_ROWS,
        )
        return engine_of(model, config, num_blocks, BLOCK_SIZE, rows, caches=False)

    return engine


def add_all(engine: Engine) -> None:
    for number, (name, length) in enumerate(PROMPTS):
        engine.add(str(number), prompt(name, length), max_tokens=DECODED)


@pytest.mark.parametrize(
    ("num_blocks", "items"), [(256, 6), (256, 1), (2 + 2 * (CROSS_BLOCKS + 2), 1), (26, 3)]
)
def test_answers_are_those_of_the_prompt_alone_whatever_the_pressure(
    make: Make, alone: list[list[int]], num_blocks: int, items: int
) -> None:
    engine = make(num_blocks, items)
    add_all(engine)
    steps = list(engine.run())
    assert [engine.completions[str(n)].token_ids for n in range(len(PROMPTS))] == alone
    if num_blocks < 256:
        assert any(step.scheduled_cached_reqs.resumed_req_ids for step in steps)
    if items > 1:
        assert any(len(step.scheduled_encoder_inputs) > 1 for step in steps)


def test_what_is_heard_decides_what_is_answered(alone: list[list[int]]) -> None:
    answers = [alone[number] for number, (_, length) in enumerate(PROMPTS) if length == 4]
    assert answers[0] == answers[1]
    assert len(set(map(tuple, answers))) == 3


def test_what_was_encoded_is_gone_after_the_step_that_reads_it(make: Make) -> None:
    engine = make(256, 6)
    engine.add("a", prompt("x", 4), max_tokens=3)
    engine.step()
    assert engine.runner.encoder_store.sizes == {"x": AUDIO_ROWS}
    engine.step()
    assert engine.runner.encoder_store.sizes == {}
    engine.step()
    assert engine.completions["a"].finish_reason == "length"


def test_a_decoder_that_begins_without_its_rows_is_a_miss(make: Make) -> None:
    engine = make(256, 6)
    engine.add("a", prompt("x", 4), max_tokens=3)
    decided = engine.scheduler.schedule()
    decided.scheduled_encoder_inputs.clear()
    with pytest.raises(EncoderCacheMiss, match="request a reads row 0 of x at position 0"):
        engine.runner.execute(decided)
