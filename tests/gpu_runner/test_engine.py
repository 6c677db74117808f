"""The runner under pressure, against transformers' own generation of each prompt alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import LlavaForConditionalGeneration

from cacheproof.gpu_runner.encoder_store import EncoderCacheMiss
from cacheproof.gpu_runner.engine import Completion, Engine
from cacheproof.gpu_runner.models.llava import Llava
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt, UnknownRequest, UnknownToken
from cacheproof.gpu_runner.tiny_models import FIRST_TEXT_TOKEN_ID, PLACEHOLDER_TOKEN_ID
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.config import SchedulerConfig
from tests.gpu_runner.answers import engine_of, greedily

ROWS = 16
BLOCK_SIZE = 8
MODEL_LEN = 128
DECODED = 12
PROMPTS = (
    ("xy", 60),
    ("xx", 50),
    ("", 30),
    ("zyx", 70),
    ("z", 25),
    ("xy", 60),
)
"""The items of each prompt, every 20 tokens, and its length."""

WAITS = RequestStatus.WAITING_FOR_STREAMING_REQ
Make = Callable[[int, int, int, bool], Engine]


def prompt(items: str, length: int) -> RunnerPrompt:
    token_ids = [FIRST_TEXT_TOKEN_ID + at for at in range(length)]
    made = []
    for number, name in enumerate(items):
        offset = 3 + number * 20
        token_ids[offset : offset + ROWS] = [PLACEHOLDER_TOKEN_ID] * ROWS
        feature = MultiModalFeature.of(name, PlaceholderRange(offset, ROWS))
        made.append(MediaItem(feature, "image", {"pixel_values": pixels(name)}))
    return RunnerPrompt(tuple(token_ids), tuple(made))


@cache
def pixels(name: str) -> torch.Tensor:
    return torch.randn(3, 56, 56, generator=torch.Generator().manual_seed(ord(name)))


@pytest.fixture(scope="module")
def whole(llava: Path) -> LlavaForConditionalGeneration:
    """The model as transformers has it."""
    return LlavaForConditionalGeneration.from_pretrained(llava, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def alone(whole: LlavaForConditionalGeneration) -> list[list[int]]:
    """What transformers' whole model answers each prompt by itself, without any cache."""
    return [_answer(whole, prompt(items, length)) for items, length in PROMPTS]


def _answer(
    model: LlavaForConditionalGeneration, asked: RunnerPrompt, tokens: int = DECODED
) -> list[int]:
    media = [item.inputs["pixel_values"] for item in asked.items]
    pixel_values = torch.stack(media) if media else None
    return greedily(
        asked,
        tokens,
        lambda ids: model(input_ids=ids, pixel_values=pixel_values, use_cache=False).logits,
    )


@pytest.fixture(scope="module")
def make(llava: Path, device: torch.device) -> Make:
    model = Llava(llava, dtype=torch.float32, device=device)

    def engine(tokens: int, num_blocks: int, rows: int, caches: bool) -> Engine:
        config = SchedulerConfig(
            max_num_batched_tokens=tokens,
            max_num_seqs=min(4, tokens),
            max_model_len=MODEL_LEN,
            encoder_compute_budget=2 * ROWS,
        )
        return engine_of(model, config, num_blocks, BLOCK_SIZE, rows, caches=caches)

    return engine


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize(
    ("tokens", "num_blocks", "rows"),
    [(256, 128, 128), (1, 20, ROWS), (7, 20, ROWS), (33, 21, 2 * ROWS), (64, 40, ROWS + 5)],
)
def test_answers_are_those_of_the_prompt_alone_whatever_the_pressure(
    make: Make, alone: list[list[int]], tokens: int, num_blocks: int, rows: int, caches: bool
) -> None:
    engine = make(tokens, num_blocks, rows, caches)
    for number, (items, length) in enumerate(PROMPTS):
        engine.add(str(number), prompt(items, length), max_tokens=DECODED)
    steps = list(engine.run())
    assert [engine.completions[str(n)].token_ids for n in range(len(PROMPTS))] == alone
    assert {one.finish_reason for one in engine.completions.values()} == {"length"}
    store = engine.runner.encoder_store
    row = engine.runner.model.hidden_size * 4
    assert 0 < store.peak_bytes <= rows * row
    if rows == ROWS:
        assert any(step.free_encoder_mm_hashes for step in steps)
    if num_blocks == 21:
        assert any(step.scheduled_cached_reqs.resumed_req_ids for step in steps)


@pytest.mark.parametrize("tokens", [2, 7, 64])
def test_a_turn_of_a_session_is_answered_as_the_whole_of_its_prompt_so_far(
    make: Make, whole: LlavaForConditionalGeneration, tokens: int
) -> None:
    engine = make(tokens, 32, 2 * ROWS, True)
    so_far = {name: prompt(name, 30) for name in "xy"}
    for name, asked in so_far.items():
        engine.add(name, asked, max_tokens=5)
        engine.scheduler.requests[name].resumable = True
    for chunk in (prompt("z", 24), prompt("", 3), prompt("y", 21)):
        for name in so_far:
            while (session := engine.scheduler.requests[name]).status is not WAITS:
                engine.step()
            answered = engine.completions[name].token_ids
            assert answered == _answer(whole, so_far[name], 5), len(so_far[name].token_ids)
            kept = len(so_far[name].token_ids) + len(answered) - 1
            so_far[name] = RunnerPrompt(
                (*so_far[name].token_ids, *answered[:-1], *chunk.token_ids),
                (*so_far[name].items, *(moved(item, kept) for item in chunk.items)),
            )
            engine.completions[name] = Completion()
            engine.runner.add_chunk(name, chunk)
            features = [item.feature for item in chunk.items]
            more = ScheduledRequest(name, chunk.token_ids, features, resumable=True, max_tokens=5)
            engine.scheduler.add_request(more)
            assert session.prompt_token_ids == list(so_far[name].token_ids)


def moved(item: MediaItem, tokens: int) -> MediaItem:
    return replace(item, feature=item.feature.moved(tokens))


def test_a_turn_begins_with_a_chunk_that_has_arrived(make: Make) -> None:
    engine = make(64, 32, 2 * ROWS, True)
    engine.add("a", prompt("x", 30), max_tokens=1)
    engine.step()
    state = engine.runner.batch.of("a")
    with pytest.raises(UnknownRequest, match="goes on with a chunk that never arrived"):
        state.go_on([*state.token_ids, 11])
    engine.runner.add_chunk("a", prompt("", 2))
    with pytest.raises(UnknownRequest, match="goes on with a chunk that never arrived"):
        state.go_on([*state.token_ids, 0, 0])


def test_the_store_holds_what_the_ledger_says_after_every_step(make: Make) -> None:
    engine = make(33, 24, 2 * ROWS, True)
    for number, (items, length) in enumerate(PROMPTS):
        engine.add(str(number), prompt(items, length), max_tokens=DECODED)
    while engine.scheduler.requests:
        decided = engine.scheduler.schedule()
        ledger = dict(engine.encoder_cache_manager.cached)
        sampled = engine.runner.execute(decided)
        assert engine.runner.encoder_store.sizes.keys() == ledger.keys()
        engine.scheduler.update_from_output(
            decided,
            {
                name: [one.token_id for one in sampled.get(name, ())]
                for name in decided.num_scheduled_tokens
            },
        )


def test_a_dropped_entry_that_is_still_read_is_a_miss_that_names_who_reads_it(make: Make) -> None:
    engine = make(10, 24, 2 * ROWS, True)
    engine.add("a", prompt("x", 30), max_tokens=1)
    engine.step()
    engine.runner.encoder_store.free(["x"])
    with pytest.raises(
        EncoderCacheMiss, match="request a reads row 7 of x at position 10 in step 2"
    ):
        engine.step()


def test_a_step_of_a_request_that_was_never_added_is_refused(make: Make) -> None:
    engine, other = (make(10, 24, 2 * ROWS, True) for _ in range(2))
    engine.add("a", prompt("x", 30), max_tokens=1)
    with pytest.raises(UnknownRequest, match="request a was never added"):
        other.runner.execute(engine.scheduler.schedule())


def test_a_step_that_computes_a_token_that_nobody_knows_is_refused(make: Make) -> None:
    engine = make(64, 24, 2 * ROWS, True)
    engine.add("a", prompt("x", 30), max_tokens=4)
    engine.step()
    decided = engine.scheduler.schedule()
    with pytest.raises(UnknownToken, match="computes token 31 of a; expected at most 30"):
        engine.runner.execute(decided._replace(num_scheduled_tokens={"a": 2}))


def test_a_second_request_of_one_id_is_refused(make: Make) -> None:
    engine = make(10, 24, 2 * ROWS, True)
    engine.add("a", prompt("", 30), max_tokens=1)
    with pytest.raises(ValueError, match="request a is there already"):
        engine.add("a", prompt("", 30), max_tokens=1)
