"""A host that plays engines with one connector, and does nothing else."""

import sys
from collections.abc import Iterator
from contextlib import closing

from ..protocol import Event, HostError, Illegal, Json, Plain, Protocol
from ..session import run_events
from .encoder_connector import ConnectorSession, MakeKit


class ConnectorAlone:
    """Runs traces for connectors with the kits of `make_kit`, and reports its `version`."""

    def __init__(self, make_kit: MakeKit, version: str) -> None:
        self._make_kit, self._version = make_kit, version

    def hello(self, plug_in: str | None) -> dict[str, Json]:
        """Versions of Python and of the connector."""
        return {
            "python": sys.version.split()[0],
            "vllm": self._version,
            "protocol": Protocol()._asdict(),
        }

    def run(self, request: Plain) -> Iterator[dict[str, object]]:
        """One result per trace of the batch, in order."""
        for trace in request["traces"]:
            yield self._run_trace(trace, request.get("fault"))

    def _run_trace(self, trace: Event, fault: str | None) -> dict[str, object]:
        header = trace["header"]
        if header["depth"] != "encoder_connector":
            raise HostError(f"a {header['depth']}-depth trace for connectors alone")
        try:
            with closing(ConnectorSession(header["config"], self._make_kit, fault)) as session:
                return {"records": run_events(session, trace["events"])}
        except Illegal as reason:
            return {"records": reason.records, "illegal": str(reason)}
