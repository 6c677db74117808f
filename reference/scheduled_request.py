"""A request as the KV cache manager sees it: its tokens, and how far its computation is."""

from enum import Enum
from typing import Any

from cacheproof.reference.request import TokenRequest


class RequestStatus(Enum):
    """Where a request stands with the scheduler."""

    WAITING = "waiting"
    WAITING_FOR_REMOTE_KVS = "loading"
    RUNNING = "running"
    PREEMPTED = "preempted"


class ScheduledRequest(TokenRequest):
    """A request between arrival and end; arguments as TokenRequest.

    Attributes:
        status: where it stands.
        num_computed_tokens: tokens whose KV exists or is being computed.
        num_in_flight_tokens: those of them in steps whose output is outstanding.
        num_preemptions: how often it lost its blocks.
        skip_reading_prefix_cache: whether it computes all of its prompt itself.
        shared_prefix_boundary: tokens that another group would have hit, 0 when none would.
    """

    def __init__(self, *args: Any, skip_reading_prefix_cache: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.num_preemptions = 0
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.shared_prefix_boundary = 0
