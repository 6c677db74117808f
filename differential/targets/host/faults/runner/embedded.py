"""Faults in how a torch runner takes prompts of embeddings, and in how they keep requests apart.
They are planted in a sound runner, and each must be seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...protocol import Event
from .fault import RunnerFault
from .salt import Make

if TYPE_CHECKING:
    from torch import Tensor

    from cacheproof.gpu_runner.requests import PromptEmbeds, RequestState, RunnerPrompt
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.request import PromptEmbeds as KeyedEmbeds
    from cacheproof.reference.scheduled_request import ScheduledRequest


def _arrive(
    runner: "Runner", change: Callable[[tuple[int, ...], "PromptEmbeds"], "PromptEmbeds"]
) -> None:
    """Let prompts arrive with what `change` makes of their token ids and embeddings."""
    add = runner.add

    def added(request_id: str, prompt: "RunnerPrompt") -> None:
        if prompt.embeds is not None:
            prompt = replace(prompt, embeds=change(prompt.token_ids, prompt.embeds))
        add(request_id, prompt)

    runner.add = added


def _rows(runner: "Runner", change: Callable[["Tensor", "Tensor"], "Tensor"]) -> None:
    """Let prompts arrive with rows, [tokens, hidden size], that `change` makes of the embeddings of
    their tokens and of their rows."""
    _arrive(
        runner,
        lambda token_ids, embeds: replace(
            embeds, rows=change(_of_tokens(runner, token_ids), embeds.rows)
        ),
    )


def _of_tokens(runner: "Runner", token_ids: Sequence[int]) -> "Tensor":
    import torch

    return runner.model.embed(torch.tensor(token_ids, device=runner.model.device)).detach()


def embeds_prompts_tokens(runner: "Runner") -> None:
    """Rows are replaced by the embedding of the token in their place."""
    _rows(runner, lambda of_tokens, rows: of_tokens)


def adds_prompts_to_their_tokens(runner: "Runner") -> None:
    """Rows are added to the embedding of the token in their place."""
    _rows(runner, lambda of_tokens, rows: of_tokens + rows)


def takes_prompts_in_reverse(runner: "Runner") -> None:
    """The last row of a prompt comes first."""
    _rows(runner, lambda of_tokens, rows: rows.flip(0))


def takes_prompts_a_row_late(runner: "Runner") -> None:
    """Each token gets the row of the one before it."""
    _rows(runner, lambda of_tokens, rows: rows.roll(1, dims=0))


def takes_half_of_prompts(runner: "Runner") -> None:
    """Rows are scaled, as some models scale the embeddings of tokens."""
    _rows(runner, lambda of_tokens, rows: rows / 2)


def halves_the_precision_of_prompts(runner: "Runner") -> None:
    """Rows pass through bfloat16, whose significand has eight bits."""
    _rows(runner, lambda of_tokens, rows: rows.bfloat16().to(rows.dtype))


def takes_the_first_row_for_all(runner: "Runner") -> None:
    """Every row is the prompt's first."""
    _rows(runner, lambda of_tokens, rows: rows[:1].expand_as(rows))


def keeps_what_came_first(runner: "Runner") -> None:
    """Prompts of one length have the rows of the one that came first."""
    kept: dict[int, Tensor] = {}
    _rows(runner, lambda of_tokens, rows: kept.setdefault(len(rows), rows))


def gives_rows_to_tokens(runner: "Runner") -> None:
    """Tokens of a prompt that mixes both are taken for rows of zeros."""
    _arrive(runner, lambda token_ids, embeds: replace(embeds, given=("any",) * len(token_ids)))


def takes_whole_prompts_alone(runner: "Runner") -> None:
    """All of a prompt that mixes both counts as tokens."""

    def none_of(token_ids: Sequence[int], embeds: "PromptEmbeds") -> "PromptEmbeds":
        return replace(embeds, given=(None,) * len(token_ids)) if None in embeds.given else embeds

    _arrive(runner, none_of)


def begins_each_step_anew(runner: "Runner") -> None:
    """Rows of a later chunk are those of the prompt's beginning."""
    _give(runner, lambda request: 0)


def takes_them_before_a_preemption_alone(runner: "Runner") -> None:
    """A request that starts over gets the embeddings of tokens."""
    begun = set[int]()

    def first_time(request: "RequestState") -> int | None:
        if request.num_computed_tokens:
            return request.num_computed_tokens
        is_first = id(request) not in begun
        begun.add(id(request))
        return 0 if is_first else None

    _give(runner, first_time)


def _give(runner: "Runner", start_of: Callable[["RequestState"], int | None]) -> None:
    """Let a step's rows of a prompt begin at another row; a step has none where that is None."""
    give = runner._give

    def given(embeds: "Tensor", scheduled: Sequence[tuple[str, "RequestState", int]]) -> None:
        first = 0
        for name, request, count in scheduled:
            start = start_of(request) if request.prompt.embeds is not None else None
            if start is not None:
                there = replace(request, num_computed_tokens=start)
                give(embeds[first : first + count], [(name, there, count)])
            first += count

    runner._give = given


EMBEDDED_FAULTS: dict[str, RunnerFault] = by_name(
    embeds_prompts_tokens,
    adds_prompts_to_their_tokens,
    takes_prompts_in_reverse,
    takes_prompts_a_row_late,
    takes_half_of_prompts,
    halves_the_precision_of_prompts,
    takes_the_first_row_for_all,
    keeps_what_came_first,
    gives_rows_to_tokens,
    takes_whole_prompts_alone,
    begins_each_step_anew,
    takes_them_before_a_preemption_alone,
)


def _keyed(make: Make, change: Callable[["KeyedEmbeds"], "KeyedEmbeds | None"]) -> Make:
    """Make keys from other embeddings; the runner's prompts stay as they are."""

    def made(event: Event, at: float) -> "ScheduledRequest":
        request = make(event, at)
        if request.prompt_embeds is not None:
            request.prompt_embeds = change(request.prompt_embeds)
            request.rehash()
        return request

    return made


def forgets_embeddings(make: Make) -> Make:
    """Keys are made from tokens alone."""
    return _keyed(make, lambda embeds: None)


def keys_the_first_row(make: Make) -> Make:
    """Keys are made as if every row were the prompt's first."""
    return _keyed(
        make, lambda embeds: replace(embeds, tensor=embeds.tensor[:1] * len(embeds.tensor))
    )


EMBEDDED_KEY_FAULTS: dict[str, Callable[[Make], Make]] = by_name(
    forgets_embeddings, keys_the_first_row
)
