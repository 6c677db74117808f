"""Events and header of a trace for a KV cache manager."""

from typing import Annotated, Literal, get_args

import msgspec

from cacheproof.differential.traces.base import (
    MAX_BLOCKS,
    Adapter,
    Count,
    Event,
    Group,
    Item,
    Name,
    RunLength,
    Size,
    TokenId,
)
from cacheproof.differential.traces.headers import ComponentHeader
from cacheproof.differential.traces.manager import Preempt
from cacheproof.differential.traces.scheduler import ResetPrefix


class Arrive(Event, tag="arrive", frozen=True):
    """A request arrives whose KV blocks are managed. `text` is runs of consecutive token ids, the
    first id and how many; `skip_reading` keeps it from hitting the prefix cache; `session` is what
    it is part of, to those who follow KV events."""

    request: Name
    text: Annotated[tuple[tuple[TokenId, RunLength], ...], msgspec.Meta(min_length=1)]
    items: tuple[Item, ...] = ()
    salt: Name | None = None
    lora: Adapter | None = None
    skip_reading: bool = False
    session: Name | None = None


class Slots(Event, tag="slots", frozen=True):
    """Up to `tokens` of the request are scheduled, `drafts` of them not decoded yet.

    Beside them slots for `lookahead` tokens, `external` tokens that are loaded from elsewhere
    (later, with `delay`), and `encoder` tokens of cross-attention. `must_fit`, `reserved` blocks
    and whether there are `others` are conditions of admission.
    """

    request: Name
    tokens: Size
    drafts: Count = 0
    lookahead: Count = 0
    external: Count = 0
    delay: bool = False
    encoder: Count = 0
    must_fit: bool = False
    reserved: Count = 0
    others: bool = False


class Output(Event, tag="output", frozen=True):
    """The output of the request's oldest step arrives, with `accepted` of its drafts accepted; its
    text goes on with token `first`, or as it goes on for others."""

    request: Name
    accepted: Count = 0
    first: TokenId | None = None


class Loaded(Event, tag="loaded", frozen=True):
    """A delayed load ends, with `valid` of its tokens right."""

    request: Name
    valid: Count


class End(Event, tag="end", frozen=True):
    """A request ends; with `defer` its blocks are given back by the next `settle`."""

    request: Name
    defer: bool = False


class Settle(Event, tag="settle", frozen=True):
    """Blocks that were kept back are given back."""


class Skip(Event, tag="skip", frozen=True):
    """Blocks that the request no longer reads are given back."""

    request: Name


class EvictBlocks(Event, tag="evict_blocks", frozen=True):
    """These blocks are taken out of the prefix cache."""

    blocks: tuple[Count, ...]


class CommonPrefix(Event, tag="common_prefix", frozen=True):
    """The number of blocks that all running requests share is asked for."""

    request: Name


class TakeEvents(Event, tag="take_events", frozen=True):
    """KV events are taken."""


class TakeStats(Event, tag="take_stats", frozen=True):
    """Statistics of the prefix cache are taken."""


class TakeResidencies(Event, tag="take_residencies", frozen=True):
    """How long blocks have been held is taken."""


KVCacheEvent = (
    Arrive
    | Slots
    | Output
    | Loaded
    | Preempt
    | End
    | Settle
    | Skip
    | EvictBlocks
    | ResetPrefix
    | CommonPrefix
    | TakeEvents
    | TakeStats
    | TakeResidencies
)


class KVCacheGroup(Group, forbid_unknown_fields=True, frozen=True):
    """A KV cache group, and whether layers of a drafter are in it."""

    has_drafter: bool = False


class KVCacheConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a KV cache manager is made with, the null block among `num_blocks`. Where no group has
    a drafter's layers, a drafter (`use_eagle`) reads all of them."""

    num_blocks: Annotated[int, msgspec.Meta(ge=2, le=MAX_BLOCKS)]
    groups: Annotated[tuple[KVCacheGroup, ...], msgspec.Meta(min_length=1)]
    max_model_len: Size
    max_in_flight_tokens: Size
    enable_caching: bool = True
    use_eagle: bool = False
    kv_events: bool = False
    watermark: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    async_scheduling: bool = False


class KVCacheHeader(ComponentHeader, frozen=True, tag="kv_cache"):
    """The first line of a trace for a KV cache manager."""

    config: KVCacheConfig
    manager: Literal["kv_cache"] = "kv_cache"


HEADER = KVCacheHeader
EVENTS: tuple[type[KVCacheEvent], ...] = get_args(KVCacheEvent)
