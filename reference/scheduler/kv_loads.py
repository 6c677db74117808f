"""Loads of KV from elsewhere, and what is kept until it has been sent there.

A request with nothing computed asks the connector how many of its tokens can be had elsewhere,
behind those that the prefix cache has. They are loaded within the step that admits it; or later:
then it gets its blocks, waits, and is considered again when the load has ended.
"""

from typing import NamedTuple

from cacheproof.reference.kv_cache_manager import KVCacheBlocks
from cacheproof.reference.kv_cache_specs import ceil_div
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.output import KVConnectorOutput
from cacheproof.reference.scheduler.state import SchedulerState


class External(NamedTuple):
    """Tokens of a request that are loaded, and whether later than within the step."""

    num_tokens: int = 0
    later: bool = False


def ask(state: SchedulerState, request: ScheduledRequest, num_hit_tokens: int) -> External | None:
    """What the connector can load after the hit; None while it does not know yet."""
    if state.kv_connector is None or request.num_computed_tokens != 0:
        return External()
    count, later = state.kv_connector.get_num_new_matched_tokens(request, num_hit_tokens)
    if request.skip_reading_prefix_cache and state.semantics.scheduler.skips_reading_elsewhere:
        return External()
    return None if count is None else External(count, later)


def begin_load(
    state: SchedulerState,
    request: ScheduledRequest,
    hit: KVCacheBlocks,
    num_hit_tokens: int,
    num_external_tokens: int,
) -> bool:
    """Begin a load that ends later; False where there are no blocks for it."""
    blocks = state.admit_slots(
        request,
        0,
        num_external_tokens,
        num_new_computed_tokens=num_hit_tokens,
        new_computed_blocks=hit,
        delay_cache_blocks=True,
        reserved_blocks=_reserved_blocks(state),
    )
    if blocks is None:
        return False
    tell(state, request, num_external_tokens)
    request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    if state.semantics.scheduler.counts_loaded_tokens:
        request.num_computed_tokens = num_hit_tokens + num_external_tokens
    state.kv_cache_manager.record_prefix_cache_stats(request, num_hit_tokens)
    state.unfinished_prefills.add(request)
    return True


def tell(state: SchedulerState, request: ScheduledRequest, num_external_tokens: int) -> None:
    """Tell the connector which blocks an admitted request has."""
    if state.kv_connector is not None:
        blocks = state.kv_cache_manager.get_blocks(request.request_id)
        state.kv_connector.update_state_after_alloc(request, blocks, num_external_tokens)


def end_load(state: SchedulerState, request: ScheduledRequest) -> bool:
    """Let a request go on whose load has ended; False while it is under way."""
    if request.request_id not in state.finished_recving:
        return False
    state.finished_recving.remove(request.request_id)
    if request.request_id in state.failed_recving:
        state.failed_recving.remove(request.request_id)
        _keep_what_came(state, request)
    else:
        _take_over(state, request)
    was_preempted = request.num_preemptions > 0 and state.semantics.scheduler.resumes_loaded
    request.status = RequestStatus.PREEMPTED if was_preempted else RequestStatus.WAITING
    return True


def _take_over(state: SchedulerState, request: ScheduledRequest) -> None:
    """Take over a complete load. The last known token is computed all the same, for its logits."""
    loaded = request.num_computed_tokens
    if not state.semantics.scheduler.counts_loaded_tokens:
        (block_ids,) = state.kv_cache_manager.get_block_ids(request.request_id)
        loaded = min(len(block_ids) * state.block_size, request.num_tokens - 1)
    state.kv_cache_manager.cache_blocks(request, loaded)
    request.num_computed_tokens = min(loaded, request.num_tokens - 1)
    if state.semantics.scheduler.counts_loaded_tokens:
        request.note_cached_tokens(request.num_computed_tokens)


def _keep_what_came(state: SchedulerState, request: ScheduledRequest) -> None:
    """Not all has come: `num_computed_tokens` are before the first block that nobody else computes
    anew. Below 0 where the request was never admitted, and the release takes what it had then."""
    if request.num_computed_tokens != 0:
        state.kv_cache_manager.cache_blocks(request, request.num_computed_tokens)
        # another request computes the failed block, so all may count (faults/kv-load-shared)
        if state.semantics.scheduler.computes_last_after_failures:
            request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        return
    state.kv_cache_manager.free(request)
    # without blocks it would wait for those that are kept for it (faults/kv-load-reserves)
    if state.semantics.scheduler.reserves_for_holders:
        state.unfinished_prefills.discard(request)


def _reserved_blocks(state: SchedulerState) -> int:
    """Blocks that a load leaves to others whose prompts are not done: it cannot be preempted."""
    # alone, a load would wait for blocks of drafts that nobody makes (faults/kv-load-drafts)
    is_alone = not state.running and not state.unfinished_prefills
    nothing = is_alone and state.semantics.scheduler.spares_lone_loads
    if nothing or not state.semantics.scheduler.reserves_for_prefills:
        return 0
    drafts, lookahead = state.config.num_speculative_tokens, state.config.num_lookahead_tokens
    further = (
        1 + drafts + lookahead if drafts and state.semantics.scheduler.reserves_for_drafts else 0
    )
    fits = state.semantics.scheduler.fits_reserved_drafts
    blocks_of_step = ceil_div(further, state.block_size)
    manager = state.kv_cache_manager

    def blocks_of(request: ScheduledRequest) -> int:
        whole = min(request.num_tokens, state.config.max_model_len)
        return (0 if fits else blocks_of_step) + manager.coordinator.get_num_blocks_to_allocate(
            request.request_id,
            whole + (further if fits else 0),
            manager.empty_kv_cache_blocks.blocks,
            0,
            request.num_computed_tokens,
            request.num_computed_tokens,
            whole,
            apply_admission_cap=True,
        )

    return blocks_of_step + sum(map(blocks_of, state.unfinished_prefills))


def end_transfers(state: SchedulerState, report: KVConnectorOutput) -> None:
    """Transfers have ended. Who waited for a load goes on; who has ended gives its blocks back.

    Raises:
        KeyError: a request is sent that is not there any more.
    """
    for request_id in report.finished_recving:
        request = state.requests.get(request_id)
        if request is None or not request.status.is_finished:
            state.finished_recving.add(request_id)
        else:
            state.give_back(request)
    for request_id in report.finished_sending:
        if request_id in state.requests or not state.semantics.scheduler.ignores_unknown_sendings:
            state.give_back(state.requests[request_id])
