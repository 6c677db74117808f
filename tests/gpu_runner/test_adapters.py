"""Adapters: requests of one step run under several, and are answered as each is alone."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoProcessor

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.adapters import (
    ADAPTER_FAULTS,
    ADAPTER_KEY_FAULTS,
)
from cacheproof.differential.targets.host.media_inputs import medium_of
from cacheproof.differential.traces.engine import EngineModel
from cacheproof.differential.traces.trace import Trace
from cacheproof.gpu_runner import adapters, tiny_adapters, tiny_models
from cacheproof.gpu_runner.models.loading import load
from cacheproof.gpu_runner.requests import MediaItem
from cacheproof.reference.request import LoRARequest
from tests.gpu_runner.alone import compared_alone
from tests.gpu_runner.judged import Ran, judged

SEEDS = range(30)
WHOLE = range(6)
OF_TOWERS = {"encodes_under_none", "shares_rows_across_adapters"}
NAMED = {"shares_kv_across_adapters": "WM-6", "shares_rows_across_adapters": "EQ-1"}
"""Tags go by the identifiers of items: where those are wrong, only answers tell."""
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The runner on a seed's trace, with a fault or none; with adapters of towers, that of a
    Qwen2.5-VL."""
    with judged(tmp_path_factory.mktemp("models"), device) as on:

        @cache
        def ran(seed: int, fault: str | None = None, *, towers: bool = False) -> Ran:
            return on(trace_of(seed, towers=towers), fault)

        ran.runner = on
        yield ran


def trace_of(seed: int, *, towers: bool) -> Trace:
    """A trace whose requests ask for adapters."""
    if towers:
        return engine_trace(seed, "qwen2_5_vl", asked="tower adapters")
    return engine_trace(seed, asked="adapters")


@pytest.mark.parametrize("towers", [False, True], ids=["of decoders", "of towers too"])
def test_a_runner_that_is_whole_breaks_nothing(run: Run, towers: bool) -> None:
    for seed in WHOLE:
        assert run(seed, towers=towers).broken <= {"EC-8b"}, seed


@pytest.mark.parametrize("towers", [False, True], ids=["of decoders", "of towers too"])
def test_answers_are_those_of_each_prompt_alone(run: Run, towers: bool) -> None:
    traces = [trace_of(seed, towers=towers) for seed in WHOLE]
    ran = [run(seed, towers=towers) for seed in WHOLE]
    assert sum(map(compared_alone, traces, ran, [run.runner] * len(ran))) > 200


@pytest.mark.parametrize("model", ["llava", "qwen2_5_vl"])
def test_rows_are_those_of_a_model_that_the_adapter_is_merged_into(
    tmp_path: Path, device: torch.device, model: EngineModel
) -> None:
    directory = tiny_models.ensure(model, tmp_path)
    adapter = adapters.load(
        tiny_adapters.ensure(directory, 1, tmp_path, towers=True),
        LoRARequest("skill", 1),
        dtype=torch.float32,
        device=device,
    )
    adapted, merged = (load(model, directory, dtype=torch.float32, device=device) for _ in "ab")
    layers = dict(merged._whole.named_modules())
    for name, (down, up) in adapter.weights.items():
        layers[name].weight.data += up @ down
    item = MediaItem(None, *_inputs_of(directory))
    with torch.inference_mode():
        plain = adapted.encode([item])[0].rows
        with adapted.adapted([(slice(None), adapter)]):
            rows = adapted.encode([item])[0].rows
        torch.testing.assert_close(rows, merged.encode([item])[0].rows, rtol=1e-4, atol=1e-3)
    assert (rows - plain).abs().max() > 1


def _inputs_of(directory: Path) -> tuple[str, dict[str, torch.Tensor]]:
    """What the processor of a model makes of a picture."""
    picture = medium_of("picture 1 of 2x3").given
    made = AutoProcessor.from_pretrained(directory).image_processor(picture, return_tensors="pt")
    whole = {"pixel_values"} if "image_grid_thw" in made else set()
    return "image", {name: value if name in whole else value[0] for name, value in made.items()}


@pytest.mark.parametrize("fault", ADAPTER_FAULTS)
def test_a_fault_is_seen_in_what_is_answered(run: Run, fault: str) -> None:
    towers = fault in OF_TOWERS
    for seed in SEEDS:
        difference = compare(
            run(seed, towers=towers).result, run(seed, fault, towers=towers).result
        )
        if difference is not None:
            assert difference.field.startswith(("token", "log prob"))
            return
    pytest.fail(f"{fault} was not seen")


@pytest.mark.parametrize("fault", ADAPTER_KEY_FAULTS)
def test_what_is_shared_across_adapters_is_named(run: Run, fault: str) -> None:
    towers = fault in OF_TOWERS
    assert any(NAMED[fault] in run(seed, fault, towers=towers).broken for seed in SEEDS)


def test_an_adapter_of_layers_that_a_model_lacks_is_refused(
    tmp_path: Path, device: torch.device
) -> None:
    directory = tiny_models.ensure("llava", tmp_path)
    adapter = adapters.load(
        tiny_adapters.ensure(directory, 1, tmp_path),
        LoRARequest("skill", 1),
        dtype=torch.float32,
        device=device,
    )
    model = load("llava", directory, dtype=torch.float32, device=device)
    with model.adapted([(slice(None), adapter)]):
        pass
    weights = next(iter(adapter.weights.values()))
    foreign = adapters.LoadedAdapter(adapter.request, {"no such layer": weights})
    with pytest.raises(ValueError, match="no such layer"), model.adapted([(slice(None), foreign)]):
        pass
