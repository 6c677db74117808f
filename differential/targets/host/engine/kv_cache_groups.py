"""The groups of a KV cache, as traces have them."""

import dataclasses

from ..protocol import Event, Illegal
from ..vllm_objects.kv_cache import KVCacheConfig

_KINDS = {
    "FullAttentionSpec": ("full", ""),
    "SlidingWindowSpec": ("sliding_window", "sliding_window"),
    "ChunkedLocalAttentionSpec": ("chunked_local", "attention_chunk_size"),
    "CrossAttentionSpec": ("cross", ""),
}


def groups_of(kv_cache_config: KVCacheConfig) -> list[Event] | None:
    """An engine's groups as traces have them; None where a group is of a kind that no trace has."""
    groups = []
    for group in getattr(kv_cache_config, "kv_cache_groups", ()):
        spec = group.kv_cache_spec
        if type(spec).__name__ not in _KINDS:
            return None
        kind, window = _KINDS[type(spec).__name__]
        size = getattr(spec, window) if window else 0
        groups.append({"kind": kind, "block_size": spec.block_size, "window": size})
    return groups


def check_groups(own: list[Event] | None, config: Event) -> None:
    """Raises Illegal where a trace's configuration has other groups than the engine; without groups
    it has one of full attention."""
    full = {"kind": "full", "block_size": config["block_size"], "window": 0}
    if own != list(config["groups"] or [full]):
        raise Illegal(f"the groups of the engine's KV cache are {own}")


def planned(made: KVCacheConfig, config: Event) -> KVCacheConfig:
    """The KV cache of that configuration, with the groups that were made. Raises Illegal where the
    release has no such thing."""
    asked = {"num_blocks": config["num_blocks"]}
    retention = "prefix_cache_retention_interval"
    if hasattr(made, retention):
        asked[retention] = config[retention]
    elif config[retention] is not None:
        raise Illegal(f"the release has no {retention}")
    return dataclasses.replace(made, **asked)
