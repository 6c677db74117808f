"""Faulty variants of the reference managers: one realistic fault each, named by its docstring."""

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.request import Request
from cacheproof.reference.semantics import Semantics

# the ledger's equations


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


# who holds an entry


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

    def __init__(self, cache_size: int, semantics: Semantics | None = None) -> None:
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


# releases that come again


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


# admission and eviction


class RefusesExactFit(EncoderCacheManager):
    """An admission that would take the last freeable slot is refused."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        if request.get_num_encoder_embeds(input_id) + pending == self.num_freeable_slots:
            return False
        return super().can_allocate(request, input_id, encoder_compute_budget, pending)


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


class RefusalTakesHold(EncoderCacheManager):
    """A refused request holds, until the next look-up, what it shows and others hold."""

    def __init__(self, cache_size: int, semantics: Semantics | None = None) -> None:
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


# notices to the worker


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

    def __init__(self, cache_size: int, semantics: Semantics | None = None) -> None:
        super().__init__(cache_size, semantics)
        self._departed: set[str] = set()

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        hit = super().check_and_update_cache(request, input_id)
        return hit or request.mm_features[input_id].identifier in self._departed

    def get_freed_mm_hashes(self) -> list[str]:
        freed = super().get_freed_mm_hashes()
        self._departed.update(freed)
        return freed


# the encoder-decoder cache


class DecoderAllocationDebitsTwice(EncoderDecoderCacheManager):
    """An encoder-decoder allocation is debited twice and credited once."""

    def allocate(self, request: Request, input_id: int) -> None:
        super().allocate(request, input_id)
        self.num_free_slots -= request.get_num_encoder_embeds(input_id)


class DecoderAllocationIsFree(EncoderDecoderCacheManager):
    """An encoder-decoder allocation is debited nothing."""

    def allocate(self, request: Request, input_id: int) -> None:
        super().allocate(request, input_id)
        self.num_free_slots += self._debits.pop((request.request_id, input_id))


class DecoderCreditIsCapped(EncoderDecoderCacheManager):
    """Every release credits the item again, up to the capacity."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        size = request.get_num_encoder_embeds(input_id)
        self.num_free_slots = min(self.cache_size, self.num_free_slots + size)


class DecoderDebitsForTwoReleases(EncoderDecoderCacheManager):
    """An encoder-decoder item is debited twice, in advance of the release that comes again."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        pending += request.get_num_encoder_embeds(input_id)
        return super().can_allocate(request, input_id, encoder_compute_budget, pending)

    def allocate(self, request: Request, input_id: int) -> None:
        super().allocate(request, input_id)
        debit = self._debits[request.request_id, input_id]
        self.num_free_slots -= debit
        self._debits[request.request_id, -1] = debit

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        if (request.request_id, input_id) not in self._debits:
            self.num_free_slots += self._debits.pop((request.request_id, -1), 0)
        super().free_encoder_input(request, input_id)


class DecoderReportsTwice(EncoderDecoderCacheManager):
    """An encoder-decoder entry is reported in the step of its encode and in the next."""

    def get_freed_mm_hashes(self) -> list[str]:
        encoded = list(self.allocated)
        return super().get_freed_mm_hashes() + encoded


class DecoderReportsLate(EncoderDecoderCacheManager):
    """An encoder-decoder entry is reported, and its slots credited, two steps late."""

    def __init__(self, cache_size: int, semantics: Semantics | None = None) -> None:
        super().__init__(cache_size, semantics)
        self._late: list[list[tuple[str, int]]] = [[], [], [], []]

    def allocate(self, request: Request, input_id: int) -> None:
        super().allocate(request, input_id)
        size = self._debits.pop((request.request_id, input_id))
        self._late[-1].append((request.mm_features[input_id].identifier, size))

    def get_freed_mm_hashes(self) -> list[str]:
        super().get_freed_mm_hashes()
        due, *self._late = [*self._late, []]
        self.num_free_slots += sum(size for _, size in due)
        return [identifier for identifier, _ in due]

    def reset(self) -> None:
        super().reset()
        self._late = [[], [], [], []]


class DecoderNeverReports(EncoderDecoderCacheManager):
    """The worker is never told to drop an encoder-decoder entry."""

    def get_freed_mm_hashes(self) -> list[str]:
        super().get_freed_mm_hashes()
        return []


class DecoderSecondReleaseRaises(EncoderDecoderCacheManager):
    """Releasing an encoder-decoder item a second time is an error."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        self.num_free_slots += self._debits.pop((request.request_id, input_id))
