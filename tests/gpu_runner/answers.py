"""What a model answers, and engines that must answer the same under pressure."""

from collections.abc import Callable

import torch

from cacheproof.gpu_runner.engine import CacheSizes, Engine
from cacheproof.gpu_runner.models.base import MultiModalModel
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.gpu_runner.runner import Runner
from cacheproof.gpu_runner.tiny_models import FIRST_TEXT_TOKEN_ID
from cacheproof.reference.scheduler.config import SchedulerConfig

Make = Callable[[int, int, int, bool], Engine]
_GAP = 5
"""Tokens of text between two items, marks among them."""


def prompt_of(
    names: str,
    length: int,
    item: Callable[[str, int], MediaItem],
    tokens_of: Callable[[str], list[int]],
    *,
    first: int = 3,
) -> RunnerPrompt:
    """A prompt of so many tokens with the items of these names, each a letter: `item` makes one at
    an offset, of which the `first` is this, and `tokens_of` says what stands for it."""
    token_ids = [FIRST_TEXT_TOKEN_ID + at for at in range(length)]
    items, at = [], first
    for name in names:
        items.append(item(name, at))
        own = tokens_of(name)
        token_ids[at : at + len(own)] = own
        at += len(own) + _GAP
    assert at <= length
    return RunnerPrompt(tuple(token_ids), tuple(items))


@torch.inference_mode()
def greedily(
    prompt: RunnerPrompt, tokens: int, logits_of: Callable[[torch.Tensor], torch.Tensor]
) -> list[int]:
    """So many tokens behind a prompt, each the likeliest of the logits of all before it."""
    token_ids = list(prompt.token_ids)
    for _ in range(tokens):
        token_ids.append(int(logits_of(torch.tensor([token_ids]))[0, -1].argmax()))
    return token_ids[len(prompt.token_ids) :]


def engine_of(
    model: MultiModalModel,
    config: SchedulerConfig,
    num_blocks: int,
    block_size: int,
    rows: int,
    *,
    caches: bool,
) -> Engine:
    """An engine with so many KV blocks, and rows of the encoder's."""
    runner = Runner(model, num_blocks=num_blocks, block_size=block_size, encoder_cache_size=rows)
    return Engine(runner, config, CacheSizes(num_blocks, block_size, rows, caches))


def under_pressure(model: MultiModalModel, max_model_len: int, block_size: int) -> Make:
    """What makes an engine of so many tokens a step, KV blocks, and rows that are kept; with prefix
    caching or not."""

    def engine(tokens: int, num_blocks: int, rows: int, caches: bool) -> Engine:
        config = SchedulerConfig(
            max_num_batched_tokens=tokens,
            max_num_seqs=min(4, tokens),
            max_model_len=max_model_len,
            encoder_compute_budget=64,
        )
        return engine_of(model, config, num_blocks, block_size, rows, caches=caches)

    return engine
