"""Cache salts: requests of two salts share no KV, and are answered alike."""

from functools import partial

import pytest

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.salt import SALT_FAULTS
from tests.gpu_runner.seeded import (
    Run,
    fixture_of_seeds,
    met_by_a_whole_runner,
    tokens_as_alone,
)

SEEDS = range(30)
WHOLE = range(8)
SHARES_TOO_LITTLE = {"salts_each_request", "salts_items"}
"""Nothing wrong is read: they show in what is decided."""
trace_of = partial(engine_trace, asked="salts")
run = fixture_of_seeds(trace_of)


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    met = met_by_a_whole_runner(run, WHOLE)
    assert {"equal prompts under two salts", "slots of known origin read"} <= met


def test_answers_are_those_of_each_prompt_alone(run: Run) -> None:
    assert tokens_as_alone(run, WHOLE) > 300


@pytest.mark.parametrize("fault", sorted(SALT_FAULTS.keys() - SHARES_TOO_LITTLE))
def test_kv_that_is_shared_across_salts_is_named(run: Run, fault: str) -> None:
    assert any({"WM-6", "SC-15"} <= run(seed, fault).broken for seed in SEEDS)


@pytest.mark.parametrize("fault", SHARES_TOO_LITTLE)
def test_what_is_not_shared_within_a_salt_is_decided_otherwise(run: Run, fault: str) -> None:
    assert any(compare(run(seed).result, run(seed, fault).result) for seed in SEEDS)
    assert not any(run(seed, fault).broken & {"WM-6", "SC-15"} for seed in SEEDS)
