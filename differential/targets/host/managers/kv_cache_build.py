"""Builds a release's real KVCacheManager and real requests for a trace of KV events."""

import functools
import inspect
import logging
from math import gcd, lcm
from types import SimpleNamespace

from vllm.distributed.kv_events import BlockStored
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1 import kv_cache_interface
from vllm.v1.core import kv_cache_metrics, kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request, RequestStatus

from ..protocol import Event, Illegal
from ..release_calls import call_known
from ..scheduler.build import attention_spec, seed_block_hashes, sha256
from ..scheduler.requests import carried
from ..vllm_objects.kv_cache import BlockKey, BlockPool, KVCacheGroupSpec
from ..vllm_objects.requests import BlockHasher
from .kv_cache import Clock, KVCacheKit
from .kv_cache_recorder import FURTHER_STORED_FIELDS

try:
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
except ImportError:
    register_all_kvcache_specs = None

_OPTIONAL = ("full_sequence_must_fit", "reserved_blocks", "has_scheduled_reqs")
_REFUSALS = (ValueError, AssertionError, NotImplementedError)


def build(config: Event) -> KVCacheKit:
    """The manager of that configuration. Raises Illegal where the release refuses it."""
    _prepare_process()
    sizes = [group["block_size"] for group in config["groups"]]
    hash_block_size = gcd(*sizes)
    clock = Clock()
    kv_cache_metrics.time = SimpleNamespace(monotonic_ns=clock)
    metrics = kv_cache_metrics.KVCacheMetricsCollector(sample_rate=1.0)
    try:
        manager = call_known(
            KVCacheManager,
            kv_cache_config=kv_cache_interface.KVCacheConfig(
                num_blocks=config["num_blocks"],
                kv_cache_tensors=[],
                kv_cache_groups=[
                    _group(number, group) for number, group in enumerate(config["groups"])
                ],
            ),
            max_model_len=config["max_model_len"],
            scheduler_block_size=lcm(*sizes),
            hash_block_size=hash_block_size,
            max_in_flight_tokens=config["max_in_flight_tokens"],
            max_num_batched_tokens=config["max_in_flight_tokens"],
            enable_caching=config["enable_caching"],
            use_eagle=config["use_eagle"],
            log_stats=True,
            enable_kv_cache_events=config["kv_events"],
            watermark=config["watermark"],
            metrics_collector=metrics,
        )
    except _REFUSALS as error:
        raise Illegal(str(error) or type(error).__name__) from error
    _order_further_hashes(manager.block_pool)
    if not hasattr(manager, "empty_kv_cache_blocks"):
        manager.empty_kv_cache_blocks = manager.create_empty_block_list()
    hasher = kv_cache_utils.get_request_block_hasher(hash_block_size, sha256)
    return KVCacheKit(
        manager,
        functools.partial(_request, hasher),
        {
            "waiting": RequestStatus.WAITING,
            "running": RequestStatus.RUNNING,
            "preempted": RequestStatus.PREEMPTED,
            "loading": RequestStatus.WAITING_FOR_REMOTE_KVS,
        },
        _takes(manager),
        metrics,
        clock,
    )


def _group(number: int, group: Event) -> KVCacheGroupSpec:
    """The release's description of a group. Raises Illegal where it marks none for a drafter."""
    marks = {"is_eagle_group": True} if group["has_drafter"] else {}
    known = inspect.signature(kv_cache_interface.KVCacheGroupSpec).parameters
    if not marks.keys() <= known.keys():
        raise Illegal("a drafter that reads some groups alone, which the release does not mark")
    return kv_cache_interface.KVCacheGroupSpec([f"layer.{number}"], attention_spec(group), **marks)


class _InOrder(dict[BlockKey, None]):
    """A set that iterates in the order in which its members were added."""

    def add(self, member: BlockKey) -> None:
        self[member] = None


class _SetsInOrder(dict[int, _InOrder]):
    """Block id -> the hashes of the block besides its first one."""

    def setdefault(self, key: int, default: object = None) -> _InOrder:
        return super().setdefault(key, _InOrder())


def _order_further_hashes(pool: BlockPool) -> None:
    """Keep a block's further hashes in the order in which they were added: the release has a set of
    strings, in whose order their removal is told."""
    if hasattr(pool, "cached_block_hashes_by_block"):
        pool.cached_block_hashes_by_block = _SetsInOrder()


def _takes(manager: KVCacheManager) -> frozenset[str]:
    """The optional arguments, methods and fields that this release has."""
    takes = set(inspect.signature(manager.allocate_slots).parameters).intersection(_OPTIONAL)
    takes |= set(FURTHER_STORED_FIELDS).intersection(BlockStored.__struct_fields__)
    if hasattr(manager, "pop_blocks_for_free"):
        takes.add("pop_blocks_for_free")
    if hasattr(manager.block_pool.null_block, "block_hash_num_tokens"):
        takes.add("block_hash_num_tokens")
    if "int, int]" in str(inspect.signature(manager.get_computed_blocks).return_annotation):
        takes.add("shared_prefix_boundary")
    return frozenset(takes)


@functools.cache
def _prepare_process() -> None:
    logging.disable(logging.CRITICAL)
    seed_block_hashes()
    if register_all_kvcache_specs is not None:
        register_all_kvcache_specs(None)


def _request(hasher: BlockHasher, event: Event, token_ids: list[int]) -> Request:
    return call_known(
        Request,
        request_id=event["request"],
        prompt_token_ids=token_ids,
        sampling_params=_sampling(event["skip_reading"]),
        pooling_params=None,
        eos_token_id=None,
        arrival_time=0.0,
        cache_salt=event["salt"],
        lora_request=_lora(event["lora"]),
        block_hasher=hasher,
        session_id=event["session"],
        **carried([{"mm_hash": None, "is_embed": None, **item} for item in event["items"]]),
    )


@functools.cache
def _sampling(skip_reading: bool) -> SamplingParams:
    """Sampling parameters; a request that wants prompt log probabilities skips reading the prefix
    cache."""
    parameters = SamplingParams(max_tokens=1 << 20, ignore_eos=True, temperature=0)
    if hasattr(parameters, "skip_reading_prefix_cache"):
        parameters.skip_reading_prefix_cache = skip_reading
    return parameters


def _lora(adapter: Event | None) -> LoRARequest | None:
    return None if adapter is None else call_known(LoRARequest, **adapter)
