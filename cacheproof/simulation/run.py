"""One run: requests arrive, the reference scheduler decides, and every step takes place at once."""

from collections.abc import Callable
from dataclasses import dataclass

from cacheproof.reference.block_hash import get_request_block_hasher
from cacheproof.reference.encoder_budget import EncoderLimits, compute_mm_encoder_budget
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.kv_cache_specs import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    ceil_div,
)
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.config import SchedulerConfig
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.semantics import Semantics
from cacheproof.simulation.figures import Counter, Figures, ToldManager
from cacheproof.simulation.traffic import ANSWER, SimulatedArrival, SimulatedTraffic

_REQUESTS_PER_PLACE = 2
"""For each request that may run, one waits."""


class BadSetting(ValueError):
    """A setting that no release takes, or in which no request can go on; one line says why."""


@dataclass(frozen=True)
class SimulationSetting:
    """What a scheduler is made with. Encoder sizes are in rows, and are raised to the largest item.

    Attributes:
        release: whose decisions are taken.
        max_num_batched_tokens: token budget of a step.
        max_num_seqs: most running requests.
        encoder_compute_budget: most rows that one step may encode.
        encoder_cache_size: rows that the encoder cache keeps.
        num_blocks: KV blocks, the null block among them.
        block_size: tokens of a KV block.
        enable_prefix_caching: whether KV blocks are hit.
        disable_chunked_mm_input: whether no item may be computed in several steps.
    """

    release: str
    max_num_batched_tokens: int
    max_num_seqs: int
    encoder_compute_budget: int
    encoder_cache_size: int
    num_blocks: int
    block_size: int
    enable_prefix_caching: bool = True
    disable_chunked_mm_input: bool = False

    def budgets(self, traffic: SimulatedTraffic) -> tuple[int, int]:
        """Encoder compute budget and encoder cache size as a release takes them for that traffic.

        Raises:
            BadSetting: it refuses them, or the KV blocks hold no request of the traffic.
        """
        needed = 1 + ceil_div(traffic.longest, self.block_size)
        if needed > self.num_blocks:
            raise BadSetting(
                f"a request of {traffic.name} takes up to {needed} KV blocks of {self.block_size} "
                f"tokens, the null block among them; expected as many, not {self.num_blocks}"
            )
        limits = EncoderLimits(
            self.max_num_batched_tokens,
            self.encoder_compute_budget,
            self.encoder_cache_size,
            self.disable_chunked_mm_input,
        )
        try:
            return compute_mm_encoder_budget(limits, {traffic.name: traffic.largest_item})
        except ValueError as refusal:
            raise BadSetting(
                f"{traffic.name}: {refusal}; expected a step of as many tokens"
            ) from None


def run(
    traffic: SimulatedTraffic,
    setting: SimulationSetting,
    num_requests: int,
    seed: int,
    advance: Callable[[int], object] = lambda count: None,
) -> Figures:
    """Serve so many requests of the traffic; `advance` is told how many more have ended.

    As many requests wait as may run, until the last has arrived. Whoever could arrive when does not
    depend on the setting, so all settings get the same requests in the same order.

    Raises:
        BadSetting: a release refuses the setting, or a step comes in which nobody can go on.
    """
    engine = _Engine(traffic, setting)
    arrivals, arrived = traffic.stream(seed), 0
    scheduler, counter = engine.scheduler, engine.counter
    while arrived < num_requests or scheduler.requests:
        while (
            arrived < num_requests
            and len(scheduler.requests) < _REQUESTS_PER_PLACE * setting.max_num_seqs
        ):
            engine.add(arrived, next(arrivals))
            arrived += 1
        ended = engine.step()
        if ended:
            advance(ended)
    return counter.figures


class _Engine:
    """A scheduler whose steps are executed by nobody."""

    def __init__(self, traffic: SimulatedTraffic, setting: SimulationSetting) -> None:
        semantics = Semantics.of_vllm(setting.release)
        compute_budget, cache_size = setting.budgets(traffic)
        caches = KVCacheConfig(
            setting.num_blocks, (KVCacheGroupSpec(FullAttentionSpec(setting.block_size)),)
        )
        max_model_len = traffic.longest + 1
        self.counter = Counter()
        self._empty_steps = 0
        self._manager = ToldManager(cache_size, semantics.encoder_cache)
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_num_batched_tokens=setting.max_num_batched_tokens,
                max_num_seqs=setting.max_num_seqs,
                max_model_len=max_model_len,
                encoder_compute_budget=compute_budget,
                disable_chunked_mm_input=setting.disable_chunked_mm_input,
            ),
            KVCacheManager(
                caches,
                max_model_len,
                caches.scheduler_block_size,
                caches.hash_block_size,
                setting.max_num_batched_tokens,
                enable_caching=setting.enable_prefix_caching,
                semantics=semantics,
            ),
            self._manager,
            semantics=semantics,
        )
        self._hasher = (
            get_request_block_hasher(
                setting.block_size,
                hash_function(semantics.block_keys),
                semantics=semantics.block_keys,
                seed="0",
            )
            if setting.enable_prefix_caching
            else None
        )

    def add(self, number: int, arrival: SimulatedArrival) -> None:
        """A request arrives."""
        self.counter.arrived(item.number for item in arrival.items)
        self.scheduler.add_request(
            ScheduledRequest(
                str(number),
                arrival.token_ids,
                [
                    MultiModalFeature(
                        str(item.number), PlaceholderRange(item.offset, item.rows), str(item.number)
                    )
                    for item in arrival.items
                ],
                block_hasher=self._hasher,
                max_tokens=arrival.num_output_tokens,
                arrival_time=float(number),
            )
        )

    def step(self) -> int:
        """One step; answers how many requests ended with it.

        Raises:
            BadSetting: it is empty, as were more steps before it than there are requests. One empty
                step may preempt a request so that another can go on.
        """
        scheduler = self.scheduler
        output = scheduler.schedule()
        self._empty_steps = 0 if output.num_scheduled_tokens else self._empty_steps + 1
        if self._empty_steps > len(scheduler.requests):
            raise BadSetting(
                f"after {self.counter.figures.steps} steps none of {len(scheduler.requests)} "
                "requests can go on; expected more KV blocks or a larger encoder cache"
            )
        self.counter.scheduled(output, scheduler.requests, self._manager)
        scheduled = [scheduler.requests[name] for name in output.num_scheduled_tokens]
        sampled = {
            one.request_id: (ANSWER,) if one.num_computed_tokens >= one.num_tokens else ()
            for one in scheduled
        }
        scheduler.update_from_output(output, sampled)
        ended = [one for one in scheduled if one.status.is_finished]
        for one in ended:
            self.counter.ended(one)
        return len(ended)
