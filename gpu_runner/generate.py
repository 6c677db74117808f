"""Generates text with the engine loop: a job as JSON on standard input, a line of JSON a step.

Run by the front door in an interpreter that has torch and transformers.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cacheproof.gpu_runner import media_files
from cacheproof.gpu_runner.jobs import BadJob, GenerateJob, kind_of
from cacheproof.reference.encoder_budget import EncoderLimits, compute_mm_encoder_budget

if TYPE_CHECKING:  # what takes seconds to import comes after what is quickly found to be wrong
    import torch

    from cacheproof.gpu_runner.engine import Engine
    from cacheproof.gpu_runner.kv_store import KVShape
    from cacheproof.gpu_runner.models.base import MultiModalModel
    from cacheproof.gpu_runner.requests import RunnerPrompt
    from cacheproof.reference.scheduler.output import SchedulerOutput

DECODER = "whisper"
"""The kind whose decoder attends to an encoder's rows."""
SAID_MAX = 400
"""Most characters that are quoted of a library's message."""


def main() -> int:
    """Run the job; what is wrong with it is one line on standard error, and 2."""
    job = GenerateJob(**json.load(sys.stdin))
    try:
        _run(job)
    except BadJob as reason:
        print(reason, file=sys.stderr)
        return 2
    return 0


def _run(job: GenerateJob) -> None:
    kind = kind_of(job.model)
    media = [[_timed(media_files.read(*one), job) for one in given] for _, given in job.prompts]
    device = _device(job.device)
    import torch

    from cacheproof.gpu_runner import tiny_heads, tiny_models, tiny_weights
    from cacheproof.gpu_runner.models.loading import load
    from cacheproof.gpu_runner.prompts import OF_MODEL, BadPrompt

    directory, models = Path(job.model), Path(job.models)
    if job.model == kind:
        directory = tiny_weights.ensure(tiny_models.ensure(kind, models), job.version, models)
    served = tiny_heads.ensure(directory) if job.pools == "classify" else directory
    with _blaming(f"model {job.model!r}", "a directory as transformers saves it"):
        texts = OF_MODEL[kind](directory)
    with _blaming("the prompts", "media that the model's processor takes"):
        try:
            prompts = [
                texts.prompt(text, given)
                for (text, _), given in zip(job.prompts, media, strict=True)
            ]
        except BadPrompt as reason:
            raise BadJob(str(reason)) from None
    for number, prompt in enumerate(prompts):
        _check_fits(job, number, prompt, is_decoder=kind == DECODER)
    job = _with_floors(job, prompts, is_decoder=kind == DECODER)
    _tell(
        {
            "model": str(served),
            "encoder_budget": job.max_num_encoder_input_tokens,
            "encoder_cache": job.encoder_cache_size,
        }
    )
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    with _blaming(f"model {job.model!r}", "a directory as transformers saves it"):
        model = load(kind, directory, dtype=dtype, device=device)
        engine = _engine(job, kind, model, prompts)
    if job.pools:
        engine.runner.prompt_ends = {}
    for number, prompt in enumerate(prompts):
        _check_blocks(job, number, prompt, model.kv_shape, is_decoder=kind == DECODER)
    for number, prompt in enumerate(prompts):
        engine.add(
            f"prompt {number + 1}",
            prompt,
            max_tokens=job.max_tokens,
            stop_token_ids=texts.stop_token_ids,
        )
    while engine.scheduler.requests:
        resident = set(engine.runner.encoder_store.sizes)
        begun = time.perf_counter()
        decided = engine.step()
        _tell(
            {
                "tokens": decided.num_scheduled_tokens,
                "encoded": sum(map(len, decided.scheduled_encoder_inputs.values())),
                "hits": _hits(engine, decided),
                "evicted": len(resident - set(engine.runner.encoder_store.sizes)),
                "resident": engine.runner.encoder_store.num_rows,
                "preempted": sorted(decided.scheduled_cached_reqs.resumed_req_ids),
                "milliseconds": round(1000 * (time.perf_counter() - begun), 2),
            }
        )
    for (name, completion), prompt in zip(engine.completions.items(), prompts, strict=True):
        _tell(
            {
                "request": name,
                "prompt_token_ids": list(prompt.token_ids),
                "text": texts.text(completion.token_ids),
                "token_ids": completion.token_ids,
                "logprobs": [one.logprob for one in completion.tokens],
                "leads": [one.lead for one in completion.tokens],
                "ended": completion.finish_reason,
                **({"vector": _pooled(engine, name, served, job.pools)} if job.pools else {}),
            }
        )


def _timed(medium: media_files.Medium, job: GenerateJob) -> media_files.Medium:
    """The medium, as long as the job says."""
    if not job.seconds_of_a_frame or not isinstance(medium, media_files.Film):
        return medium
    return medium._replace(seconds_of_a_frame=job.seconds_of_a_frame)


def _pooled(engine: "Engine", name: str, directory: Path, pools: str) -> list[float]:
    """What is made of the hidden state behind a prompt's last token."""
    from cacheproof.gpu_runner import tiny_heads

    assert engine.runner.prompt_ends is not None
    end = engine.runner.prompt_ends[name].float()
    if pools == "classify":
        return tiny_heads.probabilities(directory, end)
    embedding: list[float] = (end / end.norm()).tolist()
    return embedding


@contextmanager
def _blaming(what: str, expected: str) -> Iterator[None]:
    """Libraries that read what somebody else wrote raise whatever they stumble over.

    Raises:
        BadJob: they did.
    """
    try:
        yield
    except BadJob:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:SAID_MAX]
        raise BadJob(f"{what}: {type(error).__name__}: {said}; expected {expected}") from None


def _hits(engine: "Engine", decided: "SchedulerOutput") -> int:
    """How many items the step begins to read without encoding them."""
    hits = 0
    for name, count in decided.num_scheduled_tokens.items():
        request = engine.runner.batch.of(name)
        start = request.num_computed_tokens
        for number, item in enumerate(request.prompt.items):
            begins = start <= item.feature.mm_position.offset < start + count
            hits += begins and number not in decided.scheduled_encoder_inputs.get(name, ())
    return hits


def _engine(
    job: GenerateJob, kind: str, model: "MultiModalModel", prompts: list["RunnerPrompt"]
) -> "Engine":
    from cacheproof.gpu_runner.engine import CacheSizes, Engine
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.scheduler.config import SchedulerConfig

    runner = Runner(
        model,
        num_blocks=job.num_blocks,
        block_size=job.block_size,
        encoder_cache_size=job.encoder_cache_size,
    )
    is_decoder = kind == DECODER
    config = SchedulerConfig(
        max_num_batched_tokens=job.max_num_batched_tokens,
        max_num_seqs=job.max_num_seqs,
        max_model_len=job.max_model_len,
        encoder_compute_budget=job.max_num_encoder_input_tokens,
        enable_chunked_prefill=not is_decoder,
        disable_chunked_mm_input=is_decoder,
        is_encoder_decoder=is_decoder,
        num_cross_attention_tokens=max(map(_largest, prompts)) if is_decoder else 0,
    )
    sizes = CacheSizes(
        job.num_blocks,
        job.block_size,
        job.encoder_cache_size,
        enable_prefix_caching=job.enable_prefix_caching and not is_decoder,
    )
    return Engine(runner, config, sizes)


def _with_floors(
    job: GenerateJob, prompts: "list[RunnerPrompt]", *, is_decoder: bool
) -> GenerateJob:
    """The job with its two budgets raised to the largest item, as releases raise theirs to the
    largest item that a model can make.

    Raises:
        BadJob: a decoder's item exceeds a step, which releases refuse as well.
    """
    limits = EncoderLimits(
        job.max_num_batched_tokens,
        job.max_num_encoder_input_tokens,
        job.encoder_cache_size,
        disable_chunked_mm_input=is_decoder,
    )
    largest = max(map(_largest, prompts), default=0)
    if largest == 0:
        return job
    try:
        compute_budget, cache_size = compute_mm_encoder_budget(limits, {"any": largest})
    except ValueError as refusal:
        raise BadJob(f"the prompts: {refusal}; expected a step of as many tokens") from None
    return replace(job, max_num_encoder_input_tokens=compute_budget, encoder_cache_size=cache_size)


def _check_fits(job: GenerateJob, number: int, prompt: "RunnerPrompt", *, is_decoder: bool) -> None:
    """Raise BadJob for a prompt that no step can take: it would wait for ever."""
    tokens = len(prompt.token_ids)
    if tokens == 0:
        raise BadJob(f"prompt {number + 1} has no tokens; expected a text or a mark")
    if tokens >= job.max_model_len:
        raise BadJob(
            f"prompt {number + 1} has {tokens} tokens; expected fewer than {job.max_model_len}, "
            f"the model's length"
        )
    if is_decoder and tokens > job.max_num_batched_tokens:
        raise BadJob(
            f"prompt {number + 1} has {tokens} tokens, which a decoder takes at once; expected "
            f"{job.max_num_batched_tokens} at most, the tokens of a step"
        )


def _check_blocks(
    job: GenerateJob, number: int, prompt: "RunnerPrompt", shape: "KVShape", *, is_decoder: bool
) -> None:
    """Raise BadJob for a prompt that takes more blocks than there are: it would wait for ever."""
    from cacheproof.gpu_runner.engine import specs_of

    tokens = min(len(prompt.token_ids) + job.max_tokens, job.max_model_len)
    blocks = 1 + (-(-_largest(prompt) // job.block_size) if is_decoder else 0)
    for spec in specs_of(shape, job.block_size):
        all_blocks = -(-tokens // job.block_size)
        most = spec.max_admission_blocks_per_request(job.max_num_batched_tokens, job.max_model_len)
        blocks += all_blocks if most is None else min(all_blocks, most)
    if blocks > job.num_blocks:
        raise BadJob(
            f"prompt {number + 1} and its answer take {blocks} KV blocks, the null block among "
            f"them; expected as many, not {job.num_blocks}"
        )


def _largest(prompt: "RunnerPrompt") -> int:
    """Rows of a prompt's largest item."""
    return max((item.feature.mm_position.get_num_embeds() for item in prompt.items), default=0)


def _device(name: str) -> "torch.device":
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadJob(f"device {name!r}; expected cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadJob(f"device {name!r}: torch sees no GPU; expected cpu")
    return device


def _tell(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)
