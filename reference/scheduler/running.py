"""The running pass: every running request goes on, as far as tokens, items and blocks last.

Where there are no blocks for one, others lose theirs: the last one that was admitted, or under the
priority policy the least urgent. It may be the request itself. A victim whose blocks a step in
flight still writes would not help at once: then the pass ends.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.admission import take_encoder_inputs, walk
from cacheproof.reference.scheduler.state import SchedulerState
from cacheproof.reference.scheduler.step import ScheduleStep

_URGENCY = attrgetter("urgency")


def schedule_running(state: SchedulerState, step: ScheduleStep) -> None:
    """Schedule what the running requests compute."""
    if state.config.policy == "priority" and state.semantics.scheduler.runs_urgent_first:
        state.running.sort(key=_URGENCY)  # so that no victim has been scheduled already
    num_lookahead_tokens = state.config.num_lookahead_tokens
    position = 0
    while position < len(state.running) and step.token_budget > 0:
        request = state.running[position]
        num_new_tokens, items = walk(
            state,
            step,
            request,
            request.num_computed_tokens,
            _num_new_tokens(state, step, request),
        )
        if num_new_tokens == 0:
            # those after it may go on: their items may fit where its own does not
            position += 1
            continue
        blocks = None
        # ends at the latest when the request is its own victim
        while blocks is None and request.status is RequestStatus.RUNNING:
            blocks = state.kv_cache_manager.allocate_slots(
                request,
                num_new_tokens,
                num_lookahead_tokens=num_lookahead_tokens,
                delay_cache_blocks=request.load_is_unsure,
            )
            if blocks is None:
                victim = _victim(state, step)
                if state.semantics.scheduler.spares_unfreeable_victims and not state.frees.can_free(
                    victim
                ):
                    break
                position -= _preempt(state, step, victim, position)
        if blocks is not None:
            position += 1
            step.running.append(request)
            step.schedule(request, num_new_tokens, blocks)
            if request.spec_token_ids:
                _take_drafts(step, request, num_new_tokens)
            if items is not None:
                take_encoder_inputs(state, step, request, items)
        # a request that preempted itself has freed blocks, which those after it may use
        elif not (
            _is_preempted(request) and state.semantics.scheduler.goes_on_after_preempting_itself
        ):
            break


def release_victims(state: SchedulerState, step: ScheduleStep) -> None:
    """Release what the step loads for victims of preemption: the step is decided."""
    for victim in step.loading_victims:
        state.encoder_cache_manager.free(victim)


def _is_preempted(request: ScheduledRequest) -> bool:
    return request.status is RequestStatus.PREEMPTED


def _num_new_tokens(state: SchedulerState, step: ScheduleStep, request: ScheduledRequest) -> int:
    """How many tokens the request may compute, its items aside."""
    if state.semantics.scheduler.spares_sure_ends and _is_sure_to_end(request):
        return 0
    if step.holds_prefills and request.is_prefill_chunk:
        return 0
    if state.connector is not None and _awaits_transfer(state, request):
        return 0
    known = request.num_tokens_with_spec + request.num_output_placeholders
    end = state.config.max_model_len
    if not state.semantics.scheduler.drafts_past_the_end:
        end = min(end, request.num_prompt_tokens + request.max_tokens)
    # the last token of all is sampled, and never computed: hence `end - 1`
    return min(
        step.bounded(known - request.num_computed_tokens),
        step.token_budget,
        end - 1 - request.num_computed_tokens,
    )


def _is_sure_to_end(request: ScheduledRequest) -> bool:
    """Whether outstanding output brings the request's last token, all its drafts rejected."""
    if request.num_output_placeholders == 0:
        return False
    sure = request.num_confirmed_tokens + 2
    return sure >= request.num_prompt_tokens + request.max_tokens


def _awaits_transfer(state: SchedulerState, request: ScheduledRequest) -> bool:
    return state.semantics.scheduler.awaits_later_transfers and state.awaits_transfer(
        request, request.num_confirmed_tokens
    )


def _take_drafts(step: ScheduleStep, request: ScheduledRequest, num_new_tokens: int) -> None:
    """Note the drafts that the step verifies, and forget the others."""
    known = request.num_tokens + request.num_output_placeholders
    count = request.num_computed_tokens + num_new_tokens - known
    if count > 0:
        step.spec_decode_tokens[request.request_id] = request.spec_token_ids[:count]
    request.spec_token_ids = ()


def _preempt(
    state: SchedulerState, step: ScheduleStep, victim: ScheduledRequest, position: int
) -> int:
    """Preempt the victim; returns by how much `position` moves with the requests that move up."""
    moves_up = state.running.index(victim) < position
    counts = state.semantics.scheduler.omits_nobody
    unschedules = state.semantics.scheduler.unschedules_victims
    if victim in step.running:
        counts = counts or unschedules
        step.unschedule(victim, wholly=unschedules)
        # before the preemption, which resets the progress that tells which blocks nobody computed
        if state.semantics.scheduler.forgets_uncomputed:
            state.kv_cache_manager.forget_uncomputed(victim)
    encodes, loads = step.take_back_items(victim) if unschedules else ([], [])
    # an entry that was hit since must still be encoded by the step (faults/phantom-entry)
    if state.semantics.scheduler.hands_on_encodes:
        for identifier, heir, input_id in _inherited(state, victim, encodes):
            if heir is None:
                _drop(state.encoder_cache_manager, identifier, victim)
            else:
                step.encoder_inputs.setdefault(heir.request_id, []).append(input_id)
                step.encoder_compute_budget -= heir.get_num_encoder_embeds(input_id)
    state.preempt(victim)
    step.preempted.append(victim)
    # the load goes on, and its entry must not be evicted under it (faults/orphan-load)
    if loads and state.semantics.scheduler.keeps_loads:
        step.loading_victims.append(victim)
        for input_id in loads:
            state.encoder_cache_manager.check_and_update_cache(victim, input_id)
    return int(moves_up and counts)


def _drop(manager: EncoderCacheManager, identifier: str, victim: ScheduledRequest) -> None:
    """Evict an entry that only the victim holds; no release does so with its manager."""
    if manager.cached.get(identifier) == {victim.request_id}:
        del manager.cached[identifier]
        size = manager.num_embeds_by_hash.pop(identifier)
        manager.num_free_slots += size
        manager.num_freeable_slots += size
        manager.freed.append(identifier)


def _inherited(
    state: SchedulerState, victim: ScheduledRequest, input_ids: Iterable[int]
) -> Iterator[tuple[str, ScheduledRequest | None, int]]:
    """Entries that a victim had allocated in this step, each with a running request that has hit it
    since, None without one, and the number of that one's item."""
    for input_id in input_ids:
        identifier = victim.mm_features[input_id].identifier
        holders = state.encoder_cache_manager.cached.get(identifier, set())
        others = (one for one in state.running if one is not victim)
        heir = next((one for one in others if one.request_id in holders), None)
        if heir is None:
            yield identifier, None, input_id
        else:
            numbers = state.encoder_cache_manager.request_cached_ids[heir.request_id]
            held = (one for one in numbers if heir.mm_features[one].identifier == identifier)
            yield identifier, heir, min(held)


def _victim(state: SchedulerState, step: ScheduleStep) -> ScheduledRequest:
    if state.config.policy != "priority":
        return state.running[-1]
    # vLLM PR #53723: preempting who is scheduled already takes a part of the step back
    spared = step.running if state.semantics.scheduler.spares_scheduled else ()
    return max((one for one in state.running if one not in spared), key=_URGENCY)
