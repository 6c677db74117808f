"""vLLM's ECCPUConnector: its real scheduler's side, its table and its region, and played workers.

The real worker copies on a GPU's streams, while steps go on. In the played one what is loaded is
there at once, as a step waits for it; what is saved is in the region when the copy ends, and a copy
is reported when it has ended. Where an engine has several ranks the first is never late to load.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import torch
from vllm.distributed.ec_transfer.ec_connector import base
from vllm.distributed.ec_transfer.ec_connector.cpu.common import ECCPUWorkerMetadata
from vllm.distributed.ec_transfer.ec_connector.cpu.connector import ECCPUConnector

from ..protocol import Event, Illegal
from ..vllm_objects.kv_cache import CacheEntry, EmbeddingCache
from ..vllm_objects.worker import EncoderOutputs
from .engine import DEPTH_OF_STORE, Kit, row_width
from .release import config_of, read


def kit(config: Event, model: Event, root: Path) -> Kit:
    """Both sides of the connector in an engine of that model. Raises Illegal for a store without a
    capacity, or with one that holds no row."""
    width = row_width(model)
    row = width * getattr(torch, model["dtype"]).itemsize
    if config["capacity"] is None or config["capacity"] < row:
        raise Illegal(f"ECCPUConnector wants to have a number of bytes, at least {row}")
    vllm_config = config_of(ECCPUConnector, {"ec_cpu_bytes": config["capacity"]}, model)
    vllm_config.instance_id = f"{root.parents[DEPTH_OF_STORE].name}-{os.getpid()}"
    vllm_config.ec_transfer_config.mm_encoder_output_widths = {"image": width}
    parallel, ranks = vllm_config.parallel_config, config["ranks"]
    if ranks > 1:
        parallel.world_size = parallel.tensor_parallel_size = ranks
        parallel.distributed_executor_backend = "mp"
    scheduler = ECCPUConnector(vllm_config, base.ECConnectorRole.SCHEDULER)
    dtype = getattr(torch, model["dtype"])
    workers = PlayedWorkers(scheduler.connector_scheduler, dtype, width, ranks)
    return Kit(
        scheduler,
        workers,
        lambda rows: torch.tensor(rows, dtype=dtype),
        read,
        lambda metadata: SimpleNamespace(
            ec_connector_worker_meta=ECCPUWorkerMetadata(
                completed_loads=[transfer for transfer, *_ in metadata.loads.values()] * ranks
            )
        ),
        pinned=lambda: _held(scheduler.connector_scheduler._cache, lambda one: one._pin_count > 0),
        saving=lambda _: _held(scheduler.connector_scheduler._cache, lambda one: not one.ready),
        copies=workers,
    )


def _held(table: EmbeddingCache, holds: Callable[[CacheEntry], bool]) -> set[str]:
    """Identifiers of the table's entries for which `holds` is true."""
    return {name for name, entry in table._entries.items() if holds(entry)}


class ECSharedRegion(Protocol):
    """vLLM's class of that name: shared memory, in blocks of bytes."""

    blocks: torch.Tensor


class ECCPUScheduler(Protocol):
    """vLLM's class of that name: the side of `ECCPUConnector` that plans."""

    _region: ECSharedRegion
    _cache: EmbeddingCache


Where = list[Any]
"""Blocks of an entry, and in later releases the shape of its rows."""


class ECCPUConnectorMetadata(Protocol):
    """vLLM's class of that name: what workers copy in a step.

    loads: by identifier the number of the transfer, and where the rows are.
    saves: blocks by identifier.
    """

    loads: Mapping[str, tuple[int, *tuple[Any, ...]]]
    saves: Mapping[str, list[int]]


class Saving(NamedTuple):
    """Rows on their way to their blocks, as bytes, and the step with which they arrive."""

    due: int
    name: str
    data: torch.Tensor
    blocks: list[int]


class Loading(NamedTuple):
    """A load, as the step's metadata describes it; the steps that begin and end it."""

    began: int
    due: int
    name: str
    transfer: int
    rest: Where


class PlayedWorkers:
    """Workers that copy between the region and their store what each step's metadata says."""

    def __init__(
        self, delegate: ECCPUScheduler, dtype: torch.dtype, width: int, ranks: int
    ) -> None:
        self._blocks, self._dtype, self._width = delegate._region.blocks, dtype, width
        self._metadata: ECCPUConnectorMetadata | None = None
        self._step = self._late = 0
        self._saves: deque[Saving] = deque()
        self._loads: list[deque[Loading]] = [deque() for _ in range(ranks)]
        self._ended: list[tuple[str, torch.Tensor | None]] = []

    @property
    def are_under_way(self) -> bool:
        """Whether a copy is not reported yet."""
        return bool(self._saves) or any(self._loads)

    def delay(self, late: int) -> None:
        """Begin a step, whose copies end `late` steps later, and after those of earlier steps."""
        self._step += 1
        self._late = late

    def ended(self) -> list[tuple[str, torch.Tensor | None]]:
        """The loads that all ranks have reported with this step, each with what the last rank has
        read where that is later than the load's step."""
        ended, self._ended = self._ended, []
        return ended

    def bind_connector_metadata(self, metadata: ECCPUConnectorMetadata) -> None:
        """Take the step's metadata, which says what to copy."""
        self._metadata = metadata

    def clear_connector_metadata(self) -> None:
        """End the step."""
        self._metadata = None

    def start_save_caches(self, **_: object) -> None:
        """Do nothing: nothing is to be prepared."""

    def start_load_caches(self, encoder_cache: EncoderOutputs, **_: object) -> None:
        """Begin every load; this step waits for them."""
        assert self._metadata is not None
        for name, (transfer, *rest) in self._metadata.loads.items():
            encoder_cache[name] = self._read(*rest)
            for rank, loads in enumerate(self._loads):
                late = self._late if rank or len(self._loads) == 1 else 0
                loads.append(Loading(self._step, self._step + late, name, transfer, rest))

    def _read(self, blocks: list[int], shape: tuple[int, int] | None = None) -> torch.Tensor:
        """Rows from their blocks; in releases that do not say a shape, a row is a block."""
        data = self._blocks[torch.tensor(blocks)].reshape(-1).view(self._dtype)
        rows, width = shape or (len(blocks), self._width)
        return data[: rows * width].reshape(rows, width).clone()

    def save_caches(self, encoder_cache: EncoderOutputs, mm_hash: str, **_: object) -> None:
        """Begin to copy the item's rows to its blocks."""
        assert self._metadata is not None
        blocks = self._metadata.saves.get(mm_hash)
        if blocks is None:
            return
        data = encoder_cache[mm_hash].contiguous().view(torch.int8).reshape(-1).clone()
        held = len(blocks) * self._blocks.shape[-1]
        assert len(data) <= held, f"{len(data)} bytes for {held}"
        self._saves.append(Saving(self._step + self._late, mm_hash, data, blocks))

    def _write(self, saving: Saving) -> None:
        held = self._blocks[torch.tensor(saving.blocks)].reshape(-1)
        held[: len(saving.data)] = saving.data
        self._blocks[torch.tensor(saving.blocks)] = held.reshape(len(saving.blocks), -1)

    def get_finished(self, _: set[str]) -> tuple[None, None]:
        """Nothing: no request is reported."""
        return None, None

    def build_connector_worker_meta(self) -> ECCPUWorkerMetadata | None:
        """The report of all ranks' copies that end with this step; None where there is none."""
        told = None
        for loads in self._loads:
            ended = []
            while loads and loads[0].due <= self._step:
                one = loads.popleft()
                ended.append(one.transfer)
                self._note(one)
            if ended:
                report = ECCPUWorkerMetadata(completed_loads=ended)
                told = report if told is None else told.aggregate(report)
        saved = []
        while self._saves and self._saves[0].due <= self._step:
            self._write(self._saves[0])
            saved.append(self._saves.popleft().name)
        if saved:
            report = ECCPUWorkerMetadata(completed_saves=saved)
            told = report if told is None else told.aggregate(report)
        return told

    def _note(self, loading: Loading) -> None:
        """Note that a rank has loaded: with the last rank the load has ended."""
        if any(one.transfer == loading.transfer for loads in self._loads for one in loads):
            return
        rows = self._read(*loading.rest) if loading.began < self._step else None
        self._ended.append((loading.name, rows))

    def shutdown(self) -> None:
        """Do nothing: the region is the scheduler's."""
