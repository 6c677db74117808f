"""What the scheduler asks of connectors: to encoder outputs, and to KV, that exist elsewhere."""

from collections.abc import Sequence, Set
from typing import Protocol

from cacheproof.reference.kv_cache_manager import KVCacheBlocks
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.output import SchedulerOutput


class EncoderCacheConnector(Protocol):
    """Stands for vLLM's ECConnectorBase in its scheduler's role: same methods, same moments."""

    def has_cache_item(self, identifier: str) -> bool:
        """Whether the encoder output can be loaded in this step."""

    def ensure_cache_available(self, request: ScheduledRequest, num_computed_tokens: int) -> bool:
        """False while an output that the request needs behind those tokens is on its way."""

    def update_state_after_alloc(self, request: ScheduledRequest, index: int) -> None:
        """The item has slots in the encoder cache; if it can be loaded, it is."""

    def take_unavailable_requests(self) -> Set[str]:
        """Requests that have waited for an output that can never come."""

    def request_finished(self, request: ScheduledRequest) -> object:
        """The request has ended, and still holds what it holds."""

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> object:
        """What the workers are told about this step's loads."""


class KVConnector(Protocol):
    """Stands for vLLM's KVConnectorBase_V1 in its scheduler's role: same methods, same moments."""

    def get_num_new_matched_tokens(
        self, request: ScheduledRequest, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """How many tokens behind those can be had elsewhere, None while nobody knows; and whether
        they are loaded later, not within the step."""

    def update_state_after_alloc(
        self, request: ScheduledRequest, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        """The request has these blocks, into which so many tokens behind its hit are loaded."""

    def request_finished(
        self, request: ScheduledRequest, block_ids: Sequence[int]
    ) -> tuple[bool, object]:
        """The request has ended. True: its blocks are kept until they have been sent."""

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> object:
        """What the workers are told about this step's transfers."""
