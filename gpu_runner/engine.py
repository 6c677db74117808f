"""The engine loop: a scheduler decides, the runner executes, the scheduler takes its output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from cacheproof.gpu_runner.kv_store import KVShape
from cacheproof.gpu_runner.requests import PromptEmbeds, RunnerPrompt
from cacheproof.gpu_runner.runner import Runner, Sampled
from cacheproof.reference import request
from cacheproof.reference.block_hash import get_request_block_hasher
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.kv_cache_specs import (
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    SlidingWindowSpec,
)
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.config import SchedulerConfig
from cacheproof.reference.scheduler.output import SchedulerOutput
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.semantics import Semantics


@dataclass(frozen=True)
class CacheSizes:
    """How much an engine may keep: KV blocks (the null block among them) of `block_size` tokens,
    and rows of encoder outputs."""

    num_blocks: int
    block_size: int
    encoder_cache_size: int
    enable_prefix_caching: bool = True


@dataclass
class Completion:
    """The answer to a request so far."""

    tokens: list[Sampled] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def token_ids(self) -> list[int]:
        """The tokens alone."""
        return [one.token_id for one in self.tokens]


def specs_of(shape: KVShape, block_size: int) -> list[KVCacheSpec]:
    """The spec of each group of layers, for the scheduler."""
    windows = (group.sliding_window for group in shape.groups)
    return [
        FullAttentionSpec(block_size) if one is None else SlidingWindowSpec(block_size, one)
        for one in windows
    ]


def _by_bytes(embeds: PromptEmbeds) -> request.PromptEmbeds:
    """A prompt of embeddings as bytes: the numbers themselves tell prompts apart."""
    rows = embeds.rows.contiguous().view(torch.uint8).cpu()
    return request.PromptEmbeds(
        tuple(bytes(row.tolist()) for row in rows),
        tuple(name is not None for name in embeds.given),
    )


class Engine:
    """Generates greedily, one step after the other."""

    def __init__(
        self,
        runner: Runner,
        config: SchedulerConfig,
        sizes: CacheSizes,
        *,
        semantics: Semantics | None = None,
        seed: str = "0",
    ) -> None:
        semantics = semantics or Semantics.ideal()
        self.runner = runner
        self._is_decoder = config.is_encoder_decoder
        specs = specs_of(runner.model.kv_shape, sizes.block_size)
        if self._is_decoder:
            specs.append(CrossAttentionSpec(sizes.block_size))
        make_manager = EncoderDecoderCacheManager if self._is_decoder else EncoderCacheManager
        self.encoder_cache_manager = make_manager(sizes.encoder_cache_size, semantics.encoder_cache)
        caches = KVCacheConfig(sizes.num_blocks, tuple(map(KVCacheGroupSpec, specs)))
        self.scheduler = Scheduler(
            config,
            KVCacheManager(
                caches,
                config.max_model_len,
                caches.scheduler_block_size,
                caches.hash_block_size,
                config.max_num_batched_tokens,
                enable_caching=sizes.enable_prefix_caching,
                semantics=semantics,
            ),
            self.encoder_cache_manager,
            semantics=semantics,
        )
        keyed = semantics.block_keys
        self._zeroes_mixed = keyed.zeroes_embed_positions
        self._hasher = get_request_block_hasher(
            sizes.block_size, hash_function(keyed), semantics=keyed, seed=seed
        )
        self.completions: dict[str, Completion] = {}

    def add(
        self,
        request_id: str,
        prompt: RunnerPrompt,
        *,
        max_tokens: int,
        stop_token_ids: Sequence[int] = (),
        priority: int = 0,
    ) -> None:
        """A request arrives.

        Raises:
            ValueError: one of its id is there.
        """
        self.runner.add(request_id, prompt)
        self.completions[request_id] = Completion()
        self.scheduler.add_request(
            ScheduledRequest(
                request_id,
                prompt.token_ids,
                [item.feature for item in prompt.items],
                None if prompt.adapter is None else prompt.adapter.request,
                prompt.cache_salt,
                None if prompt.embeds is None else _by_bytes(prompt.embeds),
                block_hasher=self._hasher,
                zeroes_mixed=self._zeroes_mixed,
                is_decoder=self._is_decoder,
                max_tokens=max_tokens,
                stop_token_ids=stop_token_ids,
                priority=priority,
                arrival_time=float(len(self.completions)),
            )
        )

    def step(self) -> SchedulerOutput:
        """One step; answers what was decided."""
        decided = self.scheduler.schedule()
        sampled = self.runner.execute(decided)
        answers = self.scheduler.update_from_output(
            decided,
            {
                request_id: [one.token_id for one in sampled.get(request_id, ())]
                for request_id in decided.num_scheduled_tokens
            },
        )
        for answer in answers:
            completion = self.completions[answer.request_id]
            completion.tokens += sampled[answer.request_id][: len(answer.new_token_ids)]
            completion.finish_reason = answer.finish_reason
        return decided

    def run(self) -> Iterator[SchedulerOutput]:
        """Step until no request is left, a step at a time."""
        while self.scheduler.requests:
            yield self.step()
