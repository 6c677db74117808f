"""What a target did for each event. `targets/host` writes the same as plain tuples, which travel
as lists and compare equal."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

UNDER_FIRST: Final = "under the first model runner"
"""Field of an outcome under the second model runner: what the same event has come to under the
first."""


class Entry(NamedTuple):
    """An entry of the ledger: the requests that hold it, and its size where the ledger has one."""

    holders: list[str]
    size: int | None


class Delta(NamedTuple):
    """What a call of a manager changed: an entry that left is None, a part that stayed is empty or
    None. Replaying the deltas gives the whole state after every call."""

    free_slots: int
    freeable_slots: int
    entries: dict[str, Entry | None]
    queue: list[tuple[str, int]] | None
    notices: list[str] | None


class CallRecord(NamedTuple):
    """A call of a manager, its answer, and what it changed; None where the state stayed as it was.
    An answer of {"raises": TYPE} is an exception."""

    operation: str
    request: str | None
    input: int | None
    budget: int | None
    pending: int | None
    answer: Any
    delta: Delta | None


class Raised(NamedTuple):
    """An exception of the release itself: its type, and its text."""

    type: str
    message: str


class FullState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A manager's whole state, in the words of the deltas."""

    free: int
    freeable: int
    entries: dict[str, Entry]
    queue: list[tuple[str, int]]
    notices: list[str]


class StepRecord(NamedTuple):
    """What an event came to, and the calls of the manager in it. `raised` is set when the release
    itself raised, and ends the trace; `state` is the full state after the last event, and now and
    then before."""

    outcome: Any
    calls: list[CallRecord]
    raised: Raised | None
    state: FullState | None


class KVCacheCall(NamedTuple):
    """A call of a KV cache manager, as the outcome of an event lists them."""

    operation: str
    request: str
    arguments: Any
    answer: Any


class Expansion(msgspec.Struct, frozen=True):
    """What an explorer made of some states. Records, and the states that steps lead to, are
    numbered in the order in which they are first met; those that are new come with the expansion.

    Attributes:
        steps: for each of the states the numbers of event, record and next state, step after step.
        records: the new records, without the state after the event.
        trees, full: of each new state its tree and, where it is shown, the full state.
    """

    steps: list[list[int]]
    records: list[StepRecord]
    trees: list[Any]
    full: list[FullState | None]


class TraceResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target's records for one trace, one per event up to the first exception.

    `illegal` says why the trace cannot be asked of the release. The records are then those up to
    the event at which the release itself refuses it, or none where it lacks what is asked for.
    `capacity` is the cache's size after the release floored it at its largest item.
    """

    records: list[StepRecord]
    illegal: str | None = None
    capacity: int | None = None


def records_of(written: Sequence[tuple[Any, ...]]) -> list[StepRecord]:
    """The records that a session has written in this process."""
    return msgspec.convert(written, list[StepRecord])
