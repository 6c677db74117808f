"""Mends what a release does wrong with prompts of embeddings while steps run ahead, so that the
rest can be compared: docs/explain/runner-requests.md."""

import functools

from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from ..media_inputs import GIVEN_TOKEN_ID, UNKNOWN_TOKEN_ID
from ..vllm_objects.scheduler import SchedulerOutput
from ..vllm_objects.worker import GPUModelRunner


def know_tokens_of_embeddings() -> None:
    """Let a drafter find a token where an embedding is given, for good: the release's engine ends
    there, or finds what another request has left."""
    if hasattr(CachedRequestState.get_token_id, "__wrapped__"):
        return
    get_token_id, add_request = CachedRequestState.get_token_id, InputBatch.add_request

    @functools.wraps(get_token_id)
    def token_id(request: CachedRequestState, index: int) -> int:
        if request.prompt_token_ids is None and index < request.num_prompt_tokens:
            return GIVEN_TOKEN_ID
        return int(get_token_id(request, index))

    @functools.wraps(add_request)
    def added(batch: InputBatch, request: CachedRequestState, *others: object) -> object:
        place = add_request(batch, request, *others)
        if request.prompt_token_ids is None:
            row = batch.req_id_to_index[request.req_id]
            batch.token_ids_cpu[row, : request.num_prompt_tokens] = UNKNOWN_TOKEN_ID
        return place

    CachedRequestState.get_token_id, InputBatch.add_request = token_id, added


def mark_sampled_tokens(runner: GPUModelRunner) -> None:
    """Let what a step has sampled count as a token in the next one, where drafts stand between."""
    own = runner._prepare_input_ids

    def prepare(output: SchedulerOutput, *others: object) -> None:
        batch = runner.input_batch
        at = 0
        for name in batch.req_ids:
            at += output.num_scheduled_tokens[name]
            if name in (batch.prev_req_id_to_index or ()):
                drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
                runner.is_token_ids.np[at - 1 - drafts] = True
        own(output, *others)

    runner._prepare_input_ids = prepare
