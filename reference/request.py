"""Requests and their multimodal features, as far as the caches look at them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class PlaceholderRange:
    """Where in the prompt an item's placeholder tokens stand.

    `is_embed`, when given, has `length` entries and says which of those tokens receive an
    embedding; None means all of them. Positions are in tokens of the prompt.

    Raises:
        ValueError: negative offset, length below 1, or a mask of another length.
    """

    offset: int
    length: int
    is_embed: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        if self.offset < 0 or self.length < 1:
            raise ValueError(f"placeholder at {self.offset} of length {self.length}")
        if self.is_embed is not None and len(self.is_embed) != self.length:
            raise ValueError(f"mask of {len(self.is_embed)} for a placeholder of {self.length}")

    @property
    def end(self) -> int:
        """First token after the placeholder."""
        return self.offset + self.length

    def get_num_embeds(self) -> int:
        """Embeddings of the whole item."""
        return self.length if self.is_embed is None else sum(self.is_embed)

    def get_embeds_indices_in_range(self, start: int, end: int) -> tuple[int, int]:
        """Rows of the encoder output that tokens [start, end) of the placeholder receive.

        `start` and `end` count from the placeholder's first token, 0 <= start <= end <= length.
        """
        if self.is_embed is None:
            return start, end
        before = [0, *accumulate(self.is_embed)]
        return before[start], before[end]


@dataclass(frozen=True, slots=True)
class MultiModalFeature:
    """One media item of a request.

    `mm_hash` keys the processor's output; `identifier` keys the encoder's output and is stricter:
    under a LoRA that touches the encoder it carries the adapter's name.
    """

    identifier: str
    mm_position: PlaceholderRange
    mm_hash: str

    @classmethod
    def of(
        cls, mm_hash: str, position: PlaceholderRange, lora_name: str | None = None
    ) -> "MultiModalFeature":
        """A feature whose identifier is derived from its hash and the encoder's adapter."""
        return cls(encoder_identifier(mm_hash, lora_name), position, mm_hash)


def encoder_identifier(mm_hash: str, lora_name: str | None = None) -> str:
    """The key of an encoder output: the hash, behind the adapter's name when one is active."""
    return mm_hash if lora_name is None else f"{lora_name}:{mm_hash}"


class Request:
    """A request: its id, the length of its prompt in tokens and its features in prompt order.

    Raises:
        ValueError: features out of order, overlapping, or reaching past the prompt.
    """

    def __init__(
        self, request_id: str, num_prompt_tokens: int, mm_features: Sequence[MultiModalFeature]
    ) -> None:
        reached = 0
        for feature in mm_features:
            if feature.mm_position.offset < reached:
                raise ValueError(f"request {request_id}: features overlap or are out of order")
            reached = feature.mm_position.end
        if reached > num_prompt_tokens:
            raise ValueError(f"request {request_id}: a feature reaches past the prompt")
        self.request_id = request_id
        self.num_prompt_tokens = num_prompt_tokens
        self.mm_features = list(mm_features)

    @property
    def has_encoder_inputs(self) -> bool:
        return bool(self.mm_features)

    def get_num_encoder_embeds(self, input_id: int) -> int:
        """Embeddings of the request's item number `input_id`."""
        return self.mm_features[input_id].mm_position.get_num_embeds()
