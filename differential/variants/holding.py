"""Faults in who holds an entry: hits, releases and releases that come again."""

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import Request
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics


class HitKeepsEntryQueued(EncoderCacheManager):
    """A hit on an idle entry leaves it in the eviction queue."""

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        queue = dict(self.freeable)
        hit = super().check_and_update_cache(request, input_id)
        self.freeable = queue
        return hit


class QueueIsCleanedLate(EncoderCacheManager):
    """A hit on an idle entry leaves it in the queue until the next look-up or release."""

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        self._clean()
        queue = dict(self.freeable)
        hit = super().check_and_update_cache(request, input_id)
        self.freeable = queue
        return hit

    def _retire(self, identifier: str, released_size: int) -> None:
        self.freeable.pop(identifier, None)
        self._clean()
        super()._retire(identifier, released_size)

    def _clean(self) -> None:
        self.freeable = {h: size for h, size in self.freeable.items() if not self.cached[h]}


class HitReplacesHolder(EncoderCacheManager):
    """A hit makes the request the only holder of the entry."""

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        hit = super().check_and_update_cache(request, input_id)
        if hit:
            self.cached[request.mm_features[input_id].identifier] = {request.request_id}
        return hit


class HitIsHeldForNobody(EncoderCacheManager):
    """A hit is held in a name that no request releases."""

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        identifier = request.mm_features[input_id].identifier
        held = request.request_id in self.cached.get(identifier, ())
        hit = super().check_and_update_cache(request, input_id)
        if hit and not held:
            self.cached[identifier].discard(request.request_id)
            self.cached[identifier].add("shared")
        return hit


class ReleaseSwapsOutShared(EncoderCacheManager):
    """A release swaps out a shared entry; its holders come back with the next encode."""

    def __init__(self, cache_size: int, semantics: EncoderCacheSemantics | None = None) -> None:
        super().__init__(cache_size, semantics)
        self._swapped: dict[str, set[str]] = {}

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        identifier = request.mm_features[input_id].identifier
        held = request.request_id in self.cached.get(identifier, ())
        super().free_encoder_input(request, input_id)
        if held and (others := self.cached.get(identifier)):
            self._swapped[identifier] = others
            self._retire(identifier, self.num_embeds_by_hash[identifier])
            self._evict(identifier)

    def allocate(self, request: Request, input_id: int) -> None:
        super().allocate(request, input_id)
        identifier = request.mm_features[input_id].identifier
        self.cached[identifier] |= self._swapped.pop(identifier, set())

    def free(self, request: Request) -> None:
        for holders in self._swapped.values():
            holders.discard(request.request_id)
        for input_id in sorted(self.get_cached_input_ids(request)):
            super().free_encoder_input(request, input_id)

    def reset(self) -> None:
        super().reset()
        self._swapped.clear()


class EvictsHeldWhenShort(EncoderCacheManager):
    """When the idle entries do not suffice, an admission evicts held ones."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        need = request.get_num_encoder_embeds(input_id) + pending
        for identifier in [h for h, holders in self.cached.items() if holders]:
            if need <= self.num_freeable_slots:
                break
            self._retire(identifier, self.num_embeds_by_hash[identifier])
            self._evict(identifier)
        return super().can_allocate(request, input_id, encoder_compute_budget, pending)


class FreeReleasesFirstOnly(EncoderCacheManager):
    """The end of a request releases the first of its items only."""

    def free(self, request: Request) -> None:
        for input_id in sorted(self.get_cached_input_ids(request))[:1]:
            self.free_encoder_input(request, input_id)


class ReleaseSkipsShared(EncoderCacheManager):
    """A release of an entry that another request holds does nothing."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        if len(self.cached.get(request.mm_features[input_id].identifier, ())) < 2:
            super().free_encoder_input(request, input_id)


class ReleaseCreditsAgain(EncoderCacheManager):
    """Releasing an idle entry credits it once more."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        idle = self.freeable.get(request.mm_features[input_id].identifier, 0)
        super().free_encoder_input(request, input_id)
        self.num_freeable_slots += idle


class SecondReleaseEvicts(EncoderCacheManager):
    """Releasing an idle entry evicts it at once."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        identifier = request.mm_features[input_id].identifier
        idle = identifier in self.freeable
        super().free_encoder_input(request, input_id)
        if idle:
            self._evict(identifier)


class SecondReleaseRenewsEntry(EncoderCacheManager):
    """Releasing an idle entry moves it to the back of the eviction queue."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        identifier = request.mm_features[input_id].identifier
        if identifier in self.freeable:
            self.freeable[identifier] = self.freeable.pop(identifier)
        super().free_encoder_input(request, input_id)


class SecondReleaseRaises(EncoderCacheManager):
    """Releasing what the request has not claimed is an error."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        self._claims[request.request_id][input_id]
        super().free_encoder_input(request, input_id)
