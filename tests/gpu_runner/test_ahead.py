"""Steps ahead of what is known, drafts and two in flight: answers are those of a prompt alone."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.ahead import AHEAD_FAULTS
from cacheproof.differential.targets.host.faults.runner.runner import RUNNER_FAULTS
from cacheproof.gpu_runner.prompt_lookup import look_up, look_up_latest
from tests.gpu_runner.alone import compared_alone
from tests.gpu_runner.judged import Ran, judged

SEEDS = range(60)
WHOLE = range(12)
FLAGS = {"scheduler.reads_ahead_without": False, "encoder_cache.drafts_without_rows": False}
"""All rows that the model that drafts reads ahead are encoded, and it needs them."""
MODELS = ("llava", "qwen2_5_vl", "whisper")
Run = Callable[..., Ran]
trace_of = partial(engine_trace, ahead=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The runner on a trace, or on that of a seed of LLaVA with a fault."""
    with judged(tmp_path_factory.mktemp("models"), device) as on:

        @cache
        def ran(seed: int, fault: str | None = None, model: str = "llava") -> Ran:
            return on(trace_of(seed, model), fault, tagged=fault is None, flags=FLAGS)

        ran.trace = on
        yield ran


@pytest.mark.parametrize("model", MODELS)
def test_a_runner_that_is_whole_breaks_nothing(run: Run, model: str) -> None:
    for seed in WHOLE:
        assert run.trace(trace_of(seed, model)).broken <= {"EC-8b", "LV-1"}, seed


@pytest.mark.parametrize("model", MODELS)
def test_answers_are_those_of_each_prompt_alone(run: Run, model: str) -> None:
    compared = 0
    for seed in WHOLE:
        trace = trace_of(seed, model)
        compared += compared_alone(trace, run(seed, None, model), run.trace)
    assert compared > 300


def test_drafts_are_accepted_rejected_and_left_half_way(run: Run) -> None:
    counts = set()
    for seed in SEEDS:
        for record in run(seed).result.records:
            if isinstance(record.outcome, dict):
                counts |= set(map(len, record.outcome.get("outputs", {}).values()))
    assert counts == {1, 2, 3, 4}


def test_two_steps_are_in_flight_and_not_only_one() -> None:
    ways = {
        (config.async_scheduling, config.num_speculative_tokens, config.drafter)
        for config in (trace_of(seed).header.config for seed in SEEDS)
    }
    assert ways == {(True, 0, False), (False, 3, False), (False, 3, True), (True, 3, True)}


@pytest.mark.parametrize("fault", AHEAD_FAULTS | RUNNER_FAULTS)
def test_a_fault_is_seen(run: Run, fault: str) -> None:
    for seed in SEEDS:
        faulty = run(seed, fault)
        difference = compare(run(seed).result, faulty.result)
        parted = difference is not None and (
            difference.field.startswith(("token", "log prob", "outcome", "sampled"))
            or faulty.result.records[-1].raised is not None
        )
        if parted or faulty.broken & {"WM-1", "EQ-1"}:
            return
    pytest.fail(f"{fault} was not seen")


@pytest.mark.parametrize(
    ("token_ids", "drafts"),
    [
        ([], []),
        ([5], []),
        ([5, 6, 7], []),
        ([5, 6, 5], [6, 5]),
        ([1, 2, 3, 9, 1, 2, 3], [9, 1, 2]),
        ([2, 3, 8, 1, 2, 3, 9, 1, 2, 3], [9, 1, 2]),
        ([3, 8, 3, 9, 3], [8, 3, 9]),
        ([4, 4, 4], [4]),
    ],
    ids=[
        "nothing",
        "one token",
        "nothing again",
        "one again",
        "three again",
        "the longest of two",
        "the first of two",
        "itself",
    ],
)
def test_prompt_lookup(token_ids: list[int], drafts: list[int]) -> None:
    assert look_up(token_ids, 3, longest=3) == drafts


@pytest.mark.parametrize(
    ("token_ids", "drafts"),
    [
        ([5], [5, 5, 5]),
        ([5, 6, 7], [7, 7, 7]),
        ([5, 6, 5], [6, 5, 5]),
        ([3, 8, 3, 9, 3], [9, 3, 3]),
        ([1, 2, 8, 1, 2, 9, 4, 2, 6, 1, 2], [9, 4, 2]),
        ([4, 4, 4], [4, 4, 4]),
    ],
    ids=["one token", "nothing", "one again", "the last of two", "the longest of two", "itself"],
)
def test_the_second_runners_prompt_lookup(token_ids: list[int], drafts: list[int]) -> None:
    assert look_up_latest(token_ids, 3, longest=3) == drafts
