"""Faults in how a torch runner takes embeddings that are given in the place of tokens. They are
planted in a sound runner, and each must be seen.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...media_inputs import GIVEN_TOKEN_ID
from ...package import ours
from .fault import RunnerFault

if TYPE_CHECKING:
    from torch import Tensor

    from cacheproof.gpu_runner.models.base import Encoded
    from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
    from cacheproof.gpu_runner.runner import Runner


def _change(runner: "Runner", change: Callable[["Tensor"], "Tensor"]) -> None:
    given = runner._given
    runner._given = lambda item: (lambda one: one._replace(rows=change(one.rows)))(given(item))


def _of_their_tokens(runner: "Runner", rows: "Tensor") -> "Tensor":
    """For each row, the embedding of the token in its place."""
    import torch

    return runner.model.embed(torch.full((len(rows),), GIVEN_TOKEN_ID, device=rows.device))


def embeds_their_tokens(runner: "Runner") -> None:
    """Rows are replaced by the embedding of the token in their place."""
    _change(runner, lambda rows: _of_their_tokens(runner, rows))


def takes_them_in_reverse(runner: "Runner") -> None:
    """The rows come in reverse."""
    _change(runner, lambda rows: rows.flip(0))


def takes_the_first_for_all(runner: "Runner") -> None:
    """Every row is the first."""
    _change(runner, lambda rows: rows[:1].expand_as(rows))


def takes_half(runner: "Runner") -> None:
    """Rows are scaled, as some models scale the embeddings of tokens."""
    _change(runner, lambda rows: rows / 2)


def keeps_what_was_given_first(runner: "Runner") -> None:
    """Items of the same number of rows have those that were given first."""
    kept: dict[int, Tensor] = {}
    _change(runner, lambda rows: kept.setdefault(len(rows), rows))


def adds_them_to_their_tokens(runner: "Runner") -> None:
    """Rows are added to the embedding of the token in their place."""
    _change(runner, lambda rows: rows + _of_their_tokens(runner, rows))


def takes_columns_for_rows(runner: "Runner") -> None:
    """Rows are read in the order of columns."""
    _change(runner, lambda rows: rows.T.reshape(rows.shape))


def leaves_out_the_last(runner: "Runner") -> None:
    """The last row is zeros."""

    def cut(rows: "Tensor") -> "Tensor":
        rows = rows.clone()
        rows[-1] = 0
        return rows

    _change(runner, cut)


def halves_their_precision(runner: "Runner") -> None:
    """Rows pass through bfloat16, whose significand has eight bits."""
    _change(runner, lambda rows: rows.bfloat16().to(rows.dtype))


def takes_them_once(runner: "Runner") -> None:
    """An item whose rows were dropped from the store gets the embeddings of tokens instead."""
    given = runner._given
    taken: set[str] = set()

    def once(item: "MediaItem") -> "Encoded":
        name, one = item.feature.identifier, given(item)
        if name in taken:
            one = one._replace(rows=_of_their_tokens(runner, one.rows))
        taken.add(name)
        return one

    runner._given = once


def places_them_as_a_picture(runner: "Runner") -> None:
    """Rows have positions beside one another, as a picture's, and not after one another, as text:
    in a model with three rotary axes."""
    add, given = runner.add, ours("gpu_runner.requests").GIVEN

    def added(request_id: str, prompt: "RunnerPrompt") -> None:
        add(request_id, prompt)
        request = runner.batch.requests[request_id]
        assert request.positions is not None
        of_prompt = request.positions.of_prompt.clone()
        for item in prompt.items:
            where = item.feature.mm_position
            if item.modality == given:
                of_prompt[:2, where.offset : where.end] = of_prompt[0, where.offset]
        request.positions = request.positions._replace(of_prompt=of_prompt)

    runner.add = added


GIVEN_FAULTS: dict[str, RunnerFault] = by_name(
    embeds_their_tokens,
    takes_them_in_reverse,
    takes_the_first_for_all,
    takes_half,
    keeps_what_was_given_first,
    adds_them_to_their_tokens,
    takes_columns_for_rows,
    leaves_out_the_last,
    halves_their_precision,
    takes_them_once,
    places_them_as_a_picture,
)
