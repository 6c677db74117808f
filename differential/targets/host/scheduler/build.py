"""Builds a release's real Scheduler for one configuration, with neither weights nor a GPU.

Every refusal is the release's own. What is asked, and of which release:

scheduler, cache and model configuration   the constructors of SchedulerConfig, CacheConfig,
                                           ModelConfig and VllmConfig; validate_block_size (0.19+)
encoder compute budget and cache size      the scheduler's own constructor
KV blocks hold one longest request         get_kv_cache_configs (0.11+), before it
                                           get_kv_cache_config

The model is a config.json of our own, text-only and never loaded. A scheduler that is built for it
is told of items all the same (`media.py`): it works out its encoder budgets and makes the manager
of its encoder cache itself, as it does for users.
"""

import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from unittest.mock import patch

from ..protocol import Event, HostError, Illegal, RefusedByRelease
from ..release_calls import call_known, known_to, parameters
from ..vllm_objects.encoder_cache import EncoderCacheManager
from ..vllm_objects.kv_cache import KVCacheConfig, KVCacheManager, KVCacheSpec
from ..vllm_objects.requests import BlockHasher, RequestStatus
from .settings import LATER, PLAIN, settings_of

# Before anything of vLLM is imported, which reads them.
for _name, _value in {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V1": "1",
}.items():
    os.environ.setdefault(_name, _value)

import torch  # noqa: E402
import vllm.v1.core.kv_cache_utils as kv_cache_utils  # noqa: E402
from vllm.config import (  # noqa: E402
    CacheConfig,
    LoRAConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.v1 import kv_cache_interface  # noqa: E402
from vllm.v1.core.sched import scheduler as scheduler_module  # noqa: E402
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

from .media import with_media  # noqa: E402
from .model import model_config  # noqa: E402

try:
    from vllm.utils.hashing import sha256
except ImportError:
    from vllm.utils import sha256
try:
    from vllm.exceptions import VLLMValidationError
except ImportError:
    VLLMValidationError = ValueError
try:
    from vllm.v1.core import kv_cache_planning
except ImportError:
    kv_cache_planning = kv_cache_utils
try:
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
except ImportError:
    register_all_kvcache_specs = None

_KV_CACHE_LAYOUT = "LBNHC"  # where bytes lie is the workers' business; 0.30+ wants it named
# What a release raises when it refuses a value. A TypeError or AttributeError is a driver that does
# not know this release, and must not pass for an illegal trace.
REFUSALS = (
    ValueError,
    RuntimeError,
    NotImplementedError,
    AssertionError,
    VLLMValidationError,
)


_SPECS = {
    "full": "FullAttentionSpec",
    "sliding_window": "SlidingWindowSpec",
    "chunked_local": "ChunkedLocalAttentionSpec",
    "cross": "CrossAttentionSpec",
}


Finish = Callable[[str | Iterable[str] | None, RequestStatus], Sequence[object] | None]


class SchedulerParts(NamedTuple):
    """The parts of one configuration from which a scheduler is made afresh for each trace."""

    vllm_config: VllmConfig
    kv_cache_config: KVCacheConfig
    structured_output_manager: StructuredOutputManager
    block_hasher: BlockHasher


def refusal(error: BaseException) -> str:
    """A refusal in one line: the release's own sentence, which pydantic puts under a heading."""
    errors = getattr(error, "errors", None)
    text = errors()[0]["msg"] if callable(errors) else str(error)
    return (text.strip() or type(error).__name__).splitlines()[0]


def seed_block_hashes() -> None:
    """Have the release derive its first parent key from PYTHONHASHSEED, as it does when asked."""
    kv_cache_utils.init_none_hash(sha256)
    seeded = kv_cache_utils.NONE_HASH
    kv_cache_utils.init_none_hash(sha256)  # once more: a random value would be another
    if seeded != kv_cache_utils.NONE_HASH:
        raise HostError("block hashes start from a random value in this release")


@functools.cache
def _prepare_process() -> None:
    """Done once: silence the release, require a fixed hash seed, seed block hashes."""
    if os.environ.get("PYTHONHASHSEED") != "0" or sys.flags.hash_randomization:
        raise HostError("the host must be started with PYTHONHASHSEED=0")
    logging.disable(logging.CRITICAL)
    seed_block_hashes()
    # A driver that does not know the release would have it refuse every trace as illegal.
    plain = _engine(json.dumps(PLAIN))
    if isinstance(plain, Illegal):
        raise HostError(f"the release refuses the plainest configuration: {plain}")


def _configure(config: Event) -> VllmConfig:
    """The release's VllmConfig, refused where it silently changes what was asked for."""
    # Asked for only where they are not plain, so that releases that lack them take plain traces.
    later = {name: config[name] for name, nothing in LATER.items() if config[name] != nothing}
    for name in later:
        if name not in parameters(SchedulerConfig):
            raise Illegal(f"the release has no {name}")
    scheduler_config = call_known(
        SchedulerConfig,
        **later,
        **settings_of(config),
        async_scheduling=config["async_scheduling"],
        is_multimodal_model=True,
        is_encoder_decoder=config["encoder_decoder"],
    )
    retention = "prefix_cache_retention_interval"
    if config[retention] is not None and retention not in parameters(CacheConfig):
        raise Illegal(f"the release has no {retention}")
    cache_config = call_known(
        CacheConfig,
        prefix_cache_retention_interval=config[retention],
        block_size=config["block_size"],
        gpu_memory_utilization=0.9,
        swap_space=0,
        cache_dtype="auto",
        enable_prefix_caching=config["prefix_caching"],
    )
    if hasattr(cache_config, "kv_cache_layout"):
        cache_config.kv_cache_layout = _KV_CACHE_LAYOUT
    vllm_config = VllmConfig(
        scheduler_config=scheduler_config,
        cache_config=cache_config,
        model_config=model_config(config["max_model_len"]),
        lora_config=_lora_config(config["max_loras"]),
        **_transfers(config["ec_connector"]),
        **_kv_transfers(config),
    )
    vllm_config.speculative_config = _speculative_config(config, vllm_config)
    # The CPU platform has no use for them and switches them off; every other platform keeps them.
    scheduler_config.async_scheduling = config["async_scheduling"]
    scheduler_config.disable_hybrid_kv_cache_manager = False
    for owner, field, key in (
        (scheduler_config, "max_num_batched_tokens", "max_num_batched_tokens"),
        (scheduler_config, "enable_chunked_prefill", "chunked_prefill"),
        (scheduler_config, "disable_chunked_mm_input", "disable_chunked_mm_input"),
        (scheduler_config, "long_prefill_token_threshold", "long_prefill_token_threshold"),
        (cache_config, "block_size", "block_size"),
        (cache_config, "enable_prefix_caching", "prefix_caching"),
    ):
        if getattr(owner, field) != config[key]:
            raise Illegal(f"the release turns {key} {config[key]} into {getattr(owner, field)}")
    return vllm_config


def _transfers(has_connector: bool) -> dict[str, object]:
    if not has_connector:
        return {}
    try:
        from .ec_connector import transfer_config
    except ModuleNotFoundError as error:
        if error.name != "vllm.config.ec_transfer":
            raise
        raise Illegal("the release loads no encoder output from elsewhere") from None
    return {"ec_transfer_config": transfer_config()}


def _kv_transfers(config: Event) -> dict[str, object]:
    if config["kv_connector"] is None:
        return {}
    if config["groups"]:
        raise Illegal("the trace's connector knows one group of blocks")
    from .kv_connector import kv_transfer_config

    return {"kv_transfer_config": kv_transfer_config(config["kv_connector"])}


def _lora_config(max_loras: int) -> LoRAConfig | None:
    if max_loras == 0:
        return None
    return call_known(LoRAConfig, max_loras=max_loras, max_cpu_loras=max_loras)


def _speculative_config(config: Event, vllm_config: VllmConfig) -> SpeculativeConfig | None:
    """The configuration of drafts by prompt lookup, which needs no model; None without drafts. A
    drafter is prompt lookup that calls itself a model: its weights do not matter at scheduler
    depth."""
    count = config["num_speculative_tokens"]
    if count == 0:
        return None
    speculative = call_known(
        SpeculativeConfig,
        method="ngram",
        num_speculative_tokens=count,
        prompt_lookup_max=2,
        prompt_lookup_min=1,
        target_model_config=vllm_config.model_config,
        target_parallel_config=vllm_config.parallel_config,
    )
    if config["drafter"]:
        object.__setattr__(speculative, "method", "eagle")
    return speculative


def attention_spec(group: Event) -> KVCacheSpec:
    """The release's description of a layer of that kind. Raises Illegal where it has none."""
    name = _SPECS[group["kind"]]
    if not hasattr(kv_cache_interface, name):
        raise Illegal(f"the release has no {name}")
    windows = {"sliding_window": "sliding_window", "chunked_local": "attention_chunk_size"}
    own = {windows[group["kind"]]: group["window"]} if group["kind"] in windows else {}
    return call_known(
        getattr(kv_cache_interface, name),
        block_size=group["block_size"],
        num_kv_heads=1,
        head_size=1,
        dtype=torch.float32,
        use_mla=False,
        **own,
    )


def _plan_kv_cache(vllm_config: VllmConfig, groups: list[Event], num_blocks: int) -> KVCacheConfig:
    """The scheduler's KV cache configuration for memory of exactly `num_blocks` blocks, and a model
    with one layer in each group."""
    if register_all_kvcache_specs is not None:
        register_all_kvcache_specs(vllm_config)
    block_size = vllm_config.cache_config.block_size
    groups = groups or [{"kind": "full", "block_size": block_size}]
    if any(group["block_size"] != block_size for group in groups):
        raise Illegal(f"a group has blocks of another size than {block_size}")
    specs = [attention_spec(group) for group in groups]
    layers = {f"layer.{number}": spec for number, spec in enumerate(specs)}
    memory = num_blocks * specs[0].page_size_bytes
    plan = getattr(kv_cache_planning, "get_kv_cache_configs", None)
    if plan is None:
        planned = kv_cache_planning.get_kv_cache_config(vllm_config, layers, memory)
    else:
        group = getattr(kv_cache_planning, "get_global_kv_cache_groups", None)
        formed = () if group is None else (group(vllm_config, [layers]),)
        configs = plan(vllm_config, [layers], [memory], *formed)
        planned = kv_cache_utils.generate_scheduler_kv_cache_config(configs)
    if [group.kv_cache_spec for group in planned.kv_cache_groups] != specs:
        raise Illegal("the release forms other groups")
    if planned.num_blocks != num_blocks:
        raise HostError(f"asked for {num_blocks} KV blocks and got {planned.num_blocks}")
    vllm_config.cache_config.num_gpu_blocks = num_blocks
    if hasattr(vllm_config, "validate_block_size"):
        vllm_config.validate_block_size()
    return planned


@functools.lru_cache(maxsize=256)
def _engine(key: str) -> SchedulerParts | Illegal:
    """The parts of a configuration in JSON, or why there are none."""
    config = json.loads(key)
    try:
        vllm_config = _configure(config)
        try:
            kv_cache_config = _plan_kv_cache(vllm_config, config["groups"], config["num_blocks"])
        finally:  # 0.11 and before refuse with a shrunken length left in the shared ModelConfig
            vllm_config.model_config.max_model_len = config["max_model_len"]
    except Illegal as reason:
        return reason
    except REFUSALS as error:
        return RefusedByRelease(error, refusal(error))
    return SchedulerParts(
        vllm_config,
        kv_cache_config,
        StructuredOutputManager(vllm_config),
        _block_hasher(vllm_config, config["block_size"]),
    )


def _block_hasher(vllm_config: VllmConfig, block_size: int) -> BlockHasher:
    """The function that makes requests' block keys, made as the engine core makes it."""
    lookahead = getattr(vllm_config, "num_hash_lookahead_tokens", 0)
    further = {"num_hash_lookahead_tokens": lookahead} if lookahead else {}
    return kv_cache_utils.get_request_block_hasher(block_size, sha256, **further)


def engine_for(config: Event, *, encoder_decoder: bool) -> SchedulerParts:
    """The parts for a configuration, cached. Raises Illegal where the release lacks what is asked
    for, and RefusedByRelease where it raises."""
    _prepare_process()
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    # These are set for each scheduler: configurations that differ in them alone share their parts.
    fixed = {
        "capacity": 0,
        "compute_budget": 0,
        "v2_model_runner": False,
        "encoder_decoder": encoder_decoder,
    }
    engine = _engine(json.dumps({**config, **fixed}, sort_keys=True))
    if isinstance(engine, Illegal):  # it is cached, and would gather the frames of each raise
        raise engine.with_traceback(None)
    return engine


def make_scheduler(
    engine: SchedulerParts,
    config: Event,
    largest_item: int,
    *,
    encoder_decoder: bool,
    make_manager: Callable[[int], EncoderCacheManager] | None = None,
    make_kv_cache_manager: Callable[..., KVCacheManager] | None = None,
) -> Scheduler:
    """A fresh real scheduler, the asynchronous one where so configured, with managers of its own.

    `make_manager` is called with a cache size instead of the class of its encoder cache manager,
    `make_kv_cache_manager` instead of that of its KV cache manager.

    Only now is the model runner set: the second one wants a GPU's libraries, and the configuration
    is refused where they are missing. Only now, too, does the model have items, or is it an
    encoder-decoder.
    """
    v2: bool = config["v2_model_runner"]
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(v2))
    vllm_config = engine.vllm_config
    vllm_config.scheduler_config.max_num_encoder_input_tokens = config["compute_budget"]
    vllm_config.scheduler_config.encoder_cache_size = config["capacity"]
    arguments = {
        "vllm_config": vllm_config,
        "kv_cache_config": engine.kv_cache_config,
        "structured_output_manager": engine.structured_output_manager,
        "block_size": vllm_config.cache_config.block_size,
        "log_stats": False,
    }
    is_async = vllm_config.scheduler_config.async_scheduling
    make_kv_cache_manager = make_kv_cache_manager or scheduler_module.KVCacheManager
    with (
        patch.object(scheduler_module, "KVCacheManager", make_kv_cache_manager),
        with_media(
            scheduler_module,
            vllm_config.model_config,
            largest_item,
            encoder_decoder=encoder_decoder,
            make_manager=make_manager,
        ) as media,
    ):
        try:
            scheduler = (AsyncScheduler if is_async else Scheduler)(
                **known_to(Scheduler, arguments | media)
            )
        except REFUSALS as error:
            raise RefusedByRelease(error, refusal(error)) from error
    if v2 and not hasattr(scheduler, "use_v2_model_runner"):
        raise Illegal("the release has no second model runner")
    scheduler.finish_requests = _one_by_one(scheduler.finish_requests)
    return scheduler


def _one_by_one(finish: Finish) -> Finish:
    """`finish`, but several requests end in order of their names: releases take that of a set."""

    def finish_requests(
        request_ids: str | Iterable[str] | None, finished_status: RequestStatus
    ) -> Sequence[object] | None:
        if request_ids is None or isinstance(request_ids, str):
            return finish(request_ids, finished_status)
        ended = [finish([name], finished_status) for name in sorted(request_ids)]
        return [one for several in ended for one in several or ()]

    return finish_requests
