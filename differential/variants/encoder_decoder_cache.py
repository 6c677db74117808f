"""Faults of the encoder-decoder manager."""

from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.request import Request
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics


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

    def __init__(self, cache_size: int, semantics: EncoderCacheSemantics | None = None) -> None:
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


class DecoderNeverCredits(EncoderDecoderCacheManager):
    """Releasing an encoder-decoder item gives back nothing."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        """Keep the debit."""


class DecoderRefusesExactFit(EncoderDecoderCacheManager):
    """An encoder-decoder admission that would take the last free slot is refused."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        return super().can_allocate(request, input_id, encoder_compute_budget, pending + 1)


class DecoderIgnoresComputeBudget(EncoderDecoderCacheManager):
    """An encoder-decoder admission looks at the space and not at the compute budget."""

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, pending: int
    ) -> bool:
        return super().can_allocate(request, input_id, self.cache_size, pending)


class DecoderLastInputIsNotTold(EncoderDecoderCacheManager):
    """Of the inputs that an encoder-decoder request may release the last is not told."""

    def get_cached_input_ids(self, request: Request) -> set[int]:
        return set(sorted(super().get_cached_input_ids(request))[:-1])

    def free(self, request: Request) -> None:
        for input_id in range(len(request.mm_features)):
            self.free_encoder_input(request, input_id)
