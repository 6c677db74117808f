"""Faults of a runner that hears sounds of any length, planted in a sound runner.

A fault takes a runner and changes one thing that it does.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ...by_name import by_name
from .fault import RunnerFault, replace_in_model, whole_of

if TYPE_CHECKING:
    from torch import Tensor

    from cacheproof.gpu_runner.models.base import Encoded
    from cacheproof.gpu_runner.requests import MediaItem
    from cacheproof.gpu_runner.runner import Runner

MASK = "feature_attention_mask"
Heard = tuple["Tensor", "Tensor"]
"""Features of sounds, and which places are attended to."""


class TowerOutput(Protocol):
    """What transformers' tower of sounds answers."""

    last_hidden_state: "Tensor"


def hears_what_is_behind(runner: "Runner") -> None:
    """What follows the end of a sound is attended to like the sound."""
    _change_rows(runner, lambda rows, count: rows[:count])


def keeps_the_next_rows(runner: "Runner") -> None:
    """The rows that are kept of a sound begin one too late, and end one after it."""
    _change_rows(runner, lambda rows, count: rows[1 : count + 1], frames_more=4)


def _change_rows(
    runner: "Runner", change: Callable[["Tensor", int], "Tensor"], *, frames_more: int | None = None
) -> None:
    """Keep of a sound what `change` makes of the rows of a longer one, and of their own number: one
    of so many frames more, or as long as sounds can be."""
    model = runner.model

    def longer(item: "MediaItem") -> "MediaItem":
        mask = item.inputs[MASK].clone()
        begin = int(mask.sum())
        mask[begin : None if frames_more is None else begin + frames_more] = 1
        return item.__class__(item.feature, item.modality, {**item.inputs, MASK: mask})

    def encode(items: Sequence["MediaItem"]) -> list["Encoded"]:
        encoded = model.encode([longer(item) for item in items])
        counts = [item.feature.mm_position.get_num_embeds() for item in items]
        return [
            one._replace(rows=change(one.rows, count))
            for one, count in zip(encoded, counts, strict=True)
        ]

    replace_in_model(runner, encode=encode)


def _change_part(runner: "Runner", name: str, change: Callable[..., object]) -> None:
    """While sounds are encoded, let a part of the tower answer what `change` makes of its own
    forward and of what it is given; the tower itself has no name."""
    model = runner.model
    part = whole_of(runner).model.audio_tower.get_submodule(name)

    def encode(items: Sequence["MediaItem"]) -> list["Encoded"]:
        part.forward = partial(change, part.forward)
        try:
            return model.encode(items)
        finally:
            del part.forward

    replace_in_model(runner, encode=encode)


def _change_heard(runner: "Runner", change: Callable[["Tensor", "Tensor"], Heard]) -> None:
    """Let the tower get what `change` makes of the features of sounds, [sounds, pitches, frames],
    and of which places are attended to, [sounds, 1, 1, places]."""

    def heard(
        forward: Callable[..., object], features: "Tensor", attention_mask: "Tensor"
    ) -> object:
        features, attention_mask = change(features, attention_mask)
        return forward(features, attention_mask=attention_mask)

    _change_part(runner, "", heard)


def hides_the_end(runner: "Runner") -> None:
    """The last place of a sound is hidden, like what is after it."""
    _change_heard(runner, lambda features, mask: (features, mask & mask.roll(-1, -1)))


def hears_one_length_for_all(runner: "Runner") -> None:
    """All sounds of one call are taken to be as long as the first."""
    _change_heard(runner, lambda features, mask: (features, mask[:1].expand_as(mask)))


def hears_another_to_its_own_length(runner: "Runner") -> None:
    """The sounds of one call come in reverse, their lengths do not."""
    _change_heard(runner, lambda features, mask: (features.flip(0), mask))


def hears_pitches_in_reverse(runner: "Runner") -> None:
    """The pitches of sounds come in reverse."""
    _change_heard(runner, lambda features, mask: (features.flip(1), mask))


def hears_twice_as_fast(runner: "Runner") -> None:
    """Every other frame is left out, as if a second had twice the samples."""

    from torch import cat

    def fast(features: "Tensor", mask: "Tensor") -> Heard:
        silence = features[..., -1:].expand_as(features)
        return cat((features[..., ::2], silence[..., ::2]), -1), mask

    _change_heard(runner, fast)


def stands_at_the_end(runner: "Runner") -> None:
    """A sound stands at the end of its half minute, with the silence before it."""

    from torch import stack

    def late(
        forward: Callable[..., "TowerOutput"], features: "Tensor", attention_mask: "Tensor"
    ) -> "TowerOutput":
        places = attention_mask.flatten(1).sum(1).tolist()
        moved = [one.roll(-2 * count, -1) for one, count in zip(features, places, strict=True)]
        answer = forward(stack(moved), attention_mask=attention_mask.flip(-1))
        rows = [
            one.roll(count // 2, 0)
            for one, count in zip(answer.last_hidden_state, places, strict=True)
        ]
        answer.last_hidden_state = stack(rows)
        return answer

    _change_part(runner, "", late)


def forgets_when_it_is(runner: "Runner") -> None:
    """The places of a sound have no positions."""
    positions = whole_of(runner).model.audio_tower.embed_positions.weight
    _change_part(
        runner, "layers.0", lambda forward, states, *mask: forward(states - positions, *mask)
    )


def pools_pairs_a_place_late(runner: "Runner") -> None:
    """A row is made of the second place of its pair, and the first of the next."""
    _change_part(runner, "avg_pooler", lambda forward, states: forward(states.roll(-1, -1)))


def keeps_one_of_each_pair(runner: "Runner") -> None:
    """A row is made of the first place of its pair alone."""
    _change_part(runner, "avg_pooler", lambda forward, states: states[..., ::2])


AUDIO_FAULTS: dict[str, RunnerFault] = by_name(
    hears_what_is_behind,
    keeps_the_next_rows,
    hides_the_end,
    hears_one_length_for_all,
    hears_another_to_its_own_length,
    hears_pitches_in_reverse,
    hears_twice_as_fast,
    stands_at_the_end,
    forgets_when_it_is,
    pools_pairs_a_place_late,
    keeps_one_of_each_pair,
)
