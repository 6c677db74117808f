"""How long KV blocks keep their content, and how often it is taken up again: a sample of them."""

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

REUSES_REMEMBERED = 4
NANOSECONDS = 1e9


class MeasuredBlock(Protocol):
    """A block, as far as the metrics look at it."""

    block_id: int


@dataclass(frozen=True)
class KVCacheEvictionEvent:
    """A block's content was evicted: how long it lived, how long unused at the end, and the gaps
    between its last reuses, in seconds."""

    lifetime_seconds: float
    idle_seconds: float
    reuse_gaps_seconds: tuple[float, ...]


@dataclass
class _Residency:
    birth: int
    last_access: int
    accesses: deque[int] = field(default_factory=lambda: deque(maxlen=REUSES_REMEMBERED))


class KVCacheMetricsCollector:
    """Stands in for vLLM's class of the same name; `clock` is in nanoseconds, `draw` in [0, 1).

    Raises:
        ValueError: a sample rate that is not above 0 and at most 1.
    """

    def __init__(
        self,
        sample_rate: float = 0.01,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if not 0 < sample_rate <= 1:
            raise ValueError(f"sample rate {sample_rate}; expected above 0 and at most 1")
        self.sample_rate = sample_rate
        self._clock = clock
        self._draw = draw
        self._residencies: dict[int, _Residency] = {}
        self._gone: list[KVCacheEvictionEvent] = []

    def on_block_allocated(self, block: MeasuredBlock) -> None:
        """The block is handed out for new content, which is measured if the draw says so."""
        if self._draw() < self.sample_rate:
            now = self._clock()
            self._residencies[block.block_id] = _Residency(now, now)

    def on_block_accessed(self, block: MeasuredBlock) -> None:
        """The block's content is hit."""
        residency = self._residencies.get(block.block_id)
        if residency is not None:
            residency.last_access = self._clock()
            residency.accesses.append(residency.last_access)

    def on_block_evicted(self, block: MeasuredBlock) -> None:
        """The block's content is evicted."""
        residency = self._residencies.pop(block.block_id, None)
        if residency is None:
            return
        now, accesses = self._clock(), list(residency.accesses)
        self._gone.append(
            KVCacheEvictionEvent(
                (now - residency.birth) / NANOSECONDS,
                (now - residency.last_access) / NANOSECONDS,
                tuple((later - earlier) / NANOSECONDS for earlier, later in pairwise(accesses)),
            )
        )

    def reset(self) -> None:
        """Forget everything: the cache is reset."""
        self._residencies.clear()
        self._gone.clear()

    def drain_events(self) -> list[KVCacheEvictionEvent]:
        """Contents evicted since the last call."""
        gone, self._gone = self._gone, []
        return gone
