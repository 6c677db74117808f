"""Runs that are drawn, and what their lanes say."""

from collections.abc import Sequence
from itertools import pairwise

from cacheproof.differential.findings.timeline.lanes import Chart, LaneGroup, Row, RowSpan
from cacheproof.differential.findings.timeline.model import Timeline, broken_by, timeline
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.retrace import Moment, Retrace
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces import manager as events
from cacheproof.differential.traces.base import SCHEMA, Item
from cacheproof.differential.traces.manager import ManagerConfig, ManagerHeader
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.reference.semantics import Semantics

IDEAL = ReferenceTarget(Semantics.ideal())
FAULTY = ReferenceTarget(Semantics.of_vllm("0.28.0"), name="reference@0.28.0", release="0.28.0")
MENDED = ReferenceTarget(Semantics.of_vllm("0.33.0"), name="reference@0.33.0", release="0.33.0")
STEP = (events.Notices(), events.Update())


def needed_entry(*before: AnyEvent, item: str = "x", second: int = 8) -> Trace:
    """0.28.0 evicts an item that stands twice in a request, while it needs it; after `before`.
    The second of them has its own length."""
    twice = (Item(item, offset=0, length=8), Item(item, offset=8, length=second))
    header = ManagerHeader(SCHEMA, "encoder_cache", ManagerConfig(9, 9))
    lines = (
        events.Add("a", prompt=2, items=(Item("y", offset=0, length=2),)),
        events.Add("b", prompt=16, items=twice),
        events.Walk("b", tokens=9),
        *STEP,
        events.Walk("a", tokens=14),
    )
    return Trace(header, (*before, *lines))


def run_of(trace: Trace, target: ReferenceTarget) -> tuple[list[Moment], TraceResult]:
    """Its moments, and its result."""
    (result,) = target.run([trace])
    assert result.illegal is None
    retrace = Retrace(trace, result.records, target.release, target.protocol, result.capacity)
    return list(retrace.moments()), result


def drawn(trace: Trace, target: ReferenceTarget = IDEAL) -> Timeline:
    """The timeline of a trace."""
    moments, result = run_of(trace, target)
    violations = examine(trace, result, target).violations.values()
    return timeline(trace.header, moments, broken_by(violations), target=target.name)


def group(shown: Timeline, name: str) -> LaneGroup:
    (found,) = [one for one in shown.groups if one.name == name]
    return found


def row(shown: Timeline, of: str, name: str) -> Row:
    (found,) = [one for one in group(shown, of).rows if one.name == name]
    return found


def kinds_at(one: LaneGroup, event: int) -> dict[str, str]:
    """What holds at an event: its kind, by row."""
    return {row.name: span.kind for row in one.rows for span in row.spans if _covers(span, event)}


def value_at(chart: Chart, event: int) -> int:
    """What a level is at an event."""
    return [value for at, value in chart.points if at <= event][-1]


def marks(one: Row) -> list[tuple[int, str]]:
    return [(mark.event, mark.kind) for mark in one.marks]


def are_in_order(spans: Sequence[RowSpan]) -> bool:
    """Whether none begins before the one before it has ended, and each lasts."""
    return all(one.start < one.end for one in spans) and all(
        one.end <= other.start for one, other in pairwise(spans)
    )


def _covers(span: RowSpan, event: int) -> bool:
    return span.start <= event < span.end
