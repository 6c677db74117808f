"""Faults of a runner whose rows reach several layers of the decoder, planted in one that is whole.

A fault takes a runner and changes one thing that it does. The stream of embeddings has the levels
of a row side by side, the embedding first (`gpu_runner/models/qwen3_vl.py`).
"""

from collections.abc import Callable
from typing import Any

from ...by_name import by_name


def swaps_levels(runner: Any) -> None:
    """The layers get each other's rows; the embedding stays."""
    size = runner.model.level_size
    _change_levels(runner, lambda levels: levels.roll(size, dims=1))


def adds_levels_a_token_late(runner: Any) -> None:
    """The rows that a layer adds stand a token late, the last one at the first token."""
    _change_levels(runner, lambda levels: levels.roll(1, dims=0))


def forgets_the_last_level(runner: Any) -> None:
    """The deepest of the layers that get rows adds none."""
    size = runner.model.level_size

    def cut(levels: Any) -> Any:
        levels = levels.clone()
        levels[:, -size:] = 0
        return levels

    _change_levels(runner, cut)


def keeps_levels_of_the_step_before(runner: Any) -> None:
    """Rows added in one step are added in the next as well, to whichever tokens stand there."""
    kept: list[Any] = []

    def stale(levels: Any) -> Any:
        added = levels.clone()
        for before in kept:
            count = min(len(before), len(added))
            added[:count] += before[:count]
        kept[:] = [levels]
        return added

    _change_levels(runner, stale)


def adds_levels_a_layer_late(runner: Any) -> None:
    """The first layer adds nothing, and each layer after it the level of the one before."""
    size = runner.model.level_size
    _change_embeds(
        runner,
        lambda embeds: _cat(embeds[:, :size], embeds[:, :size] * 0, embeds[:, size:]),
    )


def adds_levels_before_the_first_layer(runner: Any) -> None:
    """All levels are added to the row itself, before the first layer."""
    size = runner.model.level_size

    def early(embeds: Any) -> Any:
        embeds = embeds.clone()
        for level in embeds.split(size, dim=1)[1:]:
            embeds[:, :size] += level
        embeds[:, size:] = 0
        return embeds

    _change_embeds(runner, early)


def takes_the_row_for_its_first_level(runner: Any) -> None:
    """The first layer adds the row itself, and each layer after it the level before its own."""
    size = runner.model.level_size

    def shifted(embeds: Any) -> Any:
        has_levels = (embeds[:, size:] != 0).any(dim=1, keepdim=True)
        return _cat(embeds[:, :size], embeds[:, :-size] * has_levels)

    _change_embeds(runner, shifted)


def keeps_levels_in_reverse(runner: Any) -> None:
    """The levels of an item are kept in reverse order of its rows."""
    _change_encoded(runner, lambda items, levels: [one.flip(0) for one in levels])


def forgets_levels_of_films(runner: Any) -> None:
    """Only pictures have levels."""
    _change_encoded(
        runner,
        lambda items, levels: [
            one * (item.modality == "image") for item, one in zip(items, levels, strict=True)
        ],
    )


def forgets_levels_inside_items(runner: Any) -> None:
    """A step that begins inside an item adds no levels of it."""
    _change_gathered(runner, lambda identifier, read: read.start == 0)


def forgets_levels_of_what_was_kept(runner: Any) -> None:
    """Levels are added in the step that encodes an item, and in none after it."""
    store = runner.encoder_store
    put, encoded = store.put, dict[str, int]()

    def noted(identifier: str, *rows: Any, **beside: Any) -> None:
        encoded[identifier] = runner.num_steps
        put(identifier, *rows, **beside)

    store.put = noted
    _change_gathered(runner, lambda identifier, read: encoded[identifier] == runner.num_steps)


def _cat(*parts: Any) -> Any:
    from torch import cat

    return cat(parts, dim=1)


def _change_levels(runner: Any, change: Callable[[Any], Any]) -> None:
    """Let layers add what `change` makes of a step's levels."""
    size = runner.model.level_size
    _change_embeds(runner, lambda embeds: _cat(embeds[:, :size], change(embeds[:, size:])))


def _change_embeds(runner: Any, change: Callable[[Any], Any]) -> None:
    """Let the decoder get what `change` makes of a step's stream of embeddings."""
    model = runner.model

    class Changed:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        def decode(self, embeds: Any, positions: Any, paged: Any) -> Any:
            return model.decode(change(embeds), positions, paged)

    runner.model = Changed()


def _change_encoded(runner: Any, change: Callable[[Any, list[Any]], list[Any]]) -> None:
    """Let items be kept with what `change` makes of their levels."""
    model = runner.model
    size = model.level_size

    class Changed:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        def encode(self, items: Any) -> Any:
            encoded = model.encode(items)
            changed = change(items, [one.rows[:, size:] for one in encoded])
            return [
                one._replace(rows=_cat(one.rows[:, :size], levels))
                for one, levels in zip(encoded, changed, strict=True)
            ]

    runner.model = Changed()


def _change_gathered(runner: Any, has_levels: Callable[[str, Any], bool]) -> None:
    """Let the rows that a read gets of an item have no levels, unless `has_levels` is true of the
    read."""
    size, store = runner.model.level_size, runner.encoder_store
    gather = store.gather

    def gathered(identifier: str, read: Any) -> Any:
        rows = gather(identifier, read)
        if has_levels(identifier, read):
            return rows
        return _cat(rows[:, :size], rows[:, size:] * 0)

    store.gather = gathered


DEEPSTACK_FAULTS: dict[str, Callable[[Any], None]] = by_name(
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
