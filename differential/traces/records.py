"""What a target did for each event, as plain tuples: they compare and travel fast.

The tuples are what `targets/host` writes: a step record is (outcome, calls, raised, state). A call
and its delta are described in `targets/host/recorder.py`. `raised` is set when the release itself
raised, and ends the trace; `state` is the full state after the last event and now and then before.
"""

from typing import Any

import msgspec

Entry = tuple[list[str], int | None]
Delta = tuple[int, int, dict[str, Entry | None], list[tuple[str, int]] | None, list[str] | None]
CallRecord = tuple[str, str | None, int | None, int | None, int | None, Any, Delta | None]
Raised = tuple[str, str]


class FullState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A manager's whole state, in the words of the deltas."""

    free: int
    freeable: int
    entries: dict[str, Entry]
    queue: list[tuple[str, int]]
    notices: list[str]


StepRecord = tuple[Any, list[CallRecord], Raised | None, FullState | None]
ExplorerStep = tuple[StepRecord, int, Any]
"""A record, the number of the state that it leads to, and that state's tree where it is new."""


class TraceResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target's records for one trace, one per event up to the first exception.

    `illegal` says why the trace cannot be asked of the release. The records are then those up to
    the event at which the release itself refuses it, or none where it lacks what is asked for.
    `capacity` is the cache's size after the release floored it at its largest item.
    """

    records: list[StepRecord]
    illegal: str | None = None
    capacity: int | None = None


def with_states(records: list[tuple[Any, ...]]) -> list[StepRecord]:
    """Records as a session writes them, with their full states as targets report them."""
    return [
        record if record[3] is None else (*record[:3], msgspec.convert(record[3], FullState))
        for record in records
    ]
