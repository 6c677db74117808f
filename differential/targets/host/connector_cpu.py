"""vLLM's ECCPUConnector: its real scheduler's side, its table and its region, and a played worker.

The real worker copies on a GPU's streams. The played one copies the same blocks at once, and
reports what it has copied with the step.
"""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm.distributed.ec_transfer.ec_connector import base
from vllm.distributed.ec_transfer.ec_connector.cpu.common import ECCPUWorkerMetadata
from vllm.distributed.ec_transfer.ec_connector.cpu.connector import ECCPUConnector

from .connector_engine import DEPTH_OF_STORE, Kit
from .connector_release import config_of, read
from .protocol import Event, Illegal


def kit(config: Event, model: Event, root: Path) -> Kit:
    """Both sides in an engine of that model. Raises Illegal of a store without a capacity, or with
    one that no row fits into."""
    row = model["width"] * getattr(torch, model["dtype"]).itemsize
    if config["capacity"] is None or config["capacity"] < row:
        raise Illegal(f"ECCPUConnector wants to have a number of bytes, at least {row}")
    vllm_config = config_of(ECCPUConnector, {"ec_cpu_bytes": config["capacity"]}, model)
    vllm_config.instance_id = f"{root.parents[DEPTH_OF_STORE].name}-{os.getpid()}"
    vllm_config.ec_transfer_config.mm_encoder_output_widths = {"image": model["width"]}
    scheduler = ECCPUConnector(vllm_config, base.ECConnectorRole.SCHEDULER)
    dtype = getattr(torch, model["dtype"])
    return Kit(
        scheduler,
        PlayedWorker(scheduler.connector_scheduler, dtype, model["width"]),
        lambda rows: torch.tensor(rows, dtype=dtype),
        read,
        lambda metadata: SimpleNamespace(
            ec_connector_worker_meta=ECCPUWorkerMetadata(
                completed_loads=[transfer for transfer, *_ in metadata.loads.values()]
            )
        ),
        pinned=lambda: _held(scheduler.connector_scheduler._cache, lambda one: one._pin_count > 0),
        saving=lambda _: _held(scheduler.connector_scheduler._cache, lambda one: not one.ready),
    )


def _held(table: Any, holds: Callable[[Any], bool]) -> set[str]:
    """Identifiers of the table's entries of which that holds."""
    return {name for name, entry in table._entries.items() if holds(entry)}


class PlayedWorker:
    """Copies between the region and the worker's store what each step's metadata says."""

    def __init__(self, delegate: Any, dtype: Any, width: int) -> None:
        self._blocks, self._dtype, self._width = delegate._region.blocks, dtype, width
        self._metadata: Any = None
        self._saved: list[str] = []
        self._loaded: list[int] = []

    def bind_connector_metadata(self, metadata: Any) -> None:
        """What the step is to do."""
        self._metadata = metadata

    def clear_connector_metadata(self) -> None:
        """The step is over."""
        self._metadata = None

    def start_save_caches(self, **_: Any) -> None:
        """Nothing is prepared."""

    def start_load_caches(self, encoder_cache: dict[str, Any], **_: Any) -> None:
        """Copy every load from its blocks."""
        for name, (transfer, blocks, *shape) in self._metadata.loads.items():
            data = self._blocks[torch.tensor(blocks)].reshape(-1).view(self._dtype)
            rows, width = shape[0] if shape else (len(blocks), self._width)
            encoder_cache[name] = data[: rows * width].reshape(rows, width).clone()
            self._loaded.append(transfer)

    def save_caches(self, encoder_cache: dict[str, Any], mm_hash: str, **_: Any) -> None:
        """Copy what was encoded to its blocks."""
        blocks = self._metadata.saves.get(mm_hash)
        if blocks is None:
            return
        data = encoder_cache[mm_hash].contiguous().view(torch.int8).reshape(-1)
        held = self._blocks[torch.tensor(blocks)].reshape(-1)
        assert len(data) <= len(held), f"{len(data)} bytes for {len(held)}"
        held[: len(data)] = data
        self._blocks[torch.tensor(blocks)] = held.reshape(len(blocks), -1)
        self._saved.append(mm_hash)

    def get_finished(self, _: set[str]) -> tuple[None, None]:
        """Nothing is told of requests."""
        return None, None

    def build_connector_worker_meta(self) -> Any:
        """What was copied in the step."""
        told = ECCPUWorkerMetadata(completed_saves=self._saved, completed_loads=self._loaded)
        self._saved, self._loaded = [], []
        return told

    def shutdown(self) -> None:
        """The region is the scheduler's."""
