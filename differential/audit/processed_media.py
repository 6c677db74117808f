"""Judges the caches of processed media of one engine by what both halves have recorded.

An item that was sent by its name alone, and is not there, is told by what became of the message
that brought its data. No record says which request an item is of, so messages are told apart by the
items that they hold.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from cacheproof.differential.audit.streams import Gap, Part
from cacheproof.differential.judges.front_end import (
    AFTER_A_RESET,
    CAME,
    EMPTIED,
    EVICTED,
    FAILED,
    LEFT_OUT,
    MIXED,
    NEVER_RESET,
    ONE_TOO_LARGE,
    TOGETHER_TOO_LARGE,
    UNDER_WAY,
    UNDISTURBED,
    WITHDRAWN,
)
from cacheproof.differential.judges.rules import Subject, about, by_subject
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.recording.messages import (
    HOW,
    ItemSent,
    ItemsReceived,
    MediaForgotten,
    Opened,
    Raised,
)
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.processed_media import FRONT_END, Addressed, Answer, Claimed
from cacheproof.spec.registry import Contract, contracts

SENT, RECEIVED = "process", "deliver"
_DATA = HOW.index("data")
# Bounds, so that an audit's memory does not grow with the record.
_NAMES_MAX = 100_000
_UNDER_WAY_MAX = 10_000
_TOO_LARGE = "ValueError"
_NOT_THERE = ("AssertionError", "KeyError")
"""What a front end raises whose cache lacks what it had a moment ago."""
EXPLAINED_KEPT = 10_000
PATIENCE_SECONDS = 60.0
"""How long an item's data may be under way before they are told to have never been sent."""


@dataclass
class Brought:
    """The messages that brought an item's data: how many were sent, how many have arrived, what
    became of the last, in the words of the judge of traces, and how often the receiver had been
    emptied by then; when the last was sent and the last has arrived."""

    sent: int = 0
    arrived: int = 0
    fate: str = ""
    emptied: int = 0
    sent_at: float = math.nan
    arrived_at: float = math.nan

    @property
    def is_under_way(self) -> bool:
        """Whether one of them has not arrived."""
        return self.arrived < self.sent


@dataclass(frozen=True)
class MediaBreak:
    """A contract that the caches of processed media broke, at a time in seconds since the epoch,
    and what led there, in words."""

    violation: Violation
    time: float
    led: tuple[str, ...]


@dataclass
class _Miss:
    """An item that was not there, and of whose data it is not known yet whether it comes."""

    item: str
    brought: Brought
    time: float


class MediaAudit:
    """Audits both halves of one engine. Feed it what they recorded, in the order of time.

    Attributes:
        rules: the contracts that judge it. store: where items lie, "lru" or "shm".
        received: requests whose items have come, or were refused before. failed: those that could
            not go on. explained: when the last of these did of which it is known why, in seconds
            since the epoch.
        unjudged: what of it no contract can be asked about. gaps: what is missing.
    """

    def __init__(self) -> None:
        self.rules: list[Contract] = []
        self.store = ""
        self.received = self.failed = 0
        self.explained: deque[float] = deque(maxlen=EXPLAINED_KEPT)
        self.unjudged: set[str] = set()
        self.gaps: list[str] = []
        self._by_subject = by_subject([])
        self._touches_all_first = True
        self._brought: dict[str, Brought] = {}
        self._has_sent = False
        self._under_way: deque[tuple[float, tuple[str, int]]] = deque()
        self._matched: list[tuple[str, int]] = []
        self._is_disturbed = False
        self._parted = ""
        self._emptied = {"sender": 0, "receiver": 0}
        self._emptied_at: dict[str, float] = {}
        self._waiting: list[_Miss] = []

    @property
    def is_shared(self) -> bool:
        """Whether items lie in shared memory, where workers read them."""
        return self.store == "shm"

    def _open(self, opened: Opened, release: str | None) -> None:
        self.store = opened.settings.get("store", "")
        if not self.rules:
            judged = _JUDGED.get(self.store, ())
            self.rules = [one for one in contracts(FRONT_END, release) if one.id in judged]
            self._by_subject = by_subject(self.rules)
            semantics = Semantics.ideal() if release is None else Semantics.of_vllm(release)
            self._touches_all_first = semantics.front_end.touches_all_first

    def feed(self, role: str, part: Part, release: str | None, now: float) -> Iterator[MediaBreak]:
        """Take the next part of either half's stream, recorded at that time. `release` is the
        modelled one that ran, None for another."""
        yield from self._give_up(now - PATIENCE_SECONDS)
        if isinstance(part, Gap):
            self._lose(f"{role} of processed media: {part.why}")
            return
        match part.message:
            case Opened() as one:
                self._open(one, release)
            case ItemSent() as one:
                yield from self._take_sent(one, now)
            case ItemsReceived() as one:
                yield from self._take_received(one, now)
            case MediaForgotten(item=None):
                self._forget(role, now)
            case Raised(operation="recording"):
                self._forget_all()  # it is told elsewhere

    def end(self) -> Iterator[MediaBreak]:
        """Nothing more comes: what is still under way was never sent."""
        return self._give_up(math.inf)

    # what either half does

    def _take_sent(self, one: ItemSent, now: float) -> Iterator[MediaBreak]:
        self._has_sent = True
        if one.error:
            self.received += 1
            self.failed += 1
            self._is_disturbed = True
            yield from self._explaining(self._refused(one.error, one.item, SENT, now), now)
            return
        if self.is_shared:
            return
        if one.how == _DATA:
            brought = self._brought[one.item] = self._brought.pop(one.item, Brought())
            brought.sent += 1
            brought.sent_at = now
            if len(self._brought) > _NAMES_MAX:
                del self._brought[next(iter(self._brought))]
        self._under_way.append((now, (one.item, one.how)))
        if len(self._under_way) > _UNDER_WAY_MAX:
            self._under_way.popleft()
            self._is_disturbed = True

    def _take_received(self, one: ItemsReceived, now: float) -> Iterator[MediaBreak]:
        self.failed += bool(one.error)
        if self.is_shared:  # each worker reads for itself, text alone too
            kind = AFTER_A_RESET if self._emptied["sender"] else NEVER_RESET
            name = one.items[0][0] if one.items else ""
            yield from self._judge(Addressed(not one.error), name, kind, RECEIVED, now)
            return
        self.received += 1
        self._match(one.items, now)
        came = [item for item, how in one.items if how == _DATA]
        for item in came:
            self._arrive(item, now, is_failed=bool(one.error))
        yield from self._tell_overtaken()
        if one.error and not one.lacking:
            self._is_disturbed = True
            yield from self._explaining(self._refused(one.error, "", RECEIVED, now), now)
        waiting = len(self._waiting)
        lacking = [self._lack(item, now, has_come=item in came) for item in one.lacking]
        yield from self._explaining(chain(*lacking), now)
        if len(self._waiting) > waiting:
            self.explained.append(now)
        self._is_disturbed |= bool(one.lacking)

    def _explaining(self, broken: Iterable[MediaBreak], now: float) -> list[MediaBreak]:
        """The same; a request that breaks anything is one of which it is known why it failed."""
        told = list(broken)
        if told:
            self.explained.append(now)
        return told

    def _match(self, items: list[tuple[str, int]], now: float) -> None:
        """Take the items of a message from those that are under way."""
        while self._under_way and self._under_way[0][0] < now - PATIENCE_SECONDS:
            self._under_way.popleft()  # never sent
        first = [item for _, item in islice(self._under_way, len(items))]
        if Counter(first) == Counter(items):
            for _ in items:
                self._under_way.popleft()
            # Items of several modalities are sent kind by kind, and come as their prompt has them.
            if first != list(items):
                self._parted = MIXED
            self._matched = items
            return
        if items == self._matched:  # of a request for several answers
            return
        under_way = {item for _, item in self._under_way}
        if all(how == _DATA for _, how in items) and under_way.isdisjoint(items):
            self._parted = LEFT_OUT
            return
        self._is_disturbed = True
        for item in items:
            sent = next((one for one in self._under_way if one[1] == item), None)
            if sent is not None:
                self._under_way.remove(sent)

    def _arrive(self, item: str, now: float, *, is_failed: bool) -> None:
        brought = self._brought.get(item)
        if brought is not None:
            # A request for several answers sends its message several times.
            brought.arrived = min(brought.arrived + 1, brought.sent)
            brought.arrived_at = now
            brought.fate = FAILED if is_failed else ""
            brought.emptied = self._emptied["receiver"]

    def _tell_overtaken(self) -> Iterator[MediaBreak]:
        """Whatever has come by now was overtaken by the request that lacked it."""
        waiting, self._waiting = self._waiting, []
        for miss in waiting:
            if miss.brought.is_under_way:
                self._waiting.append(miss)
            else:
                kind = WITHDRAWN if miss.brought.fate == WITHDRAWN else UNDER_WAY
                yield from self._missed(miss.item, kind, miss.time)

    def _give_up(self, before: float) -> Iterator[MediaBreak]:
        """What was lacking before that time, and has not come since, was never sent."""
        while self._waiting and self._waiting[0].time < before:
            miss = self._waiting.pop(0)
            if miss.brought.is_under_way:
                miss.brought.arrived += 1
                miss.brought.fate = WITHDRAWN
            yield from self._missed(miss.item, WITHDRAWN, miss.time)

    def _forget(self, role: str, now: float) -> None:
        if not self._has_sent:  # as every server does at its start
            return
        self._emptied[role] += 1
        self._emptied_at[role] = now
        self._is_disturbed = self._emptied["sender"] != self._emptied["receiver"]
        if not self._is_disturbed:
            self._parted = ""
            # Whatever is under way finds nobody who relies on it.
            self._under_way.clear()
            for brought in self._brought.values():
                brought.arrived = brought.sent

    def _lose(self, why: str) -> None:
        """What was sent and had is not known any more."""
        self.gaps.append(why)
        self._forget_all()

    def _forget_all(self) -> None:
        self._brought.clear()
        self._under_way.clear()
        self._is_disturbed = True

    # what is broken

    def _lack(self, item: str, now: float, *, has_come: bool) -> Iterator[MediaBreak]:
        """An item is not there."""
        brought = self._brought.get(item)
        if has_come:
            yield from self._missed(item, CAME, now)
        elif brought is None:
            self.gaps.append("a request lacked an item of which no record says who sent it")
        elif brought.is_under_way:
            self._waiting.append(_Miss(item, brought, now))
        elif brought.fate:
            yield from self._missed(item, brought.fate, now)
        elif brought.emptied < self._emptied["receiver"]:
            yield from self._missed(item, EMPTIED, now)
        else:
            kind = EVICTED if self._is_disturbed else self._parted or UNDISTURBED
            yield from self._missed(item, kind, now)

    def _missed(self, item: str, kind: str, at: float) -> Iterator[MediaBreak]:
        return self._judge(Claimed(is_there=False), item, kind, RECEIVED, at)

    def _refused(self, error: str, item: str, operation: str, now: float) -> Iterator[MediaBreak]:
        """A half could not go on, and not since an item was lacking."""
        # What was not sent since the last reset was known before it, and no item has evicted it.
        brought, emptied = self._brought.get(item), self._emptied_at.get("sender", -math.inf)
        was_known = brought is not None and brought.sent_at >= emptied
        has_no_room = operation == SENT and error in _NOT_THERE and was_known
        if self.is_shared or not (error == _TOO_LARGE or (has_no_room and self._touches_all_first)):
            # Whether there was room, sizes would say, which no record has.
            self.unjudged.add(f"why media are refused with {error}")
            return
        kind = ONE_TOO_LARGE if error == _TOO_LARGE else TOGETHER_TOO_LARGE
        yield from self._judge(Answer(error), item, kind, operation, now)

    def _judge(
        self, subject: Subject, item: str, kind: str, operation: str, at: float
    ) -> Iterator[MediaBreak]:
        for rule in self._by_subject.get(type(subject), ()):
            if not rule.predicate(subject):
                why = rule.explain(**about(rule, subject))
                violation = Violation(rule, 0, operation, "", item, why, kind)
                yield MediaBreak(violation, at, self._led(item, kind, at))

    def _led(self, item: str, kind: str, at: float) -> tuple[str, ...]:
        """What either half did with an item before it was lacking, or after."""
        brought = self._brought.get(item)
        if self.is_shared and "sender" in self._emptied_at:
            before = at - self._emptied_at["sender"]
            return (f"the shared memory was emptied last {before:.3f} s before",)
        if brought is None:
            return ()
        told = [(brought.sent_at, f"the front end sends {item} with its data")]
        told.append((at, f"a request has {item} by its name alone, and it is not there"))
        if not math.isnan(brought.arrived_at):
            told.append((brought.arrived_at, f"{item} comes with its data"))
        told.sort()
        words = [f"{1000 * (when - told[0][0]):.1f} ms: {what}" for when, what in told]
        if kind == WITHDRAWN:
            words.append("its data never came")
        return tuple(words)


_JUDGED = {"lru": ("PM-2", "PM-3"), "shm": ("PM-8",)}
"""By store the contracts of what comes to a request; a record has neither contents nor sizes."""
