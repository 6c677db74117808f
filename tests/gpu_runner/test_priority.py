"""Requests that lose their blocks, or are aborted, in the middle of an item."""

from functools import partial

import pytest

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.engine import INSIDE_ITEMS
from cacheproof.differential.targets.host.faults.runner.runner import RUNNER_FAULTS
from tests.gpu_runner.seeded import (
    Run,
    first_difference,
    fixture_of_seeds,
    met_by_a_whole_runner,
    tokens_as_alone,
)

SEEDS = range(40)
WHOLE = range(12)
STORE_FAULTS = ("frees_after_encodes", "never_frees", "drops_one_more")
"""They leave another store, which a contract names."""
trace_of = partial(engine_trace, asked="priority")
run = fixture_of_seeds(trace_of, tags_faulty=False)


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    assert met_by_a_whole_runner(run, SEEDS) >= INSIDE_ITEMS


def test_answers_are_those_of_each_prompt_alone(run: Run) -> None:
    assert tokens_as_alone(run, WHOLE) > 300


@pytest.mark.parametrize("fault", sorted(RUNNER_FAULTS.keys() - STORE_FAULTS))
def test_a_fault_is_seen_in_what_is_answered(run: Run, fault: str) -> None:
    for seed in SEEDS:
        difference = compare(run(seed).result, run(seed, fault).result)
        if difference is not None and difference.field.startswith(("token", "log prob")):
            return
    pytest.fail(f"{fault} was not seen")


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_a_store_that_differs_is_named(run: Run, fault: str) -> None:
    assert first_difference(run, fault, SEEDS) == "store"
    assert any("WM-1" in run(seed, fault).broken for seed in SEEDS)
