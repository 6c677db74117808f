"""Requests that lose their blocks, or are aborted, in the middle of an item."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.engine import INSIDE_ITEMS
from tests.gpu_runner.alone import compared_alone
from tests.gpu_runner.judged import Ran, judged_seeds

SEEDS = range(40)
WHOLE = range(12)
FAULTS = (
    "keeps_blocks_of_before",
    "writes_a_slot_too_far",
    "forgets_new_blocks",
    "reads_the_next_rows",
    "puts_rows_a_token_late",
)
trace_of = partial(engine_trace, asked="priority")
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The runner on a seed's trace, with a fault or none."""
    models = tmp_path_factory.mktemp("models")
    with judged_seeds(models, device, trace_of, tags_faulty=False) as ran:
        yield ran


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    met = set()
    for seed in SEEDS:
        assert run(seed).broken <= {"EC-8b"}, seed
        met |= run(seed).met
    assert met >= INSIDE_ITEMS


def test_answers_are_those_of_each_prompt_alone(run: Run) -> None:
    assert sum(compared_alone(trace_of(seed), run(seed), run.trace) for seed in WHOLE) > 300


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(run: Run, fault: str) -> None:
    for seed in SEEDS:
        difference = compare(run(seed).result, run(seed, fault).result)
        if difference is not None and difference.field.startswith(("token", "log prob")):
            return
    pytest.fail(f"{fault} was not seen")
