"""An encoder cache manager whose state is judged while one drives it oneself."""

from collections.abc import Iterator

import cacheproof.spec.encoder_cache  # noqa: F401  (registers its contracts)
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import Request, end_of
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState
from cacheproof.spec.registry import Contract, contracts


class EncoderCacheMonitor:
    """Drives a manager as a scheduler does, and tells a ghost what was asked and answered.

    Attributes:
        manager: the reference's, or a subclass of one's own.
        ghost: what the requests are owed.
    """

    def __init__(self, manager: EncoderCacheManager) -> None:
        self.manager = manager
        self.ghost = Ghost()

    def schedule(self, request: Request, input_id: int, budget: int) -> bool:
        """Schedule the tokens of an item: claim its entry, or admit and encode it.

        `budget` is what is left of the step's compute budget, in embeddings. False, and nothing
        claimed, where the item is not admitted.
        """
        name, feature = request.request_id, request.mm_features[input_id]
        if not self.manager.check_and_update_cache(request, input_id):
            if not self.manager.can_allocate(request, input_id, budget, 0):
                return False
            self.manager.allocate(request, input_id)
            size = request.get_num_encoder_embeds(input_id)
            self.ghost.encode(name, input_id, feature.identifier, size)
        self.ghost.claim(name, feature.identifier, end_of(feature))
        return True

    def confirm(self, request: Request, progress: int) -> None:
        """The request's first `progress` tokens are computed: release the items among them."""
        for input_id in sorted(self.manager.get_cached_input_ids(request)):
            if end_of(request.mm_features[input_id]) <= progress:
                self.manager.free_encoder_input(request, input_id)
                self.ghost.release(request.request_id, input_id)
        self.ghost.consume(request.request_id, progress)

    def free(self, request: Request) -> None:
        """The request is preempted, aborted or finished."""
        self.manager.free(request)
        self.ghost.withdraw(request.request_id)

    @property
    def state(self) -> EncoderCacheState:
        """The manager's ledger as contracts look at it."""
        return EncoderCacheState(
            capacity=self.manager.cache_size,
            free_slots=self.manager.num_free_slots,
            freeable_slots=self.manager.num_freeable_slots,
            size=self.manager.num_embeds_by_hash,
            holders=self.manager.cached,
            queue=self.manager.freeable,
            notices=tuple(self.manager.freed),
        )

    def broken(self) -> Iterator[tuple[Contract, str]]:
        """The contracts of states that do not hold now, each with both sides of what is unequal."""
        seen = {"s": self.state, "g": self.ghost}
        for rule in contracts("encoder_cache"):
            if rule.kind == "state":
                values = {parameter: seen[parameter] for parameter in rule.parameters}
                if not rule.predicate(**values):
                    yield rule, rule.explain(**values)
