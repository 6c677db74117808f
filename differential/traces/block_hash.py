"""Events and header of a trace for block keys."""

from typing import Annotated, Literal, get_args

import msgspec

from cacheproof.differential.traces.base import (
    IS_CONTENT,
    Adapter,
    Event,
    Item,
    Name,
    Size,
    TokenId,
)
from cacheproof.differential.traces.headers import ComponentHeader
from cacheproof.reference.hash_functions import Algorithm

EMBEDDED = 9
"""The token id that stands where an embedding was given; no text has it."""
Row = Annotated[
    str, msgspec.Meta(pattern="^([0-9a-f]{8})+$", max_length=1024, extra={IS_CONTENT: True})
]


class Prompt(Event, tag="prompt", frozen=True):
    """A request arrives whose block keys are asked for.

    `embeds` has the embedding of every prompt position as hex of float32, None where the token
    counts. With `one_object` equal identifiers of its items are one Python object.
    """

    request: Name
    tokens: Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1)]
    items: tuple[Item, ...] = ()
    lora: Adapter | None = None
    salt: Name | None = None
    embeds: tuple[Row | None, ...] | None = None
    one_object: bool = False


class Decode(Event, tag="decode", frozen=True):
    """The request decodes tokens, one after the other."""

    request: Name
    tokens: tuple[TokenId, ...]


class Continue(Event, tag="continue", frozen=True):
    """The request, which has stopped, gets more prompt: `tokens`, with `items` at offsets in them.

    What it decoded becomes prompt, except the last token, which was never computed.
    """

    request: Name
    tokens: Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1)]
    items: tuple[Item, ...] = ()


BlockHashEvent = Prompt | Decode | Continue


class BlockHashConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How keys are made: tokens a block, tokens after it that its key covers, and the function."""

    block_size: Size
    lookahead: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    algorithm: Algorithm = "sha256"


class BlockHashHeader(ComponentHeader, frozen=True, tag="block_hash"):
    """The first line of a trace for block keys."""

    config: BlockHashConfig
    manager: Literal["block_hash"] = "block_hash"


HEADER = BlockHashHeader
EVENTS: tuple[type[BlockHashEvent], ...] = get_args(BlockHashEvent)
