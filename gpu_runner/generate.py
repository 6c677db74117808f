"""Generates text with the engine loop: a job as JSON on standard input, a line of JSON a step.

Run by the front door in an interpreter that has torch and transformers.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:  # what takes seconds to import comes after what is quickly found to be wrong
    import torch

    from cacheproof.gpu_runner.engine import Engine
    from cacheproof.gpu_runner.models.llava import Llava
    from cacheproof.reference.scheduler.output import SchedulerOutput

TINY = "llava"


class BadJob(ValueError):
    """What was asked for cannot be done; one line says why."""


@dataclass(frozen=True)
class Job:
    """What to generate: prompts, each a text and the files of its pictures.

    `model` is a directory, or TINY: the tiny model of that name, to be made in `models`. Sizes are
    in tokens, rows of encoder outputs and KV blocks.
    """

    model: str
    models: str
    prompts: list[tuple[str, list[str]]]
    max_tokens: int
    device: str
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    encoder_cache_size: int
    num_blocks: int
    block_size: int
    enable_prefix_caching: bool


def main() -> int:
    """Run the job; what is wrong with it is one line on standard error, and 2."""
    job = Job(**json.load(sys.stdin))
    try:
        _run(job)
    except BadJob as reason:
        print(reason, file=sys.stderr)
        return 2
    return 0


def _run(job: Job) -> None:
    _check_model(job.model)
    pictures = [list(map(_picture, files)) for _, files in job.prompts]
    device = _device(job.device)
    import torch

    from cacheproof.gpu_runner import tiny_models
    from cacheproof.gpu_runner.models.llava import Llava
    from cacheproof.gpu_runner.prompts import BadPrompt, ImagePrompts

    directory = tiny_models.ensure(TINY, Path(job.models)) if job.model == TINY else Path(job.model)
    texts = ImagePrompts(directory)
    try:
        prompts = [
            texts.prompt(text, images)
            for (text, _), images in zip(job.prompts, pictures, strict=True)
        ]
    except BadPrompt as reason:
        raise BadJob(str(reason)) from None
    for number, prompt in enumerate(prompts):
        _check_fits(job, number, len(prompt.token_ids), [item.feature for item in prompt.items])
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    engine = _engine(job, Llava(directory, dtype=dtype, device=device))
    for number, prompt in enumerate(prompts):
        engine.add(f"prompt {number + 1}", prompt, max_tokens=job.max_tokens)
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
    for name, completion in engine.completions.items():
        _tell(
            {
                "request": name,
                "text": texts.text(completion.token_ids),
                "token_ids": completion.token_ids,
                "ended": completion.finish_reason,
            }
        )


def _hits(engine: "Engine", decided: "SchedulerOutput") -> int:
    """Items that the step begins to read and does not encode."""
    hits = 0
    for name, count in decided.num_scheduled_tokens.items():
        request = engine.runner.batch.of(name)
        start = request.num_computed_tokens
        for number, item in enumerate(request.prompt.items):
            begins = start <= item.feature.mm_position.offset < start + count
            hits += begins and number not in decided.scheduled_encoder_inputs.get(name, ())
    return hits


def _engine(job: Job, model: "Llava") -> "Engine":
    from cacheproof.gpu_runner.engine import CacheSizes, Engine
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.scheduler.config import SchedulerConfig

    runner = Runner(
        model,
        num_blocks=job.num_blocks,
        block_size=job.block_size,
        encoder_cache_size=job.encoder_cache_size,
    )
    config = SchedulerConfig(
        max_num_batched_tokens=job.max_num_batched_tokens,
        max_num_seqs=job.max_num_seqs,
        max_model_len=job.max_model_len,
        encoder_compute_budget=job.encoder_cache_size,
    )
    sizes = CacheSizes(
        job.num_blocks, job.block_size, job.encoder_cache_size, job.enable_prefix_caching
    )
    return Engine(runner, config, sizes)


def _check_fits(job: Job, number: int, tokens: int, features: list[Any]) -> None:
    if tokens >= job.max_model_len:
        raise BadJob(
            f"prompt {number + 1} has {tokens} tokens; expected fewer than {job.max_model_len}, "
            f"the model's length"
        )
    largest = max((one.mm_position.get_num_embeds() for one in features), default=0)
    if largest > job.encoder_cache_size:
        raise BadJob(
            f"a picture of prompt {number + 1} makes {largest} rows; expected an encoder cache of "
            f"as many, not of {job.encoder_cache_size}"
        )


def _device(name: str) -> "torch.device":
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadJob(f"device {name!r}; expected cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadJob(f"device {name!r}: torch sees no GPU; expected cpu")
    return device


def _check_model(model: str) -> None:
    if model == TINY:
        return
    config = Path(model) / "config.json"
    if not config.is_file():
        raise BadJob(
            f"model {model!r}: there is no {config}; expected a directory of a LLaVA model, or "
            f"{TINY}, which is made"
        )
    try:
        kind = json.loads(config.read_text()).get("model_type")
    except (ValueError, AttributeError):
        raise BadJob(f"model {model!r}: {config} is no model's configuration") from None
    if kind != "llava":
        raise BadJob(f"model {model!r} is of the type {kind!r}; expected 'llava'")


def _picture(file: str) -> Image.Image:
    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (OSError, ValueError) as error:
        raise BadJob(f"picture {file}: {error}; expected a file that Pillow reads") from None


def _tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)
