"""What a step tells the workers, made of what it decided and of what they were told before.

The first model runner keeps a request that is preempted, and is told that it is resumed. The second
forgets it, and is told of it anew, with all of its tokens. It also drops the data of the items that
a request is past, and is sent it again where a step encodes one after all.
"""

from collections.abc import Mapping, Sequence, Set

from cacheproof.reference.request import MultiModalFeature
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.output import CachedRequestData, NewRequestData
from cacheproof.reference.scheduler.state import SchedulerState
from cacheproof.reference.scheduler.step import ScheduleStep


def new_requests(state: SchedulerState, step: ScheduleStep) -> list[NewRequestData]:
    """Requests that the workers see for the first time, or again from their start."""
    is_second = state.config.v2_model_runner
    return [
        NewRequestData(
            request.request_id,
            list(request.prompt_token_ids),
            request.num_computed_tokens,
            step.new_block_ids[request.request_id],
            _withheld_inputs(state, request),
            list(request.all_token_ids) if is_second else None,
            request.prompt_embeds,
        )
        for request in (*step.new, *(step.resumed if is_second else ()))
    ]


def cached_requests(state: SchedulerState, step: ScheduleStep) -> CachedRequestData:
    """Requests that the workers know."""
    resumed = [] if state.config.v2_model_runner else step.resumed
    cached = [*step.running, *resumed]
    tells_tokens = state.semantics.scheduler.tells_known_tokens
    return CachedRequestData(
        [request.request_id for request in cached],
        {request.request_id for request in resumed},
        _all_token_ids(state, cached) if tells_tokens else {},
        [step.new_block_ids.get(request.request_id) for request in cached],
        [request.num_computed_tokens for request in cached],
        [request.num_output_tokens + request.num_output_placeholders for request in cached]
        if tells_tokens
        else [],
    )


def preempted_requests(state: SchedulerState, step: ScheduleStep) -> Set[str] | None:
    """Who lost its blocks: in this step, or since the last one; None where workers are not told."""
    since_last, state.preempted_req_ids = state.preempted_req_ids, set()
    if not state.semantics.scheduler.has_second_runner:
        return None
    if state.semantics.scheduler.tells_preemptions_by_reset:
        return since_last
    return {request.request_id for request in step.preempted}


def encoder_input_updates(
    state: SchedulerState, step: ScheduleStep, new: Sequence[NewRequestData]
) -> dict[str, dict[int, MultiModalFeature | None]]:
    """Item data that the second model runner drops (None), and gets again, by request."""
    if not (state.config.v2_model_runner and state.semantics.scheduler.sends_items_again):
        return {}
    for one in new:
        withheld = () if state.config.uses_mrope else one.withheld_inputs
        everything = range(len(state.requests[one.req_id].mm_features))
        state.sent_inputs[one.req_id] = set(everything).difference(withheld)
    updates = {}
    for request_id in step.num_scheduled_tokens:
        encodes = step.encoder_inputs.get(request_id, ())
        if changes := _updates(state, state.requests[request_id], encodes):
            updates[request_id] = changes
    return updates


def skips_drafts(state: SchedulerState, step: ScheduleStep) -> bool:
    """Whether the second model runner's drafter has nothing to propose for."""
    return (
        state.semantics.scheduler.skips_unused_drafts
        and state.config.v2_model_runner
        and state.config.num_lookahead_tokens > 0
        and not step.uses_drafts
    )


def _updates(
    state: SchedulerState, request: ScheduledRequest, encodes: Sequence[int]
) -> dict[int, MultiModalFeature | None]:
    sent = state.sent_inputs.get(request.request_id, set())
    updates: dict[int, MultiModalFeature | None] = {
        number: request.mm_features[number] for number in encodes if number not in sent
    }
    sent.update(encodes)
    certain = request.num_computed_tokens - max(
        request.num_output_placeholders, request.num_in_flight_tokens
    )
    is_decoding = state.config.is_encoder_decoder and certain > 0
    past = [
        number
        for number in sorted(sent.difference(encodes))
        if is_decoding or request.mm_features[number].mm_position.end <= certain
    ]
    sent.difference_update(past)
    return updates | dict.fromkeys(past)


def _all_token_ids(
    state: SchedulerState, cached: Sequence[ScheduledRequest]
) -> Mapping[str, Sequence[int]]:
    """All tokens of requests that the last step left out."""
    if state.config.v2_model_runner and state.semantics.scheduler.spares_second_runner_tokens:
        return {}
    return {
        request.request_id: list(request.all_token_ids)
        for request in cached
        if request.request_id not in state.scheduled_before
    }


def _withheld_inputs(state: SchedulerState, request: ScheduledRequest) -> list[int]:
    """Items whose data the workers are not given: where some stays behind, those of which every
    token is computed."""
    if state.semantics.scheduler.sends_all_items:
        return []
    return [
        number
        for number, feature in enumerate(request.mm_features)
        if feature.mm_position.end <= request.num_computed_tokens
    ]
