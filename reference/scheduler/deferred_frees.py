"""KV blocks that a step in flight still writes, and whose request has given them back.

The step and whoever gets the blocks next are in order as long as both run on the device. A load
from elsewhere is not: it could be written before the step is done. So, where KV can be loaded, such
blocks are given back when the steps are.
"""

from collections import deque

from cacheproof.reference.block_pool import KVCacheBlock
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.scheduled_request import ScheduledRequest


class DeferredFrees:
    """Gives blocks back at once or, where it `defers`, after the steps that have tokens."""

    def __init__(self, kv_cache_manager: KVCacheManager, *, defers: bool) -> None:
        self._manager = kv_cache_manager
        self._defers = defers
        self._num_scheduled = 0
        self._num_processed = 0
        self._waiting: deque[tuple[int, list[KVCacheBlock]]] = deque()

    def __len__(self) -> int:
        """How many requests' blocks wait."""
        return len(self._waiting)

    def step_scheduled(self) -> int:
        """Count a step that is on its way; returns its number."""
        self._num_scheduled += 1
        return self._num_scheduled

    def step_processed(self) -> None:
        """Count the oldest step in flight as done, and give back what waited for it."""
        self._num_processed += 1
        # outputs arrive in the order of steps, so what waits first is free first
        while self._waiting and self._waiting[0][0] <= self._num_processed:
            _, blocks = self._waiting.popleft()
            self._manager.block_pool.free_blocks(reversed(blocks))

    def can_free(self, request: ScheduledRequest) -> bool:
        """Whether no step in flight writes the request's blocks, or nobody cares."""
        return not self._defers or request.last_step <= self._num_processed

    def free(self, request: ScheduledRequest) -> None:
        """The request gives its blocks back."""
        if self.can_free(request):
            self._manager.free(request)
        elif blocks := self._manager.pop_blocks_for_free(request):
            self._waiting.append((self._num_scheduled, blocks))
