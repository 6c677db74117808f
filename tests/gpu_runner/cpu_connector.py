"""The release's ECCPUConnector for an engine on CPUs: an out-of-tree class, `OnCpu`.

The scheduler's side, its table, its region and the worker's side are the release's own. Replaced is
what a CPU lacks: events with a time, memory that is held for a stream (a CPU's streams do nothing),
and the copy itself, which vLLM's CPU build does not have. A copy is done at once, so that an
event has always fired. Under the first model runner the constructor's refusal of it is left out.

With `pins` in its settings, what `has_cache_item` promises is pinned until the step's metadata is
built: the way out that faults/promise-evicted suggests.
"""

import ctypes
from typing import Any

import torch
from vllm.distributed.ec_transfer.ec_connector import base
from vllm.distributed.ec_transfer.ec_connector.cpu import worker
from vllm.distributed.ec_transfer.ec_connector.cpu.connector import ECCPUConnector
from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler import ECCPUScheduler


class Fired(torch.cpu.Event):  # type: ignore[misc]
    """An event of a copy that is over."""

    def elapsed_time(self, _: Any) -> float:
        """Milliseconds."""
        return 0.0


def _copy(sources: Any, destinations: Any, sizes: Any, **_: Any) -> None:
    for source, destination, size in zip(
        sources.tolist(), destinations.tolist(), sizes.tolist(), strict=True
    ):
        ctypes.memmove(destination, source, size)


class Worker(worker.ECCPUWorker):  # type: ignore[misc]
    """The release's worker with events of a CPU."""

    def _acquire_event(self) -> Fired:
        return Fired()


class Pinning(ECCPUScheduler):  # type: ignore[misc]
    """A scheduler's side that evicts nothing it has promised in the step."""

    def __init__(self, vllm_config: Any) -> None:
        super().__init__(vllm_config)
        self._promised: set[str] = set()

    def has_cache_item(self, identifier: str) -> bool:
        """Promise, and pin."""
        there = super().has_cache_item(identifier)
        if there and identifier not in self._promised:
            self._cache.pin(identifier)
            self._promised.add(identifier)
        return bool(there)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """A load has a pin of its own by now."""
        for identifier in self._promised:
            self._cache.unpin(identifier)
        self._promised.clear()
        return super().build_connector_meta(scheduler_output)


class OnCpu(ECCPUConnector):  # type: ignore[misc]
    """ECCPUConnector, whose worker runs on CPUs."""

    def __init__(self, vllm_config: Any, role: Any) -> None:
        if vllm_config.use_v2_model_runner:
            super().__init__(vllm_config, role)
            return
        base.ECConnectorBase.__init__(self, vllm_config=vllm_config, role=role)
        self.connector_worker = self.connector_scheduler = None
        if role == base.ECConnectorRole.WORKER:
            self.connector_worker = self._make_worker(vllm_config)
        else:
            self.connector_scheduler = self._make_scheduler(vllm_config)

    def _make_worker(self, vllm_config: Any) -> Worker:
        worker.swap_blocks_batch = _copy
        torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign]
        return Worker(vllm_config)

    def _make_scheduler(self, vllm_config: Any) -> ECCPUScheduler:
        pins = vllm_config.ec_transfer_config.get_from_extra_config("pins", False)
        return (Pinning if pins else ECCPUScheduler)(vllm_config)
