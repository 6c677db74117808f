"""What follows from a step: progress when it is scheduled, tokens when its output arrives."""

from collections.abc import Mapping, Sequence, Set

from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.failed_loads import fail_loads, give_back_items
from cacheproof.reference.scheduler.kv_loads import end_transfers
from cacheproof.reference.scheduler.output import (
    EngineCoreOutput,
    KVConnectorOutput,
    SchedulerOutput,
)
from cacheproof.reference.scheduler.sessions import end_turn
from cacheproof.reference.scheduler.state import SchedulerState


def advance(state: SchedulerState, output: SchedulerOutput) -> None:
    """Count the tokens of a step as computed: it is on its way."""
    number = state.frees.step_scheduled() if output.num_scheduled_tokens else 0
    releases, looks_forward = (
        not state.semantics.encoder_cache.releases_on_update,
        state.config.async_scheduling,
    )
    for request_id, count in output.num_scheduled_tokens.items():
        request = state.requests[request_id]
        request.last_step = number
        request.num_computed_tokens += count
        request.num_in_flight_tokens += count
        known = request.num_tokens + request.num_output_placeholders
        request.is_prefill_chunk = request.num_computed_tokens < known
        if not request.is_prefill_chunk:
            state.unfinished_prefills.discard(request)
        if releases:
            release_consumed(state, request)
        if looks_forward and not request.is_prefill_chunk:
            drafts = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
            request.num_output_placeholders += 1 + drafts
            request.spec_token_ids = (-1,) * state.config.num_speculative_tokens


def update_from_output(
    state: SchedulerState,
    output: SchedulerOutput,
    sampled: Mapping[str, Sequence[int]],
    transfers: KVConnectorOutput,
) -> list[EngineCoreOutput]:
    """The output of the oldest step in flight has arrived: `sampled` token ids by request, and what
    became of KV transfers."""
    if output.num_scheduled_tokens:
        state.frees.step_processed()
    failed = fail_loads(state, transfers.invalid_block_ids, output.num_scheduled_tokens)
    answers: list[EngineCoreOutput] = []
    stopped: set[ScheduledRequest] = set()
    going_on: list[ScheduledRequest] = []
    for request_id, count in output.num_scheduled_tokens.items():
        request = state.requests.get(request_id)
        if request is None or request.status.is_finished:
            continue  # it ended since
        # before any early end: the step is over, whatever its output counts for
        request.num_in_flight_tokens -= count
        is_stale = request.num_stale_output_tokens > 0
        if is_stale:
            request.num_stale_output_tokens -= count
            if request.drop_stale_output:
                continue
        if request_id in failed:
            continue
        new_token_ids = sampled[request_id]
        drafts = output.scheduled_spec_decode_tokens.get(request_id)
        if drafts and new_token_ids and not is_stale:
            _reject(request, len(drafts) + 1 - len(new_token_ids))
        if request.load_is_unsure and not is_stale:
            _trust_load(state, request)
        if state.semantics.encoder_cache.releases_on_update:
            release_consumed(state, request)
        was_running = request.status is RequestStatus.RUNNING
        tokens = _append(state, request, new_token_ids, is_stale)
        reason = None
        if request.status.is_finished:
            reason = request.status.value
            stopped.add(request)
            if not end_turn(state, request):
                state.free(request)
            elif was_running or state.semantics.scheduler.keeps_sessions_that_waited:
                going_on.append(request)
        if tokens:
            answers.append(EngineCoreOutput(request_id, tokens, reason))
    state.remove_from_queues(stopped)
    # after the removal, which would take a session that goes on out of its queue
    for request in going_on:
        state.enqueue(request)
    give_back_items(state, failed)
    answers += _end_in_error(state, set() if state.config.recomputes_failed_loads else failed)
    end_transfers(state, transfers)
    return answers


def release_consumed(state: SchedulerState, request: ScheduledRequest) -> None:
    """Release the items that the request is past."""
    if not request.has_encoder_inputs:
        return
    manager = state.encoder_cache_manager
    held = manager.get_cached_input_ids(request)
    if not held:
        return
    reached = request.num_computed_tokens
    if state.semantics.scheduler.releases_confirmed:
        reached = request.num_confirmed_tokens
        # before 0.33.0 the drafter had to be past the item as well
        if not state.semantics.scheduler.releases_ahead:
            reached -= state.config.num_prefill_lookahead_tokens
    is_decoding = state.config.is_encoder_decoder and request.num_computed_tokens > 0
    for input_id in sorted(held):
        if is_decoding or request.mm_features[input_id].mm_position.end <= reached:
            manager.free_encoder_input(request, input_id)


def _trust_load(state: SchedulerState, request: ScheduledRequest) -> None:
    """Let blocks be found into which a step loaded KV: it is done."""
    request.load_is_unsure = False
    certain = request.num_computed_tokens - request.num_in_flight_tokens
    state.kv_cache_manager.cache_blocks(request, certain)


def _reject(request: ScheduledRequest, num_rejected: int) -> None:
    """Take back what was computed for drafts that turned out to be wrong."""
    # 0 once it was preempted: then nothing that is computed can be taken back
    if request.num_computed_tokens > 0:
        request.num_computed_tokens -= num_rejected
    if request.num_output_placeholders > 0:
        request.num_output_placeholders -= num_rejected


def _append(
    state: SchedulerState, request: ScheduledRequest, sampled: Sequence[int], is_stale: bool
) -> Sequence[int]:
    """Append tokens up to where the request ends; returns those that it keeps.

    Raises:
        AssertionError: there are more tokens than placeholders for them.
    """
    if not sampled:
        return ()
    was_running = request.status is RequestStatus.RUNNING
    had_placeholders = request.num_output_placeholders > 0
    kept = len(sampled)
    for number, token in enumerate(sampled, 1):
        request.append_output_token_ids((token,))
        _end(state, request, token)
        if request.status.is_finished:
            kept = number
            break
    if not is_stale:
        # tokens after the end are dropped, so their positions hold nothing (faults/session-drafts)
        uncounted = len(sampled) - kept if state.semantics.scheduler.uncounts_trimmed else 0
        request.num_computed_tokens -= uncounted
        if had_placeholders or _owes_placeholders(state):
            request.num_output_placeholders -= kept + uncounted
            assert request.num_output_placeholders >= 0
    if was_running:
        speculates = state.config.num_speculative_tokens > 0
        _cache(state, request, is_due=(had_placeholders or speculates) and not is_stale)
    return sampled[:kept]


def _owes_placeholders(state: SchedulerState) -> bool:
    """Whether each token that arrives takes a placeholder, also where none is left."""
    return state.config.async_scheduling and not state.semantics.scheduler.outlasts_placeholders


def _cache(state: SchedulerState, request: ScheduledRequest, *, is_due: bool) -> None:
    """Let blocks be found whose tokens have become certain with the output."""
    if state.semantics.scheduler.caches_processed:
        if is_due:
            certain = request.num_computed_tokens - request.num_in_flight_tokens
            state.kv_cache_manager.cache_blocks(request, certain)
    elif state.config.async_scheduling:
        state.kv_cache_manager.cache_blocks(request, request.num_confirmed_tokens)


def _end(state: SchedulerState, request: ScheduledRequest, last_token_id: int) -> None:
    """End the request if its last token does."""
    if last_token_id in request.stop_token_ids:
        request.status = RequestStatus.FINISHED_STOPPED
    elif (
        request.num_output_tokens >= request.max_tokens
        or request.num_tokens >= state.config.max_model_len
    ):
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED


def _end_in_error(state: SchedulerState, failed_loads: Set[str]) -> list[EngineCoreOutput]:
    """End the requests whose loads failed, whose items came back with another size, or never come
    from elsewhere."""
    failed = state.encoder_cache_mismatch_reqs | failed_loads
    state.encoder_cache_mismatch_reqs.clear()
    if state.connector is not None and state.semantics.scheduler.fails_lost_transfers:
        failed |= state.connector.take_unavailable_requests()
    if not failed:
        return []
    found = [state.requests[name] for name in sorted(failed) if name in state.requests]
    state.finish(found, RequestStatus.FINISHED_ERROR)
    return [EngineCoreOutput(one.request_id, (), one.status.value) for one in found]
