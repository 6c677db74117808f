"""Requests, their items, and where they stand with a scheduler."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class PlaceholderRange(Protocol):
    """`vllm.multimodal.inputs.PlaceholderRange`: where an item's tokens stand in the prompt."""

    offset: int
    length: int
    is_embed: "Tensor | None"


class VllmDataclass(Protocol):
    """A dataclass of vLLM's, of which `dataclasses.replace` makes another."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class MultiModalFeatureSpec(VllmDataclass, Protocol):
    """`vllm.multimodal.inputs.MultiModalFeatureSpec`: an item of a request, from 0.10.2 on.

    data: what the processor made of it; None where it stays behind.
    """

    identifier: str
    mm_position: PlaceholderRange
    data: Sequence[object] | None


class RequestStatus(Protocol):
    """`vllm.v1.request.RequestStatus`, an enumeration."""

    RUNNING: ClassVar["RequestStatus"]

    @property
    def name(self) -> str: ...


class LoRARequest(Protocol):
    """`vllm.lora.request.LoRARequest`; the host makes it, and hands it on."""


class NamedFeature(Protocol):
    """What encoder cache managers read of a `Feature`."""

    @property
    def identifier(self) -> str: ...


class CachedRequest(Protocol):
    """What encoder cache managers read of a `vllm.v1.request.Request`; the host makes one of its
    own for them.

    mm_features: from 0.10.2 on; before, `mm_hashes` and `mm_positions` side by side.
    """

    request_id: str

    @property
    def mm_features(self) -> Sequence[NamedFeature]: ...
    @property
    def mm_hashes(self) -> Sequence[str]: ...


class Request(CachedRequest, Protocol):
    """`vllm.v1.request.Request`.

    mm_positions: up to 0.10.1.1.
    num_preemptions: in 0.13.0, not yet in 0.11.0.
    resumable, streaming_queue: from 0.15.0 on.
    num_in_flight_tokens, shared_prefix_boundary: from 0.26.0 on.
    """

    status: RequestStatus
    priority: int
    arrival_time: float
    prompt_token_ids: list[int] | None
    block_hashes: list[bytes]
    num_computed_tokens: int
    num_in_flight_tokens: int
    num_preemptions: int
    shared_prefix_boundary: int
    cache_salt: str | None
    lora_request: LoRARequest | None
    resumable: bool

    @property
    def mm_features(self) -> Sequence[MultiModalFeatureSpec]: ...
    @property
    def mm_positions(self) -> Sequence[PlaceholderRange]: ...
    @property
    def all_token_ids(self) -> Sequence[int]: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_output_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def streaming_queue(self) -> Iterable[object]: ...
    def append_output_token_ids(self, token_ids: list[int], /) -> None: ...


BlockHasher = Callable[[Any], list[bytes]]
"""What `kv_cache_utils.get_request_block_hasher` makes: the keys that a request lacks, a release's
or the reference's."""
