"""Waiting requests, in the order in which they are considered."""

from abc import ABC, abstractmethod
from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter

from cacheproof.reference.scheduled_request import ScheduledRequest

_URGENCY = attrgetter("urgency")


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


class PriorityRequestQueue(RequestQueue):
    """The most urgent request first, wherever it comes from."""

    def __init__(self) -> None:
        self._requests: list[ScheduledRequest] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[ScheduledRequest]:
        return iter(self._requests)

    def add_request(self, request: ScheduledRequest) -> None:
        insort(self._requests, request, key=_URGENCY)

    def prepend_requests(self, requests: Sequence[ScheduledRequest]) -> None:
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> ScheduledRequest:
        return self._requests[0]

    def pop_request(self) -> ScheduledRequest:
        return self._requests.pop(0)

    def remove_requests(self, requests: Collection[ScheduledRequest]) -> None:
        self._requests = [one for one in self._requests if one not in requests]


def create_request_queue(policy: str) -> RequestQueue:
    """The queue of a policy."""
    return PriorityRequestQueue() if policy == "priority" else FCFSRequestQueue()
