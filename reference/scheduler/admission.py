"""What both passes over requests do: walk the items, and take what the walk granted."""

from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.encoder_inputs import (
    EncoderWalk,
    Foresight,
    up_to_whole_item,
    walk_decoder_inputs,
    walk_encoder_inputs,
)
from cacheproof.reference.scheduler.state import SchedulerState
from cacheproof.reference.scheduler.step import ScheduleStep


def walk(
    state: SchedulerState,
    step: ScheduleStep,
    request: ScheduledRequest,
    num_computed_tokens: int,
    num_new_tokens: int,
) -> tuple[int, EncoderWalk | None]:
    """How many of the tokens the request's items let it compute, and the walk, or None where no
    items are left."""
    if num_new_tokens == 0 or num_computed_tokens >= request.end_of_items:
        return num_new_tokens, None
    manager = state.encoder_cache_manager
    if state.config.is_encoder_decoder:
        found = walk_decoder_inputs(
            request,
            num_computed_tokens,
            num_new_tokens,
            manager=manager,
            encoder_compute_budget=step.encoder_compute_budget,
        )
        return found.num_new_tokens, found
    if state.config.disable_chunked_mm_input and state.semantics.scheduler.spares_whole_items:
        # an item longer than the threshold would never be computed whole (faults/no-progress)
        whole = up_to_whole_item(request, num_computed_tokens, num_new_tokens)
        num_new_tokens = min(whole, step.token_budget)
    found = walk_encoder_inputs(
        request,
        num_computed_tokens,
        num_new_tokens,
        manager=Foresight(manager) if state.semantics.scheduler.takes_after_blocks else manager,
        encoder_compute_budget=step.encoder_compute_budget,
        disable_chunked_mm_input=state.config.disable_chunked_mm_input,
        num_lookahead_tokens=(
            state.config.num_prefill_lookahead_tokens
            if state.semantics.scheduler.encodes_ahead
            else 0
        ),
        semantics=state.semantics,
        connector=state.connector,
    )
    if found.resized:
        state.encoder_cache_mismatch_reqs.add(request.request_id)
    return found.num_new_tokens, found


def take_encoder_inputs(
    state: SchedulerState, step: ScheduleStep, request: ScheduledRequest, found: EncoderWalk
) -> None:
    """Take from the encoder cache what the walk found: the request's tokens have KV blocks."""
    manager = state.encoder_cache_manager
    if found.inputs:
        # extended: a preemption may have handed an encode on to this request
        step.encoder_inputs.setdefault(request.request_id, []).extend(found.inputs)
        if state.semantics.scheduler.keeps_returned_budget:
            step.encoder_compute_budget -= sum(map(request.get_num_encoder_embeds, found.inputs))
        else:  # what a victim gave back since the walk is lost
            step.encoder_compute_budget = found.encoder_compute_budget
    if found.loads:
        step.encoder_loads.setdefault(request.request_id, []).extend(found.loads)
    if state.semantics.scheduler.takes_after_blocks and not state.config.is_encoder_decoder:
        _take_as_planned(state, step, request, found)
        return
    for input_id in (*found.inputs, *found.loads):
        _allocate(state, request, input_id)
    if state.semantics.encoder_cache.claims_duplicates:
        for input_id in found.repeats:
            manager.check_and_update_cache(request, input_id)


def _take_as_planned(
    state: SchedulerState, step: ScheduleStep, request: ScheduledRequest, found: EncoderWalk
) -> None:
    """Claim, evict and allocate as a walk with the manager itself does on its way. A hit that a
    preemption has evicted since is encoded."""
    manager = state.encoder_cache_manager
    named = {
        input_id: request.mm_features[input_id].identifier
        for input_id in sorted([*found.hits, *found.inputs, *found.loads, *found.repeats])
    }
    hits = [one for one in sorted([*found.hits, *found.repeats]) if named[one] in manager.cached]
    new = {named[one] for one in (*found.inputs, *found.loads)}
    gone = [one for one in found.hits if named[one] not in manager.cached.keys() | new]
    # hits first: the admissions below evict what nobody holds
    for input_id in hits:
        manager.check_and_update_cache(request, input_id)
    # the caller has deducted these inputs, which the manager is asked about once more
    budget = step.encoder_compute_budget + sum(map(request.get_num_encoder_embeds, found.inputs))
    for input_id in (*sorted([*found.inputs, *found.loads]), *gone):
        manager.can_allocate(request, input_id, budget, 0)  # evicts what it takes
        if input_id not in found.loads:
            budget -= request.get_num_encoder_embeds(input_id)
        _allocate(state, request, input_id)
    if state.semantics.encoder_cache.claims_duplicates:
        for input_id in found.repeats:
            if input_id not in hits:
                manager.check_and_update_cache(request, input_id)
    if gone:
        step.encoder_inputs.setdefault(request.request_id, []).extend(gone)
        step.encoder_compute_budget -= sum(map(request.get_num_encoder_embeds, gone))


def _allocate(state: SchedulerState, request: ScheduledRequest, input_id: int) -> None:
    state.encoder_cache_manager.allocate(request, input_id)
    if state.connector is not None:
        state.connector.update_state_after_alloc(request, input_id)
