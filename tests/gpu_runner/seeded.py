"""What tests ask of the runner on the traces of some seeds, with a fault or none."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Protocol

import pytest
import torch

from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.traces.trace import Trace
from tests.gpu_runner.alone import compared_alone
from tests.gpu_runner.judged import JudgedRunner, Ran, judged


class Run(Protocol):
    """The runner on a seed's trace, which `trace_of` makes, with a fault or none, each once;
    `trace` runs any trace."""

    trace: JudgedRunner
    trace_of: Callable[[int], Trace]

    def __call__(self, seed: int, fault: str | None = None) -> Ran: ...


def fixture_of_seeds(
    trace_of: Callable[[int], Trace], *, tags_faulty: bool = True
) -> Callable[..., Iterator[Run]]:
    """A fixture of a module, a `Run` of these traces; where `tags_faulty` is off, rows say what
    they are only to a runner without a fault."""

    @pytest.fixture(scope="module", name="run")
    def runner_on_seeds(
        tmp_path_factory: pytest.TempPathFactory, device: torch.device
    ) -> Iterator[Run]:
        with judged(tmp_path_factory.mktemp("models"), device) as on:

            @cache
            def run(seed: int, fault: str | None = None) -> Ran:
                return on(trace_of(seed), fault, tagged=tags_faulty or fault is None)

            run.trace, run.trace_of = on, trace_of
            yield run

    return runner_on_seeds


def met_by_a_whole_runner(run: Run, seeds: Iterable[int]) -> set[str]:
    """The rare states that traces reach, in which a runner without a fault breaks nothing."""
    met = set()
    for seed in seeds:
        ran = run(seed)
        assert ran.broken <= {"EC-8b"}, seed
        met |= ran.met
    return met


def tokens_as_alone(run: Run, seeds: Iterable[int]) -> int:
    """How many tokens of a runner without a fault were found equal to those of the same prompts
    alone; no other is there."""
    return sum(compared_alone(run.trace_of(seed), run(seed), run.trace) for seed in seeds)


def first_difference(run: Run, fault: str, seeds: Iterable[int]) -> str:
    """The field in which a runner with a fault parts from one without, in the first seed where it
    does."""
    for seed in seeds:
        difference = compare(run(seed).result, run(seed, fault).result)
        if difference is not None:
            return difference.field
    pytest.fail(f"{fault} was not seen")
