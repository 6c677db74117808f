"""A timeline as a trace for Perfetto: the JSON of Chrome's trace events, which ui.perfetto.dev and
chrome://tracing open. An event of the run lasts a millisecond there."""

from collections.abc import Iterator

import msgspec

from cacheproof.differential.findings.timeline.lanes import LaneGroup
from cacheproof.differential.findings.timeline.model import Timeline

MICROSECONDS_PER_EVENT = 1000
_EVENTS = "Events"

Record = dict[str, object]


def perfetto(timeline: Timeline) -> bytes:
    """The JSON file."""
    document = {
        "traceEvents": list(_records(timeline)),
        "displayTimeUnit": "ms",
        "otherData": dict(timeline.about) | {"title": timeline.title},
    }
    return msgspec.json.encode(document)


def _records(timeline: Timeline) -> Iterator[Record]:
    yield from _process(1, _EVENTS)
    yield from _thread(1, 1, "what the engine does")
    for at, shown in enumerate(timeline.events):
        calls = [f"{one.operation}({one.asked}) -> {one.answer}" for one in shown.calls]
        args = {timeline.unit: shown.number, "calls": calls, "changes": [*map(list, shown.changes)]}
        yield _slice(1, 1, shown.words, _at(at), MICROSECONDS_PER_EVENT, args)
    for pid, group in enumerate(timeline.groups, start=2):
        yield from _group(pid, group)
    for one in timeline.broken:
        yield {
            "ph": "i",
            "s": "g",  # through all tracks
            "name": f"broken: {one.sentence}",
            "cat": "broken",
            "pid": 1,
            "tid": 1,
            "ts": _at(one.event - timeline.first),
            "args": {"contract": one.contract, "title": one.title, "why": one.why},
        }


def _group(pid: int, group: LaneGroup) -> Iterator[Record]:
    yield from _process(pid, group.name)
    for chart in group.charts:
        for at, number in chart.points:
            yield {
                "ph": "C",
                "name": chart.name,
                "pid": pid,
                "ts": _at(at),
                "args": {"value": number},
            }
    for tid, row in enumerate(group.rows, start=1):
        yield from _thread(pid, tid, row.name)
        for span in row.spans:
            length = _at(span.end - span.start)
            yield _slice(pid, tid, span.words, _at(span.start), length, {"kind": span.kind})
        for span in row.over:
            yield _slice(pid, tid, span.words, _at(span.start), MICROSECONDS_PER_EVENT, {})
        for mark in row.marks:
            yield {
                "ph": "i",
                "s": "t",
                "name": mark.words,
                "cat": mark.kind,
                "pid": pid,
                "tid": tid,
                "ts": _at(mark.event),
            }


def _at(event: int) -> int:
    return event * MICROSECONDS_PER_EVENT


def _slice(pid: int, tid: int, name: str, ts: int, dur: int, args: Record) -> Record:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _process(pid: int, name: str) -> Iterator[Record]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _thread(pid: int, tid: int, name: str) -> Iterator[Record]:
    about = {"ph": "M", "pid": pid, "tid": tid}
    yield about | {"name": "thread_name", "args": {"name": name}}
    yield about | {"name": "thread_sort_index", "args": {"sort_index": tid}}
