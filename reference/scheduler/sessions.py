"""Sessions: resumable requests, whose prompt comes in chunks.

A turn ends as a request does. The session keeps its KV blocks then, and goes on with the next
chunk: at once when that has arrived, or as soon as it does.
"""

from cacheproof.reference.block_hash import continue_request
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.state import SchedulerState


def add_chunk(state: SchedulerState, session: ScheduledRequest, chunk: ScheduledRequest) -> None:
    """More prompt of a session arrives; or, not resumable, word that no more will."""
    update = chunk if chunk.resumable else None
    if session.status is not RequestStatus.WAITING_FOR_STREAMING_REQ:
        session.streaming_queue.append(update)
    elif update is not None:
        _go_on(state, session, update)
    else:
        state.finish([session], RequestStatus.FINISHED_ABORTED)


def end_turn(state: SchedulerState, request: ScheduledRequest) -> bool:
    """Whether a request that has stopped is a session that goes on, now or later.

    Raises:
        AssertionError: less than nothing is computed, as after a load that failed.
    """
    if not request.resumable:
        return False
    if state.semantics.scheduler.drops_output_of_ended_turns:
        assert request.num_confirmed_tokens >= 0  # what follows a failed load may end a turn
        request.num_computed_tokens = request.num_confirmed_tokens
        request.drop_output()
    # what became idle first would be given back last, and evicted last (faults/session-keeps-item)
    if state.semantics.scheduler.releases_between_turns:
        state.encoder_cache_manager.free(request)
    if not request.streaming_queue:
        request.status = RequestStatus.WAITING_FOR_STREAMING_REQ
        state.num_waiting_for_streaming_input += 1
        return True
    chunk = request.streaming_queue.popleft()
    if chunk is None:
        return False
    _go_on(state, request, chunk)
    return True


def _go_on(state: SchedulerState, session: ScheduledRequest, chunk: ScheduledRequest) -> None:
    """The session's next turn begins."""
    # the last token was sampled and never computed
    kept = session.num_tokens - 1
    if not state.semantics.scheduler.keeps_decoded_of_sessions:
        kept = min(session.num_computed_tokens, session.num_tokens)
    discarded = max(0, session.num_prompt_tokens - kept)
    continue_request(
        session,
        chunk,
        state.kv_cache_manager.block_pool.hash_block_size,
        kept=kept,
        semantics=state.semantics.block_keys,
    )
    session.num_discarded_prompt_tokens = discarded
    session.num_prompt_tokens += discarded
    session.arrival_time = chunk.arrival_time
    session.stop_token_ids = chunk.stop_token_ids
    if state.semantics.scheduler.takes_max_tokens_of_chunks:
        session.max_tokens = chunk.max_tokens
    if session.status is RequestStatus.WAITING_FOR_STREAMING_REQ:
        state.num_waiting_for_streaming_input -= 1
        if state.semantics.scheduler.sorts_continued_sessions:
            state.restore_order()
    session.status = RequestStatus.WAITING
