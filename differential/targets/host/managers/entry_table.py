"""Drives a store's table as its scheduler does: vLLM's `EmbeddingCache`, or the reference's.

The outcome of an event is what the table answers, and the table as contracts look at it. What a
caller does, it knows from its own calls, and what is there, from the table's look-ups.
"""

import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..explorer import SET, ExplorerMoment, tree_of
from ..protocol import Call, Event, HostError, Illegal, Json, Tree
from ..vllm_objects.kv_cache import EmbeddingCache

if TYPE_CHECKING:
    from cacheproof.reference.encoder_connector.entry_table import EntryTable

_LOCK = type(threading.Lock())
OPTIONAL = frozenset({"pin_if_ready", "discard", "remove", "clear"})
"""Calls that some tables lack."""


class Region:
    """vLLM's table, whose room is counted in blocks. Releases before 0.30.0 lack some of its
    calls."""

    def __init__(self, table: EmbeddingCache) -> None:
        self.table = table
        self.classes: Sequence[type] = type(table), sys.modules[type(table).__module__].CacheEntry
        self.begin: Callable[[str, int], bool] = lambda key, size: (
            table.alloc(key, size) is not None
        )
        self.offers = {name for name in OPTIONAL if hasattr(table, name)}

    def has(self, key: str) -> bool:
        return self.table.get(key) is not None

    def is_found(self, key: str) -> bool:
        entry = self.table.get(key)
        return entry is not None and entry.ready

    def publish(self, key: str) -> None:
        self.table.mark_ready(key)

    def pin(self, key: str) -> bool:
        self.table.pin(key)
        return True

    def pin_if_ready(self, key: str) -> bool:
        entry = self.table.pin_if_ready(key)
        return entry is not None and entry.ready

    def unpin(self, key: str) -> None:
        self.table.unpin(key)

    def discard(self, key: str) -> None:
        self.table.discard(key)

    def state(self) -> dict[str, Json]:
        table = self.table
        size = {key: len(entry.block_ids) for key, entry in table._entries.items()}
        held = [block for entry in table._entries.values() for block in entry.block_ids]
        return {
            "capacity": table._num_blocks,
            "free": len(table._free_blocks),
            "evictable": table._evictable_block_count,
            "size": size,
            "pins": {key: one._pin_count for key, one in table._entries.items() if one.ready},
            "idle": {key: size.get(key, 0) for key in table._entries_free_list},
            "blocks": [*table._free_blocks, *held],
            "in_use": table.has_held_entries() if hasattr(table, "has_held_entries") else None,
        }


class Bytes:
    """The reference's table, whose room is counted in bytes."""

    offers = OPTIONAL - {"pin_if_ready"}

    def __init__(self, table: "EntryTable") -> None:
        self.table = table
        self.classes: Sequence[type] = type(table).__mro__[:-1]
        for name in ("begin", "publish", "pin", "unpin", "remove"):
            setattr(self, name, getattr(table, name))
        self.discard = table.abandon
        self.is_found = table.contains

    def has(self, key: str) -> bool:
        """Whether an entry of that name is there. A name is given once: while one that was removed
        is pinned, no other entry has it."""
        return key in self.table.sizes

    def clear(self, _: None) -> None:
        self.table.clear()

    def state(self) -> dict[str, Json]:
        table = self.table
        return {
            "capacity": table.capacity,
            "free": table.free,
            "evictable": table.evictable,
            "size": dict(table.sizes),
            "pins": dict(table.pins),
            "idle": dict(table.idle),
        }


class TableSession:
    """A table and its callers, which write entries and pin some."""

    def __init__(self, config: Event, table: Region | Bytes) -> None:
        self.table = table
        self.recorder = self
        self.writing: set[str] = set()
        self.pins: dict[str, int] = {}
        self._pins_max = config["pins_max"]

    # as recorders answer; what a table does is an outcome

    def begin(self) -> None:
        """Do nothing: nothing is recorded."""

    def take(self) -> list[Call]:
        return []

    def full_state(self) -> None:
        return None

    def apply(self, event: Event) -> dict[str, Json]:
        """Make a call. Raises Illegal for one that no caller makes in this state."""
        name, entry = event["event"], event.get("entry")
        if name in OPTIONAL and name not in self.table.offers:
            raise Illegal(f"this table has no {name}")
        if not self._may(name, entry):
            raise Illegal(f"nobody would {name} {entry}")
        arguments = (entry, event["size"]) if name == "begin" else (entry,)
        answer = getattr(self.table, name)(*arguments)
        self._note(name, entry, answer)
        return {"granted": answer is not False, "state": self._seen()}

    def _seen(self) -> dict[str, Json]:
        try:
            return self.table.state()
        except (AttributeError, TypeError) as error:  # no call of a caller's
            raise HostError(f"this table cannot be looked at: {error}") from error

    def _may(self, name: str, entry: Any) -> bool:
        pinned = self.pins.get(entry, 0)
        match name:
            case "begin":
                return entry not in self.writing and not pinned and not self.table.has(entry)
            case "publish" | "discard":
                return entry in self.writing
            case "pin":
                return pinned < self._pins_max and self.table.is_found(entry)
            case "pin_if_ready":
                return pinned < self._pins_max
            case "unpin":
                return pinned > 0
            case _:
                return True

    def _note(self, name: str, entry: Any, answer: bool | None) -> None:
        match name:
            case "begin" if answer:
                self.writing.add(entry)
            case "publish" | "discard":
                self.writing.discard(entry)
            case "pin" | "pin_if_ready" if answer:
                self.pins[entry] = self.pins.get(entry, 0) + 1
            case "unpin":
                self.pins[entry] -= 1
                if not self.pins[entry]:
                    del self.pins[entry]


class TableStates:
    """The states of a `TableSession`: all that its table holds but the lock, and what its callers
    do."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._table = session.table.table

    @property
    def classes(self) -> Iterable[type]:
        return self._session.table.classes

    def now(self) -> ExplorerMoment[bytes]:
        session = self._session
        held = {name: value for name, value in vars(self._table).items() if not _stays(value)}
        callers = sorted(session.writing), sorted(session.pins.items())
        tree: Tree = [*([SET, *map(tree_of, one)] for one in callers), _tree(held)]
        return ExplorerMoment(repr(tree), lambda: pickle.dumps((held, callers)), lambda: tree)

    def put_back(self, kept: bytes) -> None:
        held, (writing, pins) = pickle.loads(kept)
        vars(self._table).update(held)
        self._session.writing, self._session.pins = set(writing), dict(pins)


def _stays(value: object) -> bool:
    """Whether an attribute is no state: a lock that nobody has, or a method that is put there."""
    if isinstance(value, _LOCK):
        if value.locked():
            raise HostError("a call of a table has left its lock taken")
        return True
    return callable(value)


def _tree(value: object) -> Tree:
    """Plain data as `tree_of` has it, and entries by their slots."""
    if isinstance(value, dict):
        return [[key, _tree(held)] for key, held in value.items()]
    slots = getattr(type(value), "__slots__", None)
    return tree_of(value) if slots is None else [tree_of(getattr(value, one)) for one in slots]
