"""What the scheduler asks of a connector to encoder outputs that exist elsewhere."""

from collections.abc import Set
from typing import Any, Protocol

from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.output import SchedulerOutput


class EncoderCacheConnector(Protocol):
    """Stands for vLLM's ECConnectorBase in its scheduler's role: same methods, same moments."""

    def has_cache_item(self, identifier: str) -> bool:
        """Whether the output can be loaded in this step."""

    def ensure_cache_available(self, request: ScheduledRequest, num_computed_tokens: int) -> bool:
        """False while an output that the request needs behind those tokens is on its way."""

    def update_state_after_alloc(self, request: ScheduledRequest, index: int) -> None:
        """The item has slots in the encoder cache; if it can be loaded, it is."""

    def take_unavailable_requests(self) -> Set[str]:
        """Requests that have waited for an output that can never come."""

    def request_finished(self, request: ScheduledRequest) -> Any:
        """The request has ended, and still holds what it holds."""

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> Any:
        """What the workers are told about this step's loads."""
