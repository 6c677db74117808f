"""What an engine does with the store: promises, loads and saves, by the names of vLLM's connectors.

The engine cannot be told that a load failed: what was promised and is not there ends it. So the
scheduler's side reads and pins an entry before it promises it, and the worker's side loads the file
that was pinned.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, BinaryIO, Protocol

from cacheproof.reference.encoder_connector.config import StoreConfig
from cacheproof.reference.encoder_connector.entry_file import fault_of
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.part import Part
from cacheproof.reference.encoder_connector.tiers import Promise, Tiers

logger = logging.getLogger(__name__)


class Codec(Protocol):
    """Rows as the parts of a file, and back; `entry_file` is one, of bytes."""

    def parts_of(self, rows: Any, key: EntryKey) -> list[Part]:
        """Raises ValueError of rows that are none of the key's."""

    def load(self, file: BinaryIO, key: EntryKey) -> Any:
        """Raises Torn, and OSError."""


@dataclass
class ConnectorMetadata:
    """What the scheduler's side tells the worker's: where the pinned bytes of each identifier are
    found that it is to load, and how often the engine was reset."""

    files: dict[str, list[str]] = field(default_factory=dict)
    resets: int = 0


class StoreConnector:
    """Saves what its engine encodes, and promises what the store holds whole.

    One is the scheduler's and another one the worker's, with the same arguments.

    Args:
        store: its tiers.
        of_key: the fields of this engine's keys, all but the identifier.
        codec: between rows and files.
        saves: whether the engine is a producer.
        loads: whether it is a consumer.
    """

    def __init__(
        self,
        store: StoreConfig,
        of_key: Mapping[str, Any],
        codec: Codec,
        *,
        saves: bool = True,
        loads: bool = True,
    ) -> None:
        self._store = Tiers(store.tiers, fault_of, store.remote)
        self._of_key, self._codec = of_key, codec
        self._saves, self._loads = saves, loads
        self._resets = 0
        self._promised: dict[str, Promise] = {}
        self._to_load: dict[str, Promise] = {}
        self._in_flight: dict[str, list[Promise]] = {}
        self._loaded: set[str] = set()
        self._told: set[str] = set()

    def key_of(self, identifier: str) -> EntryKey:
        """The key of a media item in this engine, as often as it was reset: what others still
        have of the time before is of another key."""
        key = EntryKey(identifier=identifier, **self._of_key)
        weights = f"{key.weights}+{self._resets}" if self._resets else key.weights
        return replace(key, weights=weights)

    # the scheduler's side

    @property
    def pinned(self) -> set[str]:
        """The identifiers of entries that nobody can take away."""
        return {*self._promised, *self._to_load, *self._in_flight}

    def has_cache_item(self, identifier: str) -> bool:
        """Whether the store has it: read, found whole, and pinned until it is loaded."""
        if not self._loads:
            return False
        if identifier not in self._promised and identifier not in self._to_load:
            promise = self._store.promise(self.key_of(identifier))
            if promise is None:
                return False
            self._promised[identifier] = promise
        return True

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        """An item has got its place: what is promised of it is loaded in this step."""
        identifier = request.mm_features[index].identifier
        if identifier in self._promised:
            self._to_load[identifier] = self._promised.pop(identifier)

    def take_step(self) -> ConnectorMetadata:
        """The metadata of this step for the worker. Promises that nobody took are given back."""
        for promise in self._promised.values():
            self._store.give_back(promise)
        self._promised.clear()
        files = {name: promise.paths for name, promise in self._to_load.items()}
        for name, promise in self._to_load.items():
            self._in_flight.setdefault(name, []).append(promise)
        self._to_load.clear()
        return ConnectorMetadata(files, self._resets)

    def update_connector_output(self, connector_output: Any) -> None:
        """The workers have loaded: the oldest pin of each item is given back."""
        for name in connector_output.finished_recving or ():
            promises = self._in_flight.get(name, [])
            if promises:
                self._store.give_back(promises.pop(0))
            if not promises:
                self._in_flight.pop(name, None)

    def reset_cache(self) -> None:
        """The weights were updated in place: entries are dropped, of every tier and every engine,
        and those that cannot be reached now are none of this engine's. What is promised stays
        promised."""
        self._resets += 1
        self._store.clear()

    # the worker's side

    def load(self, step: ConnectorMetadata, encoder_cache: dict[str, Any]) -> None:
        """Begin a step: load what its scheduler has promised.

        Raises:
            Torn: a pinned file was changed in place, which no engine does.
            OSError: it is at none of its paths, or cannot be read.
        """
        self._resets = step.resets
        for name, paths in step.files.items():
            if name not in encoder_cache:
                with _opened(paths) as entry:
                    encoder_cache[name] = self._codec.load(entry, self.key_of(name))
            self._loaded.add(name)

    def save_caches(self, encoder_cache: dict[str, Any], mm_hash: str, **_: object) -> None:
        """Keep what was encoded, in the first tier that takes it."""
        if not self._saves:
            return
        key = self.key_of(mm_hash)
        try:
            parts = self._codec.parts_of(encoder_cache[mm_hash], key)
        except ValueError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                logger.warning("encoder cache: %.200r is not kept: %s", mm_hash, error)
            return
        self._store.put(key, parts)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """What was loaded since the last time."""
        loaded, self._loaded = self._loaded, set()
        return None, loaded or None

    def shutdown(self) -> None:
        """Give every pin back."""
        in_flight = chain.from_iterable(self._in_flight.values())
        for promise in (*self._promised.values(), *self._to_load.values(), *in_flight):
            self._store.give_back(promise)
        self._store.close()


def _opened(paths: Sequence[str]) -> BinaryIO:
    """The file at the first of these paths that has one."""
    *others, last = paths
    for path in others:
        with suppress(FileNotFoundError):
            return open(path, "rb", buffering=0)
    return open(last, "rb", buffering=0)
