"""Faults in what the worker is told, and in what is taken to be there."""

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import Request
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics


class EvictionIsNotReported(EncoderCacheManager):
    """Of several evictions in one step only the last is reported."""

    def _evict(self, identifier: str) -> None:
        super()._evict(identifier)
        self.freed = self.freed[-1:]


class NoticesAreLost(EncoderCacheManager):
    """The worker is never told of an eviction."""

    def get_freed_mm_hashes(self) -> list[str]:
        self.freed.clear()
        return []


class NoticesComeLate(EncoderCacheManager):
    """The worker is told of an eviction one step late."""

    _late: tuple[str, ...] = ()

    def get_freed_mm_hashes(self) -> list[str]:
        late, self._late = self._late, tuple(super().get_freed_mm_hashes())
        return list(late)


class IdleIsReported(EncoderCacheManager):
    """The worker is told to drop what became idle, before it is evicted."""

    def _retire(self, identifier: str, released_size: int) -> None:
        super()._retire(identifier, released_size)
        self.freed.append(identifier)

    def get_freed_mm_hashes(self) -> list[str]:
        freed, self.freed = self.freed, []
        return freed


class HitsTheDeparted(EncoderCacheManager):
    """Whatever the worker has ever been told to drop is a hit."""

    def __init__(self, cache_size: int, semantics: EncoderCacheSemantics | None = None) -> None:
        super().__init__(cache_size, semantics)
        self._departed: set[str] = set()

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        hit = super().check_and_update_cache(request, input_id)
        return hit or request.mm_features[input_id].identifier in self._departed

    def get_freed_mm_hashes(self) -> list[str]:
        freed = super().get_freed_mm_hashes()
        self._departed.update(freed)
        return freed
