"""Faults in admission and eviction: what is let in, and what goes for it."""

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import Request
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics


class RefusesExactFit(EncoderCacheManager):
    """An admission that would take the last freeable slot is refused."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        if request.get_num_encoder_embeds(input_id) + pending == self.num_freeable_slots:
            return False
        return super().can_allocate(request, input_id, encoder_compute_budget, pending)


class LooksForRoomFirst(EncoderCacheManager):
    """A first look-up misses what is resident where an item of that size would not be admitted."""

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        is_first = request.request_id not in self.cached.get(
            request.mm_features[input_id].identifier, ()
        )
        if is_first and request.get_num_encoder_embeds(input_id) > self.num_freeable_slots:
            return False
        return super().check_and_update_cache(request, input_id)


class IgnoresComputeBudget(EncoderCacheManager):
    """An admission looks at the space and not at the compute budget."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        return super().can_allocate(request, input_id, self.cache_size, pending)


class BudgetCountsPending(EncoderCacheManager):
    """An admission holds against the compute budget what the caller has already deducted."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        return super().can_allocate(request, input_id, encoder_compute_budget - pending, pending)


class IgnoresPending(EncoderCacheManager):
    """An admission forgets what was granted before it and not allocated yet."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        return super().can_allocate(request, input_id, encoder_compute_budget, 0)


class GrantsWithoutRoom(EncoderCacheManager):
    """An admission evicts nothing; the caller finds out when it allocates."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        need = request.get_num_encoder_embeds(input_id)
        return need <= encoder_compute_budget and need + pending <= self.num_freeable_slots


class RefusalTakesHold(EncoderCacheManager):
    """A refused request holds, until the next look-up or end, what it shows and others hold."""

    def __init__(self, cache_size: int, semantics: EncoderCacheSemantics | None = None) -> None:
        super().__init__(cache_size, semantics)
        self._lent: list[tuple[str, str]] = []

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        granted = super().can_allocate(request, input_id, encoder_compute_budget, pending)
        for feature in request.mm_features if not granted else ():
            holders = self.cached.get(feature.identifier)
            if holders and request.request_id not in holders:
                holders.add(request.request_id)
                self._lent.append((feature.identifier, request.request_id))
        return granted

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        self._give_back()
        return super().check_and_update_cache(request, input_id)

    def free(self, request: Request) -> None:
        self._give_back()
        super().free(request)

    def get_freed_mm_hashes(self) -> list[str]:
        self._give_back()
        return super().get_freed_mm_hashes()

    def _give_back(self) -> None:
        lent, self._lent = self._lent, []
        for identifier, request_id in lent:
            holders = self.cached.get(identifier)
            if holders:
                holders.discard(request_id)
                if not holders:
                    self._retire(identifier, self.num_embeds_by_hash[identifier])


class RefusalEvicts(EncoderCacheManager):
    """A refused admission has evicted every idle entry all the same."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        granted = super().can_allocate(request, input_id, encoder_compute_budget, pending)
        for identifier in list(self.freeable) if not granted else ():
            self._evict(identifier)
        return granted


class NewestEvictedFirst(EncoderCacheManager):
    """The youngest idle entry is evicted first."""

    def _evict(self, identifier: str) -> None:
        super()._evict(next(reversed(self.freeable)))


class ReleasesToTheFront(EncoderCacheManager):
    """An entry that becomes idle goes to the front of the eviction queue."""

    def _retire(self, identifier: str, released_size: int) -> None:
        super()._retire(identifier, released_size)
        self.freeable = {identifier: self.freeable.pop(identifier), **self.freeable}


class EvictsEverythingIdle(EncoderCacheManager):
    """An admission that must evict clears the whole eviction queue."""

    def _evict(self, identifier: str) -> None:
        for idle in list(self.freeable):
            super()._evict(idle)
