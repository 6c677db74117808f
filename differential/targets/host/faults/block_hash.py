"""Faults to plant in the block hashing of any release, by name: canaries that a search must find.

A fault wraps the session's hasher, `hash(request) -> keys that the request does not have yet`, in
another; the release itself stays as it is. Blocks are of `block_size` tokens.
"""

import hashlib
from types import SimpleNamespace

from ..by_name import breaks, by_name
from ..vllm_objects.requests import BlockHasher, Request


@breaks("BK-1")
def forgets_items(hasher: BlockHasher, block_size: int) -> BlockHasher:
    """Keys do not name the media items."""

    def hash_without(request: Request) -> list[bytes]:
        return hasher(_With(request, mm_features=[], mm_positions=[], mm_hashes=[]))

    return hash_without


@breaks("BK-2")
def forgets_the_prefix(hasher: BlockHasher, block_size: int) -> BlockHasher:
    """A key does not name the tokens before the block."""

    def hash_alone(request: Request) -> list[bytes]:
        known, keys = len(request.block_hashes), hasher(request)
        for number in range(known, known + len(keys)):
            start = number * block_size
            tokens = [0] * start + list(request.all_token_ids)[start:]
            alone = _With(request, block_hashes=[], all_token_ids=tokens)
            keys[number - known] = hasher(alone)[number]
        return keys

    return hash_alone


@breaks("BK-3")
def hashes_growth_otherwise(hasher: BlockHasher, block_size: int) -> BlockHasher:
    """Keys that are added to a request's others are not those that it would have afresh."""

    def hash_grown(request: Request) -> list[bytes]:
        keys = hasher(request)
        return [_digest(key) for key in keys] if request.block_hashes else keys

    return hash_grown


@breaks("BK-4")
def never_repeats(hasher: BlockHasher, block_size: int) -> BlockHasher:
    """No key is ever given twice."""
    given = 0

    def hash_once(request: Request) -> list[bytes]:
        nonlocal given
        given += 1
        return [_digest((key, given)) for key in hasher(request)]

    return hash_once


@breaks("BK-5")
def leaves_the_last_key_out(hasher: BlockHasher, block_size: int) -> BlockHasher:
    """The last of several keys is left out."""

    def hash_fewer(request: Request) -> list[bytes]:
        keys = hasher(request)
        return keys[:-1] if len(keys) > 1 else keys

    return hash_fewer


def nothing(hasher: BlockHasher, block_size: int) -> BlockHasher:
    """No fault: the canary that must be reported missed."""
    return hasher


class _With(SimpleNamespace):
    """A request with some attributes replaced."""

    def __init__(self, request: Request, **replaced: list[int] | list[object]) -> None:
        super().__init__(_request=request, **replaced)

    def __getattr__(self, name: str) -> object:
        return getattr(self._request, name)


def _digest(value: object) -> bytes:
    return hashlib.sha256(repr(value).encode()).digest()


BLOCK_HASH_FAULTS = by_name(
    nothing,
    forgets_items,
    forgets_the_prefix,
    hashes_growth_otherwise,
    never_repeats,
    leaves_the_last_key_out,
)
