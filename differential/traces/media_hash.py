"""Events and header of a trace for the media hash."""

from typing import Literal

import msgspec

from cacheproof.differential.media.descriptions import Description
from cacheproof.differential.traces.base import Event
from cacheproof.differential.traces.headers import ComponentHeader

MediaAlgorithm = Literal["blake3", "sha256", "sha512"]


class Hash(Event, tag="hash", frozen=True):
    """A call of the media hasher; `value` describes it, see `media_hash_description`."""

    value: Description


MediaHashEvent = Hash


class MediaHashConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the hasher digests with."""

    algorithm: MediaAlgorithm = "blake3"


class MediaHashHeader(ComponentHeader, frozen=True, tag="media_hash"):
    """The first line of a trace for the media hash."""

    config: MediaHashConfig
    manager: Literal["media_hash"] = "media_hash"


HEADER = MediaHashHeader
EVENTS: tuple[type[MediaHashEvent], ...] = (Hash,)
