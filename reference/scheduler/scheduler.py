"""The scheduler: each step gives tokens to running requests first, and then admits waiting ones.

A request has no phases. It has tokens that are known and tokens that are computed, and every step
brings the second closer to the first, within two budgets: tokens, and embeddings to encode.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain, takewhile

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.config import SchedulerConfig
from cacheproof.reference.scheduler.connector import EncoderCacheConnector, KVConnector
from cacheproof.reference.scheduler.output import (
    EngineCoreOutput,
    KVConnectorOutput,
    SchedulerOutput,
)
from cacheproof.reference.scheduler.running import release_victims, schedule_running
from cacheproof.reference.scheduler.sessions import add_chunk
from cacheproof.reference.scheduler.state import PauseState, SchedulerState
from cacheproof.reference.scheduler.step import ScheduleStep
from cacheproof.reference.scheduler.telling import (
    cached_requests,
    encoder_input_updates,
    new_requests,
    preempted_requests,
    skips_drafts,
)
from cacheproof.reference.scheduler.update import advance, update_from_output
from cacheproof.reference.scheduler.waiting import schedule_waiting
from cacheproof.reference.semantics import Semantics


class Scheduler:
    """Takes the decisions of vLLM's class of the same name, through methods of the same names.

    The managers are those that it takes from, the connectors bring encoder outputs and KV from
    elsewhere; `semantics` says how a release decides.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv_cache_manager: KVCacheManager,
        encoder_cache_manager: EncoderCacheManager,
        *,
        semantics: Semantics | None = None,
        ec_connector: EncoderCacheConnector | None = None,
        connector: KVConnector | None = None,
    ) -> None:
        self.state = SchedulerState(
            config,
            kv_cache_manager,
            encoder_cache_manager,
            semantics or Semantics.ideal(),
            ec_connector,
            connector,
        )

    @property
    def kv_cache_manager(self) -> KVCacheManager:
        """Where blocks come from."""
        return self.state.kv_cache_manager

    @property
    def encoder_cache_manager(self) -> EncoderCacheManager:
        """Where encoder outputs are taken from."""
        return self.state.encoder_cache_manager

    @property
    def ec_connector(self) -> EncoderCacheConnector | None:
        """What brings encoder outputs from elsewhere."""
        return self.state.connector

    @property
    def connector(self) -> KVConnector | None:
        """What brings KV from elsewhere."""
        return self.state.kv_connector

    @property
    def requests(self) -> Mapping[str, ScheduledRequest]:
        """Every request between arrival and end, by id; and such as ended and still hold blocks
        that are being sent or loaded."""
        return self.state.requests

    @property
    def running(self) -> Sequence[ScheduledRequest]:
        """The requests that run, in the order in which they were admitted."""
        return self.state.running

    @property
    def waiting(self) -> Iterable[ScheduledRequest]:
        """The requests that wait, in the order in which they are considered."""
        return chain(*self.state.queues)

    @property
    def encoder_cache_mismatch_reqs(self) -> Set[str]:
        """Requests that the next update ends: an item came back with another size."""
        return self.state.encoder_cache_mismatch_reqs

    def add_request(self, request: ScheduledRequest) -> None:
        """A request arrives, or more prompt for a resumable one of its id.

        A request that is not resumable itself says that no more will come.

        Raises:
            ValueError: one of its id is there, and is not resumable.
        """
        known = self.state.requests.get(request.request_id)
        if known is None:
            self.state.requests[request.request_id] = request
            self.state.enqueue(request)
        elif known.resumable:
            add_chunk(self.state, known, request)
        else:
            raise ValueError(f"request {request.request_id} is there already")

    def schedule(self) -> SchedulerOutput:
        """Decide on a step."""
        state = self.state
        is_paused = state.pause_state is PauseState.PAUSED_ALL
        step = ScheduleStep(
            token_budget=0 if is_paused else state.config.max_num_batched_tokens,
            encoder_compute_budget=state.config.encoder_compute_budget,
            long_prefill_token_threshold=_long_prefill_token_threshold(state),
            holds_prefills=_holds_prefills(state),
        )
        schedule_running(state, step)
        schedule_waiting(state, step)
        release_victims(state, step)
        if state.config.prefill_schedule_interval > 1:
            _count(state, step)
        output = _output(state, step)
        if state.kv_connector is not None:
            told = state.kv_connector.build_connector_meta(output)
            output = output._replace(kv_connector_metadata=told)
        if state.connector is not None:
            told = state.connector.build_connector_meta(output)
            output = output._replace(ec_connector_metadata=told)
        advance(state, output)
        return output

    def update_from_output(
        self,
        scheduler_output: SchedulerOutput,
        sampled: Mapping[str, Sequence[int]],
        transfers: KVConnectorOutput = KVConnectorOutput(),  # noqa: B008
    ) -> list[EngineCoreOutput]:
        """The output of the oldest step in flight has arrived.

        `sampled` has the new token ids of each of its requests, none where a prompt is not done;
        `transfers` is what became of KV transfers.
        """
        return update_from_output(self.state, scheduler_output, sampled, transfers)

    def finish_requests(self, request_ids: Iterable[str], finished_status: RequestStatus) -> None:
        """Requests end from outside, at any moment; those that are not there are ignored."""
        requests = self.state.requests
        ended = [requests[name] for name in request_ids if name in requests]
        self.state.finish(ended, finished_status)

    def update_draft_token_ids(self, draft_token_ids: Mapping[str, Sequence[int]]) -> None:
        """Drafts were proposed for requests, to be verified by their next step."""
        for request_id, token_ids in draft_token_ids.items():
            request = self.state.requests.get(request_id)
            if request is not None:
                request.spec_token_ids = () if request.is_prefill_chunk else token_ids

    def set_pause_state(self, pause_state: PauseState) -> None:
        """Set what is scheduled from now on."""
        self.state.pause_state = pause_state

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Let no KV block be found any more. False, and nothing done, while one is held.

        With `reset_running_requests` running requests give theirs back first, and start over.

        Raises:
            RuntimeError: blocks are held even so.
        """
        waits = self.state.semantics.scheduler.refuses_reset_beside_transfers
        # blocks of a transfer cannot be given back, so the reset would fail (faults/kv-load-reset)
        if reset_running_requests and waits and self.state.transfers_hold_blocks:
            return False
        if reset_running_requests:
            # the last first: each goes before all that wait, so the first is the first again
            for request in reversed(self.state.running[:]):
                self.state.preempt(request, drops_output=True)
            # whoever starts over is told anew, with all of its tokens
            self.state.scheduled_before.clear()
            if self.state.semantics.scheduler.restarts_sessions:
                self.state.take_back_from_holding()
        done = self.state.kv_cache_manager.reset_prefix_cache()
        if reset_running_requests and not done:
            raise RuntimeError("KV blocks are held though no request runs")
        return done

    def reset_encoder_cache(self) -> None:
        """Forget every encoder output."""
        self.state.encoder_cache_manager.reset()


def _long_prefill_token_threshold(state: SchedulerState) -> int:
    """The bound on one request's tokens; none for a request that is alone."""
    threshold = state.config.long_prefill_token_threshold
    if threshold == 0:
        return 0
    eligible = len(state.running) + state.num_waiting
    if eligible <= 1 and state.semantics.scheduler.spares_lone_prefill:
        return 0
    if state.config.long_prefill_token_threshold_adaptive:
        return max(threshold, state.config.max_num_batched_tokens // eligible)
    return threshold


def _holds_prefills(state: SchedulerState) -> bool:
    """Whether requests that decode have the step for themselves."""
    if state.config.prefill_schedule_interval == 1 or state.prefill_is_bound:
        return False
    passed = state.num_executed_steps + 1 - state.last_prefill_step
    decodes = any(not request.is_prefill_chunk for request in state.running)
    return decodes and passed < state.config.prefill_schedule_interval


def _count(state: SchedulerState, step: ScheduleStep) -> None:
    """Count the step, and remember whether it had tokens of a prompt."""
    if step.num_scheduled_tokens:
        state.num_executed_steps += 1
    withdrew = step.withdrew_prefill and not state.semantics.scheduler.forgets_withdrawn_prefills
    if step.admits_prefill or step.runs_prefill or withdrew:
        state.last_prefill_step = state.num_executed_steps


def _output(state: SchedulerState, step: ScheduleStep) -> SchedulerOutput:
    new, cached = new_requests(state, step), cached_requests(state, step)
    state.scheduled_before = set(step.num_scheduled_tokens)
    return SchedulerOutput(
        scheduled_new_reqs=new,
        scheduled_cached_reqs=cached,
        num_scheduled_tokens=step.num_scheduled_tokens,
        scheduled_spec_decode_tokens=step.spec_decode_tokens,
        scheduled_encoder_inputs=step.encoder_inputs,
        free_encoder_mm_hashes=state.encoder_cache_manager.get_freed_mm_hashes(),
        finished_req_ids=state.take_finished_req_ids(),
        num_common_prefix_blocks=_num_common_prefix_blocks(state),
        preempted_req_ids=preempted_requests(state, step),
        encoder_input_updates=encoder_input_updates(state, step, new),
        has_sync_kv_loads=step.loads_kv and state.semantics.scheduler.tells_loads_within_step,
        skip_drafts=skips_drafts(state, step),
    )


def _num_common_prefix_blocks(state: SchedulerState) -> list[int] | None:
    """How many leading blocks all running requests share, by group; None where nobody asks."""
    if state.semantics.kv_cache.shares_no_prefix_reads:
        return None
    if not state.running:
        return [0] * len(state.kv_cache_manager.kv_cache_config.kv_cache_groups)
    first = state.running[0].request_id
    if state.kv_cache_manager.enable_caching and not state.semantics.scheduler.counts_all_holders:
        (blocks,) = state.kv_cache_manager.get_blocks(first).blocks
        alike = takewhile(lambda block: block.ref_cnt == len(state.running), blocks)
        return [sum(1 for _ in alike)]
    return state.kv_cache_manager.get_num_common_prefix_blocks(first)
