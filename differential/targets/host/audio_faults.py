"""Faults of a runner that hears sounds of any length, planted in one that is whole.

A fault takes a runner and changes one thing that it does.
"""

from collections.abc import Callable
from typing import Any

from .by_name import by_name

MASK = "feature_attention_mask"


def hears_what_is_behind(runner: Any) -> None:
    """What follows the end of a sound is attended to like the sound."""
    _change_rows(runner, lambda rows, count: rows[:count])


def keeps_the_next_rows(runner: Any) -> None:
    """What is kept of a sound begins a row too late, and ends one behind it."""
    _change_rows(runner, lambda rows, count: rows[1 : count + 1], frames_more=4)


def _change_rows(
    runner: Any, change: Callable[[Any, int], Any], *, frames_more: int | None = None
) -> None:
    """Keep of a sound what `change` makes of the rows of a longer one, and of their own number: one
    of so many frames more, or as long as sounds can be."""
    model = runner.model

    def longer(item: Any) -> Any:
        mask = item.inputs[MASK].clone()
        begin = int(mask.sum())
        mask[begin : None if frames_more is None else begin + frames_more] = 1
        return item.__class__(item.feature, item.modality, {**item.inputs, MASK: mask})

    class Changed:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        def encode(self, items: Any) -> Any:
            encoded = model.encode([longer(item) for item in items])
            counts = [item.feature.mm_position.get_num_embeds() for item in items]
            return [
                one._replace(rows=change(one.rows, count))
                for one, count in zip(encoded, counts, strict=True)
            ]

    runner.model = Changed()


AUDIO_FAULTS: dict[str, Callable[[Any], None]] = by_name(hears_what_is_behind, keeps_the_next_rows)
