"""The items that an engine's processor makes of a prompt, beside those that a trace says."""

from collections.abc import Mapping, Sequence
from typing import Any

from .engine_limits import ITEMS_MAX
from .media_inputs import is_given
from .protocol import Event, Illegal


def name_items(features: list[Any] | None, event: Event, *, is_decoder: bool) -> None:
    """Let items have the names that the trace gives them: embeddings are called by their content,
    and where neither prefixes nor processed items are cached, as with an encoder-decoder, releases
    before 0.30 take names of their own."""
    for feature, item in zip(features or (), event["items"], strict=False):
        if is_decoder or is_given(item):
            feature.identifier = item["identifier"]


def check_counts(data: Mapping[str, Sequence[Any]], model: str) -> None:
    """Raises Illegal where a prompt has more media of a modality of the model's than the engine was
    made for."""
    for modality, most in ITEMS_MAX[model].items():
        if len(data.get(modality, ())) > most:
            raise Illegal(f"the engine was made for {most} of modality {modality} in a prompt")


def check_items(request: Any, event: Event) -> None:
    """The engine's processor must have made of the prompt what the trace says."""
    made = [
        (one.identifier, where.offset, where.length, _mask_of(where.is_embed))
        for one in request.mm_features
        for where in (one.mm_position,)
    ]
    said = [
        (item["identifier"], item["offset"], item["length"], _mask_of(item["is_embed"]))
        for item in event["items"]
    ]
    if made != said:
        raise Illegal(f"the engine makes of its items {made}, not {said}")


def _mask_of(is_embed: Any) -> list[bool] | None:
    """Which tokens of an item get rows; None: all of them."""
    mask = None if is_embed is None else list(map(bool, is_embed))
    return None if mask is None or all(mask) else mask
