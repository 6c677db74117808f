"""Faults in the block tables of requests that come back after a preemption."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.scheduler.output import SchedulerOutput

Tables = tuple[list[int], ...]
"""The blocks of a request, by group."""


def change_resumed(runner: "Runner", change: Callable[[Tables, Tables], Tables]) -> None:
    """Let a request that comes back have what `change` makes of its tables before and now."""
    apply = runner.batch.apply

    def stale(step: "SchedulerOutput") -> None:
        old = {name: one.block_ids for name, one in runner.batch.requests.items()}
        apply(step)
        for name in step.scheduled_cached_reqs.resumed_req_ids & old.keys():
            request = runner.batch.requests[name]
            request.block_ids = change(old[name], request.block_ids)

    runner.batch.apply = stale
