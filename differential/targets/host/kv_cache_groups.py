"""The groups of a KV cache, in the words of traces."""

from typing import Any

from .protocol import Event

_KINDS = {
    "FullAttentionSpec": ("full", ""),
    "SlidingWindowSpec": ("sliding_window", "sliding_window"),
    "ChunkedLocalAttentionSpec": ("chunked_local", "attention_chunk_size"),
    "CrossAttentionSpec": ("cross", ""),
}


def groups_of(kv_cache_config: Any) -> list[Event] | None:
    """The groups as traces have them; None where there is a kind that no trace knows."""
    groups = []
    for group in getattr(kv_cache_config, "kv_cache_groups", ()):
        spec = group.kv_cache_spec
        if type(spec).__name__ not in _KINDS:
            return None
        kind, window = _KINDS[type(spec).__name__]
        size = getattr(spec, window) if window else 0
        groups.append({"kind": kind, "block_size": spec.block_size, "window": size})
    return groups
