"""The model of the benchmarks answers what transformers' own does, which is given all at once."""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from cacheproof.gpu_runner import runner

FOLDER = Path(__file__).parents[2] / "benchmarks"
FRAMES = 6


class Made(NamedTuple):
    """The script, its model of a very small size, and a prompt with noise for a video."""

    script: Any
    model: Any
    asked: Any


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        script = importlib.import_module("time_to_first_token")
        size = script.Size(
            grid=(5, 9),
            hidden_size=256,
            intermediate_size=64,
            layers=2,
            heads=2,
            kv_heads=1,
            vocabulary=64,
            vision_hidden_size=32,
            vision_intermediate_size=24,
            vision_depth=2,
            vision_heads=2,
            full_attention=(1,),
            dtype="float32",
            bytes_of_a_number=4,
            max_num_batched_tokens=64,
        )
        models = importlib.import_module("video_model")
        model = models.VideoModel(size, torch.device("cpu"))
        yield Made(script, model, model.prompt("video", model.patches(FRAMES), FRAMES, 12))


@pytest.fixture(scope="module")
def whole(made: Made) -> Qwen2_5_VLForConditionalGeneration:
    """transformers' own model, with the same weights and its own attention."""
    model = Qwen2_5_VLForConditionalGeneration(
        importlib.import_module("video_model").config(made.model.size)
    )
    weights = made.model._whole.state_dict()
    named = {name.replace(".attn.own.", ".attn."): value for name, value in weights.items()}
    model.load_state_dict(named)
    return model.eval()


@pytest.mark.parametrize("claim", [0, 1])
def test_the_full_width_runs_and_keeps_an_entry_of_the_claimed_bytes(
    made: Made, monkeypatch: pytest.MonkeyPatch, claim: int
) -> None:
    """On torch's meta device, where tensors have a shape and no content, with fewer layers."""
    script = made.script
    monkeypatch.setattr(
        runner, "_greedy", lambda logits: [runner.Sampled(17, 0.0, 1.0)] * len(logits)
    )
    size = replace(script.SIZES["full"], layers=2, vision_depth=8)
    model = type(made.model)(size, torch.device("meta"))
    told = script.measure(model, script.CLAIMS[claim].frames, rounds=0)
    assert told["entry_bytes"] == told["peak_bytes"] == (34_291_712, 137_166_848)[claim]


@torch.inference_mode()
def test_answers_are_those_of_transformers(made: Made, whole: Any) -> None:
    script, model, asked = made
    engine = script.make_engine(model, FRAMES)
    engine.add("a", asked, max_tokens=3)
    assert len(list(engine.run())) == 5
    token_ids = list(asked.token_ids)
    patches = asked.items[0].inputs["patches"]
    for answer in engine.completions["a"].tokens:
        logprobs = _logprobs(whole, model.size.grid, token_ids, patches)
        assert int(logprobs.argmax()) == answer.token_id
        assert float(logprobs.max()) == pytest.approx(answer.logprob, abs=1e-5)
        others = _logprobs(whole, model.size.grid, token_ids, patches.flip(0))
        assert float(others.max()) != pytest.approx(answer.logprob, abs=1e-4)
        token_ids.append(answer.token_id)


def _logprobs(
    whole: Any, grid: tuple[int, int], token_ids: list[int], patches: torch.Tensor
) -> torch.Tensor:
    height, width = grid
    asked = torch.tensor([token_ids])
    answer = whole(
        input_ids=asked,
        mm_token_type_ids=2 * (asked == whole.config.video_token_id),
        pixel_values_videos=patches,
        video_grid_thw=torch.tensor([[FRAMES // 2, 2 * height, 2 * width]]),
        use_cache=False,
    )
    return answer.logits[0, -1].log_softmax(0)
