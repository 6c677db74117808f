"""What a simulation counts, off the steps that the scheduler decided and what its manager refused.

An item of a request has one of three outcomes, when the request first computes its tokens: its
tokens lie in the cached prefix and nobody asks for its rows (covered), the encoder cache has it
(a hit), or it is encoded. A request that starts over after a preemption has its outcomes anew.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import Request
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.output import SchedulerOutput
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics


class ToldManager(EncoderCacheManager):
    """The reference's encoder cache manager, which remembers whom it refused room for an item.

    Attributes:
        refused: request -> whether the compute budget was too small for it, or else the cache.
    """

    def __init__(self, cache_size: int, semantics: EncoderCacheSemantics) -> None:
        super().__init__(cache_size, semantics)
        self.refused: dict[str, bool] = {}

    def can_allocate(
        self,
        request: Request,
        input_id: int,
        encoder_compute_budget: int,
        num_embeds_to_schedule: int,
    ) -> bool:
        """Decide as the reference does, and remember a refusal."""
        granted = super().can_allocate(
            request, input_id, encoder_compute_budget, num_embeds_to_schedule
        )
        if not granted:
            need = request.get_num_encoder_embeds(input_id)
            self.refused[request.request_id] = need > encoder_compute_budget
        return granted


@dataclass
class Figures:
    """What came of a run.

    Attributes:
        requests: requests that ended.
        mentions: items of all requests.
        repeats: those of them that an earlier request had, or an earlier place of the same one.
        steps: steps that had tokens.
        covered, hits, encodes: outcomes of items.
        re_encodes: encodes of items that had been encoded before.
        budget_stalls: times that a request was not in a step, for want of encoder compute budget.
        space_stalls: the same for want of room in the encoder cache.
        preemptions: times that a request lost its KV blocks.
        resident_peak, resident_sum: rows in the cache after a step, idle ones included: the most,
            and the sum over steps.
        held_peak, held_sum: the same of rows that a request holds. Releases before 0.20.0 let go of
            what a step consumes when it is scheduled, so that little is held after it.
    """

    requests: int = 0
    mentions: int = 0
    repeats: int = 0
    steps: int = 0
    covered: int = 0
    hits: int = 0
    encodes: int = 0
    re_encodes: int = 0
    budget_stalls: int = 0
    space_stalls: int = 0
    preemptions: int = 0
    resident_peak: int = 0
    resident_sum: int = 0
    held_peak: int = 0
    held_sum: int = 0

    @property
    def hit_rate(self) -> float:
        """Hits of all items that the encoder cache was asked for; 0 where it was asked for none."""
        asked = self.hits + self.encodes
        return self.hits / asked if asked else 0.0

    @property
    def resident_mean(self) -> float:
        """Mean rows in the cache."""
        return self.resident_sum / self.steps if self.steps else 0.0

    @property
    def held_mean(self) -> float:
        """Mean rows that a request holds."""
        return self.held_sum / self.steps if self.steps else 0.0


class Counter:
    """Counts steps into figures. It remembers a byte for each item of the traffic, and the requests
    that are under way."""

    def __init__(self) -> None:
        self.figures = Figures()
        self._mentioned = bytearray()
        self._encoded = bytearray()
        self._next_item: dict[tuple[str, int], int] = {}

    def arrived(self, numbers: Iterable[int]) -> None:
        """A request arrives, with these items."""
        for number in numbers:
            self.figures.mentions += 1
            self.figures.repeats += _mark(self._mentioned, number)

    def scheduled(
        self,
        output: SchedulerOutput,
        requests: Mapping[str, ScheduledRequest],
        manager: ToldManager,
    ) -> None:
        """A step was decided; an empty one brings stalls alone."""
        figures, scheduled = self.figures, output.num_scheduled_tokens
        for name, num_tokens in scheduled.items():
            self._count_items(
                requests[name], num_tokens, output.scheduled_encoder_inputs.get(name, ())
            )
        for name, for_budget in manager.refused.items():
            if name not in scheduled:
                figures.budget_stalls += for_budget
                figures.space_stalls += not for_budget
        manager.refused.clear()
        if not scheduled:
            return
        figures.steps += 1
        resident = manager.cache_size - manager.num_free_slots
        held = manager.cache_size - manager.num_freeable_slots
        figures.resident_sum += resident
        figures.held_sum += held
        figures.resident_peak = max(figures.resident_peak, resident)
        figures.held_peak = max(figures.held_peak, held)

    def ended(self, request: ScheduledRequest) -> None:
        """A request has ended."""
        self.figures.requests += 1
        self.figures.preemptions += request.num_preemptions
        for start in range(request.num_preemptions + 1):
            self._next_item.pop((request.request_id, start), None)

    def _count_items(
        self, request: ScheduledRequest, num_tokens: int, encoded: Collection[int]
    ) -> None:
        """Count the outcomes of items that the request meets in this step for the first time since
        it last started over."""
        key = request.request_id, request.num_preemptions
        number, features = self._next_item.get(key, 0), request.mm_features
        end = request.num_computed_tokens
        start = end - num_tokens
        while number < len(features) and features[number].mm_position.offset < end:
            if number in encoded:
                self.figures.encodes += 1
                self.figures.re_encodes += _mark(self._encoded, int(features[number].identifier))
            elif features[number].mm_position.end <= start:
                self.figures.covered += 1
            else:
                self.figures.hits += 1
            number += 1
        self._next_item[key] = number


def _mark(marked: bytearray, number: int) -> int:
    """Mark a number: 1 where it was marked before, else 0."""
    if number >= len(marked):
        marked.extend(bytes(number + 1 - len(marked)))
    before = marked[number]
    marked[number] = 1
    return before
