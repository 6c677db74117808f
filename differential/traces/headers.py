"""What the first lines of traces have in common."""

from typing import Literal

import msgspec

from cacheproof.differential.traces.base import Name


class EncoderHeader(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth"):
    """The first line of a trace in which one of two encoder cache managers takes part."""

    schema: int
    manager: Literal["encoder_cache", "encoder_decoder"]
    config: msgspec.Struct
    seed: int | None = None
    generator: Name | None = None


class ComponentHeader(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="depth"):
    """The first line of a trace for one component, which `manager` names."""

    schema: int
    config: msgspec.Struct
    manager: str
    seed: int | None = None
    generator: Name | None = None
