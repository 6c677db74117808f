"""Events and calls in words, as a timeline shows them."""

from collections.abc import Iterator

import msgspec

from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.records import CallRecord, Delta, KVCacheCall, StepRecord
from cacheproof.differential.traces.scheduler import Chunk
from cacheproof.differential.traces.trace import AnyEvent
from cacheproof.differential.traces.wording import value, visible_line

CHARACTERS_MAX = 4000
"""Most characters of one text: a block pool's free queue may be longer than anybody reads."""


class SaidCall(msgspec.Struct, frozen=True, array_like=True):
    """A call: its name, what was asked, the answer, and what it changed."""

    operation: str
    asked: str
    answer: str
    change: str


class Calls:
    """Says calls in words; knows the items of the requests that have arrived."""

    def __init__(self) -> None:
        self._items: dict[str, list[str]] = {}

    def said(self, event: AnyEvent, record: StepRecord) -> Iterator[SaidCall]:
        """The calls of an event, in order."""
        if isinstance(event, Add | Chunk):
            items = self._items.setdefault(event.request, [])
            items += [one.identifier for one in event.items]
        for call in record.calls:
            yield SaidCall(
                call.operation,
                cut(self._asked(call)),
                cut(_answer(call.answer)),
                cut("" if call.delta is None else _changed(call.delta)),
            )
        if isinstance(record.outcome, dict):
            for one in record.outcome.get("calls", ()):
                called = KVCacheCall(*one)
                asked = " ".join(filter(None, (called.request, _arguments(called.arguments))))
                yield SaidCall(called.operation, cut(asked), cut(_answer(called.answer)), "")

    def _asked(self, call: CallRecord) -> str:
        words = [call.request or ""]
        if call.input is not None:
            items = self._items.get(call.request or "", [])
            named = f" ({items[call.input]})" if call.input < len(items) else ""
            words.append(f"item {call.input}{named}")
        words += [
            f"{name} {given}"
            for name, given in (("budget", call.budget), ("pending", call.pending))
            if given is not None
        ]
        return ", ".join(filter(None, words))


def noticed(event: AnyEvent, words: str) -> str:
    """What an event's words leave out: the items that arrive, and where they stand."""
    if isinstance(event, Add | Chunk) and event.items:
        spans = [
            f"{one.identifier} [{one.offset}, {one.offset + one.length})" for one in event.items
        ]
        return f"{words} with {', '.join(spans)}"
    return words


def cut(text: str) -> str:
    """The text in one line, its end left out where it is very long."""
    shown = visible_line(text)
    more = len(shown) - CHARACTERS_MAX
    return f"{shown[:CHARACTERS_MAX]} ... ({more:,} characters more)" if more > 0 else shown


def _answer(answer: object) -> str:
    return "raises " + str(answer["raises"]) if isinstance(answer, dict) else value(answer)


def _arguments(arguments: object) -> str:
    return "" if arguments is None else value(arguments)


def _changed(delta: Delta) -> str:
    words = [f"free {delta.free_slots}, freeable {delta.freeable_slots}"]
    for identifier, entry in delta.entries.items():
        if entry is None:
            words.append(f"{identifier} evicted")
            continue
        held = f"held by {', '.join(sorted(entry.holders))}" if entry.holders else "idle"
        words.append(f"{identifier} {held}")
    if delta.queue is not None:
        words.append(f"queue {' '.join(name for name, _ in delta.queue) or 'empty'}")
    if delta.notices:
        words.append(f"to report {' '.join(delta.notices)}")
    return "; ".join(words)
