"""Cache salts: requests of two salts share no KV, and are answered alike."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.salt_faults import SALT_FAULTS
from tests.gpu_runner.alone import compared_alone
from tests.gpu_runner.judged import Ran, judged_seeds

SEEDS = range(30)
WHOLE = range(8)
SHARES_TOO_LITTLE = {"salts_each_request", "salts_items"}
"""Nothing wrong is read: they show in what is decided."""
trace_of = partial(engine_trace, asked="salts")
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The runner on a seed's trace, with a fault or none."""
    models = tmp_path_factory.mktemp("models")
    with judged_seeds(models, device, trace_of) as ran:
        yield ran


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    met = set()
    for seed in WHOLE:
        ran = run(seed)
        assert ran.broken <= {"EC-8b"}, seed
        met |= ran.met
    assert {"equal prompts under two salts", "slots of known origin read"} <= met


def test_answers_are_those_of_each_prompt_alone(run: Run) -> None:
    assert sum(compared_alone(trace_of(seed), run(seed), run.trace) for seed in WHOLE) > 300


@pytest.mark.parametrize("fault", sorted(SALT_FAULTS.keys() - SHARES_TOO_LITTLE))
def test_kv_that_is_shared_across_salts_is_named(run: Run, fault: str) -> None:
    assert any({"WM-6", "SC-15"} <= run(seed, fault).broken for seed in SEEDS)


@pytest.mark.parametrize("fault", SHARES_TOO_LITTLE)
def test_what_is_not_shared_within_a_salt_is_decided_otherwise(run: Run, fault: str) -> None:
    assert any(compare(run(seed).result, run(seed, fault).result) for seed in SEEDS)
    assert not any(run(seed, fault).broken & {"WM-6", "SC-15"} for seed in SEEDS)
