"""Faults in the books: slots, sizes and the eviction queue no longer add up."""

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import Request


class ResetLeaksSlots(EncoderCacheManager):
    """A reset forgets the entries and gives back none of their slots."""

    def reset(self) -> None:
        free = self.num_free_slots
        super().reset()
        self.num_free_slots = self.num_freeable_slots = free


class ResetKeepsQueue(EncoderCacheManager):
    """A reset forgets the entries and leaves them in the eviction queue."""

    def reset(self) -> None:
        queue = dict(self.freeable)
        super().reset()
        self.freeable.update(queue)


class EvictionCreditsNothing(EncoderCacheManager):
    """An eviction gives its slots back to nobody."""

    def _evict(self, identifier: str) -> None:
        size = self.freeable[identifier]
        super()._evict(identifier)
        self.num_free_slots -= size


class AllocationDebitsOnce(EncoderCacheManager):
    """An allocation is debited from the free slots and not from the freeable ones."""

    def allocate(self, request: Request, input_id: int) -> None:
        super().allocate(request, input_id)
        self.num_freeable_slots += request.get_num_encoder_embeds(input_id)


class IdleIsNotFreeable(EncoderCacheManager):
    """An entry that becomes idle is queued and never counted as freeable."""

    def _retire(self, identifier: str, released_size: int) -> None:
        super()._retire(identifier, released_size)
        self.num_freeable_slots -= self.freeable[identifier]

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        self.num_freeable_slots += self.freeable.get(request.mm_features[input_id].identifier, 0)
        return super().check_and_update_cache(request, input_id)


class EvictsWhenTheStepEnds(EncoderCacheManager):
    """An admission evicts nothing; the end of the step evicts until the slots add up again."""

    _promised = 0

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        identifier = request.mm_features[input_id].identifier
        if self.freeable.get(identifier, 0) > self.num_freeable_slots - self._promised:
            self._evict(identifier)
        return super().check_and_update_cache(request, input_id)

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        need = request.get_num_encoder_embeds(input_id)
        granted = need <= encoder_compute_budget and need + pending <= self.num_freeable_slots
        self._promised = need + pending if granted else pending
        return granted

    def allocate(self, request: Request, input_id: int) -> None:
        self.num_free_slots += self.cache_size
        super().allocate(request, input_id)
        self.num_free_slots -= self.cache_size
        self._promised = 0

    def get_freed_mm_hashes(self) -> list[str]:
        while self.num_free_slots < 0:
            self._evict(next(iter(self.freeable)))
        return super().get_freed_mm_hashes()


class HitResizesEntry(EncoderCacheManager):
    """A new holder with an item of a smaller size shrinks the entry to it."""

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        identifier = request.mm_features[input_id].identifier
        held = request.request_id in self.cached.get(identifier, ())
        hit = super().check_and_update_cache(request, input_id)
        if hit and not held:
            size = request.get_num_encoder_embeds(input_id)
            shrunk = max(0, self.num_embeds_by_hash[identifier] - size)
            self.num_embeds_by_hash[identifier] -= shrunk
            self.num_free_slots += shrunk
            self.num_freeable_slots += shrunk
        return hit


class EmptyItemIsResident(EncoderCacheManager):
    """An item without embeddings is booked as a resident entry of size zero."""

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        identifier = request.mm_features[input_id].identifier
        if not request.get_num_encoder_embeds(input_id) and identifier not in self.cached:
            self.allocate(request, input_id)
        return super().check_and_update_cache(request, input_id)


class AbsentIsOfNoSize(EncoderCacheManager):
    """The size that is told of an absent entry is 0, not none."""

    def get_cached_num_encoder_embeds(self, request: Request, input_id: int) -> int | None:
        return super().get_cached_num_encoder_embeds(request, input_id) or 0


class LastInputIsNotTold(EncoderCacheManager):
    """Of the inputs that a request may release the last is not told."""

    def get_cached_input_ids(self, request: Request) -> set[int]:
        return set(sorted(super().get_cached_input_ids(request))[:-1])
