"""Embeddings that are given in the place of tokens, beside pictures."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.given import GIVEN_FAULTS
from cacheproof.differential.targets.host.faults.runner.runner import RUNNER_FAULTS
from cacheproof.differential.traces.engine import EngineModel
from cacheproof.differential.traces.trace import Trace
from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.engine import Engine
from cacheproof.gpu_runner.models.loading import load
from cacheproof.gpu_runner.requests import GIVEN, MediaItem, RunnerPrompt
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduler.config import SchedulerConfig
from tests.gpu_runner.alone import compared_alone
from tests.gpu_runner.answers import engine_of
from tests.gpu_runner.judged import Ran, judged

SEEDS = range(60)
WHOLE = range(8)
MODELS: tuple[EngineModel, ...] = ("llava", "qwen2_5_vl")
OF_THREE_AXES = {"places_them_as_a_picture"}
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The runner on a seed's trace of a model, LLaVA at first, with a fault or none."""
    with judged(tmp_path_factory.mktemp("models"), device) as on:

        @cache
        def ran(seed: int, fault: str | None = None, model: EngineModel = "llava") -> Ran:
            return on(trace_of(seed, model), fault, tagged=fault is None)

        ran.trace = on
        yield ran


def trace_of(seed: int, model: EngineModel) -> Trace:
    """A trace of prompts with embeddings."""
    return engine_trace(seed, model, asked="embeddings")


@pytest.mark.parametrize("model", MODELS)
def test_a_runner_that_is_whole_breaks_nothing(run: Run, model: EngineModel) -> None:
    met = set()
    for seed in WHOLE:
        ran = run(seed, None, model)
        assert ran.broken <= {"EC-8b"}, seed
        met |= ran.met
    assert "embeddings beside media" in met


@pytest.mark.parametrize("model", MODELS)
def test_answers_are_those_of_each_prompt_alone(run: Run, model: EngineModel) -> None:
    traces = [trace_of(seed, model) for seed in WHOLE]
    ran = [run(seed, None, model) for seed in WHOLE]
    assert sum(map(compared_alone, traces, ran, [run.trace] * len(ran))) > 300


def test_embeddings_of_tokens_are_answered_as_the_tokens_are(
    tmp_path_factory: pytest.TempPathFactory, device: torch.device
) -> None:
    directory = tiny_models.ensure("llava", tmp_path_factory.mktemp("models"))
    model = load("llava", directory, dtype=torch.float32, device=device)
    told = tuple(range(20, 60))
    rows = model.embed(torch.tensor(told[10:17], device=device)).detach()
    item = MediaItem(
        MultiModalFeature.of("embeddings", PlaceholderRange(10, 7)), GIVEN, {"rows": rows}
    )
    given = RunnerPrompt((*told[:10], *[9] * 7, *told[17:]), (item,))
    config = SchedulerConfig(
        max_num_batched_tokens=13, max_num_seqs=2, max_model_len=128, encoder_compute_budget=16
    )
    answers = []
    for prompt in (RunnerPrompt(told), given):
        engine: Engine = engine_of(model, config, 16, 16, 16, caches=True)
        engine.add("a", prompt, max_tokens=8)
        assert len(list(engine.run())) > 8
        answers.append(engine.completions["a"].token_ids)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("fault", GIVEN_FAULTS | RUNNER_FAULTS)
def test_a_fault_is_seen(run: Run, fault: str) -> None:
    model: EngineModel = "qwen2_5_vl" if fault in OF_THREE_AXES else "llava"
    for seed in SEEDS:
        faulty = run(seed, fault, model)
        difference = compare(run(seed, None, model).result, faulty.result)
        parted = difference is not None and difference.field.startswith(("token", "log prob"))
        if parted or faulty.broken & {"WM-1", "EQ-1"}:
            return
    pytest.fail(f"{fault} was not seen")
