"""Prompts of embeddings, which are part of a request and no item."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.targets.host.faults.runner.embedded import (
    EMBEDDED_FAULTS,
    EMBEDDED_KEY_FAULTS,
)
from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.engine import Engine
from cacheproof.gpu_runner.models.loading import load
from cacheproof.gpu_runner.requests import Batch, PromptEmbeds, RequestState, RunnerPrompt
from cacheproof.reference.scheduler.config import SchedulerConfig
from cacheproof.reference.scheduler.output import CachedRequestData
from tests.gpu_runner.answers import engine_of
from tests.gpu_runner.seeded import (
    Run,
    first_difference,
    fixture_of_seeds,
    met_by_a_whole_runner,
    tokens_as_alone,
)

SEEDS = range(60)
WHOLE = range(8)
trace_of = partial(engine_trace, asked="embedded prompts")
run = fixture_of_seeds(trace_of)


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    met = met_by_a_whole_runner(run, WHOLE)
    assert {"prompt of embeddings", "tokens and embeddings mixed"} <= met


def test_answers_are_those_of_each_prompt_alone(run: Run) -> None:
    assert tokens_as_alone(run, WHOLE) > 300


def test_embeddings_of_tokens_are_answered_as_the_tokens_are(
    tmp_path_factory: pytest.TempPathFactory, device: torch.device
) -> None:
    directory = tiny_models.ensure("qwen2_5_vl", tmp_path_factory.mktemp("models"))
    model = load("qwen2_5_vl", directory, dtype=torch.float32, device=device)
    told = tuple(range(20, 60))
    rows = model.embed(torch.tensor(told, device=device)).detach()
    names = tuple(map(str, told))
    config = SchedulerConfig(
        max_num_batched_tokens=13, max_num_seqs=2, max_model_len=128, encoder_compute_budget=16
    )
    whole = RunnerPrompt((0,) * 40, embeds=PromptEmbeds(rows, names))
    mixed = RunnerPrompt(
        (*told[:11], *(0,) * 29), embeds=PromptEmbeds(rows, (*(None,) * 11, *names[11:]))
    )
    answers = []
    for prompt in (RunnerPrompt(told), whole, mixed):
        engine: Engine = engine_of(model, config, 16, 16, 16, caches=True)
        engine.add("a", prompt, max_tokens=8)
        assert len(list(engine.run())) > 8
        answers.append(engine.completions["a"].token_ids)
    assert answers[0] == answers[1] == answers[2]


def test_a_prompt_stays_as_it_came_where_a_scheduler_tells_its_tokens_again() -> None:
    prompt = RunnerPrompt((5, 9, 6), embeds=PromptEmbeds(torch.zeros(3, 4), (None, "row", None)))
    batch = Batch()
    batch.add("a", RequestState(prompt, [*prompt.token_ids, 7, 8]))
    cached = CachedRequestData(["a"], {"a"}, {"a": [5, 0, 6, 7]}, [([1],)], [0], [1])
    step = SimpleNamespace(finished_req_ids=(), scheduled_new_reqs=(), scheduled_cached_reqs=cached)
    batch.apply(step)
    assert batch.of("a").token_ids == [5, 9, 6, 7]


@pytest.mark.parametrize("fault", EMBEDDED_FAULTS)
def test_a_fault_is_seen(run: Run, fault: str) -> None:
    assert first_difference(run, fault, SEEDS).startswith(("token", "log prob"))


@pytest.mark.parametrize("fault", EMBEDDED_KEY_FAULTS)
def test_kv_that_is_shared_across_embeddings_is_named(run: Run, fault: str) -> None:
    assert any({"WM-6", "SC-15"} <= run(seed, fault).broken for seed in SEEDS)
