"""What a block pool tells those who follow it: hashes that can be hit from now on, or no more."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from cacheproof.reference.kv_cache_specs import NotModelledCache
from cacheproof.reference.request import end_of
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics

MEDIUM_GPU = "GPU"
ExtraKeys = tuple[Hashable, ...] | None


@dataclass
class BlockStored:
    """Blocks of one request were cached, one after the other, behind `parent_block_hash`.

    `token_ids` are those of the blocks; before `tells_tokens_of_hashes`, those of the whole range,
    blocks between them that were left out included. `extra_keys` has one entry for each hash. The
    spec's kind and window are filled in by the manager, which knows the groups. `session_id` is
    that of the request, from `events_name_sessions` on. `locality` and `ownership` are filled in by
    caches elsewhere, `lookahead_token_ids` by keys that look ahead; neither is modelled.
    """

    block_hashes: list[bytes]
    parent_block_hash: bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[ExtraKeys] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: list[list[int]] | None = None


@dataclass
class BlockRemoved:
    """One block under each of these hashes can no longer be hit; others under it still can."""

    block_hashes: list[bytes]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


@dataclass
class AllBlocksCleared:
    """No hash can be hit."""


KVCacheEvent = BlockStored | BlockRemoved | AllBlocksCleared


def removed_event(block_hash: bytes, group_id: int | None) -> BlockRemoved:
    """The event that reports one block less under the hash."""
    return BlockRemoved([block_hash], MEDIUM_GPU, group_id)


class Stored(NamedTuple):
    """What was cached: one hash for each block that starts at one of `block_starts`, in tokens.

    The range from `start` to `end` holds these blocks and those between them that were left out.
    `is_tail` says that the one block is the partly filled end of a prompt.
    """

    hashes: list[bytes]
    parent: bytes | None
    start: int
    end: int
    block_starts: list[int]
    block_size: int
    group_id: int
    is_tail: bool = False


def stored_event(request: ScheduledRequest, what: Stored, semantics: Semantics) -> BlockStored:
    """The event that tells of it.

    Raises:
        NotModelledCache: the prompt was given as embeddings.
    """
    if request.prompt_embeds is not None:
        raise NotModelledCache("KV events of a prompt that was given as embeddings")
    adapter = request.lora_request
    tokens = request.all_token_ids[what.start : what.end]
    if semantics.kv_cache.tells_tokens_of_hashes:
        ranges = [range(start, start + what.block_size) for start in what.block_starts]
        tokens = [request.all_token_ids[position] for block in ranges for position in block]
    return BlockStored(
        block_hashes=what.hashes,
        parent_block_hash=what.parent,
        token_ids=tokens,
        block_size=what.block_size,
        lora_id=None if adapter is None else adapter.lora_int_id,
        medium=MEDIUM_GPU,
        lora_name=None if adapter is None else adapter.lora_name,
        extra_keys=_event_keys(request, what, semantics) or None,
        group_idx=what.group_id,
        session_id=request.session_id if semantics.kv_cache.events_name_sessions else None,
    )


def _event_keys(request: ScheduledRequest, what: Stored, semantics: Semantics) -> list[ExtraKeys]:
    """Extra keys for each block, without the tags by which block keys tell their kinds apart.

    Items that end in one block are not looked at for the next. Before `finds_items_when_grown`, a
    tail behind the first block looks at the last item alone.
    """
    features = request.mm_features
    item = 0
    if (
        what.is_tail
        and what.start > 0
        and features
        and not semantics.block_keys.finds_items_when_grown
    ):
        item = len(features) - 1
    found: list[ExtraKeys] = []
    for start in what.block_starts:
        end = start + what.block_size
        keys: list[Hashable] = []
        if request.lora_request is not None:
            keys.append(request.lora_request.lora_name)
        for feature in features[item:]:
            position = feature.mm_position
            passed = end_of(feature) < start + semantics.block_keys.passes_items_at_boundary
            if not passed and position.offset < end:
                offset = (feature.identifier, position.offset - start)
                keys.append(
                    offset if semantics.block_keys.keys_item_offsets else feature.identifier
                )
        if start == 0 and request.cache_salt:
            keys.append(request.cache_salt)
        found.append(tuple(keys) or None)
        while item < len(features) and end_of(features[item]) <= end:
            item += 1
    return found
