"""What a scheduler remembers between two calls, and the few moves that every concern makes."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.kv_cache_manager import KVCacheBlocks, KVCacheManager
from cacheproof.reference.kv_cache_specs import ceil_div
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.config import SchedulerConfig
from cacheproof.reference.scheduler.connector import EncoderCacheConnector, KVConnector
from cacheproof.reference.scheduler.deferred_frees import DeferredFrees
from cacheproof.reference.scheduler.request_queue import RequestQueue, create_request_queue
from cacheproof.reference.semantics import Semantics


class PauseState(Enum):
    """Who is scheduled: everybody, only requests that hold KV blocks, or nobody."""

    UNPAUSED = "none"
    PAUSED_NEW = "new"
    PAUSED_ALL = "all"


class SchedulerState:
    """The requests and where they stand, beside the two caches that they take from.

    Attributes:
        requests: every request between arrival and end, by id.
        holding: of those that wait, the ones that hold KV blocks and are considered first: sessions
            between two turns, and requests whose KV is being loaded.
        passed_over: of the others, the ones that are considered first, since an earlier step passed
            over them.
        waiting: the others, in the order in which they are considered.
        running: those that run, in the order in which they were admitted.
        deferred: waiting requests that a step has passed over.
        num_waiting_for_streaming_input: sessions that wait for more prompt.
        pause_state: what is scheduled.
        prefill_is_bound: whether requests were left waiting when prompts were last not held back.
        num_executed_steps, last_prefill_step: steps that had tokens, and the last with a prompt's.
        finished_req_ids: requests that ended since the last step: the workers are told.
        preempted_req_ids: requests that lost their blocks since the last step.
        scheduled_before: requests of the last step, none since running ones started over.
        sent_inputs: items of whose data the second model runner has some, of requests that it
            knows.
        encoder_cache_mismatch_reqs: requests whose item came back with another size, to be ended
            with an error.
        connector, kv_connector: to encoder outputs, and to KV, elsewhere; None without one.
        finished_recving: requests whose load has ended, until they are considered again.
        failed_recving: those of which not all has come.
        unfinished_prefills: requests that hold KV blocks and will need more for their prompts.
        frees: gives blocks back when no step in flight writes them.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv_cache_manager: KVCacheManager,
        encoder_cache_manager: EncoderCacheManager,
        semantics: Semantics,
        connector: EncoderCacheConnector | None = None,
        kv_connector: KVConnector | None = None,
    ) -> None:
        self.config = config
        self.kv_cache_manager = kv_cache_manager
        self.encoder_cache_manager = encoder_cache_manager
        self.semantics = semantics
        self.connector = connector
        self.kv_connector = kv_connector
        (group, *_) = kv_cache_manager.kv_cache_config.kv_cache_groups
        self.block_size = group.kv_cache_spec.block_size
        self.finished_recving: set[str] = set()
        self.failed_recving: set[str] = set()
        self.unfinished_prefills: set[ScheduledRequest] = set()
        self.frees = DeferredFrees(
            kv_cache_manager,
            defers=kv_connector is not None
            and config.async_scheduling
            and semantics.kv_cache.defers_frees,
        )
        self.requests: dict[str, ScheduledRequest] = {}
        self.holding = create_request_queue(config.policy)
        self.passed_over = create_request_queue(config.policy)
        self.waiting = create_request_queue(config.policy)
        self.running: list[ScheduledRequest] = []
        self.deferred: set[ScheduledRequest] = set()
        self.num_waiting_for_streaming_input = 0
        self.pause_state = PauseState.UNPAUSED
        self.prefill_is_bound = False
        self.num_executed_steps = 0
        self.last_prefill_step = -config.prefill_schedule_interval
        self.finished_req_ids: set[str] = set()
        self.preempted_req_ids: set[str] = set()
        self.scheduled_before: set[str] = set()
        self.sent_inputs: dict[str, set[int]] = {}
        self.encoder_cache_mismatch_reqs: set[str] = set()

    @property
    def num_waiting(self) -> int:
        """How many requests wait."""
        return sum(map(len, self.queues))

    @property
    def queues(self) -> tuple[RequestQueue, ...]:
        """Where requests wait; whom of two is considered first does not always show."""
        return self.holding, self.passed_over, self.waiting

    def enqueue(self, request: ScheduledRequest) -> None:
        """A request waits from now on: it has arrived, or it is a session after a turn."""
        listens = request.status is RequestStatus.WAITING_FOR_STREAMING_REQ
        if listens:
            self.deferred.add(request)
        if request.holds_kv_blocks and self.semantics.scheduler.admits_holders_first:
            self.holding.add_request(request)
        elif listens and self._sets_apart:
            self.passed_over.add_request(request)
        else:
            self.waiting.add_request(request)

    @property
    def _sets_apart(self) -> bool:
        """Whether requests that cannot be admitted now wait in a queue of their own."""
        return (
            self.semantics.scheduler.sets_passed_over_apart
            and not self.semantics.scheduler.rejoins_passed_over
        )

    def restore_order(self) -> None:
        """The urgency of a request that waits has changed."""
        for queue in self.queues:
            queue.restore_order()

    def preempt(self, request: ScheduledRequest, *, drops_output: bool = False) -> None:
        """A running request gives back all that it holds and waits, before all others.

        Output of its steps in flight is still delivered, or with `drops_output` is not.
        """
        self.running.remove(request)
        self.frees.free(request)
        self.unfinished_prefills.discard(request)
        self.encoder_cache_manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        if self.semantics.scheduler.forgets_drafts:
            request.spec_token_ids = ()
        if self.semantics.scheduler.marks_stale_output:
            still_dropped = request.drop_stale_output and request.num_stale_output_tokens > 0
            request.drop_stale_output = drops_output or still_dropped
            request.num_stale_output_tokens = request.num_in_flight_tokens
            request.num_output_placeholders = 0
        request.num_preemptions += 1
        self.preempted_req_ids.add(request.request_id)
        self.sent_inputs.pop(request.request_id, None)
        self.waiting.prepend_requests([request])

    def take_back_from_holding(self) -> None:
        """Waiting requests give back the KV blocks that they hold, and compute them anew; but not
        those into which KV is being loaded."""
        loads = RequestStatus.WAITING_FOR_REMOTE_KVS
        holding = [request for request in self.holding if request.status is not loads]
        self.holding.remove_requests(holding)
        for request in reversed(holding):
            self.frees.free(request)
            self.encoder_cache_manager.free(request)
            self.unfinished_prefills.discard(request)
            request.num_computed_tokens = 0
        self.waiting.prepend_requests(holding)

    def finish(self, requests: Iterable[ScheduledRequest], status: RequestStatus) -> None:
        """Requests end from outside of a step: aborted, or in error."""
        once = self.semantics.scheduler.ends_once
        # a finished request may wait for its KV to be sent: a second end would free those blocks
        ended = [request for request in requests if not (once and request.status.is_finished)]
        self.remove_from_queues(set(ended))
        for request in ended:
            if request.status is RequestStatus.WAITING_FOR_STREAMING_REQ:
                self.num_waiting_for_streaming_input -= 1
            is_loading = self._drop_load(request)
            request.status = status
            self.free(
                request, keeps_blocks=is_loading and self.semantics.scheduler.keeps_until_loaded
            )

    def _drop_load(self, request: ScheduledRequest) -> bool:
        """Whether blocks of a request that ends are still written by a load."""
        if request.status is not RequestStatus.WAITING_FOR_REMOTE_KVS:
            return False
        is_loading = request.request_id not in self.finished_recving
        self.finished_recving.discard(request.request_id)
        self.failed_recving.discard(request.request_id)
        return is_loading

    def remove_from_queues(self, requests: set[ScheduledRequest]) -> None:
        """These requests neither run nor wait any more."""
        if not requests:
            return
        waiting = requests.difference(self.running)
        self.running = [request for request in self.running if request not in requests]
        if waiting:
            for queue in self.queues:
                queue.remove_requests(waiting)
            self.deferred -= waiting

    def next_queue(self) -> RequestQueue | None:
        """The queue of the waiting request that is considered next."""
        if self.holding:
            return self.holding
        if self.pause_state is PauseState.PAUSED_NEW:
            return None
        if self.config.policy == "priority" and self.passed_over and self.waiting:
            queues = (self.passed_over, self.waiting)
            return min(queues, key=lambda queue: queue.peek_request().urgency)
        return self.passed_over or self.waiting or None

    def pass_over(self, requests: Sequence[ScheduledRequest]) -> None:
        """These requests were popped and not admitted."""
        if not requests:
            return
        self.deferred.update(requests)
        # before 0.14.0 vLLM's queue puts them in front one by one (faults/overtaken)
        if not self.semantics.scheduler.keeps_passed_over_in_order:
            requests = requests[::-1]
        holds = self.semantics.scheduler.admits_holders_first
        holding = [one for one in requests if holds and one.holds_kv_blocks]
        others = [one for one in requests if one not in holding]
        self.holding.prepend_requests(holding)
        (self.passed_over if self._sets_apart else self.waiting).prepend_requests(others)

    def awaits_transfer(self, request: ScheduledRequest, num_computed_tokens: int) -> bool:
        """Whether an encoder output that the request needs is on its way from elsewhere."""
        if self.connector is None or not request.has_encoder_inputs:
            return False
        return not self.connector.ensure_cache_available(request, num_computed_tokens)

    def free(self, request: ScheduledRequest, *, keeps_blocks: bool = False) -> None:
        """A request that ended gives back all that it holds; but its KV blocks not yet, where it
        `keeps_blocks`, or where they are sent elsewhere."""
        self.unfinished_prefills.discard(request)
        # connectors first: they ask about a request that still holds its blocks and entries
        if self.kv_connector is not None:
            sends, _ = self.kv_connector.request_finished(request, self._blocks_to_send(request))
            keeps_blocks |= sends
        if self.connector is not None:
            self.connector.request_finished(request)
        self.encoder_cache_manager.free(request)
        self.finished_req_ids.add(request.request_id)
        self.sent_inputs.pop(request.request_id, None)
        if not keeps_blocks:
            self.give_back(request)

    def give_back(self, request: ScheduledRequest) -> None:
        """A request that ended gives back its KV blocks, and is forgotten."""
        self.frees.free(request)
        del self.requests[request.request_id]

    def take_finished_req_ids(self) -> set[str]:
        """The requests that have ended since the last take."""
        finished, self.finished_req_ids = self.finished_req_ids, set()
        return finished

    @property
    def transfers_hold_blocks(self) -> bool:
        """Whether there are KV blocks that no request can give back now: they are loaded into, or
        sent, or still written by a step in flight where that counts."""
        loads = RequestStatus.WAITING_FOR_REMOTE_KVS
        return (
            len(self.frees) > 0
            or any(one.status is loads or one.status.is_finished for one in self.requests.values())
            or not all(map(self.frees.can_free, (*self.running, *self.holding)))
        )

    def _blocks_to_send(self, request: ScheduledRequest) -> list[int]:
        (block_ids,) = self.kv_cache_manager.get_block_ids(request.request_id)
        if self.semantics.scheduler.sends_computed_blocks:
            return block_ids[: ceil_div(request.num_computed_tokens, self.block_size)]
        return block_ids

    def admit_slots(
        self,
        request: ScheduledRequest,
        num_new_tokens: int,
        num_external_tokens: int,
        **further: Any,
    ) -> KVCacheBlocks | None:
        """Slots for a waiting request, or None where others shall have what is left."""
        if not self.semantics.kv_cache.tells_external_tokens:
            num_new_tokens, num_external_tokens = num_new_tokens + num_external_tokens, 0
        return self.kv_cache_manager.allocate_slots(
            request,
            num_new_tokens,
            num_external_computed_tokens=num_external_tokens,
            full_sequence_must_fit=(
                self.config.scheduler_reserve_full_isl
                and self.semantics.kv_cache.admits_whole_sequences
            ),
            has_scheduled_reqs=bool(self.running),
            **further,
        )
