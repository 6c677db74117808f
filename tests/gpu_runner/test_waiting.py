"""Nothing waits for the device before the tokens are chosen.

On torch's meta device tensors have no content, so whatever wants a number back from it fails there
as it would wait on a GPU.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from cacheproof.gpu_runner import runner as module
from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.engine import CacheSizes, Engine
from cacheproof.gpu_runner.models.base import MultiModalModel
from cacheproof.gpu_runner.models.cohere2_vision import Cohere2Vision
from cacheproof.gpu_runner.models.llava import Llava
from cacheproof.gpu_runner.models.qwen2_5_vl import Qwen25VL
from cacheproof.gpu_runner.models.qwen2_audio import Qwen2Audio
from cacheproof.gpu_runner.models.qwen3_vl import Qwen3VL
from cacheproof.gpu_runner.models.whisper import Whisper
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.gpu_runner.rotary import Grid
from cacheproof.gpu_runner.runner import Runner, Sampled
from cacheproof.gpu_runner.tiny_models import AUDIO_ROWS, PLACEHOLDER_TOKEN_ID, VIDEO_TOKEN_ID
from cacheproof.gpu_runner.video_pruning import num_retained
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduler.config import SchedulerConfig

ROWS = 16
DECODED = 3
CONFIG = SchedulerConfig(
    max_num_batched_tokens=40,
    max_num_seqs=8,
    max_model_len=128,
    encoder_compute_budget=4 * ROWS,
)
OF_A_DECODER = SchedulerConfig(
    max_num_batched_tokens=64,
    max_num_seqs=8,
    max_model_len=64,
    encoder_compute_budget=2 * AUDIO_ROWS,
    enable_chunked_prefill=False,
    disable_chunked_mm_input=True,
    is_encoder_decoder=True,
    num_cross_attention_tokens=AUDIO_ROWS,
)
GAP = (True,) * 8 + (False,) + (True,) * 8
"""The tokens of an item that is sparse."""


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models answer w7 to everything."""

    def choose(logits: torch.Tensor) -> list[Sampled]:
        assert logits.is_meta
        return [Sampled(17, 0.0, 1.0)] * len(logits)

    monkeypatch.setattr(module, "_greedy", choose)


def make(
    model: MultiModalModel, prompts: Iterable[RunnerPrompt], config: SchedulerConfig = CONFIG
) -> Engine:
    """An engine whose tensors have no content."""
    rows = config.encoder_compute_budget
    runner = Runner(model, num_blocks=64, block_size=8, encoder_cache_size=rows)
    sizes = CacheSizes(64, 8, rows, enable_prefix_caching=not config.is_encoder_decoder)
    made = Engine(runner, config, sizes)
    for number, one in enumerate(prompts):
        made.add(str(number), one, max_tokens=DECODED)
    return made


@pytest.fixture
def engine(llava: Path) -> Engine:
    """One of a LLaVA, with a picture that three requests share."""
    model = Llava(llava, dtype=torch.float32, device=torch.device("meta"))
    return make(model, [prompt(GAP), prompt(None), prompt(None)])


def prompt(is_embed: tuple[bool, ...] | None) -> RunnerPrompt:
    tokens = len(is_embed or range(ROWS))
    feature = MultiModalFeature.of("x", PlaceholderRange(5, tokens, is_embed))
    picture = MediaItem(feature, "image", {"pixel_values": torch.zeros(3, 56, 56)})
    return RunnerPrompt((10,) * 5 + (PLACEHOLDER_TOKEN_ID,) * tokens + (11,) * 5, (picture,))


def test_steps_run_to_the_choice_of_tokens_without_a_number_from_the_device(engine: Engine) -> None:
    steps = list(engine.run())
    assert sum(len(step.scheduled_encoder_inputs) for step in steps) == 1
    assert all(len(one.tokens) == DECODED for one in engine.completions.values())
    windows = [set(step.num_scheduled_tokens.values()) for step in steps]
    assert any(max(of_step) > 1 for of_step in windows)
    assert {1} in windows


def _asks_for_a_number(runner: Runner) -> None:
    splice = runner._splice

    def waiting(embeds: torch.Tensor, gatherings: object) -> None:
        splice(embeds, gatherings)
        embeds.sum().item()

    runner._splice = waiting


def _looks_for_rows(runner: Runner) -> None:
    gather = runner.encoder_store.gather
    runner.encoder_store.gather = lambda *read: (rows := gather(*read))[rows[:, 0] != 0]


def _copies_slots_back(runner: Runner) -> None:
    write = runner.kv_store.write
    runner.kv_store.write = lambda layer, slots, *rest: write(layer, slots.cpu(), *rest)


@pytest.mark.parametrize("wait", [_asks_for_a_number, _looks_for_rows, _copies_slots_back])
def test_a_step_that_waits_is_seen(engine: Engine, wait) -> None:
    wait(engine.runner)
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        list(engine.run())


def film(height: int, width: int, pruning_rate: float = 0.0) -> RunnerPrompt:
    """Two frames of so many rows up and across, and what of them is kept."""
    rows = num_retained(Grid(2, height, width), pruning_rate)
    inputs = {
        "pixel_values_videos": torch.zeros(4 * 2 * height * width, 3 * 2 * 14 * 14),
        "video_grid_thw": torch.tensor([2, 2 * height, 2 * width]),
        "second_per_grid_ts": torch.tensor(1.0),
    }
    feature = MultiModalFeature.of(f"{height}x{width}", PlaceholderRange(5, rows))
    token_ids = (10,) * 5 + (VIDEO_TOKEN_ID,) * rows + (11,) * 5
    return RunnerPrompt(token_ids, (MediaItem(feature, "video", inputs),))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.ensure("qwen2_5_vl", tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("pruning_rate", [0.0, 0.5])
def test_windows_are_attended_to_without_a_number_from_the_device(
    qwen: Path, pruning_rate: float
) -> None:
    model = Qwen25VL.load(
        qwen,
        dtype=torch.float32,
        device=torch.device("meta"),
        video_pruning_rate=pruning_rate,
    )
    running = make(model, [film(3, 2, pruning_rate), film(2, 3, pruning_rate)])
    steps = list(running.run())
    assert sum(len(step.scheduled_encoder_inputs) for step in steps) == 2
    assert all(len(one.tokens) == DECODED for one in running.completions.values())


def test_a_tower_that_waits_is_seen(qwen: Path) -> None:
    model = Qwen25VL.load(qwen, dtype=torch.float32, device=torch.device("meta"))
    merger = model._whole.model.visual.merger
    merger.register_forward_hook(lambda _, __, rows: rows.sum().item())
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        list(make(model, [film(3, 2)]).run())


def test_rows_reach_several_layers_without_a_number_from_the_device(tmp_path: Path) -> None:
    model = Qwen3VL.load(
        tiny_models.ensure("qwen3_vl", tmp_path), dtype=torch.float32, device=torch.device("meta")
    )
    running = make(model, [told_film(2, 3), told_film(3, 1)])
    steps = list(running.run())
    assert sum(len(step.scheduled_encoder_inputs) for step in steps) == 2
    assert all(len(one.tokens) == DECODED for one in running.completions.values())


def told_film(height: int, width: int) -> RunnerPrompt:
    """Two pairs of frames, each behind a token that says when it is."""
    mask = ((False,) + (True,) * (height * width)) * 2
    feature = MultiModalFeature.of(f"{height}x{width}", PlaceholderRange(5, len(mask), mask))
    inputs = {
        "pixel_values_videos": torch.zeros(4 * 2 * height * width, 3 * 2 * 14 * 14),
        "video_grid_thw": torch.tensor([2, 2 * height, 2 * width]),
    }
    token_ids = (10,) * 5 + tuple(VIDEO_TOKEN_ID if one else 12 for one in mask) + (11,) * 5
    return RunnerPrompt(token_ids, (MediaItem(feature, "video", inputs),))


def test_sounds_of_other_lengths_are_heard_without_a_number_from_the_device(tmp_path: Path) -> None:
    model = Qwen2Audio(
        tiny_models.ensure("qwen2_audio", tmp_path),
        dtype=torch.float32,
        device=torch.device("meta"),
    )
    sounds = []
    for rows in (4, 9):
        feature = MultiModalFeature.of(str(rows), PlaceholderRange(5, rows))
        heard = {
            "input_features": torch.zeros(80, 3000),
            "feature_attention_mask": (torch.arange(3000) < 4 * rows).int(),
        }
        token_ids = (10,) * 5 + (PLACEHOLDER_TOKEN_ID,) * rows + (11,) * 5
        sounds.append(RunnerPrompt(token_ids, (MediaItem(feature, "audio", heard),)))
    running = make(model, sounds)
    steps = list(running.run())
    assert sum(len(step.scheduled_encoder_inputs) for step in steps) == 2
    assert all(len(one.tokens) == DECODED for one in running.completions.values())


def test_windows_of_tokens_are_left_without_a_number_from_the_device(tmp_path: Path) -> None:
    model = Cohere2Vision(
        tiny_models.ensure("cohere2_vision", tmp_path),
        dtype=torch.float32,
        device=torch.device("meta"),
    )
    pictures = []
    for name in "xy":
        mask = ((True,) * 4 + (False,)) * 3
        feature = MultiModalFeature.of(name, PlaceholderRange(5, len(mask), mask))
        tiles = {"pixel_values": torch.zeros(3, 3, tiny_models.TILE_SIDE, tiny_models.TILE_SIDE)}
        token_ids = (10,) * 5 + tuple(PLACEHOLDER_TOKEN_ID if one else 12 for one in mask)
        item = MediaItem(feature, "image", tiles)
        pictures.append(RunnerPrompt(token_ids + (11,) * 40, (item,)))
    running = make(model, pictures)
    steps = list(running.run())
    assert sum(len(step.scheduled_encoder_inputs) for step in steps) == 2
    assert all(len(one.tokens) == DECODED for one in running.completions.values())


def test_a_decoder_attends_without_a_number_from_the_device(tmp_path: Path) -> None:
    model = Whisper(
        tiny_models.ensure("whisper", tmp_path), dtype=torch.float32, device=torch.device("meta")
    )
    sounds = []
    for name in "xy":
        feature = MultiModalFeature.of(name, PlaceholderRange(0, AUDIO_ROWS))
        heard = {"input_features": torch.zeros(80, 2 * AUDIO_ROWS)}
        sounds.append(RunnerPrompt((10, 11), (MediaItem(feature, "audio", heard),)))
    running = make(model, sounds, OF_A_DECODER)
    steps = list(running.run())
    assert sum(len(step.scheduled_encoder_inputs) for step in steps) == 2
    assert all(len(one.tokens) == DECODED for one in running.completions.values())
