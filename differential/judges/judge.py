"""What judges the records of one trace, at any depth."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.traces.records import StepRecord
from cacheproof.spec.records import LedgerState

EventT_contra = TypeVar("EventT_contra", contravariant=True)


class Judge(Protocol[EventT_contra]):
    """Judges one trace of events of one depth, a record after the other.

    `violations` has the first violation of each contract and `by_kind` of each contract and kind.
    `state` is the target's state after the last call that was judged, None where there is none to
    see, `stored` the rows in the worker's store. `calls_judged` counts calls, and `resident_sum`
    the entries that were resident after each.
    """

    calls_judged: int
    resident_sum: int

    def judge(self, number: int, event: EventT_contra, record: StepRecord) -> None:
        """Judge the record of event number `number`."""

    @property
    def violations(self) -> Mapping[str, Violation]: ...

    @property
    def by_kind(self) -> Mapping[tuple[str, str], Violation]: ...

    @property
    def state(self) -> LedgerState | None: ...

    @property
    def stored(self) -> Mapping[str, int]: ...


AnyJudge = Judge[Any]
"""The judge of a trace of whichever depth: its events are those that the trace has."""
