"""Events and header of a trace for connectors of an external encoder cache: engines on one store.

Each engine has a scheduler's and a worker's side of the connector. The item with number i of the
configuration has rows that say so; what an engine would encode is known without a model.
"""

from itertools import pairwise
from typing import Annotated, Literal, get_args

import msgspec

from cacheproof.differential.traces.base import Count, Event, Name, Size
from cacheproof.differential.traces.headers import ComponentHeader

Store = Literal["cpu", "disk", "cpu and disk", "remote", "server", "lmcache server"]
SERVERS = frozenset({"server", "lmcache server"})
"""Kinds of stores that are no folder: what is Redis', and LMCache's own."""
Dtype = Literal["float32", "float16", "bfloat16"]
How = Literal["half", "swapped", "garbage", "removed"]
Identifier = Annotated[str, msgspec.Meta(max_length=4096)]
MOST_ITEMS = MOST_MODELS = 100
LATE_MAX = 100


class Start(Event, tag="start", frozen=True):
    """An engine with that model of the configuration starts; one that runs goes on."""

    engine: Name
    model: Annotated[int, msgspec.Meta(ge=0, lt=MOST_MODELS)] = 0


class Plan(Event, tag="plan", frozen=True):
    """The scheduler of an engine plans a step that reads these items. The connector is asked for
    those that the engine does not have. `refused` are then given no room: they are asked for, and
    neither loaded nor encoded. The request of those that are `preempted` is, in the same step: the
    connector has been told that they get their room, and the step neither encodes nor reads them;
    a load that has begun goes on. `apart` are places in `items` at which another request begins:
    the connector is asked for its items when it has been told of those before."""

    engine: Name
    items: Annotated[tuple[Identifier, ...], msgspec.Meta(min_length=1)]
    refused: tuple[Identifier, ...] = ()
    preempted: tuple[Identifier, ...] = ()
    apart: tuple[Count, ...] = ()

    @property
    def requests(self) -> list[tuple[Identifier, ...]]:
        """The items of each request."""
        places = [0, *sorted({place for place in self.apart if 0 < place < len(self.items)}), None]
        return [self.items[first:last] for first, last in pairwise(places)]


class Execute(Event, tag="execute", frozen=True):
    """The worker executes the oldest step that is planned: it loads, encodes, saves and reads.
    `dies_at`: the engine is killed as it writes beyond that byte of a file. `late`: how many steps
    later the copies of this one end, where copies are made while steps go on; those that began
    before them end no later."""

    engine: Name
    dies_at: Count | None = None
    late: Annotated[int, msgspec.Meta(ge=0, le=LATE_MAX)] = 0


class AbortPlanned(Event, tag="abort_planned", frozen=True):
    """The requests of all steps that an engine has planned are aborted before the worker executes
    these; other requests end when their step is executed."""

    engine: Name


class Forget(Event, tag="forget", frozen=True):
    """An engine evicts items from its own encoder cache; the worker hears of it with its next step.
    No item: all of them."""

    engine: Name
    items: tuple[Identifier, ...] = ()


class NewWeights(Event, tag="new_weights", frozen=True):
    """The weights of a model are updated in place, in each of its engines, which forget what they
    have encoded; a connector that can be told to reset its cache is."""

    model: Annotated[int, msgspec.Meta(ge=0, lt=MOST_MODELS)] = 0


class Stop(Event, tag="stop", frozen=True):
    """An engine shuts down; with `killed` it is killed."""

    engine: Name
    killed: bool = False


class Spoil(Event, tag="spoil", frozen=True):
    """Something is done to the files, or a server's values, that appeared when an item was last
    saved: they lose their second half, or get the bytes of the `other` item's, or other bytes, or
    are removed."""

    item: Identifier
    how: How
    other: Identifier | None = None


class Reach(Event, tag="reach", frozen=True):
    """The store cannot be reached, or can be again: its folder is moved away and back, its server
    is stopped and started with what it had. A server that `hangs` can be reached, and does not
    answer."""

    is_there: bool
    hangs: bool = False


class Ask(Event, tag="ask", frozen=True):
    """Each engine is asked for each item, while none of them does anything."""


EncoderConnectorEvent = (
    Start | Plan | Execute | AbortPlanned | Forget | NewWeights | Stop | Spoil | Reach | Ask
)


class StoredItem(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An item: its identifier, how many rows it is encoded to, and how many of its places in the
    prompt, between the first and the last, get none of them."""

    identifier: Identifier
    rows: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    gaps: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 0


class StoringModel(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A model: its name, width and dtype, and into how many of its layers encoder outputs go (1:
    the first alone): a row has as many times the width."""

    name: Name
    width: Annotated[int, msgspec.Meta(ge=4, le=64)] = 4
    dtype: Dtype = "float32"
    layers: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1

    @property
    def row_width(self) -> int:
        """Width of a row of an encoder output."""
        return self.width * self.layers


class EncoderConnectorConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The items and models that there are, and the store: where it is, and how many bytes it may
    hold (None: as many as come). Of the `ranks` of an engine each loads, and the first saves."""

    items: Annotated[tuple[StoredItem, ...], msgspec.Meta(min_length=1, max_length=MOST_ITEMS)]
    models: Annotated[tuple[StoringModel, ...], msgspec.Meta(min_length=1, max_length=MOST_MODELS)]
    store: Store = "disk"
    capacity: Size | None = None
    ranks: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1


class EncoderConnectorHeader(ComponentHeader, frozen=True, tag="encoder_connector"):
    """The first line of a trace for connectors of an external encoder cache."""

    config: EncoderConnectorConfig
    manager: Literal["encoder_connector"] = "encoder_connector"


HEADER = EncoderConnectorHeader
EVENTS: tuple[type[EncoderConnectorEvent], ...] = get_args(EncoderConnectorEvent)
