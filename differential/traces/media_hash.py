"""Events and header of a trace for the media hash."""

from typing import Literal

import msgspec

from cacheproof.differential.media.descriptions import Description
from cacheproof.differential.traces.base import Event, Name

MediaAlgorithm = Literal["blake3", "sha256", "sha512"]


class Hash(Event, tag="hash", frozen=True):
    """A call of the media hasher; `value` describes it, see `media_hash_description`."""

    value: Description


MediaHashEvent = Hash


class MediaHashConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the hasher digests with."""

    algorithm: MediaAlgorithm = "blake3"


class MediaHashHeader(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth", tag="media_hash"
):
    """The first line of a trace for the media hash."""

    schema: int
    config: MediaHashConfig
    manager: Literal["media_hash"] = "media_hash"
    seed: int | None = None
    generator: Name | None = None


HEADER = MediaHashHeader
EVENTS = (Hash,)
