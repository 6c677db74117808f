"""What the callers of a store's table do, and how large it is; explored, and in no file."""

from typing import Literal

import msgspec

from cacheproof.differential.traces.base import Event, Name, Size


class TableConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The room of a table, in blocks or bytes, and the most pins of an entry at once."""

    capacity: Size
    pins_max: Size


class TableHeader(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The header of an exploration: its table."""

    config: TableConfig
    manager: Literal["entry_table"] = "entry_table"


class Begin(Event, tag="begin", frozen=True):
    """Room is asked for, for an entry that is not there and is to be written."""

    entry: Name
    size: Size


class Publish(Event, tag="publish", frozen=True):
    """An entry is written."""

    entry: Name


class Discard(Event, tag="discard", frozen=True):
    """An entry is not written after all."""

    entry: Name


class Pin(Event, tag="pin", frozen=True):
    """An entry that is found is pinned."""

    entry: Name


class PinIfReady(Event, tag="pin_if_ready", frozen=True):
    """An entry is pinned if it is there and written, in one call."""

    entry: Name


class Unpin(Event, tag="unpin", frozen=True):
    """One pin of an entry is given back."""

    entry: Name


class Remove(Event, tag="remove", frozen=True):
    """An entry is to be found no more."""

    entry: Name


class Clear(Event, tag="clear", frozen=True):
    """No entry is to be found any more."""


TableEvent = Begin | Publish | Discard | Pin | PinIfReady | Unpin | Remove | Clear
