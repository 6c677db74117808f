"""Each fault of rows that reach several layers is seen in what is answered."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.targets.host.faults.runner.deepstack import DEEPSTACK_FAULTS
from tests.gpu_runner.answered import Run, is_seen, untagged

SEEDS = range(12)
TEXT_ALONE = 9
"""A seed whose prompts have no items."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    make = partial(engine_trace, model="qwen3_vl")
    with untagged(tmp_path_factory.mktemp("models"), device, make) as made:
        yield made


@pytest.mark.parametrize("fault", DEEPSTACK_FAULTS)
def test_a_fault_is_seen_in_what_is_answered(run: Run, fault: str) -> None:
    assert any(is_seen(run, seed, fault) for seed in SEEDS)


@pytest.mark.parametrize("fault", DEEPSTACK_FAULTS)
def test_it_is_not_seen_where_no_item_is(run: Run, fault: str) -> None:
    """What is added to text is nothing, whichever layer it is for."""
    events = engine_trace(TEXT_ALONE, "qwen3_vl").events
    assert not any(getattr(event, "items", ()) for event in events)
    assert not is_seen(run, TEXT_ALONE, fault)
