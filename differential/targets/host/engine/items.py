"""The items that an engine's processor makes of a prompt, compared with those of a trace."""

from collections.abc import Iterable, Mapping, Sequence

from ..protocol import Event, Illegal
from ..vllm_objects.requests import MultiModalFeatureSpec, Request
from .limits import ITEMS_MAX


class Names:
    """What a trace and the engine's front end call the items of a trace.

    The front end's identifiers are its own: of embeddings their content's digest, of an id that a
    user gives whatever a release makes of it. They must tell the same items apart as the trace's,
    which then take their place, since records speak of those. Of an encoder-decoder nothing is
    asked: where neither prefixes nor processed items are cached, releases before 0.30 draw them.
    """

    def __init__(self, *, are_drawn: bool) -> None:
        self._are_drawn = are_drawn
        self.clear()

    def clear(self) -> None:
        """Forget all names: a trace begins."""
        self._theirs: dict[str, str] = {}
        self._ours: dict[str, str] = {}

    def put(self, features: list[MultiModalFeatureSpec] | None, event: Event) -> None:
        """Name a request's items as its trace does. Raises Illegal where the front end takes two
        items of the trace for one, or one for two."""
        for feature, item in zip(features or (), event["items"], strict=False):
            ours, theirs = item["identifier"], feature.identifier
            if not self._are_drawn:
                known = self._theirs.setdefault(ours, theirs), self._ours.setdefault(theirs, ours)
                if known != (theirs, ours):
                    raise Illegal(
                        f"the engine calls {ours} {theirs}; before it called {ours} {known[0]}, "
                        f"and {known[1]} {theirs}"
                    )
            feature.identifier = ours


def check_counts(data: Mapping[str, Sequence[object]], model: str) -> None:
    """Raises Illegal where a prompt has more media of a modality of the model's than the engine was
    made for."""
    for modality, most in ITEMS_MAX[model].items():
        if len(data.get(modality, ())) > most:
            raise Illegal(f"the engine was made for {most} of modality {modality} in a prompt")


def check_items(request: Request, event: Event) -> None:
    """Require that the engine's processor made the trace's items of the prompt."""
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


def _mask_of(is_embed: Iterable[bool] | None) -> list[bool] | None:
    """Which tokens of an item get rows; None where all do."""
    mask = None if is_embed is None else list(map(bool, is_embed))
    return None if mask is None or all(mask) else mask
