"""Faults in how a torch runner takes embeddings that are given in the place of tokens. Planted in
one that is whole; each must be seen.
"""

from collections.abc import Callable
from typing import Any

from .by_name import by_name
from .media_inputs import GIVEN_TOKEN_ID


def _change(runner: Any, change: Callable[[Any], Any]) -> None:
    given = runner._given
    runner._given = lambda item: (lambda one: one._replace(rows=change(one.rows)))(given(item))


def embeds_their_tokens(runner: Any) -> None:
    """Rows are the embedding of the token that stands in their place."""

    def own(rows: Any) -> Any:
        import torch

        return runner.model.embed(torch.full((len(rows),), GIVEN_TOKEN_ID, device=rows.device))

    _change(runner, own)


def takes_them_in_reverse(runner: Any) -> None:
    """The last row comes first."""
    _change(runner, lambda rows: rows.flip(0))


def takes_the_first_for_all(runner: Any) -> None:
    """Every row is the first."""
    _change(runner, lambda rows: rows[:1].expand_as(rows))


def takes_half(runner: Any) -> None:
    """Rows are scaled, as some models scale the embeddings of tokens."""
    _change(runner, lambda rows: rows / 2)


def keeps_what_was_given_first(runner: Any) -> None:
    """Rows of one count are those that were given first."""
    kept = dict[int, Any]()
    _change(runner, lambda rows: kept.setdefault(len(rows), rows))


GIVEN_FAULTS: dict[str, Callable[[Any], None]] = by_name(
    embeds_their_tokens,
    takes_them_in_reverse,
    takes_the_first_for_all,
    takes_half,
    keeps_what_was_given_first,
)
