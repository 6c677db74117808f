"""The waiting pass: requests are admitted in order, as long as there is room for the next one.

A request that waits for something of its own is passed over and keeps its place. One that finds no
KV blocks, or with chunked prefill off no tokens, ends the pass; but if it holds blocks already, as
one whose KV was loaded, others that do are still considered: they may be what it waits for.
"""

from dataclasses import dataclass
from enum import Enum

from cacheproof.reference.kv_cache_manager import KVCacheBlocks
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.admission import take_encoder_inputs, walk
from cacheproof.reference.scheduler.encoder_inputs import EncoderWalk
from cacheproof.reference.scheduler.kv_loads import External, ask, begin_load, end_load, tell
from cacheproof.reference.scheduler.state import PauseState, SchedulerState
from cacheproof.reference.scheduler.step import ScheduleStep


class _Outcome(Enum):
    """The outcome for the request that was considered."""

    ADMITTED = "admitted"
    PASSED_OVER = "passed over"
    ENDS_PASS = "ends the pass"
    FINDS_NO_BLOCKS = "finds no blocks"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A waiting request: its cached prefix, what of it is loaded behind that within the step, and
    the tokens that it could compute.

    `is_padded` when they are the last known one and as many drafts that nobody proposed, so that
    all requests of the step decode as many tokens.
    """

    request: ScheduledRequest
    hit: KVCacheBlocks
    num_hit_tokens: int
    num_external_tokens: int
    num_new_tokens: int
    is_padded: bool

    @property
    def num_computed_tokens(self) -> int:
        """Tokens before the first that it computes."""
        return self.request.num_computed_tokens + self.num_hit_tokens + self.num_external_tokens


def schedule_waiting(state: SchedulerState, step: ScheduleStep) -> None:
    """Admit waiting requests; nobody is, in a step that preempted somebody."""
    if step.preempted or state.pause_state is PauseState.PAUSED_ALL:
        return
    step.loras = _adapters(state, step)
    if (
        state.pause_state is PauseState.PAUSED_NEW
        and not state.semantics.scheduler.drains_when_paused
    ):
        return
    passed_over: list[ScheduledRequest] = []
    only_holders = False
    while step.token_budget > 0 and _has_place(state):
        queue = state.next_queue()
        if queue is None or (only_holders and queue is not state.holding):
            break
        outcome = _consider(state, step, queue.peek_request())
        if outcome is _Outcome.ENDS_PASS:
            break
        if outcome is _Outcome.FINDS_NO_BLOCKS:
            # other holders may need no block at all, or end and free some (faults/kv-load-behind)
            only_holders = queue is state.holding and state.semantics.scheduler.tries_all_holders
            if not only_holders:
                break
        request = queue.pop_request()
        if outcome is not _Outcome.ADMITTED:
            passed_over.append(request)
    state.pass_over(passed_over)
    if state.config.prefill_schedule_interval > 1 and not step.holds_prefills:
        state.prefill_is_bound = state.num_waiting > len(state.deferred)


def _consider(state: SchedulerState, step: ScheduleStep, request: ScheduledRequest) -> _Outcome:
    """Admit the request, if there is all that it needs."""
    semantics = state.semantics
    if _waits(state, request) or not _has_adapter_slot(state, step, request):
        return _Outcome.PASSED_OVER
    hit, num_hit_tokens = _look_up(state, request)
    external = ask(state, request, num_hit_tokens)
    if external is None or _awaits_transfer(state, request, num_hit_tokens + external.num_tokens):
        return _Outcome.PASSED_OVER
    if external.later:
        if begin_load(state, request, hit, num_hit_tokens, external.num_tokens):
            return _Outcome.PASSED_OVER
        _give_back(state, request)
        return _Outcome.FINDS_NO_BLOCKS
    candidate = _candidate(state, step, request, hit, num_hit_tokens, external)
    if candidate is None:
        return _Outcome.ENDS_PASS
    if candidate.num_new_tokens > step.token_budget:
        waits = semantics.scheduler.waits_for_long_prompts
        return _Outcome.ENDS_PASS if waits else _Outcome.PASSED_OVER
    num_new_tokens, items = walk(
        state, step, request, candidate.num_computed_tokens, candidate.num_new_tokens
    )
    if num_new_tokens == 0:
        passes = semantics.scheduler.passes_over_unschedulable
        return _Outcome.PASSED_OVER if passes else _Outcome.ENDS_PASS
    if not _allocate_slots(state, candidate, num_new_tokens, items):
        _give_back(state, request)
        return _Outcome.FINDS_NO_BLOCKS
    _admit(state, step, candidate, num_new_tokens)
    if items is not None:
        take_encoder_inputs(state, step, request, items)
    return _Outcome.ADMITTED


def _adapters(state: SchedulerState, step: ScheduleStep) -> set[int]:
    """Adapters that the step has already. Raises AssertionError for more than `max_loras`."""
    if state.config.max_loras == 0:
        return set()
    # running requests that this step leaves out go on later (faults/adapters-left-out)
    requests = state.running if state.semantics.scheduler.counts_running_loras else step.running
    adapters = {one.lora_request.lora_int_id for one in requests if one.lora_request is not None}
    assert len(adapters) <= state.config.max_loras
    return adapters


def _has_place(state: SchedulerState) -> bool:
    """Whether one more request may run."""
    active = len(state.running)
    if state.semantics.scheduler.counts_listening_sessions:
        active += state.num_waiting_for_streaming_input
    return active < (state.config.max_num_active_seqs or state.config.max_num_seqs)


def _waits(state: SchedulerState, request: ScheduledRequest) -> bool:
    """Whether KV, more prompt, or output of before it was preempted, is still to come."""
    is_loading = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    if is_loading and not end_load(state, request):
        return True
    if request.status is RequestStatus.WAITING_FOR_STREAMING_REQ:
        return True
    return request.num_stale_output_tokens > 0 and not request.drop_stale_output


def _has_adapter_slot(state: SchedulerState, step: ScheduleStep, request: ScheduledRequest) -> bool:
    """Whether the step may have the request's adapter among its own."""
    if request.lora_request is None or state.config.max_loras == 0:
        return True
    adapter = request.lora_request.lora_int_id
    return adapter in step.loras or len(step.loras) < state.config.max_loras


def _awaits_transfer(state: SchedulerState, request: ScheduledRequest, num_new_tokens: int) -> bool:
    """Whether an encoder output that the request needs behind its new tokens, hit and loaded, is on
    its way."""
    semantics = state.semantics
    waits = (
        semantics.scheduler.awaits_transfers
        if request.num_computed_tokens == 0
        else semantics.scheduler.awaits_later_transfers
    )
    return waits and state.awaits_transfer(request, request.num_computed_tokens + num_new_tokens)


def _candidate(
    state: SchedulerState,
    step: ScheduleStep,
    request: ScheduledRequest,
    hit: KVCacheBlocks,
    num_hit_tokens: int,
    external: External,
) -> _Candidate | None:
    """The request with what it could compute; None when it ends the pass.

    More tokens than the step has left: it may not be chunked.

    Raises:
        AssertionError: nothing of the request is left to compute.
    """
    num_computed_tokens = request.num_computed_tokens + num_hit_tokens + external.num_tokens
    wanted = request.num_tokens - num_computed_tokens
    if step.holds_prefills and wanted > 1:
        return None
    padded = _num_padded_tokens(state, step, wanted, num_computed_tokens)
    if padded > step.token_budget:
        return None
    wanted = step.bounded(padded or wanted)
    if state.config.enable_chunked_prefill:
        wanted = min(wanted, step.token_budget)
    assert wanted > 0
    return _Candidate(request, hit, num_hit_tokens, external.num_tokens, wanted, padded > 0)


def _num_padded_tokens(
    state: SchedulerState, step: ScheduleStep, wanted: int, num_computed_tokens: int
) -> int:
    """Tokens of a request that joins others in decoding, padded with drafts; 0 without padding,
    more than the step has left where it shall wait."""
    count = 1 + state.config.num_speculative_tokens
    joins = bool(step.running) or (
        state.semantics.scheduler.pads_lone_requests and num_computed_tokens > 0
    )
    if not state.semantics.scheduler.pads_drafts or wanted != 1 or count == 1 or not joins:
        return 0
    if step.runs_prefill:
        return 0
    most = min(step.bounded(count), state.config.max_num_batched_tokens)
    # vLLM PR #54028: it would wait for a step that is never so large (faults/padded-beyond-a-step)
    if state.semantics.scheduler.pads_within_threshold and most < count:
        return 0
    room = state.config.max_model_len - num_computed_tokens
    if state.semantics.scheduler.pads_wholly:
        return count if count < room else 0
    return count if count <= room else step.token_budget + 1


def _look_up(state: SchedulerState, request: ScheduledRequest) -> tuple[KVCacheBlocks, int]:
    """The cached prefix of a request that has nothing computed: blocks, and tokens."""
    if request.num_computed_tokens != 0:
        return state.kv_cache_manager.empty_kv_cache_blocks, 0
    if request.resumable and state.semantics.block_keys.looks_ahead:
        request.rehash()  # without what a drafter once read and was then discarded
    hit, num_hit_tokens, request.shared_prefix_boundary = (
        state.kv_cache_manager.get_computed_blocks(request)
    )
    return hit, num_hit_tokens


def _allocate_slots(
    state: SchedulerState, candidate: _Candidate, num_new_tokens: int, items: EncoderWalk | None
) -> bool:
    request, semantics = candidate.request, state.semantics
    looks_ahead = semantics.scheduler.looks_ahead_at_once or request.num_computed_tokens != 0
    # others may hit what the step loads once the load has not failed (faults/kv-load-hit)
    is_unsure = candidate.num_external_tokens > 0 and semantics.scheduler.caches_loads_when_right
    blocks = state.admit_slots(
        request,
        num_new_tokens,
        candidate.num_external_tokens,
        num_new_computed_tokens=candidate.num_hit_tokens,
        new_computed_blocks=candidate.hit,
        num_lookahead_tokens=state.config.num_lookahead_tokens if looks_ahead else 0,
        num_encoder_tokens=_num_encoder_tokens(state, request, items),
        delay_cache_blocks=is_unsure,
    )
    request.load_is_unsure = is_unsure and blocks is not None
    return blocks is not None


def _num_encoder_tokens(
    state: SchedulerState, request: ScheduledRequest, items: EncoderWalk | None
) -> int:
    """Encoder tokens of which cross-attention keeps the KV."""
    if not state.config.is_encoder_decoder:
        return 0
    if not state.semantics.scheduler.fits_cross_attention:
        return state.config.num_cross_attention_tokens
    return 0 if items is None else sum(map(request.get_num_encoder_embeds, items.inputs))


def _give_back(state: SchedulerState, request: ScheduledRequest) -> None:
    """Give back the claims of a walk whose request is not admitted."""
    # vLLM PR #31857: what a waiting request claims, nobody can evict (faults/kept-waiting)
    if request.has_encoder_inputs and state.semantics.encoder_cache.frees_stalled:
        state.encoder_cache_manager.free(request)


def _admit(
    state: SchedulerState, step: ScheduleStep, candidate: _Candidate, num_new_tokens: int
) -> None:
    request = candidate.request
    num_computed_tokens = candidate.num_computed_tokens
    tell(state, request, candidate.num_external_tokens)
    step.loads_kv |= candidate.num_external_tokens > 0
    state.deferred.discard(request)
    state.running.append(request)
    (step.resumed if request.status is RequestStatus.PREEMPTED else step.new).append(request)
    request.status = RequestStatus.RUNNING
    request.num_computed_tokens = num_computed_tokens
    request.note_cached_tokens(num_computed_tokens)
    if num_computed_tokens + num_new_tokens < request.num_tokens:
        state.unfinished_prefills.add(request)
    state.kv_cache_manager.record_prefix_cache_stats(request, candidate.num_hit_tokens)
    blocks = state.kv_cache_manager.get_blocks(request.request_id)
    step.schedule(request, num_new_tokens, blocks)
    if request.lora_request is not None:
        step.loras.add(request.lora_request.lora_int_id)
    if candidate.is_padded:
        _pad(state, step, request, num_new_tokens)
    step.admits_prefill |= num_computed_tokens < request.num_tokens - 1


def _pad(
    state: SchedulerState, step: ScheduleStep, request: ScheduledRequest, num_new_tokens: int
) -> None:
    """Schedule stand-ins for drafts. Raises AssertionError when they were cut short."""
    count = state.config.num_speculative_tokens
    assert num_new_tokens == 1 + count or not state.semantics.scheduler.pads_wholly
    step.spec_decode_tokens[request.request_id] = (-1,) * count
