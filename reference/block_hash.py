"""Keys of full KV blocks: a hash chained over the prefix, so that equal keys mean equal KV.

A key covers its parent's key, the block's token ids, and extra keys for what else determines the
block's KV: media items with their offset in the block, the LoRA adapter, the cache salt (in the
first block; the chain carries it on) and prompt embeddings.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from cacheproof.reference.hash_functions import HashFunction
from cacheproof.reference.request import MultiModalFeature, PromptEmbeds, TokenRequest, end_of
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

BlockHasher = Callable[[TokenRequest], list[bytes]]


def none_hash(hash_fn: HashFunction, seed: str) -> bytes:
    """The parent of a first block, from a process's seed."""
    return hash_fn(seed)


def get_request_block_hasher(
    hash_block_size: int,
    caching_hash_fn: HashFunction,
    num_hash_lookahead_tokens: int = 0,
    *,
    semantics: BlockKeySemantics,
    seed: str,
) -> BlockHasher:
    """A function from a request to the hashes of its full blocks that it does not have yet.

    With look-ahead tokens a hash covers those tokens after its block too, which a drafter's KV
    depends on, and waits until they exist.
    """
    size, lookahead = hash_block_size, num_hash_lookahead_tokens
    first_parent = none_hash(caching_hash_fn, seed)

    def hasher(request: TokenRequest) -> list[bytes]:
        tokens = request.all_token_ids
        first = len(request.block_hashes) * size
        if len(tokens) - lookahead < first + size:
            return []
        keys = _ExtraKeys(request, semantics)
        parent = request.block_hashes[-1] if request.block_hashes else first_parent
        hashes: list[bytes] = []
        for start in range(first, (len(tokens) - lookahead) // size * size, size):
            end = start + size
            extra: Any = keys.of(start, end + lookahead)
            if lookahead:
                extra = (extra, *tokens[end : end + lookahead])
            parent = caching_hash_fn((parent, tuple(tokens[start:end]), extra))
            hashes.append(parent)
        return hashes

    return hasher


def continue_request(
    request: TokenRequest,
    chunk: TokenRequest,
    hash_block_size: int,
    *,
    kept: int,
    semantics: BlockKeySemantics,
) -> None:
    """More prompt for a request that has stopped: the tokens and the items of `chunk`.

    `kept` of its tokens become prompt: all but the last, whose KV was never computed. A key that
    covers a discarded token is dropped, unless it only looks ahead at it: a drafter's KV was
    computed with that token, and is not computed again.
    """
    decoded = request.all_token_ids[request.num_prompt_tokens : kept]
    request.prompt_token_ids += [*decoded, *chunk.prompt_token_ids]
    del request.all_token_ids[kept:]
    if semantics.drops_keys_of_discarded:
        del request.block_hashes[kept // hash_block_size :]
    request.mm_features += [feature.moved(kept) for feature in chunk.mm_features]
    request.all_token_ids += chunk.all_token_ids
    request.num_prompt_tokens = request.num_tokens
    request.update_block_hashes()


class _ExtraKeys:
    """What determines the KV of a request's blocks beside their tokens, block after block.

    Before `finds_items_when_grown`, hashing that goes on behind a first block begins with the last
    item, whatever stands before it in the block.
    """

    def __init__(self, request: TokenRequest, semantics: BlockKeySemantics) -> None:
        self._request = request
        self._semantics = semantics
        self._adapter = tuple(_adapter_keys(request, semantics))
        self._items = request.mm_features
        self._item = 0
        self._starts_late = bool(request.block_hashes) and not semantics.finds_items_when_grown
        if self._starts_late and self._items:
            self._item = len(self._items) - 1

    def of(self, start: int, end: int) -> tuple[Any, ...] | None:
        """Extra keys of tokens [start, end); None without any. To be called block after block."""
        keys = self._adapter + tuple(self._of_items(start, end))
        if start == 0 and self._request.cache_salt:
            keys += _salt_keys(self._request.cache_salt, self._semantics)
        if self._request.prompt_embeds is not None and self._semantics.keys_prompt_embeds:
            keys += _embeds_keys(self._request.prompt_embeds, start, end, self._semantics)
        return keys or None

    def _of_items(self, start: int, end: int) -> list[Any]:
        """Each item that has a token there, by identifier and offset from the block's start."""
        items, item = self._items, self._item
        if not self._starts_late:
            while item < len(items) and end_of(items[item]) <= start:
                item += 1
            self._item = item
        self._starts_late = False
        keys = []
        while item < len(items) and items[item].mm_position.offset < end:
            if end_of(items[item]) >= start + self._semantics.passes_items_at_boundary:
                keys.append(_item_key(items[item], start, self._semantics))
            item += 1
        return keys


def _adapter_keys(request: TokenRequest, semantics: BlockKeySemantics) -> Iterator[Any]:
    adapter = request.lora_request
    if adapter is None:
        return
    if not semantics.keys_adapter_names:
        yield adapter.lora_int_id
    elif semantics.keys_adapter_paths:
        yield ("lora", adapter.lora_name, adapter.lora_path)
    else:
        yield adapter.lora_name


def _item_key(feature: MultiModalFeature, start: int, semantics: BlockKeySemantics) -> Any:
    offset = feature.mm_position.offset - start
    if not semantics.keys_item_offsets:
        return feature.identifier
    return (
        ("mm", feature.identifier, offset)
        if semantics.tags_block_keys
        else (feature.identifier, offset)
    )


def _salt_keys(salt: str, semantics: BlockKeySemantics) -> tuple[Any, ...]:
    return (("cache_salt", salt) if semantics.tags_block_keys else salt,)


def _embeds_keys(
    embeds: PromptEmbeds, start: int, end: int, semantics: BlockKeySemantics
) -> tuple[Any, ...]:
    rows = b"".join(embeds.tensor[start:end])
    digest = hashlib.sha256(rows).digest() if semantics.digests_prompt_embeds else rows
    if semantics.keys_embed_masks:
        return (("prompt_embeds", digest, bytes(embeds.given[start:end])),)
    return (("prompt_embeds", digest) if semantics.tags_block_keys else digest,)
