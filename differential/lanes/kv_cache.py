"""Lanes of a KV cache manager alone."""

from cacheproof.differential.generators.kv_cache import drafted_kv_cache_trace, kv_cache_trace
from cacheproof.differential.lanes.lane import Lane

LANES = (
    Lane(
        "KV cache",
        "kv_cache",
        "kv_cache",
        kv_cache_trace,
        frozenset(
            {
                "pool empty",
                "drafts rejected",
                "load failed",
                "hash of a held block removed",
                "reset refused",
                "reset with cached blocks",
                "groups disagree on a hit",
                "hit of a held block",
                "hit of a free block",
                "hit after preemption",
                "allocation refused",
                "prompt tail cached",
                "cached block handed out",
                "one hash on two blocks",
                "blocks behind a window given back",
                "free put off",
                "load under way",
                "several prompt tails on one block",
                "hit of a duplicate",
                "hit of a block whose free is put off",
                "hit in several groups",
                "null blocks in a hit",
                "every token cached",
                "load behind a hit",
                "load failed from the first token",
                "ended while loading",
                "preempted with a step in flight",
                "window moves beside a step in flight",
                "look-ahead past the model's end",
                "whole sequence refused",
                "refused beside reserved blocks",
                "cross-attention blocks",
                "common prefix",
            }
        ),
        since="0.14.0",
    ),
    Lane(
        "KV cache beside a drafter",
        "kv_cache",
        "kv_cache",
        drafted_kv_cache_trace,
        frozenset({"hit of a free block", "groups disagree on a hit", "hit in several groups"}),
        since="0.23.0",
    ),
)
