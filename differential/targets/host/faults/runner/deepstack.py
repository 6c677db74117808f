"""Faults of a runner whose rows reach several layers of the decoder, planted in one that is whole.

A fault takes a runner and changes one thing that it does. The stream of embeddings has the levels
of a row side by side, the embedding first (`gpu_runner/models/qwen3_vl.py`).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...by_name import by_name
from .fault import RunnerFault, replace_in_model

if TYPE_CHECKING:
    from torch import Tensor

    from cacheproof.gpu_runner.encoder_store import StoreRead
    from cacheproof.gpu_runner.models.base import Encoded
    from cacheproof.gpu_runner.paged_attention import PagedStep
    from cacheproof.gpu_runner.requests import MediaItem
    from cacheproof.gpu_runner.runner import Runner


def swaps_levels(runner: "Runner") -> None:
    """The layers get each other's rows; the embedding stays."""
    size = runner.model.embedding_size
    _change_levels(runner, lambda levels: levels.roll(size, dims=1))


def adds_levels_a_token_late(runner: "Runner") -> None:
    """The rows that a layer adds stand a token late, the last one at the first token."""
    _change_levels(runner, lambda levels: levels.roll(1, dims=0))


def forgets_the_last_level(runner: "Runner") -> None:
    """The deepest of the layers that get rows adds none."""
    size = runner.model.embedding_size

    def cut(levels: "Tensor") -> "Tensor":
        levels = levels.clone()
        levels[:, -size:] = 0
        return levels

    _change_levels(runner, cut)


def keeps_levels_of_the_step_before(runner: "Runner") -> None:
    """Rows added in one step are added in the next as well, to whichever tokens stand there."""
    kept: list[Tensor] = []

    def stale(levels: "Tensor") -> "Tensor":
        added = levels.clone()
        for before in kept:
            count = min(len(before), len(added))
            added[:count] += before[:count]
        kept[:] = [levels]
        return added

    _change_levels(runner, stale)


def adds_levels_a_layer_late(runner: "Runner") -> None:
    """The first layer adds nothing, and each layer after it the level of the one before."""
    size = runner.model.embedding_size
    _change_embeds(
        runner,
        lambda embeds: _cat(embeds[:, :size], embeds[:, :size] * 0, embeds[:, size:]),
    )


def adds_levels_before_the_first_layer(runner: "Runner") -> None:
    """All levels are added to the row itself, before the first layer."""
    size = runner.model.embedding_size

    def early(embeds: "Tensor") -> "Tensor":
        embeds = embeds.clone()
        for level in embeds.split(size, dim=1)[1:]:
            embeds[:, :size] += level
        embeds[:, size:] = 0
        return embeds

    _change_embeds(runner, early)


def takes_the_row_for_its_first_level(runner: "Runner") -> None:
    """The first layer adds the row itself, and each layer after it the level before its own."""
    size = runner.model.embedding_size

    def shifted(embeds: "Tensor") -> "Tensor":
        has_levels = (embeds[:, size:] != 0).any(dim=1, keepdim=True)
        return _cat(embeds[:, :size], embeds[:, :-size] * has_levels)

    _change_embeds(runner, shifted)


def keeps_levels_in_reverse(runner: "Runner") -> None:
    """The levels of an item are kept in reverse order of its rows."""
    _change_encoded(runner, lambda items, levels: [one.flip(0) for one in levels])


def forgets_levels_of_films(runner: "Runner") -> None:
    """Only pictures have levels."""
    _change_encoded(
        runner,
        lambda items, levels: [
            one * (item.modality == "image") for item, one in zip(items, levels, strict=True)
        ],
    )


def forgets_levels_inside_items(runner: "Runner") -> None:
    """A step that begins inside an item adds no levels of it."""
    _change_gathered(runner, lambda identifier, read: read.start == 0)


def forgets_levels_of_what_was_kept(runner: "Runner") -> None:
    """Levels are added in the step that encodes an item, and in none after it."""
    store = runner.encoder_store
    put, encoded = store.put, dict[str, int]()

    def noted(identifier: str, rows: "Tensor", **beside: "Tensor") -> None:
        encoded[identifier] = runner.num_steps
        put(identifier, rows, **beside)

    store.put = noted
    _change_gathered(runner, lambda identifier, read: encoded[identifier] == runner.num_steps)


def _cat(*parts: "Tensor") -> "Tensor":
    from torch import cat

    return cat(parts, dim=1)


def _change_levels(runner: "Runner", change: Callable[["Tensor"], "Tensor"]) -> None:
    """Let layers add what `change` makes of a step's levels."""
    size = runner.model.embedding_size
    _change_embeds(runner, lambda embeds: _cat(embeds[:, :size], change(embeds[:, size:])))


def _change_embeds(runner: "Runner", change: Callable[["Tensor"], "Tensor"]) -> None:
    """Let the decoder get what `change` makes of a step's stream of embeddings."""
    model = runner.model

    def decode(embeds: "Tensor", positions: "Tensor", paged: "PagedStep") -> "Tensor":
        return model.decode(change(embeds), positions, paged)

    replace_in_model(runner, decode=decode)


def _change_encoded(
    runner: "Runner",
    change: Callable[[Sequence["MediaItem"], list["Tensor"]], list["Tensor"]],
) -> None:
    """Let items be kept with what `change` makes of their levels."""
    model = runner.model
    size = runner.model.embedding_size

    def encode(items: Sequence["MediaItem"]) -> list["Encoded"]:
        encoded = model.encode(items)
        changed = change(items, [one.rows[:, size:] for one in encoded])
        return [
            one._replace(rows=_cat(one.rows[:, :size], levels))
            for one, levels in zip(encoded, changed, strict=True)
        ]

    replace_in_model(runner, encode=encode)


def _change_gathered(runner: "Runner", has_levels: Callable[[str, "StoreRead"], bool]) -> None:
    """Let the rows that a read gets of an item have no levels, unless `has_levels` is true of the
    read."""
    size, store = runner.model.embedding_size, runner.encoder_store
    gather = store.gather

    def gathered(identifier: str, read: "StoreRead") -> "Tensor":
        rows = gather(identifier, read)
        if has_levels(identifier, read):
            return rows
        return _cat(rows[:, :size], rows[:, size:] * 0)

    store.gather = gathered


DEEPSTACK_FAULTS: dict[str, RunnerFault] = by_name(
    swaps_levels,
    adds_levels_a_token_late,
    forgets_the_last_level,
    keeps_levels_of_the_step_before,
    adds_levels_a_layer_late,
    adds_levels_before_the_first_layer,
    takes_the_row_for_its_first_level,
    keeps_levels_in_reverse,
    forgets_levels_of_films,
    forgets_levels_inside_items,
    forgets_levels_of_what_was_kept,
)
