"""The vLLM release in this interpreter: what it is, and how to run a batch of traces on it."""

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import vllm
from vllm.v1.core import encoder_cache_manager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from .manager_depth import ManagerSession
from .protocol import HostError, Illegal, Protocol
from .scheduler_depth import SchedulerSession, modelled_functions
from .session import run_events

CLASSES = {
    "encoder_cache": "EncoderCacheManager",
    "encoder_decoder": "EncoderDecoderCacheManager",
}


class Release:
    """Runs traces on the managers of this vLLM, or on a plug-in's in their place."""

    def __init__(self) -> None:
        if os.environ.get("PYTHONHASHSEED") != "0":
            raise HostError("PYTHONHASHSEED must be 0: set order would differ between runs")
        self.protocol = Protocol.detect(
            encoder_cache_manager.EncoderCacheManager, Request, Scheduler
        )

    def hello(self) -> dict[str, Any]:
        """Versions, protocol flags and digests of the modelled functions."""
        return {
            "python": sys.version.split()[0],
            "vllm": vllm.__version__,
            "protocol": self.protocol._asdict(),
            "sources": {name: _digest(function) for name, function in modelled_functions()},
        }

    def run(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """One result per trace of the batch."""
        plug_in = request.get("manager")
        prepare = _fault(request.get("fault"))
        return [self._run_trace(trace, plug_in, prepare) for trace in request["traces"]]

    def _run_trace(
        self, trace: dict[str, Any], plug_in: str | None, prepare: Callable[[Any], None]
    ) -> dict[str, Any]:
        header = trace["header"]

        def make_manager(capacity: int) -> Any:
            manager = _manager_class(header["manager"], plug_in)(cache_size=capacity)
            prepare(manager)
            return manager

        try:
            if header["depth"] == "scheduler":
                session: Any = SchedulerSession(trace, make_manager)
            else:
                session = ManagerSession(
                    header, make_manager(header["config"]["capacity"]), self.protocol
                )
            records = run_events(session, trace["events"])
        except Illegal as reason:
            return {"records": [], "illegal": str(reason)}
        return {"records": records, "capacity": session.recorder.manager.cache_size}


def _manager_class(kind: str, plug_in: str | None) -> Any:
    if plug_in is not None:
        module, _, name = plug_in.partition(":")
        return getattr(importlib.import_module(module), name)
    try:
        return getattr(encoder_cache_manager, CLASSES[kind])
    except AttributeError:
        raise Illegal(f"vLLM {vllm.__version__} has no {CLASSES[kind]}") from None


def _fault(name: str | None) -> Callable[[Any], None]:
    """A planted fault by name; no name plants nothing."""
    if name is None:
        return lambda manager: None
    from .faults import FAULTS

    return FAULTS[name]


def _digest(function: Any) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]
