"""Sessions under pressure; what turns are answered is in test_engine.py."""

from functools import partial

import pytest

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.targets.host.faults.runner.sessions import SESSION_FAULTS
from tests.gpu_runner.seeded import (
    Run,
    first_difference,
    fixture_of_seeds,
    met_by_a_whole_runner,
)

SEEDS = range(20)
WHOLE = range(8)
MET = {"prompt continued", "session waits for more prompt", "equal turns decoded"}
run = fixture_of_seeds(partial(engine_trace, model="qwen2_5_vl", asked="sessions"))


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    assert met_by_a_whole_runner(run, WHOLE) >= MET


@pytest.mark.parametrize("fault", SESSION_FAULTS)
def test_a_fault_is_seen(run: Run, fault: str) -> None:
    assert first_difference(run, fault, SEEDS).startswith(("token", "log prob", "exception"))
