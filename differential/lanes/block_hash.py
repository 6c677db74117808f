"""Lanes of block keys."""

from functools import partial

from cacheproof.differential.generators.block_hash import block_hash_trace
from cacheproof.differential.lanes.lane import Lane

OF_ITEMS = frozenset(
    {
        "equal blocks share",
        "item ends on a block boundary",
        "item in two blocks",
        "item moved in an equal block",
    }
)
"""What any search of keys of blocks with items must meet."""

LANES = (
    Lane(
        "block keys",
        "block_hash",
        "block_hash",
        block_hash_trace,
        OF_ITEMS
        | {
            "several items in the last block",
            "prompt of embeddings",
            "tokens and embeddings mixed",
            "adapter",
            "cache salt",
        },
        by_release=True,
    ),
    Lane(
        "block keys of items",
        "block_hash",
        "block_hash",
        partial(block_hash_trace, items_only=True, decodes=False),
        OF_ITEMS,
        silent_on=frozenset({"BK-3"}),
        by_release=True,
    ),
    Lane(
        "block keys while decoding",
        "block_hash",
        "block_hash",
        partial(block_hash_trace, items_only=True, continues=False),
        OF_ITEMS | {"several items in the last block"},
        by_release=True,
    ),
    Lane(
        "block keys of continued requests",
        "block_hash",
        "block_hash",
        partial(block_hash_trace, items_only=True),
        OF_ITEMS
        | {
            "prompt continued",
            "discarded token fills a block",
            "several items in a later chunk",
        },
        by_release=True,
    ),
)
