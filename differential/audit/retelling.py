"""Tells a part of a record as a trace, to be run on the release alone.

What a record does not say is made up: the text of prompts. Requests whose first KV block was the
same share a text, others share none, so that about the same prefixes hit. Whether the trace then
breaks what the engine broke is for its run to say; so there are several tellings, from short to
long.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cacheproof.differential.audit.following import Contradiction, FollowedEvent, Follower
from cacheproof.differential.audit.miniature import miniatures
from cacheproof.differential.audit.streams import Gap, Part
from cacheproof.differential.recording.messages import (
    Added,
    AnyMessage,
    Keyframe,
    Opened,
    Scheduled,
)
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.outcomes import UpdateOutcome
from cacheproof.differential.traces.scheduler import Abort, SchedulerConfig
from cacheproof.differential.traces.trace import Trace

WINDOWS = (1, 4, 16, 64, 256, 1024)
WINDOW = 50
"""Events that a telling goes back, times each of `WINDOWS`; it also goes back that many moments
without requests."""
EVENTS_MAX = 200_000


class Retold:
    """The events of a record up to a break, without those before a gap."""

    def __init__(self, empty: Trace) -> None:
        self._empty = empty
        self._events: list[FollowedEvent] = []
        self._idle: list[int] = []
        self._texts: dict[str, bytes | None] = {}
        self._sampled: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._follower: Follower | None = None

    def read(self, parts: Iterable[Part], record: int) -> None:
        """Take the events up to that record."""
        for part in parts:
            if isinstance(part, Gap):
                self._follower = None
                continue
            message = part.message
            if isinstance(message, Opened):
                continue
            if isinstance(message, Keyframe):
                if self._follower is None:
                    self._begin(message)
            elif self._follower is not None:
                self._take(message)
            if part.number >= record:
                return

    def _begin(self, keyframe: Keyframe) -> None:
        config = self._empty.header.config
        assert isinstance(config, SchedulerConfig)
        self._follower = Follower(keyframe, has_connector=config.ec_connector)
        self._events.clear()
        self._idle.clear()
        for request in keyframe.requests:
            self._note_text(f"r{request.request}", request.prefix)
        self._events += self._follower.present.values()

    def _take(self, message: AnyMessage) -> None:
        assert self._follower is not None
        if isinstance(message, Added):
            self._note_text(f"r{message.request}", message.prefix)
        if not self._follower.present:
            self._idle.append(len(self._events))
        try:
            for observed in self._follower.follow(message):
                self._events.append(observed.event)
                if isinstance(observed.event, Update) and observed.record.outcome:
                    self._note_sampled(observed.record.outcome)
            if isinstance(message, Scheduled):
                self._follower.settle(message.finished)
        except Contradiction:
            self._follower = None
        if len(self._events) > EVENTS_MAX:
            kept = EVENTS_MAX // 2
            self._idle = [place - kept for place in self._idle if place >= kept]
            del self._events[:kept]

    def _note_text(self, name: str, prefix: Sequence[bytes]) -> None:
        self._texts[name] = prefix[0] if prefix else None

    def _note_sampled(self, outcome: UpdateOutcome) -> None:
        for name, count in outcome["sampled"].items():
            self._sampled[name] = self._sampled.get(name, 0) + count
        for name in outcome["finished"]:
            self._ends[name] = self._sampled.pop(name, 0)

    def tellings(self) -> Iterator[Trace]:
        """Traces that may break what the engine broke, the shortest first."""
        told = [
            smaller
            for begin in self._begins()
            for own_texts in (False, True)
            for smaller in miniatures(
                self._empty.with_events(self._told(begin, own_texts=own_texts))
            )
        ]
        yield from sorted(told, key=lambda trace: len(trace.events))

    def _begins(self) -> list[int]:
        count, idle = len(self._events), self._idle
        places = [idle[-back] for back in WINDOWS if back <= len(idle)]
        places += [count - WINDOW * times for times in WINDOWS if count > WINDOW * times]
        return sorted({*places, 0}, reverse=True)

    def _told(self, begin: int, *, own_texts: bool) -> Iterator[FollowedEvent]:
        present: dict[str, Add] = {}
        for event in self._events[:begin]:
            if isinstance(event, Add):
                present[event.request] = event
            elif isinstance(event, Abort):
                present.pop(event.request, None)
        needed = {event.request for event in self._events[begin:] if isinstance(event, Add | Abort)}
        there = set() if self._follower is None else set(self._follower.present.values())
        for name, added in present.items():
            if name not in needed and added in there:
                yield self._with_text(added, own_texts)
        for event in self._events[begin:]:
            yield self._with_text(event, own_texts) if isinstance(event, Add) else event

    def _with_text(self, added: Add, own_texts: bool) -> Add:
        first = self._texts.get(added.request)
        salt = added.request if first is None or own_texts else first.hex()
        tokens = self._ends.get(added.request, added.max_tokens)
        ends_early = 0 < tokens < added.max_tokens
        return msgspec.structs.replace(
            added, salt=salt, stop_after=tokens if ends_early else added.stop_after
        )
