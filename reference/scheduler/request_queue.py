"""Waiting requests, in the order in which they are considered."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush

from cacheproof.reference.scheduled_request import ScheduledRequest


class RequestQueue(ABC):
    """A queue of requests; iterates in its order."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[ScheduledRequest]: ...

    @abstractmethod
    def add_request(self, request: ScheduledRequest) -> None:
        """A request arrives."""

    @abstractmethod
    def prepend_requests(self, requests: Sequence[ScheduledRequest]) -> None:
        """Requests come back, in this order, before all that wait."""

    @abstractmethod
    def peek_request(self) -> ScheduledRequest:
        """The first one. Raises IndexError when there is none."""

    @abstractmethod
    def pop_request(self) -> ScheduledRequest:
        """Take the first one. Raises IndexError when there is none."""

    @abstractmethod
    def remove_requests(self, requests: Collection[ScheduledRequest]) -> None:
        """Take these out, those of them that are in."""

    @abstractmethod
    def restore_order(self) -> None:
        """The urgency of a request that waits has changed."""


class FCFSRequestQueue(RequestQueue):
    """First come, first served."""

    def __init__(self) -> None:
        self._requests: deque[ScheduledRequest] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[ScheduledRequest]:
        return iter(self._requests)

    def add_request(self, request: ScheduledRequest) -> None:
        self._requests.append(request)

    def prepend_requests(self, requests: Sequence[ScheduledRequest]) -> None:
        self._requests.extendleft(reversed(requests))

    def peek_request(self) -> ScheduledRequest:
        return self._requests[0]

    def pop_request(self) -> ScheduledRequest:
        return self._requests.popleft()

    def remove_requests(self, requests: Collection[ScheduledRequest]) -> None:
        self._requests = deque(one for one in self._requests if one not in requests)

    def restore_order(self) -> None:
        """Nothing to do: places are kept."""


class PriorityRequestQueue(RequestQueue):
    """The most urgent request first, wherever it comes from: a binary heap."""

    def __init__(self) -> None:
        self._heap: list[ScheduledRequest] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[ScheduledRequest]:
        heap = self._heap[:]
        while heap:
            yield heappop(heap)

    def add_request(self, request: ScheduledRequest) -> None:
        heappush(self._heap, request)

    def prepend_requests(self, requests: Sequence[ScheduledRequest]) -> None:
        for request in reversed(requests):
            self.add_request(request)

    def peek_request(self) -> ScheduledRequest:
        return self._heap[0]

    def pop_request(self) -> ScheduledRequest:
        return heappop(self._heap)

    def remove_requests(self, requests: Collection[ScheduledRequest]) -> None:
        self._heap = [one for one in self._heap if one not in requests]
        heapify(self._heap)

    def restore_order(self) -> None:
        heapify(self._heap)


def create_request_queue(policy: str) -> RequestQueue:
    """The queue of a policy."""
    return PriorityRequestQueue() if policy == "priority" else FCFSRequestQueue()
