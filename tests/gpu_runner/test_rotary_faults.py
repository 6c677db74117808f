"""Each fault of rotary positions is seen in what is answered."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from typing import Literal

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.runner import ROTARY_FAULTS
from tests.gpu_runner.answered import Run, is_seen, untagged

SEEDS = range(12)
OF_PRUNED = {"places_the_next_rows"}
OF_FRAMES = {"forgets_time"}
"""Where text separates frames, none has a time of its own."""

Of = Callable[[Literal["qwen2_5_vl", "qwen3_vl"], bool], Run]


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Of]:
    """The records of a model that prunes or does not."""
    models = tmp_path_factory.mktemp("models")
    with ExitStack() as stack:

        @cache
        def made(model: Literal["qwen2_5_vl", "qwen3_vl"], prunes: bool) -> Run:
            make = partial(engine_trace, model=model, prunes=prunes)
            return stack.enter_context(untagged(models, device, make))

        yield made


@pytest.mark.parametrize("fault", ROTARY_FAULTS)
def test_a_fault_is_seen_in_what_is_answered(of: Of, fault: str) -> None:
    run = of("qwen2_5_vl", fault in OF_PRUNED)
    assert any(is_seen(run, seed, fault) for seed in SEEDS)


@pytest.mark.parametrize("fault", sorted(ROTARY_FAULTS.keys() - OF_PRUNED - OF_FRAMES))
def test_a_fault_is_seen_where_axes_are_interleaved(of: Of, fault: str) -> None:
    assert any(is_seen(of("qwen3_vl", False), seed, fault) for seed in SEEDS)


def test_positions_beside_rows_matter_only_where_videos_are_pruned(of: Of) -> None:
    run = of("qwen2_5_vl", False)
    assert compare(run(0, None), run(0, "places_the_next_rows")) is None
