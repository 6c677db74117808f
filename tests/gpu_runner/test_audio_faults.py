"""Each fault of sounds in a prompt is seen in what is answered."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.targets.host.faults.runner.audio import AUDIO_FAULTS
from tests.gpu_runner.answered import Run, is_seen, untagged

SEEDS = range(12)
OF_EVERY_MODEL = ("reads_the_next_rows", "puts_rows_a_token_late")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    make = partial(engine_trace, model="qwen2_audio")
    with untagged(tmp_path_factory.mktemp("models"), device, make) as made:
        yield made


@pytest.mark.parametrize("fault", [*AUDIO_FAULTS, *OF_EVERY_MODEL])
def test_a_fault_is_seen_in_what_is_answered(run: Run, fault: str) -> None:
    assert any(is_seen(run, seed, fault) for seed in SEEDS)
