"""The reference behind the pipe: what a release's host does, without a release.

Run against the reference in this process it shows what the pipe itself adds: nothing.
"""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.manager import ManagerEvent, ManagerHeader
from cacheproof.differential.traces.trace import Trace

ROOT = Path(__file__).parents[3]
"""Where a host finds this module."""


class ReferenceProcess(HostTarget):
    """A host process that runs the reference with ideal semantics."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        super().__init__("reference process", None, [sys.executable], environment, module=__name__)


class ReferenceHost:
    """The process's side: what the host asks of a release, answered by the reference."""

    def __init__(self) -> None:
        self._reference = ReferenceTarget()

    def hello(self, plug_in: str | None) -> dict[str, Any]:
        """As a release says it; there is no vLLM and nothing modelled."""
        return {
            "python": sys.version.split()[0],
            "vllm": "none",
            "protocol": Protocol()._asdict(),
        }

    def explore(self, request: dict[str, Any]) -> dict[str, Any]:
        """As a release begins to explore a manager."""
        header = msgspec.convert(request["header"], ManagerHeader)
        alphabet = msgspec.convert(request["alphabet"], list[ManagerEvent])
        self._explorer = self._reference.explorer(header, alphabet, request["fault"])
        return {"tree": self._explorer.tree, "source": self._explorer.source}

    def expand(self, states: list[int]) -> Any:
        """What the explorer makes of these states."""
        self._explorer.submit(states)
        return msgspec.to_builtins(self._explorer.collect())

    def run(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """One result per trace of the batch."""
        traces = msgspec.convert(request["traces"], list[Trace])
        results: list[dict[str, Any]] = msgspec.to_builtins(
            self._reference.run(traces, request["fault"])
        )
        return results


HOST = ReferenceHost
