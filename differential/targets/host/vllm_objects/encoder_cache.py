"""Managers of an encoder cache."""

from collections.abc import Iterable
from typing import Protocol, TypeGuard

from .requests import CachedRequest

Notice = str | tuple[str, int]
"""What the workers are to drop: an identifier; a request and an input up to 0.10.1.1."""


class EncoderCacheManager(Protocol):
    """`vllm.v1.core.encoder_cache_manager.EncoderCacheManager`, and EncoderDecoderCacheManager
    beside it, which has neither entries nor a queue (in 0.13.0, not yet in 0.11.0).

    cached: holders of an entry, by identifier.
    has_cache, get_freed_ids: up to 0.10.1.1; from 0.10.2 on check_and_update_cache and
        get_freed_mm_hashes, with freeable and num_freeable_slots.
    to_free, allocated: of EncoderDecoderCacheManager from 0.14.1 on.
    reset: from 0.16.0 on.
    num_embeds_by_hash, get_cached_num_encoder_embeds: from 0.31.0 on.
    """

    cache_size: int
    num_free_slots: int
    num_freeable_slots: int
    cached: dict[str, set[str]]
    num_embeds_by_hash: dict[str, int]
    freeable: dict[str, int]
    freed: list[str]
    to_free: list[str]
    allocated: list[str]

    def check_and_update_cache(self, request: CachedRequest, input_id: int, /) -> bool: ...
    def has_cache(self, request: CachedRequest, input_id: int, /) -> bool: ...
    def can_allocate(self, request: CachedRequest, input_id: int, /, *budget: int) -> bool: ...
    def allocate(self, request: CachedRequest, input_id: int, /) -> None: ...
    def free_encoder_input(self, request: CachedRequest, input_id: int, /) -> None: ...
    def free(self, request: CachedRequest, /) -> None: ...
    def get_cached_input_ids(self, request: CachedRequest, /) -> set[int]: ...
    def get_cached_num_encoder_embeds(
        self, request: CachedRequest, input_id: int, /
    ) -> int | None: ...
    def get_freed_mm_hashes(self) -> list[Notice]: ...
    def get_freed_ids(self) -> list[Notice]: ...
    def reset(self) -> None: ...


class PerInputManager(Protocol):
    """`EncoderCacheManager` up to 0.10.1.1: each (request, input) is an entry of its own.

    cached: inputs that have an entry, by request.
    """

    num_free_slots: int
    cached: dict[str, set[int]]
    freed: Iterable[Notice]


def is_per_input(manager: EncoderCacheManager, /) -> TypeGuard[PerInputManager]:
    """Whether entries of this manager are not shared."""
    return hasattr(manager, "has_cache")
