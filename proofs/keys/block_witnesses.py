"""Pairs of requests whose blocks have one key and not one content, worked out from models of z3."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cacheproof.proofs.keys.block_extra import (
    WITNESS,
    Agreement,
    Content,
    Hashing,
    agreements,
    items_confused,
    layouts,
)
from cacheproof.reference.block_hash import get_request_block_hasher
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.request import (
    LoRARequest,
    MultiModalFeature,
    PlaceholderRange,
    PromptEmbeds,
    TokenRequest,
)
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

NAMES = "abcdefgh"


@dataclass(frozen=True)
class KeyedBlock:
    """What a request of one block has beside its tokens, all of which are 0."""

    adapter: tuple[str, str] | None = None
    item: tuple[str, int] | None = None
    salt: str | None = None
    given: tuple[bool, ...] | None = None
    """Which positions have an embedding; all of these are zero."""

    def __str__(self) -> str:
        parts = {"adapter": self.adapter, "item": self.item, "salt": self.salt}
        said = [f"{name} {value!r}" for name, value in parts.items() if value is not None]
        if self.given is not None:
            said.append(f"zero embeddings at {[n for n, one in enumerate(self.given) if one]}")
        return " and ".join(said) or "nothing"


@dataclass(frozen=True)
class KeyedPair:
    """Two blocks with one key."""

    first: KeyedBlock
    second: KeyedBlock

    def __str__(self) -> str:
        return f"{self.first} as {self.second}"


def pairs(hashing: Hashing, seed: int = 0) -> Iterator[KeyedPair]:
    """First blocks with one thing or nothing beside their tokens that have one key."""
    found = layouts(hashing, first=True, parts_max=1)
    confused = items_confused(found, seed, WITNESS)
    for agreement in (*([confused] if confused else []), *agreements(found, seed)):
        yield _pair(agreement)


def keys(block: KeyedBlock, semantics: BlockKeySemantics) -> list[bytes]:
    """The keys that the reference makes of it."""
    embeds = block.given and PromptEmbeds((bytes(8),) * WITNESS, block.given)
    items = [block.item] if block.item else []
    features = [
        MultiModalFeature(name, PlaceholderRange(offset, 1), name) for name, offset in items
    ]
    adapter = block.adapter
    function = hash_function(semantics, "sha256_cbor")
    return TokenRequest(
        "r",
        [0] * WITNESS,
        features,
        LoRARequest(adapter[0], 1, adapter[1]) if adapter else None,
        block.salt,
        embeds or None,
        get_request_block_hasher(WITNESS, function, semantics=semantics, seed="0"),
    ).block_hashes


def _pair(agreement: Agreement) -> KeyedPair:
    names: dict[str, str] = {}
    masks: dict[str, int] = {}

    def name(content: Any) -> str:
        return names.setdefault(content, NAMES[len(names)])

    def block(content: Content) -> KeyedBlock:
        adapter, item, salt = (content.get(part) for part in ("adapter", "items", "salt"))
        given = None
        if "embeds" in content:
            which = masks.setdefault(content["embeds"][1], len(masks))
            given = tuple(place == which for place in range(WITNESS))
        return KeyedBlock(
            (name(adapter[0]), name(adapter[1])) if adapter else None,
            (name(item[0]), item[1]) if item else None,
            name(salt[0]) if salt else None,
            given,
        )

    return KeyedPair(block(agreement.first), block(agreement.second))
