"""The encoder cache's ledger: which encoder outputs are resident, who holds them, who goes next.

Sizes are in embeddings. An entry is admitted (`can_allocate`, evicting idle entries from the front
of the queue where it must), allocated, held by requests, released to the back of the queue, and
evicted or rescued by a hit. The worker learns of evictions through `get_freed_mm_hashes`.
"""

from collections import Counter
from typing import Any

from cacheproof.reference.request import Request
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics


class EncoderCacheManager:
    """Stands in for vLLM's class of the same name: same methods, arguments and attributes.

    Attributes:
        cache_size: capacity.
        num_free_slots: what no entry takes.
        num_freeable_slots: free slots, and those that idle entries take.
        cached: identifier -> ids of the requests that hold it; empty when the entry is idle.
        num_embeds_by_hash: identifier -> size, for every resident entry.
        freeable: idle identifier -> size to be credited, in order of eviction.
        freed: evicted identifiers that the worker has not been told of.
    """

    def __init__(self, cache_size: int, semantics: EncoderCacheSemantics | None = None) -> None:
        self.cache_size = cache_size
        self.semantics = semantics or EncoderCacheSemantics()
        self.num_free_slots = cache_size
        self.num_freeable_slots = cache_size
        self.cached: dict[str, set[str]] = {}
        self.num_embeds_by_hash: dict[str, int] = {}
        self.freeable: dict[str, int] = {}
        self.freed: list[str] = []
        self._claims: dict[str, dict[int, str]] = {}

    @property
    def request_cached_ids(self) -> dict[str, set[int]]:
        """Request -> inputs that it may release; as a release keeps it, from 0.23.0 on."""
        return {request_id: set(claims) for request_id, claims in self._claims.items()}

    @property
    def request_hash_refs(self) -> dict[str, dict[str, int]]:
        """Request -> identifier -> how many of these inputs have it; as kept from 0.33.0 on."""
        return {
            request_id: dict(Counter(claims.values()))
            for request_id, claims in self._claims.items()
        }

    @classmethod
    def create_manager(cls, *, cache_size: int, vllm_config: Any) -> "EncoderCacheManager":
        """A manager, made as a vLLM scheduler does; nothing of the configuration is used."""
        return cls(cache_size)

    def reset(self) -> None:
        """Forget every entry; nothing is reported, since the worker resets its store as well."""
        self.cached.clear()
        self.num_embeds_by_hash.clear()
        self.freeable.clear()
        self.freed.clear()
        self._claims.clear()
        self.num_free_slots = self.cache_size
        self.num_freeable_slots = self.cache_size

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        """Claim the item for the request if its entry is resident; False on a miss."""
        identifier = request.mm_features[input_id].identifier
        holders = self.cached.get(identifier)
        if holders is None:
            return False
        if not holders:
            self.num_freeable_slots -= self.freeable.pop(identifier)
        holders.add(request.request_id)
        self._claims.setdefault(request.request_id, {})[input_id] = identifier
        return True

    def get_cached_num_encoder_embeds(self, request: Request, input_id: int) -> int | None:
        """Size of the resident entry that the item would hit; None when there is none."""
        return self.num_embeds_by_hash.get(request.mm_features[input_id].identifier)

    def can_allocate(
        self,
        request: Request,
        input_id: int,
        encoder_compute_budget: int,
        num_embeds_to_schedule: int,
    ) -> bool:
        """Whether the item fits the compute budget and, after evictions, the cache.

        `num_embeds_to_schedule` is what the caller has been granted and not allocated yet.
        Evicts, oldest first, only what it takes, and only when the answer is True.
        """
        need = request.get_num_encoder_embeds(input_id)
        # without what is pending: the caller has taken that off the budget already
        if need > encoder_compute_budget:
            return False
        need += num_embeds_to_schedule
        # before the first eviction: a refusal evicts nothing
        if need > self.num_freeable_slots:
            return False
        # ends: with all idle entries evicted, num_freeable_slots are free
        while need > self.num_free_slots:
            self._evict(next(iter(self.freeable)))
        return True

    def allocate(self, request: Request, input_id: int) -> None:
        """Debit an admitted item and hold it for the request.

        Raises:
            AssertionError: the item was not admitted: it does not fit.
        """
        identifier = request.mm_features[input_id].identifier
        need = request.get_num_encoder_embeds(input_id)
        assert need <= self.num_free_slots
        assert need <= self.num_freeable_slots
        self.cached.setdefault(identifier, set()).add(request.request_id)
        self.num_embeds_by_hash[identifier] = need
        self.num_free_slots -= need
        self.num_freeable_slots -= need
        self._claims.setdefault(request.request_id, {})[input_id] = identifier

    def get_cached_input_ids(self, request: Request) -> set[int]:
        """Inputs whose entries the request may release."""
        if self.semantics.remembers_claims:
            return set(self._claims.get(request.request_id, ()))
        return {
            input_id
            for input_id, feature in enumerate(request.mm_features)
            if feature.identifier in self.cached
        }

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        """Release the request's claim on one item; the last claim on an entry makes it idle."""
        identifier = request.mm_features[input_id].identifier
        claims = self._claims.get(request.request_id, {})
        claims.pop(input_id, None)
        if not claims:
            self._claims.pop(request.request_id, None)
        holders = self.cached.get(identifier)
        if not holders:
            return
        # vLLM PR #54284: the request still reads the entry at a later occurrence
        if self.semantics.holds_until_last_occurrence and identifier in claims.values():
            return
        holders.discard(request.request_id)
        if not holders:
            self._retire(identifier, request.get_num_encoder_embeds(input_id))

    def free(self, request: Request) -> None:
        """Release everything that the request holds: it finished, was aborted or preempted."""
        for input_id in sorted(self.get_cached_input_ids(request)):
            self.free_encoder_input(request, input_id)

    def get_freed_mm_hashes(self) -> list[str]:
        """Take the eviction notices for the worker."""
        freed, self.freed = self.freed, []
        # vLLM PR #52482: one that was encoded again since must stay in the worker's store
        if self.semantics.drops_stale_notices:
            return [identifier for identifier in freed if identifier not in self.cached]
        return freed

    def get_manager_metadata(self) -> None:
        """What newer schedulers send to the worker with the notices: nothing."""
        return

    def _retire(self, identifier: str, released_size: int) -> None:
        size = released_size
        # the item that is released may have another size than the one that was debited
        if self.semantics.remembers_sizes:
            size = self.num_embeds_by_hash[identifier]
        self.freeable[identifier] = size
        self.num_freeable_slots += size

    def _evict(self, identifier: str) -> None:
        self.num_free_slots += self.freeable.pop(identifier)
        del self.cached[identifier]
        del self.num_embeds_by_hash[identifier]
        self.freed.append(identifier)
