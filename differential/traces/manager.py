"""Events and header of a trace for an encoder cache manager alone."""

from typing import Annotated, get_args

import msgspec

from cacheproof.differential.traces.base import Adapter, Count, Event, Item, Name, Rows, Size
from cacheproof.differential.traces.headers import EncoderHeader


class Add(Event, tag="add", frozen=True):
    """A request arrives, with `prompt` tokens and its items in prompt order. Output number
    `stop_after` is a token that ends it; `skip_reading` keeps it from hitting the prefix cache. A
    `resumable` request waits for more prompt where another would end. The KV of one that `sends` is
    sent elsewhere when it has come to its end. `embeds`, in prompt order, are given in the place of
    tokens: at engine depth, and in a request without items."""

    request: Name
    prompt: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    items: tuple[Item, ...] = ()
    max_tokens: Size = 1
    priority: int = 0
    lora: Adapter | None = None
    salt: Name | None = None
    skip_reading: bool = False
    stop_after: Size | None = None
    resumable: bool = False
    sends: bool = False
    embeds: tuple[Rows, ...] | None = None


class Walk(Event, tag="walk", frozen=True):
    """Up to `tokens` of the request's prompt are scheduled in the current step."""

    request: Name
    tokens: Size


class Stall(Event, tag="stall", frozen=True):
    """A waiting request is walked, and then there are no KV blocks for it."""

    request: Name
    tokens: Size


class Notices(Event, tag="notices", frozen=True):
    """schedule() returns: the worker is told of evictions and executes the step."""


class Update(Event, tag="update", frozen=True):
    """The output of the `steps` oldest steps in flight arrives. Its requests with drafts accept as
    many of them as `accepts` says, in turn; none where it says nothing."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    accepts: tuple[Count, ...] = ()


class Preempt(Event, tag="preempt", frozen=True):
    """A running request is put back to wait and starts over."""

    request: Name


class Finish(Event, tag="finish", frozen=True):
    """A request ends or is aborted."""

    request: Name


class Release(Event, tag="release", frozen=True):
    """An item that the request has got past is released once more."""

    request: Name
    input: Count


class Reset(Event, tag="reset", frozen=True):
    """The encoder cache is reset on both sides, between two steps."""


ManagerEvent = Add | Walk | Stall | Notices | Update | Finish | Preempt | Release | Reset


class ManagerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a manager alone is made with, in embeddings."""

    capacity: Size
    compute_budget: Size


class ManagerHeader(EncoderHeader, frozen=True, tag="manager"):
    """The first line of a trace for a manager alone."""

    config: ManagerConfig


HEADER = ManagerHeader
EVENTS: tuple[type[ManagerEvent], ...] = get_args(ManagerEvent)
