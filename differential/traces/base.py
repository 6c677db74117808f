"""What the traces of all depths have in common."""

from typing import Annotated, Literal

import msgspec

SCHEMA = 1
LARGEST = 2**31 - 1
MAX_BLOCKS = 2**20
IS_CONTENT = "is content"
"""Marks a number that identifies something instead of measuring it: another number is something
else."""
_CONTENT = {IS_CONTENT: True}
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Size = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=LARGEST, extra=_CONTENT)]
AdapterId = Annotated[int, msgspec.Meta(ge=1, le=LARGEST, extra=_CONTENT)]
ItemLength = Annotated[int, msgspec.Meta(ge=1, le=1_000_000, extra=_CONTENT)]
"""Length of an item that has an identifier, which decides the length."""
RunLength = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Item(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One media item: its keys and where its placeholder stands, in tokens of the prompt."""

    identifier: Name
    offset: Count
    length: ItemLength
    mm_hash: Name | None = None
    is_embed: tuple[bool, ...] | None = None


class Rows(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Embeddings that are given in the place of `length` tokens of a prompt, from `offset` on. What
    they are, their `identifier` decides."""

    identifier: Name
    offset: Count
    length: ItemLength


class Event(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="event"):
    """What the engine does next."""


class Adapter(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The LoRA adapter of a request."""

    lora_name: Name
    lora_int_id: AdapterId
    lora_path: Name


class Group(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A KV cache group: layers of one kind. `window` is that of a window, or a chunk, in tokens."""

    kind: Literal["full", "sliding_window", "chunked_local", "cross"]
    block_size: Size
    window: Count = 0


WITH_WINDOW = frozenset({"sliding_window", "chunked_local"})
"""Kinds of groups whose layers see the last tokens alone."""


def tag_of(kind: type) -> str:
    """The tag of a kind of event, or of header, in files."""
    return str(kind.__struct_config__.tag)  # type: ignore[attr-defined]
