"""What benchmarks time is right: their model answers as transformers' own, and faults stop them."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from cacheproof.differential.targets.host.faults.runner.runner import (
    never_frees,
    puts_rows_a_token_late,
    reads_the_next_rows,
)
from cacheproof.gpu_runner import paged_attention, runner
from cacheproof.gpu_runner.encoder_connector.entry_file import TensorCodec
from cacheproof.gpu_runner.encoder_store import EncoderStore

FOLDER = Path(__file__).parents[2] / "benchmarks"
FRAMES = 6


class Made(NamedTuple):
    """The headline's script, its model of a very small size, and a prompt with a video of noise."""

    script: Any
    model: Any
    asked: Any


@pytest.fixture(scope="module")
def script() -> Iterator[Callable[[str], Any]]:
    """Scripts by their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module


@pytest.fixture(scope="module")
def made(script: Callable[[str], Any], device: torch.device) -> Made:
    headline = script("time_to_first_token")
    size = replace(
        headline.SIZES["small"],
        hidden_size=256,
        intermediate_size=64,
        layers=2,
        heads=2,
        vocabulary=64,
        vision_hidden_size=32,
        vision_intermediate_size=24,
        vision_depth=2,
        full_attention=(1,),
        max_num_batched_tokens=64,
    )
    model = script("video_model").VideoModel(size, device)
    return Made(headline, model, model.prompt("video", model.patches(FRAMES), FRAMES, 12))


@pytest.fixture(scope="module")
def whole(made: Made) -> Qwen2_5_VLForConditionalGeneration:
    """transformers' own model, with the same weights and its own attention."""
    model = Qwen2_5_VLForConditionalGeneration(
        importlib.import_module("video_model").config(made.model.size)
    )
    model.load_state_dict(made.model._whole.state_dict())
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
    told = script.measure(model, script.CLAIMS[claim].frames, 0, {})
    assert told["entry_bytes"] == told["peak_bytes"] == (34_291_712, 137_166_848)[claim]


@torch.inference_mode()
def test_answers_are_those_of_transformers(made: Made, whole: Any) -> None:
    script, model, asked = made
    engine = script.make_engine(model, FRAMES)
    engine.add("a", asked, max_tokens=3)
    assert len(list(engine.run())) == 5
    token_ids = list(asked.token_ids)
    patches = asked.items[0].inputs["pixel_values_videos"]
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


def test_a_warm_answer_from_other_rows_stops_the_headline(made: Made, monkeypatch) -> None:
    gather, reads = EncoderStore.gather, []

    def other(self: EncoderStore, identifier: str, read: Any) -> torch.Tensor:
        reads.append(read.request_id)
        rows = gather(self, identifier, read)
        return rows.flip(0) if read.request_id.startswith("warm") else rows

    monkeypatch.setattr(EncoderStore, "gather", other)
    with pytest.raises(AssertionError, match="answered differently"):
        made.script.measure(made.model, FRAMES, 0, {})
    assert any(name.startswith("warm") for name in reads)


def test_rows_that_another_engine_encoded_are_answered_alike(made: Made, tmp_path: Path) -> None:
    told = made.script.measure(made.model, FRAMES, 1, {"memory": tmp_path / "a", "disk": tmp_path})
    assert [len(told[way]) for way in ("cold", "warm", "memory", "disk")] == [1] * 4


def test_other_rows_from_a_store_stop_the_headline(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load = TensorCodec.load
    monkeypatch.setattr(TensorCodec, "load", lambda *entry: load(*entry).flip(0))
    with pytest.raises(AssertionError, match="answered differently"):
        made.script.measure(made.model, FRAMES, 0, {"disk": tmp_path})


def test_a_store_that_keeps_more_than_the_ledger_stops_the_headline(
    made: Made, monkeypatch
) -> None:
    make_engine = made.script.make_engine

    def hoarding(*size: Any) -> Any:
        engine = make_engine(*size)
        never_frees(engine.runner)
        return engine

    monkeypatch.setattr(made.script, "make_engine", hoarding)
    with pytest.raises(AssertionError, match=r"the store holds .*video-0"):
        made.script.measure(made.model, FRAMES, 1, {})


def test_steps_may_not_wait_until_they_choose(made: Made, monkeypatch) -> None:
    modes = ["default"]
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    decode, during = made.model.decode, []
    monkeypatch.setattr(
        made.model, "decode", lambda *given: during.append(modes[-1]) or decode(*given)
    )
    greedy = runner._greedy
    chosen: list[str] = []
    monkeypatch.setattr(
        runner, "_greedy", lambda logits: chosen.append(modes[-1]) or greedy(logits)
    )
    steps = made.script.count_steps(made.model, FRAMES)
    assert during == ["error"] * steps
    assert set(chosen) == {"default"}
    assert modes[-1] == "default"


@pytest.mark.parametrize("fault", [puts_rows_a_token_late, reads_the_next_rows])
def test_rows_in_other_places_stop_the_splice(script, device, monkeypatch, fault) -> None:
    splice = script("splice")
    make = splice.make

    def faulty(*case: Any) -> Any:
        made, prompt = make(*case)
        fault(made)
        return made, prompt

    monkeypatch.setattr(splice, "make", faulty)
    with pytest.raises(AssertionError):
        splice.measure(splice.Case(2, 40, 20, False), 1, device)


def test_padding_that_is_attended_to_stops_the_timing_of_attention(
    script, device, monkeypatch
) -> None:
    attention = script("decode_attention")
    together = paged_attention._together

    def unmasked(windows: Any) -> Any:
        return replace(made := together(windows), mask=torch.ones_like(made.mask))

    monkeypatch.setattr(paged_attention, "_together", unmasked)
    with pytest.raises(AssertionError):
        attention.measure(attention.Case(4, 2, 8, 5, 3, 90), 1, device)
