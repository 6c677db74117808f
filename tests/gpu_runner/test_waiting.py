"""Nothing waits for the device before the tokens are chosen.

On torch's meta device tensors have no content, so whatever wants a number back from it fails there
as it would wait on a GPU.
"""

from pathlib import Path

import pytest
import torch

from cacheproof.gpu_runner import runner as module
from cacheproof.gpu_runner.engine import CacheSizes, Engine
from cacheproof.gpu_runner.models.llava import Llava
from cacheproof.gpu_runner.requests import MediaItem, Prompt
from cacheproof.gpu_runner.runner import Runner, Sampled
from cacheproof.gpu_runner.tiny_models import PLACEHOLDER_TOKEN_ID
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduler.config import SchedulerConfig

ROWS = 16
DECODED = 3
GAP = (True,) * 8 + (False,) + (True,) * 8
"""The tokens of an item that is sparse."""


@pytest.fixture
def engine(llava: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine whose tensors have no content, and which answers w7 to everything."""

    def choose(logits: torch.Tensor) -> list[Sampled]:
        assert logits.is_meta
        return [Sampled(17, 0.0, 1.0)] * len(logits)

    monkeypatch.setattr(module, "_greedy", choose)
    model = Llava(llava, dtype=torch.float32, device=torch.device("meta"))
    sizes = CacheSizes(64, 8, 4 * ROWS)
    config = SchedulerConfig(
        max_num_batched_tokens=40,
        max_num_seqs=8,
        max_model_len=128,
        encoder_compute_budget=4 * ROWS,
    )
    made = Engine(
        Runner(model, num_blocks=64, block_size=8, encoder_cache_size=4 * ROWS), config, sizes
    )
    for number in range(3):
        made.add(str(number), prompt(None if number else GAP), max_tokens=DECODED)
    return made


def prompt(is_embed: tuple[bool, ...] | None) -> Prompt:
    tokens = len(is_embed or range(ROWS))
    feature = MultiModalFeature.of("x", PlaceholderRange(5, tokens, is_embed))
    picture = MediaItem(feature, "image", {"pixel_values": torch.zeros(3, 56, 56)})
    return Prompt((10,) * 5 + (PLACEHOLDER_TOKEN_ID,) * tokens + (11,) * 5, (picture,))


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
