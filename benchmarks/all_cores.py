"""A search in lockstep on all cores, as the commands run it: each worker a host and a judge."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import work
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.seeded import SearchOutcome
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.work.workers import Crew, count

PART_SEEDS = 20


class LockstepOnAllCores:
    """Workers that search lanes of one release, the reference beside it; to be closed."""

    def __init__(self, target: HostTarget, lanes: Sequence[Lane], seeds: Sequence[int]) -> None:
        self._target = target
        self._reference = reference_for(target)
        self._elsewhere = target.another()
        self._lanes = lanes
        self._parts = [
            work.SearchTask(lane, seeds[first : first + PART_SEEDS], kept_per_break=1)
            for first in range(0, len(seeds), PART_SEEDS)
            for lane in lanes
        ]
        target.prepare()
        self._crew = Crew(count(None), work.begin, target, self._elsewhere, True, load())
        self.round()  # workers and hosts start with their first parts

    def round(self) -> SearchOutcome:
        """All seeds of all lanes, `seconds` of wall time."""
        target, compared = self._target, self._reference is not None
        outcome = SearchOutcome.begun(target.name, target.release, self._lanes, compared=compared)
        started = time.monotonic()
        begun: list[Future[Any]] = [self._crew.submit(work.work, part) for part in self._parts]
        for part in begun:
            outcome.merge(part.result(), 0.0, 1)
        outcome.seconds = time.monotonic() - started
        assert not outcome.harness_errors, outcome.harness_errors
        return outcome

    def close(self) -> None:
        self._crew.close()
        self._elsewhere.close()
        self._target.close()
