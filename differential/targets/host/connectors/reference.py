"""A host that plays engines with the reference's connector, whose rows are bytes.

Started as `PYTHON <this folder> host.connectors.reference`, in the interpreter of cacheproof
itself.
"""

import functools
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ..package import ours
from ..protocol import Event
from .alone import ConnectorAlone
from .engine import Kit, row_width
from .faults import CONNECTOR_FAULTS
from .settings import settings_of

if TYPE_CHECKING:
    from cacheproof.reference.encoder_connector.connector import ConnectorMetadata
    from cacheproof.reference.encoder_connector.entry_file import EntryRows


class ReferenceConnectorHost(ConnectorAlone):
    """Runs traces for connectors on the reference's connector."""

    def __init__(self) -> None:
        for name in ("connector", "redis_tier"):  # a fork has them
            with suppress(ModuleNotFoundError):
                ours(f"reference.encoder_connector.{name}")
        super().__init__(kit, "none")


def kit(config: Event, model: Event, weights: int, root: Path, fault: str | None) -> Kit:
    """Both sides of the reference's connector in an engine of that model."""
    module = ours("reference.encoder_connector.connector")
    entry_file = ours("reference.encoder_connector.entry_file")
    settings = settings_of(config, weights, root)
    read = ours("reference.encoder_connector.config").StoreConfig.read(settings, {})
    of_key = {
        "model": model["name"],
        "revision": "",
        "weights": read.weights,
        "dtype": model["dtype"],
        "hidden_size": model["width"],
    }
    scheduler, worker, *further = (
        _played(module.StoreConnector)(read, of_key, entry_file) for _ in range(1 + config["ranks"])
    )
    made = Kit(
        scheduler,
        worker,
        lambda rows: entry_file.EntryRows(
            model["dtype"],
            (len(rows), row_width(model)),
            b"".join(_encoded(row, model["dtype"]) for row in rows),
        ),
        _read,
        lambda step: SimpleNamespace(finished_recving=set(step.files)),
        pinned=lambda: scheduler.pinned,
        saving=lambda _: set(),
        further=tuple(further),
    )
    if fault is not None:
        CONNECTOR_FAULTS[fault](made, root)
    return made


@functools.cache
def _played(base: type) -> type:
    """The connector, with the calls that vLLM's base class adds."""

    class Played(base):  # type: ignore[misc, valid-type]
        """Passes the step's metadata from one side to the other."""

        step: "ConnectorMetadata | None" = None

        def build_connector_meta(self, scheduler_output: object) -> "ConnectorMetadata":
            return self.take_step()

        def bind_connector_metadata(self, metadata: "ConnectorMetadata") -> None:
            self.step = metadata

        def clear_connector_metadata(self) -> None:
            self.step = None

        def start_save_caches(self, **_: object) -> None:
            pass

        def start_load_caches(self, encoder_cache: "dict[str, EntryRows]", **_: object) -> None:
            self.load(self.step, encoder_cache)

        def build_connector_worker_meta(self) -> None:
            return None

    return Played


def _encoded(row: Iterable[float], dtype: str) -> bytes:
    if dtype == "bfloat16":
        return b"".join(struct.pack("<f", number)[2:] for number in row)
    return b"".join(struct.pack("<e" if dtype == "float16" else "<f", number) for number in row)


def _read(rows: "EntryRows") -> tuple[list[list[float]], int, str]:
    """Numbers, width and dtype of rows."""
    dtype, (count, width), data = rows
    size = 4 if dtype == "float32" else 2
    numbers = [_decoded(bytes(data[at : at + size]), dtype) for at in range(0, len(data), size)]
    return [numbers[row * width : (row + 1) * width] for row in range(count)], width, dtype


def _decoded(data: bytes, dtype: str) -> float:
    if dtype == "bfloat16":
        data = bytes(2) + data
    number: float = struct.unpack("<e" if dtype == "float16" else "<f", data)[0]
    return number


HOST = ReferenceConnectorHost
