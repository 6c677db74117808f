"""A host that plays engines with LMCache's connector of encoder caches, and does nothing else.

Started as `PYTHON <this folder> host.connectors.lmcache` with LMCache and a release of vLLM
importable. LMCache has no class of vLLM's own base: the one here forwards, as its users write it.
"""

import asyncio
import functools
import importlib
import os
import tempfile
import time
from collections.abc import Hashable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from vllm.distributed.ec_transfer.ec_connector import base

from ..protocol import Event, HostError, Illegal
from ..vllm_objects.worker import EncoderOutputs
from .alone import ConnectorAlone
from .engine import Kit
from .faults import CONNECTOR_FAULTS
from .release import of_class
from .store import LMCACHE_SERVER, SERVER

PLACES = ("lmcache", "lmcache.inprocess")
"""Packages in which LMCache's in-process modules have been."""
POOL_GIB = 0.01
"""GiB of memory for each side; LMCache's disk has as much."""
SETTLE_SECONDS = 5.0
"""A save of a few rows that takes longer does not end."""


os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", os.path.join(tempfile.gettempdir(), "metrics"))


def module(name: str) -> Any:
    """A module of LMCache, wherever it is in this version."""
    for place in PLACES:
        try:
            return importlib.import_module(f"{place}.{name}")
        except ModuleNotFoundError:
            continue
    raise HostError(f"LMCache {metadata.version('lmcache')} has no {name}")


IMPLEMENTATION = module("integration.vllm.vllm_ec_adapter").LMCacheECConnectorImpl


class StorageManager(Protocol):
    """LMCache's `StorageManager`: what it stores in, by name; these are told apart by what they
    have."""

    storage_backends: Mapping[str, object]


class StoreEngine(Protocol):
    """LMCache's engine of an encoder cache, one on each side."""

    _storage_manager: StorageManager

    def _make_cache_key(self, name: str, /) -> Hashable: ...


class LMCacheHost(ConnectorAlone):
    """Runs traces for connectors on LMCache's connector."""

    def __init__(self) -> None:
        super().__init__(kit, metadata.version("lmcache"))


class Forwarding(base.ECConnectorBase):  # type: ignore[misc]
    """A connector that forwards vLLM's calls to LMCache's implementation."""

    def __init__(self, vllm_config: SimpleNamespace, role: base.ECConnectorRole) -> None:
        super().__init__(vllm_config, role)
        self.implementation = IMPLEMENTATION(vllm_config, role, self)

    def has_cache_item(self, identifier: str) -> bool:
        promised: bool = self.implementation.has_cache_item(identifier)
        return promised

    def update_state_after_alloc(self, request: SimpleNamespace, index: int) -> None:
        self.implementation.update_state_after_alloc(request, index)

    def build_connector_meta(self, scheduler_output: SimpleNamespace) -> object:
        return self.implementation.build_connector_meta(scheduler_output)

    def start_load_caches(self, encoder_cache: EncoderOutputs, **kwargs: object) -> None:
        self.implementation.start_load_caches(encoder_cache, **kwargs)

    def save_caches(self, encoder_cache: EncoderOutputs, mm_hash: str, **kwargs: object) -> None:
        self.implementation.save_caches(encoder_cache, mm_hash, **kwargs)

    def shutdown(self) -> None:
        self.implementation.close()


def kit(config: Event, model: Event, weights: int, root: Path, fault: str | None) -> Kit:
    """Both sides in an engine of that model, each with its own storage, as LMCache has them."""
    settings = {
        "CHUNK_SIZE": 16,
        "LOCAL_CPU": True,
        "MAX_LOCAL_CPU_SIZE": POOL_GIB,
        "LOG_LEVEL": "ERROR",
    }
    if config["store"] == "disk":
        settings |= {"LOCAL_DISK": f"{root}/", "MAX_LOCAL_DISK_SIZE": POOL_GIB}
    elif config["store"] == "remote":
        settings |= {"REMOTE_URL": f"fs://host:0{root}/", "REMOTE_SERDE": "naive"}
    elif config["store"] in (SERVER, LMCACHE_SERVER):
        settings |= {"REMOTE_URL": config["url"], "REMOTE_SERDE": "naive"}
    elif config["store"] != "cpu":
        raise Illegal(f"LMCache is not played with a store {config['store']!r}")
    if config["capacity"] is not None:
        raise Illegal("LMCache measures its room in GB: a capacity says nothing to it")
    if config["ranks"] > 1:
        raise Illegal("LMCache is played with one rank alone")
    os.environ |= {f"LMCACHE_{name}": str(value) for name, value in settings.items()}
    made = of_class(Forwarding, {}, model, ranks=1)
    sides: list[StoreEngine] = [
        vars(side)["implementation"]._ec_engine for side in (made.scheduler, made.worker)
    ]
    made = made._replace(
        settle=functools.partial(_settle, sides),
        saving=lambda names: {
            name for name in names for side in sides if side._make_cache_key(name) in _saves(side)
        },
    )
    if fault is not None:
        CONNECTOR_FAULTS[fault](made, root)
    return made


def _settle(engines: list[StoreEngine]) -> None:
    """Wait until nothing is written in the background, but for saves that have not ended before."""
    until = time.monotonic() + SETTLE_SECONDS
    while any(_saves(engine) - _endless for engine in engines):
        if time.monotonic() > until:
            _endless.update(key for engine in engines for key in _saves(engine))
        time.sleep(0.0005)
    while any(map(_jobs, engines)) and time.monotonic() < until:
        time.sleep(0.0005)
    for engine in engines:
        for _, connector in _connectors(engine):
            if type(connector).__name__ == "LMCServerConnector":  # it does not answer a save
                connector.exists_sync(engine._make_cache_key("what was sent before this"))


_endless: set[Hashable] = set()


def _saves(engine: StoreEngine) -> set[Hashable]:
    """Keys that are being saved."""
    backends = engine._storage_manager.storage_backends.values()
    tasks = [getattr(one, "disk_worker", one) for one in backends]
    return {key for one in tasks for key in list(getattr(one, "put_tasks", ()))}


def _jobs(engine: StoreEngine) -> int:
    """How many writes to a server are under way, of which no key is kept."""
    count = 0
    for backend, connector in _connectors(engine):
        executor = getattr(connector, "pq_executor", None)
        if executor is not None:
            begun = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), backend.loop)
            begun.result(SETTLE_SECONDS)  # what was handed to the loop before is in its queue
            count += executor._queue._unfinished_tasks
    return count


def _connectors(engine: StoreEngine) -> Iterator[tuple[Any, Any]]:
    """An engine's remote backends, each with what speaks to the server."""
    for backend in engine._storage_manager.storage_backends.values():
        connection = getattr(backend, "connection", None)
        if connection is not None:
            yield backend, getattr(connection, "_connector", connection)


HOST = LMCacheHost
