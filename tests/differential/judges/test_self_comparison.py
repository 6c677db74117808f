"""The reference agrees with itself through the whole pipe: what differs elsewhere is the target."""

from collections.abc import Iterator

import pytest

from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.search.canary import canaries
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.reference_manager import MANAGERS
from tests.differential.targets.reference_process import ReferenceProcess

BATCH = 50


@pytest.fixture(scope="module")
def process() -> Iterator[ReferenceProcess]:
    target = ReferenceProcess()
    yield target
    target.close()


def operations_compared(process: ReferenceProcess, manager: str, wanted: int) -> int:
    """Operations of traces that both sides ran alike; fails at the first that differs."""
    reference = ReferenceTarget()
    operations = seed = 0
    while operations < wanted:
        traces = [manager_trace(seed + number, manager) for number in range(BATCH)]
        seed += BATCH
        for trace, result in zip(traces, process.run(traces), strict=True):
            examination = examine(trace, result, process, reference)
            assert list(examination.breaks()) == [], f"seed {trace.header.seed}"
            operations += examination.calls
    return operations


@pytest.mark.sample(2)
@pytest.mark.parametrize("manager", sorted(MANAGERS))
def test_the_reference_agrees_with_itself(process: ReferenceProcess, manager: str) -> None:
    assert operations_compared(process, manager, 25_000) >= 25_000


@pytest.mark.full
def test_the_reference_agrees_with_itself_over_a_million_operations(
    process: ReferenceProcess,
) -> None:
    assert operations_compared(process, "encoder_cache", 700_000) >= 700_000
    assert operations_compared(process, "encoder_decoder", 300_000) >= 300_000


@pytest.mark.sample(2)
@pytest.mark.parametrize("manager", sorted(MANAGERS))
def test_a_fault_behind_the_pipe_differs_from_the_reference(
    process: ReferenceProcess, manager: str
) -> None:
    reference = ReferenceTarget()
    traces = [manager_trace(seed, manager) for seed in range(10)]
    for canary in canaries(manager):
        results = process.run(traces, canary.fault)
        broken = {
            contract
            for trace, result in zip(traces, results, strict=True)
            for contract, *_ in examine(trace, result, process, reference).breaks()
        }
        assert {canary.contract, "lockstep"} <= broken
