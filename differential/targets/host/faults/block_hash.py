"""Faults to plant in the block hashing of any release, by name: canaries that a search must find.

A fault wraps the session's hasher, `hash(request) -> keys that the request does not have yet`, in
another; the release itself stays as it is. Blocks are of `block_size` tokens.
"""

import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..by_name import breaks, by_name

Hasher = Callable[[Any], list[Any]]


@breaks("BK-1")
def forgets_items(hasher: Hasher, block_size: int) -> Hasher:
    """Keys do not name the media items."""

    def hash_without(request: Any) -> list[Any]:
        return hasher(_With(request, mm_features=[], mm_positions=[], mm_hashes=[]))

    return hash_without


@breaks("BK-2")
def forgets_the_prefix(hasher: Hasher, block_size: int) -> Hasher:
    """A key does not name the tokens before the block."""

    def hash_alone(request: Any) -> list[Any]:
        known, keys = len(request.block_hashes), hasher(request)
        for number in range(known, known + len(keys)):
            start = number * block_size
            tokens = [0] * start + list(request.all_token_ids)[start:]
            alone = _With(request, block_hashes=[], all_token_ids=tokens)
            keys[number - known] = hasher(alone)[number]
        return keys

    return hash_alone


@breaks("BK-3")
def hashes_growth_otherwise(hasher: Hasher, block_size: int) -> Hasher:
    """Keys that are added to a request's others are not those that it would have afresh."""

    def hash_grown(request: Any) -> list[Any]:
        keys = hasher(request)
        return [_digest(key) for key in keys] if request.block_hashes else keys

    return hash_grown


@breaks("BK-4")
def never_repeats(hasher: Hasher, block_size: int) -> Hasher:
    """No key is ever given twice."""
    given = 0

    def hash_once(request: Any) -> list[Any]:
        nonlocal given
        given += 1
        return [_digest((key, given)) for key in hasher(request)]

    return hash_once


@breaks("BK-5")
def leaves_the_last_key_out(hasher: Hasher, block_size: int) -> Hasher:
    """The last of several keys is left out."""

    def hash_fewer(request: Any) -> list[Any]:
        keys = hasher(request)
        return keys[:-1] if len(keys) > 1 else keys

    return hash_fewer


def nothing(hasher: Hasher, block_size: int) -> Hasher:
    """No fault: the canary that must be reported missed."""
    return hasher


class _With(SimpleNamespace):
    """A request with some attributes replaced."""

    def __init__(self, request: Any, **replaced: Any) -> None:
        super().__init__(_request=request, **replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


def _digest(value: Any) -> bytes:
    return hashlib.sha256(repr(value).encode()).digest()


BLOCK_HASH_FAULTS = by_name(
    nothing,
    forgets_items,
    forgets_the_prefix,
    hashes_growth_otherwise,
    never_repeats,
    leaves_the_last_key_out,
)
