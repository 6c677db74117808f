"""The ledger for encoder-decoder models: it counts slots, shares nothing, keeps nothing."""

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import Request
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics


class EncoderDecoderCacheManager(EncoderCacheManager):
    """Stands in for vLLM's class of the same name.

    An encoder output is read in the step that makes it, and copied into the cross-attention KV
    blocks; so no entry outlives its step, and every request encodes for itself.

    Attributes:
        cache_size, num_free_slots: as in the encoder cache.
        allocated: identifiers encoded since the last notices.
        to_free: identifiers encoded in the step before, to be reported next.
    """

    def __init__(self, cache_size: int, semantics: EncoderCacheSemantics | None = None) -> None:
        self.cache_size = cache_size
        self.semantics = semantics or EncoderCacheSemantics()
        self.num_free_slots = cache_size
        self.allocated: list[str] = []
        self.to_free: list[str] = []
        self._debits: dict[tuple[str, int], int] = {}

    def reset(self) -> None:
        self.num_free_slots = self.cache_size
        self.allocated.clear()
        self.to_free.clear()
        self._debits.clear()

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        """Always a miss."""
        return False

    def can_allocate(
        self,
        request: Request,
        input_id: int,
        encoder_compute_budget: int,
        num_embeds_to_schedule: int,
    ) -> bool:
        """Whether the item fits the compute budget and the free slots."""
        need = request.get_num_encoder_embeds(input_id)
        return (
            need <= encoder_compute_budget and need + num_embeds_to_schedule <= self.num_free_slots
        )

    def allocate(self, request: Request, input_id: int) -> None:
        """Debit an admitted item."""
        need = request.get_num_encoder_embeds(input_id)
        self.num_free_slots -= need
        self._debits[request.request_id, input_id] = need
        self.allocated.append(request.mm_features[input_id].identifier)

    def get_cached_input_ids(self, request: Request) -> set[int]:
        """Every input: the scheduler releases them all once the decoder has begun."""
        return set(range(len(request.mm_features)))

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        """Credit the item; under `releases_decoder_once` only if it is debited."""
        debit = self._debits.pop((request.request_id, input_id), 0)
        if not self.semantics.releases_decoder_once:
            debit = request.get_num_encoder_embeds(input_id)
        self.num_free_slots += debit

    def get_freed_mm_hashes(self) -> list[str]:
        """What the worker may drop: the step before's encodes, since it frees before it encodes."""
        encoded, self.allocated = self.allocated, []
        if not self.semantics.delays_decoder_notices:
            return encoded
        to_free, self.to_free = self.to_free, encoded
        return to_free
