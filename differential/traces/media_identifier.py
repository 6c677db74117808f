"""Events and header of a trace for identifiers of media: front ends that name the items of
requests, in lives of engines, with or without a store that outlives them."""

from typing import Annotated, Literal, get_args

import msgspec

from cacheproof.differential.traces.base import Event, Name
from cacheproof.differential.traces.headers import ComponentHeader

MOST_ENGINES = MOST_SERVERS = 4
MOST_OPTIONS = 8
MOST_ITEMS = 16
Modality = Literal["image", "audio", "image_embeds"]
Model = Literal["tiny", "deepseek_vl2", "h2ovl"]
PICTURES_ALIKE: dict[Model, int] = {"deepseek_vl2": 2, "h2ovl": 1}
"""The most pictures of one request that a model processes as it does one alone; more it processes
otherwise. Not here: those to which it makes no difference."""
Options = Annotated[int, msgspec.Meta(ge=0, lt=MOST_OPTIONS)]
Few = Annotated[int, msgspec.Meta(ge=0, lt=64)]


class NamedItem(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An item of a request: which content it has, and by which id its client names it. None: it
    comes without data, or without an id; one of them is there. A number for an id stands for the
    identifier that was given as that one, from 0, without an adapter's name before it. A picture
    may come as an encoder's rows (`image_embeds`)."""

    content: Few | None = 0
    uuid: Name | Annotated[int, msgspec.Meta(ge=0)] | None = None
    modality: Modality = "image"

    def __post_init__(self) -> None:
        """Raises ValueError for an item that is neither sent nor named."""
        if self.content is None and self.uuid is None:
            raise ValueError("an item without content and uuid; expected one of them")
        if self.content is None and self.modality == "image_embeds":
            raise ValueError("an item of rows without content; expected its content")


class NameItems(Event, tag="name", frozen=True):
    """A request reaches a server of an engine. `options` are given to the processor beside its
    items, 0 for none; `adapter` runs with the model, None for none."""

    request: Name
    items: Annotated[tuple[NamedItem, ...], msgspec.Meta(min_length=1, max_length=MOST_ITEMS)]
    engine: Annotated[int, msgspec.Meta(ge=0, lt=MOST_ENGINES)] = 0
    server: Annotated[int, msgspec.Meta(ge=0, lt=MOST_SERVERS)] = 0
    adapter: Name | None = None
    options: Options = 0

    def __post_init__(self) -> None:
        """Raises ValueError for pictures and rows of pictures in one request, which none takes."""
        if {"image", "image_embeds"} <= {item.modality for item in self.items}:
            raise ValueError("pictures and rows of pictures in one request; expected one of them")


class RestartEngine(Event, tag="restart", frozen=True):
    """An engine ends with all its servers, and begins anew."""

    engine: Annotated[int, msgspec.Meta(ge=0, lt=MOST_ENGINES)] = 0


MediaIdentifierEvent = NameItems | RestartEngine


class MediaIdentifierConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which caches are on, whether adapters reach the encoder, and whether all engines look for
    encoder outputs in one external store, which outlives them. `settings` are the options that an
    engine gives its processor where a request has none, by engine; 0 for none, and for those that
    are not there. `model` is the one whose processor names them, where it does so by itself."""

    processor_cache: bool = True
    prefix_caching: bool = True
    adapters_reach: bool = False
    external_store: bool = False
    settings: Annotated[tuple[Options, ...], msgspec.Meta(max_length=MOST_ENGINES)] = ()
    model: Model = "tiny"


class MediaIdentifierHeader(ComponentHeader, frozen=True, tag="media_identifier"):
    """The first line of a trace for identifiers of media."""

    config: MediaIdentifierConfig
    manager: Literal["media_identifier"] = "media_identifier"


HEADER = MediaIdentifierHeader
EVENTS: tuple[type[MediaIdentifierEvent], ...] = get_args(MediaIdentifierEvent)
