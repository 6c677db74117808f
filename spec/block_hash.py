"""Block keys: what two requests that share a KV block must agree on.

`p` is a pair of blocks of two requests with their keys, `k` the keys of one request's full blocks.
A key stands for the block and for everything before it.
"""

from typing import NamedTuple

from cacheproof.spec.registry import Component

COMPONENT = "block_hash"
SHARED_KV = "vLLM prefix caching: a block is looked up by its key alone"


class BlockContent(NamedTuple):
    """What determines the KV of one block, beside the blocks before it.

    `tokens` are its token ids, `ahead` those after it that its key covers for a drafter. `items`
    are (identifier, offset from the block's start) of the media items that reach into them,
    `adapter` is (name, path), `salt` the request's cache salt, `embeds` the given row in hex, or
    None, of each position.
    """

    tokens: tuple[int, ...]
    ahead: tuple[int, ...]
    items: tuple[tuple[str, int], ...]
    adapter: tuple[str, str] | None
    salt: str | None
    embeds: tuple[str | None, ...]


class BlockPair(NamedTuple):
    """Two full blocks, each with the blocks before it as `prefix` (the block itself included)."""

    same_key: bool
    block: BlockContent
    other: BlockContent
    prefix: tuple[BlockContent, ...]
    other_prefix: tuple[BlockContent, ...]


class KeyCount(NamedTuple):
    """How many full blocks a request has, how many keys as it grew and afresh, and the type of the
    exception in whose place they come, empty for none."""

    blocks: int
    grown: int
    fresh: int
    raised: str


class RequestKeys(NamedTuple):
    """The keys of a request's full blocks: collected as it grew, and computed afresh.

    Both end before the first block whose KV was computed with other tokens ahead than it has now.
    """

    grown: tuple[str, ...]
    fresh: tuple[str, ...]


rules = Component(COMPONENT)


@rules.pair(
    "BK-1",
    "safety",
    "Blocks with equal keys hold the same tokens, items at the same offsets, adapter, salt, embeds",
    source=SHARED_KV,
)
def keys_tell_blocks_apart(p: BlockPair) -> bool:
    return not p.same_key or (
        p.block.tokens == p.other.tokens
        and p.block.ahead == p.other.ahead
        and p.block.items == p.other.items
        and p.block.adapter == p.other.adapter
        and p.block.salt == p.other.salt
        and p.block.embeds == p.other.embeds
    )


@rules.pair(
    "BK-2",
    "safety",
    "Requests share a KV block only if they agree on all that determines it, over the whole prefix",
    source=SHARED_KV,
)
def shares_only_equal_prefixes(p: BlockPair) -> bool:
    return not p.same_key or p.prefix == p.other_prefix


@rules.keys(
    "BK-3",
    "safety",
    "Hashing a request as it grows gives the keys that hashing it afresh gives",
    source="vLLM Request.update_block_hashes",
)
def grows_as_fresh(k: RequestKeys) -> bool:
    return k.grown == k.fresh


@rules.pair(
    "BK-4",
    "efficiency",
    "Equal prefixes have equal keys: what can be shared is",
    source="positive control: keys that never agree would pass every other rule",
)
def equal_prefixes_share(p: BlockPair) -> bool:
    return p.same_key or p.prefix != p.other_prefix


@rules.keys(
    "BK-5",
    "safety",
    "A request has a key for each of its full blocks, and asking for them raises nothing",
    source="vLLM Request.block_hashes: caching and lookups take the key of a block by its number",
)
def has_a_key_for_each_block(c: KeyCount) -> bool:
    return c.raised == "" and c.grown == c.blocks and c.fresh == c.blocks
