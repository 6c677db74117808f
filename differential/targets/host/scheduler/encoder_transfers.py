"""The answers of a connector to encoder outputs elsewhere: the trace says them, not chance.

It knows nothing of the local cache. It tells what is to be loaded as vLLM's own connectors do, from
what is allocated and can be had elsewhere at that moment.
"""

from ..protocol import Json
from ..vllm_objects.requests import Request


class EncoderTransfers:
    """The scheduler's side of a connector whose every answer is written down in the trace.

    Methods are those that any release asks for. A request waits while an output that it still needs
    is on its way, and when that has failed to come until the scheduler ends it. At most one request
    a step is named as such, so that the order in which several would end is nobody's choice.
    """

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._waiters: dict[str, set[str]] = {}
        self._unavailable: list[str] = []
        self._loads: dict[str, list[int]] = {}
        self._awaiting: set[str] = set()

    def transfer(self, identifier: str, state: str) -> list[str]:
        """Make an output `pending`, `ready` or `gone` from now on, or `failed`. Returns the
        requests that have waited in vain."""
        self._states[identifier] = state
        waiters = self._waiters.pop(identifier, set())
        disappointed = sorted(waiters - set(self._unavailable)) if state == "failed" else []
        self._unavailable += disappointed
        return disappointed

    def has_cache_item(self, identifier: str) -> bool:
        return self._states.get(identifier) == "ready"

    def has_caches(self, request: Request) -> list[bool]:
        return [self.has_cache_item(feature.identifier) for feature in request.mm_features]

    def ensure_cache_available(self, request: Request, num_computed_tokens: int) -> bool:
        awaited = {
            feature.identifier
            for feature in request.mm_features
            if feature.mm_position.offset + feature.mm_position.length > num_computed_tokens
            and self._states.get(feature.identifier) == "pending"
        }
        for identifier in awaited:
            self._waiters.setdefault(identifier, set()).add(request.request_id)
        waits = bool(awaited) or request.request_id in self._unavailable
        if waits:
            self._awaiting.add(request.request_id)
        return not waits

    def update_state_after_alloc(self, request: Request, index: int) -> None:
        if self.has_cache_item(request.mm_features[index].identifier):
            self._loads.setdefault(request.request_id, []).append(index)

    def take_unavailable_requests(self) -> set[str]:
        return {self._unavailable.pop(0)} if self._unavailable else set()

    def request_finished(self, request: Request) -> tuple[bool, None]:
        for waiters in self._waiters.values():
            waiters.discard(request.request_id)
        if request.request_id in self._unavailable:
            self._unavailable.remove(request.request_id)
        return False, None

    def build_connector_meta(self, scheduler_output: object) -> dict[str, Json]:
        """What the worker is to load in this step, by request, and which requests had to wait."""
        told: dict[str, Json] = {"loads": self._loads, "awaiting": sorted(self._awaiting)}
        self._loads, self._awaiting = {}, set()
        return told
