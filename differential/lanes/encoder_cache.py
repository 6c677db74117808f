"""Lanes of an encoder cache manager alone."""

from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.lanes.lane import Lane

COMMON = frozenset({"repeated item", "shared", "rescue", "eviction", "full"})
"""What any search of an encoder cache must meet."""
ANOTHER_SIZE = COMMON | {"identifier with another size"}
UNDER_PRESSURE = COMMON | {
    "item as large as the cache",
    "several evictions at once",
    "evicted and encoded again in one step",
    "first occurrence consumed, later one pending",
    "admitted beside pending items",
    "pending items fill the cache",
    "refused by budget",
    "refused by space",
    "sparse item",
    "abort inside an item",
    "preemption inside an item",
    "stalled after a claim",
    "released again",
    "reset with entries",
    "encoded anew after an eviction",
}
"""The common states, and those of a cache whose requests come, go and are put back."""

LANES = (
    Lane(
        "encoder cache",
        "manager",
        "encoder_cache",
        manager_trace,
        UNDER_PRESSURE | {"duplicate within one walk", "no embeddings in the window"},
    ),
    Lane(
        "reused media ids",
        "manager",
        "encoder_cache",
        lambda seed: manager_trace(seed, resized=True),
        ANOTHER_SIZE,
        resized=True,
    ),
)
