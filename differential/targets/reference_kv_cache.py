"""The reference KV cache manager as what a `KVCacheSession` drives."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from cacheproof.differential.targets.host.faults.kv_cache import KV_CACHE_FAULTS
from cacheproof.differential.targets.host.managers.kv_cache import Clock, KVCacheKit, KVCacheSession
from cacheproof.differential.targets.host.protocol import HASH_SEED, Event, Illegal
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.targets.reference_manager import Factory
from cacheproof.differential.traces.records import StepRecord, TraceResult, records_of
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.block_hash import BlockHasher, get_request_block_hasher
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.kv_cache_metrics import KVCacheMetricsCollector
from cacheproof.reference.kv_cache_specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    NotModelledCache,
    SlidingWindowSpec,
)
from cacheproof.reference.request import LoRARequest, MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.semantics import Semantics

if TYPE_CHECKING:
    from cacheproof.differential.targets.reference import ReferenceTarget

_TAKEN = {
    "admits_in_allocation": {"full_sequence_must_fit"},
    "reserves_blocks": {"reserved_blocks"},
    "keeps_watermark": {"has_scheduled_reqs"},
    "defers_frees": {"pop_blocks_for_free"},
    "knows_prefix_tokens": {"block_hash_num_tokens"},
    "tells_longer_hits": {"shared_prefix_boundary"},
    "events_carry_extra_keys": {"extra_keys"},
    "events_name_groups": {"group_idx"},
    "events_tell_kinds": {"kv_cache_spec_kind", "kv_cache_spec_sliding_window"},
    "events_name_sessions": {"session_id"},
}
"""What a release's manager and events take from a change on: flag of the semantics -> names."""


def build(config: Event, semantics: Semantics, make: Factory = KVCacheManager) -> KVCacheKit:
    """The manager of that configuration. Raises Illegal where the reference does not model it."""
    if not semantics.kv_cache.tells_external_tokens:
        raise Illegal("the reference does not model external tokens before 0.14.0")
    caches = KVCacheConfig(
        config["num_blocks"],
        tuple(
            KVCacheGroupSpec(attention_spec(group), group["has_drafter"])
            for group in config["groups"]
        ),
    )
    clock = Clock()
    metrics = KVCacheMetricsCollector(1.0, clock=clock)
    try:
        manager = make(
            caches,
            config["max_model_len"],
            caches.scheduler_block_size,
            caches.hash_block_size,
            config["max_in_flight_tokens"],
            enable_caching=config["enable_caching"],
            use_eagle=config["use_eagle"],
            log_stats=True,
            enable_kv_cache_events=config["kv_events"],
            metrics_collector=metrics,
            watermark=config["watermark"] if semantics.kv_cache.keeps_watermark else 0.0,
            semantics=semantics,
        )
    except NotModelledCache as reason:
        raise Illegal(f"the reference does not model {reason}") from reason
    hasher = get_request_block_hasher(
        caches.hash_block_size,
        hash_function(semantics.block_keys),
        semantics=semantics.block_keys,
        seed=HASH_SEED,
    )
    return KVCacheKit(
        manager,
        lambda event, token_ids: _request(event, token_ids, hasher),
        {status.value: status for status in RequestStatus},
        _takes(semantics),
        metrics,
        clock,
    )


def is_there(target: "ReferenceTarget") -> bool:
    """Whether that reference can run any trace of this depth."""
    return True


def runs(target: "ReferenceTarget", trace: Trace) -> bool:
    """Whether that reference models the trace's configuration."""
    return models(msgspec.to_builtins(trace.header.config), target.semantics)


def run(target: "ReferenceTarget", trace: Trace, fault: str | None) -> TraceResult:
    """The reference's records. Raises Illegal as `build` does."""
    config = msgspec.to_builtins(trace.header.config)
    events = [msgspec.to_builtins(event) for event in trace.events]
    make = target.managers.get(trace.header.manager, KVCacheManager)
    return TraceResult(step_records(config, events, target.semantics, fault, make))


def step_records(
    config: Event,
    events: Iterable[Event],
    semantics: Semantics,
    fault: str | None = None,
    make: Factory = KVCacheManager,
) -> list[StepRecord]:
    """The step records of one trace. Raises Illegal as `build` does."""
    kit = build(config, semantics, make)
    if fault is not None:
        KV_CACHE_FAULTS[fault](kit.manager)
    return records_of(run_events(KVCacheSession(config, kit), events))


def models(config: Event, semantics: Semantics) -> bool:
    """Whether the reference models that configuration."""
    try:
        build(config, semantics)
    except Illegal:
        return False
    return True


def _takes(semantics: Semantics) -> frozenset[str]:
    takes = {"lora_name"}
    for flag, names in _TAKEN.items():
        if getattr(semantics.kv_cache, flag):
            takes |= names
    return frozenset(takes)


def attention_spec(group: Event) -> KVCacheSpec:
    """The reference's description of a group. Raises Illegal where it has none."""
    size = group["block_size"]
    match group["kind"]:
        case "full":
            return FullAttentionSpec(size)
        case "sliding_window":
            return SlidingWindowSpec(size, group["window"])
        case "chunked_local":
            return ChunkedLocalAttentionSpec(size, group["window"])
        case "cross":
            return CrossAttentionSpec(size)
        case kind:
            raise Illegal(f"the reference does not model {kind} groups")


def _request(event: Event, token_ids: list[int], hasher: BlockHasher) -> ScheduledRequest:
    adapter = event["lora"]
    return ScheduledRequest(
        event["request"],
        token_ids,
        [
            MultiModalFeature(
                item["identifier"],
                PlaceholderRange(item["offset"], item["length"]),
                item["identifier"],
            )
            for item in event["items"]
        ],
        None
        if adapter is None
        else LoRARequest(adapter["lora_name"], adapter["lora_int_id"], adapter["lora_path"]),
        event["salt"],
        block_hasher=hasher,
        skip_reading_prefix_cache=event["skip_reading"],
        session_id=event["session"],
    )
