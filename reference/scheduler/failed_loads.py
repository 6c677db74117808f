"""Loads of KV that failed: whose tokens do not count, and what may not be found any more.

A request counts only the tokens before its first block that failed. Where a failure ends requests
it is ended; otherwise it computes the others itself, and what the step computed does not count.
"""

from collections.abc import Collection, Iterable, Mapping

from cacheproof.reference.kv_cache_specs import ceil_div
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.state import SchedulerState


def fail_loads(
    state: SchedulerState,
    invalid_block_ids: Collection[int],
    num_scheduled_tokens: Mapping[str, int],
) -> set[str]:
    """Loads into these blocks failed; returns the requests whose output does not count."""
    if not invalid_block_ids:
        return set()
    loading = [
        request
        for queue in state.queues
        for request in queue
        if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    ]
    later, _ = _cut(state, loading, invalid_block_ids, num_scheduled_tokens)
    at_once, tainted = _cut(state, state.running, invalid_block_ids, num_scheduled_tokens)
    if not state.config.recomputes_failed_loads:
        state.kv_cache_manager.evict_blocks(tainted)
        return later | at_once
    state.failed_recving |= later
    return at_once


def give_back_items(state: SchedulerState, failed: Collection[str]) -> None:
    """Give back the items of requests that compute their tokens anew, after all releases."""
    # it may need the room of an item that it holds itself (faults/kv-load-items)
    if (
        not state.semantics.scheduler.gives_back_items_ahead
        or not state.config.recomputes_failed_loads
    ):
        return
    for request in state.running:
        if request.request_id in failed:
            state.encoder_cache_manager.free(request)


def _cut(
    state: SchedulerState,
    requests: Iterable[ScheduledRequest],
    invalid_block_ids: Collection[int],
    num_scheduled_tokens: Mapping[str, int],
) -> tuple[set[str], set[int]]:
    """Cut requests back to their right tokens; returns who is affected, and the blocks to distrust.

    Of several requests that share a block the first computes it anew, and the others build on that.
    """
    affected: set[str] = set()
    computed_anew: set[int] = set()
    tainted: set[int] = set()
    for request in requests:
        (block_ids,) = state.kv_cache_manager.get_block_ids(request.request_id)
        before = _tokens_before(state, request, num_scheduled_tokens)
        reach = block_ids[: ceil_div(before, state.block_size)]
        invalid = [number for number, one in enumerate(reach) if one in invalid_block_ids]
        if not invalid:
            continue
        affected.add(request.request_id)
        own = [number for number in invalid if reach[number] not in computed_anew]
        computed_anew.update(reach[number] for number in own)
        if own:
            request.num_computed_tokens = own[0] * state.block_size
        elif state.semantics.scheduler.cuts_behind_the_step:
            request.num_computed_tokens = before
        else:
            request.num_computed_tokens = request.num_cached_tokens
        if own:
            tainted.update(block_ids[own[0] :])
        if state.semantics.scheduler.drops_output_of_failed_loads:
            request.drop_output()
    return affected, tainted


def _tokens_before(
    state: SchedulerState, request: ScheduledRequest, num_scheduled_tokens: Mapping[str, int]
) -> int:
    """Tokens that the request had, or was to have from elsewhere, before the step; or, where output
    in flight is dropped, before all steps in flight."""
    if state.semantics.scheduler.drops_output_of_failed_loads:
        counted = request.num_in_flight_tokens - request.num_stale_output_tokens
        return request.num_computed_tokens - counted
    if state.semantics.scheduler.cuts_behind_the_step:
        return request.num_computed_tokens - num_scheduled_tokens.get(request.request_id, 0)
    if request.status is not RequestStatus.WAITING_FOR_REMOTE_KVS:
        return request.num_cached_tokens
    if state.semantics.scheduler.counts_loaded_tokens or request.request_id in state.failed_recving:
        return request.num_computed_tokens
    (block_ids,) = state.kv_cache_manager.get_block_ids(request.request_id)
    return len(block_ids) * state.block_size
