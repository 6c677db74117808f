"""Faults of an engine's worker in prompts of embeddings. The last three are the release's own: the
host mends them where steps run ahead with drafts (`../../engine/embedded.py`), and they change
nothing elsewhere."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...vllm_objects.scheduler import SchedulerOutput
from ...vllm_objects.worker import GPUModelRunner
from .engine import Change

if TYPE_CHECKING:
    from torch import Tensor

AreTokens = list[bool] | None


def _change_arrivals(
    runner: GPUModelRunner, change: Callable[["Tensor", AreTokens], tuple["Tensor", AreTokens]]
) -> Change:
    """Let the worker take what `change` makes of a prompt's rows and of which count as tokens."""
    update = runner._update_states

    def changed(output: SchedulerOutput) -> object:
        told = [
            (one, one.prompt_embeds, one.prompt_is_token_ids)
            for one in output.scheduled_new_reqs
            if one.prompt_embeds is not None
        ]
        for one, rows, are_tokens in told:
            one.prompt_embeds, one.prompt_is_token_ids = change(rows, are_tokens)
        done = update(output)
        for one, rows, are_tokens in told:
            one.prompt_embeds, one.prompt_is_token_ids = rows, are_tokens
        return done

    return runner, "_update_states", changed


def takes_prompts_in_reverse(runner: GPUModelRunner) -> Change:
    """The embeddings of a prompt come in reverse."""
    return _change_arrivals(runner, lambda rows, are_tokens: (rows.flip(0), are_tokens))


def takes_half_of_prompts(runner: GPUModelRunner) -> Change:
    """The embeddings of a prompt are scaled by half."""
    return _change_arrivals(runner, lambda rows, are_tokens: (rows / 2, are_tokens))


def takes_prompts_a_row_late(runner: GPUModelRunner) -> Change:
    """Each token gets the row of the one before it."""
    return _change_arrivals(runner, lambda rows, are_tokens: (rows.roll(1, dims=0), are_tokens))


def takes_the_first_row_for_all(runner: GPUModelRunner) -> Change:
    """Every row is the prompt's first."""
    return _change_arrivals(runner, lambda rows, are_tokens: (rows[:1].expand_as(rows), are_tokens))


def takes_tokens_for_rows(runner: GPUModelRunner) -> Change:
    """Tokens of a prompt that mixes both are taken for rows of zeros."""
    return _change_arrivals(
        runner, lambda rows, are_tokens: (rows, are_tokens and [False] * len(are_tokens))
    )


EMBEDDED_FAULTS = by_name(
    takes_prompts_in_reverse,
    takes_half_of_prompts,
    takes_prompts_a_row_late,
    takes_the_first_row_for_all,
    takes_tokens_for_rows,
)


def ends_at_an_embedding(runner: GPUModelRunner) -> Change:
    """A drafter asks for the token of an embedding, and the engine ends."""
    from vllm.v1.worker.gpu_input_batch import CachedRequestState  # names are read where it is not

    return CachedRequestState, "get_token_id", inspect.unwrap(CachedRequestState.get_token_id)


def looks_up_what_lay_there(runner: GPUModelRunner) -> Change:
    """Prompt lookup finds, in the place of embeddings, the tokens that another request has left."""
    from vllm.v1.worker.gpu_input_batch import InputBatch  # names are read where it is not

    return InputBatch, "add_request", inspect.unwrap(InputBatch.add_request)


def forgets_what_was_sampled(runner: GPUModelRunner) -> Change:
    """What a step has sampled counts as an embedding in the next one: whichever row lies there."""
    return runner, "_prepare_input_ids", type(runner)._prepare_input_ids.__get__(runner)


AHEAD_FAULTS = by_name(ends_at_an_embedding, looks_up_what_lay_there, forgets_what_was_sampled)
