"""What led to a break: the events that have to do with what it names, in words."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from textwrap import shorten
from typing import NamedTuple

from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.records import CallRecord, StepRecord
from cacheproof.differential.traces.trace import AnyEvent
from cacheproof.differential.traces.wording import told

EVENTS_SHOWN = 12
LINE_MAX = 160


def names_in(violation: Violation) -> set[str]:
    """The requests and identifiers that a break is about."""
    why = violation.why
    bound = re.findall(r"for \w+ = '([^']+)'", why) or re.findall(r"'([^']+)'", why)
    return {*bound, violation.request, violation.identifier} - {""}


class Led(NamedTuple):
    """Events in a row that do the same to what a break names: in words, the first of them, the last
    and how many there are. Others may lie between."""

    words: str
    first: int
    last: int
    times: int


def what_led(events: Sequence[tuple[AnyEvent, StepRecord]], names: Collection[str]) -> list[Led]:
    """What the events did to what a break names; the last of them, the break's, is always among
    them. Events are counted from 0."""
    end = len(events) - 1
    told_of = (
        (words or "the step itself", number)
        for number, (event, record) in enumerate(events)
        if (words := _words(event, record, names)) is not None or number == end
    )
    return list(_runs(told_of))


def _runs(told_of: Iterator[tuple[str, int]]) -> Iterator[Led]:
    for words, alike in groupby(told_of, key=lambda one: one[0]):
        numbers = [number for _, number in alike]
        yield Led(words, numbers[0], numbers[-1], len(numbers))


def steps_before(events: Sequence[tuple[AnyEvent, StepRecord]], violation: Violation) -> list[str]:
    """The last of what led to a break, a line each."""
    return [
        shorten(one.words, LINE_MAX, placeholder=" ...")
        + (f" ({one.times} times)" if one.times > 1 else "")
        for one in what_led(events, names_in(violation))[-EVENTS_SHOWN:]
    ]


def _words(event: AnyEvent, record: StepRecord, names: Collection[str]) -> str | None:
    """What an event did to what is named; None: nothing."""
    outcome = record.outcome if isinstance(record.outcome, dict) else {}
    parts = [
        f"{tokens} token{'s' * (tokens != 1)} of {name}"
        for name, tokens in outcome.get("scheduled", {}).items()
        if name in names
    ]
    parts += [f"{name} is preempted" for name in outcome.get("preempted", ()) if name in names]
    parts += [f"{name} ends" for name in outcome.get("finished", ()) if name in names]
    parts += filter(None, (_call(call, names) for call in record.calls))
    parts += [f"{name} is reported" for name in outcome.get("notices", ()) if name in names]
    if isinstance(event, Add):
        items = [one for one in event.items if one.identifier in names or event.request in names]
        spans = [f"{one.identifier} [{one.offset}, {one.offset + one.length})" for one in items]
        if spans or event.request in names:
            return f"{event.request} arrives with {', '.join(spans) or 'no items'}"
    elif getattr(event, "request", None) in names:
        parts.insert(0, told(event, record.outcome))
    return f"{tag_of(type(event))}: {', '.join(parts)}" if parts else None


_DONE = {
    ("check", True): "hits",
    ("can", False): "is refused",
    ("allocate", None): "takes in",
    ("release", None): "releases",
}


def _has_raised(call: CallRecord) -> bool:
    return isinstance(call.answer, dict)


def _call(call: CallRecord, names: Collection[str]) -> str | None:
    """What a call did to what is named."""
    entries = {} if call.delta is None else call.delta.entries
    touched = [name for name in entries if name in names]
    answer = call.answer if isinstance(call.answer, bool) else None
    done = None if _has_raised(call) else _DONE.get((call.operation, answer))
    if call.request in names and call.input is not None and done is not None:
        return f"{call.request} {done} #{call.input}"
    gone = [name for name in touched if entries[name] is None]
    if gone:
        return f"{', '.join(gone)} evicted for {call.request}"
    if touched and done is not None:
        return f"{call.request} {done} {touched[0]}"
    return None
