"""What a scheduler and a request say of themselves, as a record has it."""

import os
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from typing import Any, NamedTuple, Protocol

from cacheproof.differential.recording.messages import SCHEMA, Arrived, Item, Opened, Text
from cacheproof.differential.targets.host import protocol
from cacheproof.differential.targets.host.engine.kv_cache_groups import groups_of
from cacheproof.differential.targets.host.vllm_objects.requests import Request
from cacheproof.differential.targets.host.vllm_objects.scheduler import ConfiguredScheduler


def _unread(scheduler: ConfiguredScheduler) -> Text | None:
    """Nothing: the text of vLLM is not read."""
    return None


def _own_version() -> str:
    """The version of cacheproof, where it is installed."""
    try:
        return version("cacheproof")
    except PackageNotFoundError:
        return "not installed"


class Hashes(Protocol):
    """What identifiers and keys are called in a record."""

    is_plain: bool

    def identifier(self, name: str) -> str: ...

    def digest(self, data: bytes) -> bytes: ...


class Facts(NamedTuple):
    """How a scheduler is asked what a record says of it.

    version: the engine's. preempted: the status of a request that lost its blocks. protocol,
    settings, unjudged and text: the fields of `Opened`, of a scheduler. with_kv: whether the calls
    of its KV cache manager are recorded.
    """

    version: str
    preempted: object
    protocol: Callable[[ConfiguredScheduler], Sequence[bool]]
    settings: Callable[[ConfiguredScheduler], dict[str, Any]]
    unjudged: Callable[[ConfiguredScheduler], list[str]]
    with_kv: bool = False
    text: Callable[[ConfiguredScheduler], Text | None] = _unread


def of_vllm(
    *, with_kv: bool = False, text: Callable[[ConfiguredScheduler], Text | None] = _unread
) -> Facts:
    """How the schedulers of this interpreter's vLLM are asked."""
    import vllm
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request, RequestStatus

    def protocol_of(scheduler: ConfiguredScheduler) -> Sequence[bool]:
        # Of vLLM's own class: what extends it says only what it does beside that.
        return protocol.Protocol.detect(scheduler.encoder_cache_manager, Request, Scheduler)

    return Facts(
        vllm.__version__, RequestStatus.PREEMPTED, protocol_of, _settings, _unjudged, with_kv, text
    )


def opened(scheduler: ConfiguredScheduler, facts: Facts, *, plain: bool) -> Opened:
    """The first record of a scheduler's file."""
    manager = scheduler.encoder_cache_manager
    own = type(manager)
    return Opened(
        SCHEMA,
        "scheduler",
        _own_version(),
        facts.version,
        os.getpid(),
        os.getppid(),
        time.time(),
        plain,
        "encoder_cache" if hasattr(manager, "cached") else "encoder_decoder",
        f"{own.__module__}:{own.__qualname__}",
        facts.settings(scheduler),
        list(facts.protocol(scheduler)),
        facts.unjudged(scheduler),
        facts.text(scheduler),
    )


def opened_as(role: str, version: str, settings: dict[str, Any], *, plain: bool) -> Opened:
    """The first record of a file of any other role, with what that says of itself."""
    return Opened(
        SCHEMA,
        role,
        _own_version(),
        version,
        os.getpid(),
        os.getppid(),
        time.time(),
        plain,
        settings=settings,
    )


def _settings(scheduler: ConfiguredScheduler) -> dict[str, Any]:
    """The configuration of a trace for a scheduler, under a trace's names."""
    config = scheduler.scheduler_config
    policy = getattr(scheduler, "policy", "fcfs")
    speculative = scheduler.vllm_config.speculative_config
    drafts = getattr(scheduler, "num_spec_tokens", 0)
    manager = scheduler.encoder_cache_manager
    lora = scheduler.lora_config
    return {
        "capacity": manager.cache_size,
        "compute_budget": scheduler.max_num_encoder_input_tokens,
        "max_num_batched_tokens": scheduler.max_num_scheduled_tokens,
        "max_num_seqs": scheduler.max_num_running_reqs,
        "max_model_len": scheduler.max_model_len,
        "block_size": scheduler.block_size,
        "num_blocks": scheduler.cache_config.num_gpu_blocks,
        "prefix_caching": bool(scheduler.cache_config.enable_prefix_caching),
        "chunked_prefill": _chunked(config),
        "disable_chunked_mm_input": config.disable_chunked_mm_input,
        "policy": getattr(policy, "value", policy),
        "long_prefill_token_threshold": config.long_prefill_token_threshold,
        "long_prefill_token_threshold_adaptive": getattr(
            config, "long_prefill_token_threshold_adaptive", False
        ),
        "async_scheduling": bool(getattr(config, "async_scheduling", False)),
        "max_num_active_seqs": getattr(config, "max_num_active_seqs", None),
        "scheduler_reserve_full_isl": getattr(config, "scheduler_reserve_full_isl", True),
        "watermark": getattr(config, "watermark", 0.0),
        "prefill_schedule_interval": getattr(config, "prefill_schedule_interval", 1),
        "max_loras": 0 if lora is None else lora.max_loras,
        "num_speculative_tokens": drafts,
        "drafter": speculative is not None and bool(getattr(scheduler, "use_eagle", False)),
        "v2_model_runner": bool(getattr(scheduler, "use_v2_model_runner", False)),
        "ec_connector": getattr(scheduler, "ec_connector", None) is not None,
        "groups": _groups(scheduler) or [],
    }


def _groups(scheduler: ConfiguredScheduler) -> list[dict[str, Any]] | None:
    """The KV cache groups as a trace has them, empty for one of full attention; None where there is
    a kind that no trace knows."""
    groups = groups_of(scheduler.kv_cache_config)
    if groups is None:
        return None
    is_plain = len(groups) == 1 and groups[0]["kind"] == "full"
    return [] if is_plain else groups


KV_NOT_FOLLOWED = frozenset(
    {
        "a KV cache manager before vLLM 0.14.0",
        "KV cache groups of other kinds",
        "context parallelism",
        "a drafter of several modules",
    }
)
"""Features with which no call of a KV cache manager is judged, and none is recorded."""


def kv_config(scheduler: ConfiguredScheduler) -> dict[str, Any]:
    """The configuration of a trace for the scheduler's KV cache manager."""
    manager, config = scheduler.kv_cache_manager, scheduler.vllm_config
    parts = scheduler.kv_cache_config.kv_cache_groups
    plain = {"kind": "full", "block_size": parts[0].kv_cache_spec.block_size, "window": 0}
    groups = _groups(scheduler) or [plain] * len(parts)
    return {
        "num_blocks": manager.block_pool.num_gpu_blocks,
        "groups": [
            {**group, "has_drafter": bool(getattr(part, "is_eagle_group", False))}
            for group, part in zip(groups, parts, strict=True)
        ],
        "max_model_len": manager.max_model_len,
        "max_in_flight_tokens": getattr(config, "max_in_flight_tokens", None)
        or scheduler.scheduler_config.max_num_batched_tokens,
        "enable_caching": bool(manager.enable_caching),
        "use_eagle": bool(manager.use_eagle),
        "kv_events": bool(manager.block_pool.enable_kv_cache_events),
        "watermark": float(getattr(scheduler.scheduler_config, "watermark", 0.0)),
        "async_scheduling": bool(getattr(scheduler.scheduler_config, "async_scheduling", False)),
    }


def kv_unjudged(scheduler: ConfiguredScheduler) -> list[str]:
    """What of the KV cache manager no contract follows."""
    manager = scheduler.kv_cache_manager
    retention = getattr(scheduler.kv_cache_config, "prefix_cache_retention_interval", None)
    slots = signature(type(manager).allocate_slots).parameters
    uses = {
        "a KV cache manager before vLLM 0.14.0": "num_external_computed_tokens" not in slots,
        "KV cache groups of other kinds": _groups(scheduler) is None,
        "context parallelism": getattr(scheduler, "dcp_world_size", 1) > 1
        or getattr(scheduler, "pcp_world_size", 1) > 1,
        # It thins out windows alone, and is on by default from 0.29.0 on.
        "sparse retention of KV": retention is not None
        and any(group["kind"] != "full" for group in _groups(scheduler) or ()),
        "block keys that look ahead": getattr(manager.block_pool, "num_hash_lookahead_tokens", 0)
        > 0,
        "a drafter of several modules": getattr(scheduler, "num_prefill_lookahead", 0) > 1,
    }
    return [name for name, is_used in uses.items() if is_used]


def _chunked(config: Any) -> bool:
    """Whether prompts are split over steps: releases have named it in two ways."""
    if hasattr(config, "enable_chunked_prefill"):
        return bool(config.enable_chunked_prefill)
    return bool(config.chunked_prefill_enabled)


def _unjudged(scheduler: ConfiguredScheduler) -> list[str]:
    """What the engine uses that no contract follows."""
    config = scheduler.vllm_config
    parallel = config.parallel_config
    uses = {
        "KV connector": getattr(scheduler, "connector", None) is not None,
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "data parallelism": parallel.data_parallel_size > 1,
        "context parallelism": getattr(scheduler, "dcp_world_size", 1) > 1
        or getattr(scheduler, "pcp_world_size", 1) > 1,
        "KV cache groups of other kinds": _groups(scheduler) is None,
        "chunks that end where Mamba states do": bool(
            getattr(scheduler, "need_mamba_block_aligned_split", False)
        ),
        "slots for parallel drafts": bool(
            getattr(config.speculative_config, "max_num_new_slots_for_drafting", 0)
        ),
        "encoders alone": bool(getattr(scheduler, "is_mm_encoder_only", False)),
        "pooling or diffusion": getattr(scheduler, "num_sampled_tokens_per_step", 1) == 0,
        "drafts": getattr(scheduler, "num_spec_tokens", 0) > 0
        and bool(getattr(scheduler.scheduler_config, "async_scheduling", False)),
    }
    return [name for name, is_used in uses.items() if is_used]


def arrived(request: Request, number: int, hasher: Hashes) -> Arrived:
    """What a record says of a request that arrives, by field."""
    lora = getattr(request, "lora_request", None)
    first_blocks = getattr(request, "block_hashes", ())[:1]
    asks = {
        "structured": bool(getattr(request, "use_structured_output", False)),
        "pooling": getattr(request, "pooling_params", None) is not None,
        "embeddings": getattr(request, "prompt_embeds", None) is not None,
        "resumable": bool(getattr(request, "resumable", False)),
    }
    return {
        "request": number,
        "prompt": request.num_prompt_tokens,
        "items": items_of(request, hasher),
        "max_tokens": request.max_tokens,
        "priority": request.priority,
        "arrival": float(request.arrival_time),
        "lora": 0 if lora is None else lora.lora_int_id,
        "skip_reading": bool(getattr(request, "skip_reading_prefix_cache", False)),
        "flags": [name for name, is_asked in asks.items() if is_asked],
        "prefix": [hasher.digest(bytes_of(one)) for one in first_blocks],
        "name": request.request_id if hasher.is_plain else None,
    }


def bytes_of(key: object) -> bytes:
    """A block's key as bytes: releases have had bytes, numbers and pairs."""
    return key if isinstance(key, bytes) else repr(key).encode()


def items_of(request: Request, hasher: Hashes) -> list[Item]:
    """The media items of a request."""
    return [
        (
            hasher.identifier(feature.identifier),
            feature.mm_position.offset,
            feature.mm_position.length,
            runs_of(feature.mm_position.is_embed),
        )
        for feature in request.mm_features
    ]


def runs_of(mask: Any) -> list[int] | None:
    """A mask as the lengths of its runs, the first of False; None for none."""
    if mask is None:
        return None
    runs, last = [0], False
    for value in mask if isinstance(mask, tuple) else mask.tolist():
        if value != last:
            runs.append(0)
            last = value
        runs[-1] += 1
    return runs
