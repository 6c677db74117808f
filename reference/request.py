"""Requests and their multimodal features, as far as the caches look at them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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

    def moved(self, tokens: int) -> "MultiModalFeature":
        """A copy of the item, `tokens` tokens later in the prompt."""
        offset = self.mm_position.offset + tokens
        return replace(self, mm_position=replace(self.mm_position, offset=offset))


def end_of(feature: MultiModalFeature) -> int:
    """First token after an item; asked of a release's features too, whose ranges have no `end`."""
    return feature.mm_position.offset + feature.mm_position.length


def encoder_identifier(mm_hash: str, lora_name: str | None = None) -> str:
    """The key of an encoder output: the hash, behind the adapter's name when one is active."""
    return mm_hash if lora_name is None else f"{lora_name}:{mm_hash}"


class Request:
    """A request: its id, the length of its prompt in tokens and its features in prompt order.

    The features of a decoder's request (`is_decoder`) are not part of its prompt, but input of the
    encoder.

    Raises:
        ValueError: features out of order, overlapping, or reaching past the prompt.
    """

    def __init__(
        self,
        request_id: str,
        num_prompt_tokens: int,
        mm_features: Sequence[MultiModalFeature],
        *,
        is_decoder: bool = False,
    ) -> None:
        reached = 0
        for feature in mm_features:
            if feature.mm_position.offset < reached:
                raise ValueError(f"request {request_id}: features overlap or are out of order")
            reached = feature.mm_position.end
        if reached > num_prompt_tokens and not is_decoder:
            raise ValueError(f"request {request_id}: a feature reaches past the prompt")
        self.request_id = request_id
        self.num_prompt_tokens = num_prompt_tokens
        self.mm_features = list(mm_features)

    @property
    def has_encoder_inputs(self) -> bool:
        """Whether it has any item."""
        return bool(self.mm_features)

    @property
    def end_of_items(self) -> int:
        """First token after the last item; 0 without items."""
        return self.mm_features[-1].mm_position.end if self.mm_features else 0

    def get_num_encoder_embeds(self, input_id: int) -> int:
        """Embeddings of the request's item number `input_id`."""
        return self.mm_features[input_id].mm_position.get_num_embeds()


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """The adapter that a request runs under."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""


@dataclass(frozen=True, slots=True)
class PromptEmbeds:
    """Embeddings given in place of prompt tokens: `tensor[i]` are the bytes of row i.

    `given[i]` says whether row i was given; where it was not, the token id counts and the row is
    zero.
    """

    tensor: tuple[bytes, ...]
    given: tuple[bool, ...]

    def token_ids(self, prompt_token_ids: Sequence[int], *, zeroes_mixed: bool) -> list[int]:
        """Token ids of the prompt: 0 where an embedding was given, in a prompt that mixes tokens
        and embeddings only if `zeroes_mixed`."""
        if not all(self.given) and not zeroes_mixed:
            return list(prompt_token_ids)
        return [
            0 if is_given else token
            for token, is_given in zip(prompt_token_ids, self.given, strict=True)
        ]


class TokenRequest(Request):
    """A request with its token ids, which grow as it decodes, and the keys of its full blocks.

    `all_token_ids` begin with the prompt's, as its embeddings leave them (`zeroes_mixed`, as
    PromptEmbeds.token_ids). `block_hasher` returns the keys that `block_hashes` does not hold yet;
    `session_id` names what the request is part of, to those who follow KV events.

    Raises:
        ValueError: as Request.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        mm_features: Sequence[MultiModalFeature] = (),
        lora_request: LoRARequest | None = None,
        cache_salt: str | None = None,
        prompt_embeds: PromptEmbeds | None = None,
        block_hasher: "Callable[[TokenRequest], list[bytes]] | None" = None,
        *,
        is_decoder: bool = False,
        session_id: str | None = None,
        zeroes_mixed: bool = False,
    ) -> None:
        super().__init__(request_id, len(prompt_token_ids), mm_features, is_decoder=is_decoder)
        self.prompt_token_ids = list(prompt_token_ids)
        self.session_id = session_id
        self.all_token_ids = list(prompt_token_ids)
        if prompt_embeds is not None:
            self.prompt_token_ids, self.all_token_ids = (
                prompt_embeds.token_ids(prompt_token_ids, zeroes_mixed=zeroes)
                for zeroes in (False, zeroes_mixed)
            )
        self.lora_request = lora_request
        self.cache_salt = cache_salt
        self.prompt_embeds = prompt_embeds
        self.block_hashes: list[bytes] = []
        self._block_hasher = block_hasher
        self.update_block_hashes()

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return len(self.all_token_ids)

    def append_output_token_ids(self, token_ids: Sequence[int]) -> None:
        """Tokens were decoded; keys of the blocks that they fill are added."""
        self.all_token_ids += token_ids
        self.update_block_hashes()

    def update_block_hashes(self) -> None:
        """Add the keys of full blocks that have none yet."""
        if self._block_hasher is not None:
            self.block_hashes += self._block_hasher(self)

    def rehash(self) -> None:
        """Make the keys of all full blocks anew."""
        self.block_hashes.clear()
        self.update_block_hashes()
