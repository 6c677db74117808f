"""Events and header of a trace for the caches of processed media: a front end, and an engine core
that its messages reach.

The front end processes the items of a request that it has not kept, one request at a time, and
sends a message. Messages may overtake each other, and some are never sent.
"""

from typing import Annotated, Literal, get_args

import msgspec

from cacheproof.differential.traces.base import Event, Name, Size
from cacheproof.differential.traces.headers import ComponentHeader

MOST_CONTENTS = 16
Content = Annotated[int, msgspec.Meta(ge=0, lt=MOST_CONTENTS)]
MOST_WORKERS = 4
MOST_SERVERS = 4
MOST_SAMPLES = 4
Worker = Annotated[int, msgspec.Meta(ge=0, lt=MOST_WORKERS)]
Server = Annotated[int, msgspec.Meta(ge=0, lt=MOST_SERVERS)]
Half = Literal["both", "sender", "receiver"]
Modality = Literal["image", "audio", "video"]


class Given(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An item of a request: its name in both caches, and which of the contents it has that were
    given under that name."""

    name: Name
    content: Content = 0


class Process(Event, tag="process", frozen=True):
    """A request arrives at an API server, with items in the order of its prompt. They are processed
    where they are new, and its message is made, which is sent once for each of its `samples`.

    `skips_cache`: it is one whose items are not looked up in the front end's cache, nor kept there,
    as where one of them comes as an encoder's rows. `fails`: its processor raises an error, so that
    no message is made."""

    request: Name
    items: Annotated[tuple[Given, ...], msgspec.Meta(min_length=1, max_length=16)]
    samples: Annotated[int, msgspec.Meta(ge=1, le=MOST_SAMPLES)] = 1
    server: Server = 0
    skips_cache: bool = False
    fails: bool = False


class Withdraw(Event, tag="withdraw", frozen=True):
    """A request is refused, or its client is gone, when its items are processed already and its
    message is not sent yet."""

    request: Name


class Deliver(Event, tag="deliver", frozen=True):
    """The message of a request reaches the engine core; in shared memory, that worker of it."""

    request: Name
    worker: Worker = 0


class Report(Event, tag="report", frozen=True):
    """The front end hears that the engine core lacked items of a request."""

    request: Name


class ResetMedia(Event, tag="reset_media", frozen=True):
    """The caches forget all: both at once, or one half, where the other one is not told, or has not
    come to it yet. The call is that API server's."""

    half: Half = "both"
    server: Server = 0


FrontEndEvent = Process | Withdraw | Deliver | Report | ResetMedia


class MediaItem(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The bytes of each content that is given under a name, and what it is."""

    name: Name
    sizes: Annotated[tuple[Size, ...], msgspec.Meta(min_length=1, max_length=MOST_CONTENTS)]
    modality: Modality = "image"


class FrontEndConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The items that there are, and the bytes that a cache may take. There are a sender and a
    receiver (`lru`); or one cache of each API server alone (`processor`), of which there are so
    many `servers`; or one in shared memory (`shm`), which so many workers read and none of whose
    chunks is larger than `largest`."""

    items: Annotated[tuple[MediaItem, ...], msgspec.Meta(min_length=1, max_length=100)]
    capacity: Size
    store: Literal["lru", "shm", "processor"] = "lru"
    workers: Annotated[int, msgspec.Meta(ge=1, le=MOST_WORKERS)] = 1
    largest: Size = 1
    servers: Annotated[int, msgspec.Meta(ge=1, le=MOST_SERVERS)] = 1


class FrontEndHeader(ComponentHeader, frozen=True, tag="front_end"):
    """The first line of a trace for the caches of processed media."""

    config: FrontEndConfig
    manager: Literal["front_end"] = "front_end"


HEADER = FrontEndHeader
EVENTS: tuple[type[FrontEndEvent], ...] = get_args(FrontEndEvent)
