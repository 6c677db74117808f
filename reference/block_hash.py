"""Keys of full KV blocks: a hash chained over the prefix, so that equal keys mean equal KV.

A key covers its parent's key, the block's token ids, and extra keys for what else determines the
block's KV: media items with their offset in the block, the LoRA adapter, the cache salt (in the
first block; the chain carries it on) and prompt embeddings.
"""

import hashlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cacheproof.reference.request import TokenRequest
from cacheproof.reference.semantics import Semantics

HashFunction = Callable[[Any], bytes]
ExtraKeys = tuple[Any, ...] | None
BlockHasher = Callable[[TokenRequest], list[bytes]]
LENGTH_BYTES = 8


def canonical(value: Any) -> bytes:
    """An injective encoding of None, int, str, bytes and tuples of these: tag, length, content.

    Raises:
        TypeError: a value of another type.
    """
    match value:
        case None:
            tag, content = b"n", b""
        case bool():
            raise TypeError("a block key holds no bool")
        case int():
            tag, content = b"i", str(value).encode()
        case str():
            tag, content = b"s", value.encode("utf-8", "surrogatepass")
        case bytes():
            tag, content = b"b", value
        case tuple():
            tag, content = b"t", b"".join(map(canonical, value))
        case _:
            raise TypeError(f"a block key holds no {type(value).__name__}")
    return tag + len(content).to_bytes(LENGTH_BYTES, "big") + content


def sha256_canonical(value: Any) -> bytes:
    """SHA-256 of the canonical encoding: equal values have equal hashes, however they were made."""
    return hashlib.sha256(canonical(value)).digest()


def sha256(value: Any) -> bytes:
    """SHA-256 of the pickle, as vLLM's default: it also depends on which objects are shared."""
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def hash_function(semantics: Semantics) -> HashFunction:
    """The default hash of those semantics."""
    return sha256_canonical if semantics.keys_by_content else sha256


def none_hash(hash_fn: HashFunction, seed: str) -> bytes:
    """The parent of a first block, from a process's seed."""
    return hash_fn(seed)


class Cursor(NamedTuple):
    """The block to be hashed, in tokens, and the first item that may stand in it."""

    start: int
    end: int
    item: int


def get_request_block_hasher(
    hash_block_size: int,
    caching_hash_fn: HashFunction,
    num_hash_lookahead_tokens: int = 0,
    *,
    semantics: Semantics,
    seed: str,
) -> BlockHasher:
    """A function from a request to the hashes of its full blocks that it does not have yet.

    With look-ahead tokens a hash covers those tokens after its block too, which a drafter's KV
    depends on, and waits until they exist.
    """
    first_parent = none_hash(caching_hash_fn, seed)

    def hasher(request: TokenRequest) -> list[bytes]:
        hashes: list[bytes] = []
        parent = request.block_hashes[-1] if request.block_hashes else first_parent
        for cursor in _cursors(request, hash_block_size, num_hash_lookahead_tokens, semantics):
            ahead = request.all_token_ids[cursor.end : cursor.end + num_hash_lookahead_tokens]
            covered = cursor._replace(end=cursor.end + len(ahead))
            extra: ExtraKeys = extra_keys(request, covered, semantics)
            if num_hash_lookahead_tokens:
                extra = (extra, *ahead)
            tokens = tuple(request.all_token_ids[cursor.start : cursor.end])
            parent = caching_hash_fn((parent, tokens, extra))
            hashes.append(parent)
        return hashes

    return hasher


def _cursors(
    request: TokenRequest, size: int, lookahead: int, semantics: Semantics
) -> Iterator[Cursor]:
    """The full blocks without a hash yet, each with the first item that ends behind its start.

    Before `finds_items_when_grown`, hashing that goes on behind a first block begins with the last
    item, whatever stands before it in the block.
    """
    features = request.mm_features
    known = len(request.block_hashes)
    item = len(features) - 1 if features and known and not semantics.finds_items_when_grown else 0
    for number in range(known, (request.num_tokens - lookahead) // size):
        start = number * size
        if number > known or semantics.finds_items_when_grown:
            while item < len(features) and features[item].mm_position.end <= start:
                item += 1
        yield Cursor(start, start + size, item)


def extra_keys(request: TokenRequest, block: Cursor, semantics: Semantics) -> ExtraKeys:
    """What determines a block's KV beside its tokens; None when nothing does."""
    keys = [
        *_adapter_keys(request, semantics),
        *_item_keys(request, block, semantics),
        *_salt_keys(request, block, semantics),
        *_embeds_keys(request, block, semantics),
    ]
    return tuple(keys) or None


def _adapter_keys(request: TokenRequest, semantics: Semantics) -> Iterator[Any]:
    adapter = request.lora_request
    if adapter is None:
        return
    if not semantics.keys_adapter_names:
        yield adapter.lora_int_id
    elif semantics.keys_adapter_paths:
        yield ("lora", adapter.lora_name, adapter.lora_path)
    else:
        yield adapter.lora_name


def _item_keys(request: TokenRequest, block: Cursor, semantics: Semantics) -> Iterator[Any]:
    """Each item that has a token in the block, by identifier and offset from the block's start."""
    for feature in request.mm_features[block.item :]:
        position = feature.mm_position
        passed = position.end <= block.start
        if not semantics.passes_items_at_boundary:
            passed = position.end < block.start
        if passed or position.offset >= block.end:
            continue
        if semantics.tags_block_keys:
            yield ("mm", feature.identifier, position.offset - block.start)
        elif semantics.keys_item_offsets:
            yield (feature.identifier, position.offset - block.start)
        else:
            yield feature.identifier


def _salt_keys(request: TokenRequest, block: Cursor, semantics: Semantics) -> Iterator[Any]:
    if block.start == 0 and request.cache_salt:
        yield (
            ("cache_salt", request.cache_salt) if semantics.tags_block_keys else request.cache_salt
        )


def _embeds_keys(request: TokenRequest, block: Cursor, semantics: Semantics) -> Iterator[Any]:
    embeds = request.prompt_embeds
    if embeds is None or not semantics.keys_prompt_embeds:
        return
    rows = b"".join(embeds.tensor[block.start : block.end])
    digest = hashlib.sha256(rows).digest() if semantics.digests_prompt_embeds else rows
    if semantics.keys_embed_masks:
        given = embeds.given[block.start : block.end]
        yield ("prompt_embeds", digest, bytes(given))
    elif semantics.tags_block_keys:
        yield ("prompt_embeds", digest)
    else:
        yield digest
