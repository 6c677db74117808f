"""Faults of a runner whose rows reach several layers of the decoder, planted in one that is whole.

A fault takes a runner and changes one thing that it does. The stream of embeddings has the levels
of a row side by side, the embedding first (`gpu_runner/models/qwen3_vl.py`).
"""

from collections.abc import Callable
from typing import Any

from .by_name import by_name


def swaps_levels(runner: Any) -> None:
    """Each layer gets the rows that are another's; the embedding stays."""
    size = runner.model.level_size
    _change_levels(runner, lambda levels: levels.roll(size, dims=1))


def adds_levels_a_token_late(runner: Any) -> None:
    """What a layer adds stands a token behind its place, the last one in the first's."""
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
    """What was added in one step is added in the next as well, to whichever tokens stand there."""
    kept: list[Any] = []

    def stale(levels: Any) -> Any:
        added = levels.clone()
        for before in kept:
            count = min(len(before), len(added))
            added[:count] += before[:count]
        kept[:] = [levels]
        return added

    _change_levels(runner, stale)


def _change_levels(runner: Any, change: Callable[[Any], Any]) -> None:
    model = runner.model

    class Changed:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        def decode(self, embeds: Any, positions: Any, paged: Any) -> Any:
            changed = embeds.clone()
            changed[:, model.level_size :] = change(embeds[:, model.level_size :])
            return model.decode(changed, positions, paged)

    runner.model = Changed()


DEEPSTACK_FAULTS: dict[str, Callable[[Any], None]] = by_name(
    swaps_levels,
    adds_levels_a_token_late,
    forgets_the_last_level,
    keeps_levels_of_the_step_before,
)
