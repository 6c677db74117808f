"""What an encoder cache manager was asked and answered, as a record has it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cacheproof.differential.recording.messages import (
    OPERATIONS,
    LedgerDelta,
    ManagerCall,
    Queue,
)
from cacheproof.differential.targets.host.scheduler.recorder import OPERATIONS as NAMES
from cacheproof.differential.targets.host.scheduler.recorder import (
    Delta,
    Entry,
    LoggedCall,
    Recorder,
)

_NUMBER_OF = {operation: number for number, operation in enumerate(OPERATIONS)}
_DREW_NOTHING: LoggedCall = ("notices", None, None, None, None, [], None)
_NOTHING_DRAWN: ManagerCall = (_NUMBER_OF["notices"], None, None, None, None, [], None)
_NO_CALLS: list[ManagerCall] = []
_DREW_ONCE = [_NOTHING_DRAWN]
_READS = tuple(name for name, kind in NAMES.items() if kind in ("inputs", "embeds"))


class ManagerRecorder(Recorder):
    """Logs the calls of one manager, but for those that only read, of which there is one for every
    request of every step. Should one of them change how much there is, that is logged in its place
    before the next call. At a draw of no notices, of which there is one a step, the entries are
    compared only where there are more or fewer; what else it changed shows in the next call. What
    goes wrong here is raised by `written`, never to who called the manager.

    The change of a call is made of the entries that it is about. All others are compared with what
    they were, and all is read where one differs.
    """

    def __init__(self, manager: Any) -> None:
        self._has_ended = False
        self._failure: Exception | None = None
        self._touched: tuple[str, ...] | None = None
        self._moves: deque[Queue | None] = deque()
        self._reads_all = not hasattr(manager, "num_embeds_by_hash")
        own = dict(getattr(manager, "__dict__", {}))
        super().__init__(manager)
        for name in (one for one in _READS if hasattr(manager, one)):
            if name in own:
                setattr(manager, name, own[name])
            else:
                delattr(manager, name)

    def end(self) -> None:
        """Log no more."""
        self._has_ended = True
        self.calls.clear()
        self._moves.clear()

    def begin(self) -> None:
        super().begin()
        self._queued = dict(self._last[4])
        self._sizes_then = self._sizes()

    def _log(self, operation: str, args: tuple[Any, ...], answer: Any) -> None:
        if self._has_ended:
            return
        try:
            if operation == "notices" and not answer:
                sizes = self._sizes()
                if sizes != self._sizes_then:
                    self._touched = None
                    super()._log("inputs", (), None)
                    self._sizes_then = sizes
                self.calls.append(_DREW_NOTHING)
                return
            self._touched = None if self._reads_all else self._entries_of(operation, args)
            super()._log(operation, args, answer)
            self._sizes_then = self._sizes()
        except Exception as error:
            self._failure = error
            self.end()

    def _delta(self) -> Delta | None:
        touched = self._touched
        if touched is None:
            return self._whole_delta({})
        manager = self.manager
        free, freeable, holders, sizes, queue, notices = self._last
        cached, embeds, queued = manager.cached, manager.num_embeds_by_hash, manager.freeable
        entries: dict[str, Entry | None] = {}
        left: list[str] = []
        joined: list[tuple[str, int]] = []
        for name in touched:
            refs, size = cached.get(name), embeds.get(name)
            if refs != holders.get(name) or size != sizes.get(name):
                _put(sizes, name, size)
                if refs is not None or name in holders:
                    entries[name] = None if refs is None else (sorted(refs), size)
                _put(holders, name, None if refs is None else set(refs))
            was, now = self._queued.get(name), queued.get(name)
            if was != now:
                if was is not None:
                    left.append(name)
                if now is not None:
                    joined.append((name, now))
        if len(joined) > 1:  # in whatever order the manager had them join
            joined = [*queued.items()][-len(joined) :]
        if left or joined:
            queue = [one for one in queue if one[0] not in left] + joined
            self._queued = dict(queue)
        if not self._are_others_as_before():
            return self._whole_delta(entries)
        freed = manager.freed
        now_free, now_freeable = manager.num_free_slots, manager.num_freeable_slots
        if (
            not (entries or left or joined)
            and now_free == free
            and now_freeable == freeable
            and freed == notices
        ):
            return None
        self._last = now_free, now_freeable, holders, sizes, queue, freed[:]
        self._moves.append((left, joined) if left or joined else None)
        return now_free, now_freeable, entries, None, None if freed == notices else freed[:]

    def _are_others_as_before(self) -> bool:
        """Whether all that there is is what was known, with what a call changed of its entries."""
        manager, queued = self.manager, self._queued
        _, _, holders, sizes, *_ = self._last
        return bool(
            manager.cached == holders
            and manager.num_embeds_by_hash == sizes
            # Lists, since dicts are alike in any order.
            and [*manager.freeable] == [*queued]
            and [*manager.freeable.values()] == [*queued.values()]
        )

    def _whole_delta(self, entries: dict[str, Entry | None]) -> Delta | None:
        """What changed, all being read, beside entries of which that is known already."""
        before = self._last[4]
        delta = super()._delta()
        if delta is None:
            return None
        free, freeable, others, queue, notices = delta
        self._moves.append(None if queue is None else change_of(before, queue))
        self._queued = dict(self._last[4])
        return free, freeable, {**entries, **others}, None, notices

    def _entries_of(self, operation: str, args: tuple[Any, ...]) -> tuple[str, ...] | None:
        """The identifiers that a call is about; None for all."""
        try:
            if operation == "free":
                return tuple({one.identifier for one in args[0].mm_features})
            if operation != "reset":
                return (args[0].mm_features[args[1]].identifier,)
        except (AttributeError, IndexError, TypeError):  # it has other arguments
            pass
        return None

    def written(
        self, number_of: Callable[[str], int], hashed: Callable[[str], str]
    ) -> list[ManagerCall]:
        """The calls since the last time: requests by number, identifiers hashed."""
        if self._failure is not None:
            raise self._failure
        if not self.calls:
            return _NO_CALLS
        calls, self.calls = self.calls, []
        if len(calls) == 1 and calls[0] is _DREW_NOTHING:
            return _DREW_ONCE
        return [
            _NOTHING_DRAWN if call is _DREW_NOTHING else self._written(call, number_of, hashed)
            for call in calls
        ]

    def _written(
        self, call: tuple[Any, ...], number_of: Callable[[str], int], hashed: Callable[[str], str]
    ) -> ManagerCall:
        operation, request, number, budget, pending, answer, delta = call
        if isinstance(answer, list) and operation == "notices":
            answer = list(map(hashed, answer))
        return (
            _NUMBER_OF[operation],
            None if request is None else number_of(request),
            number,
            budget,
            pending,
            answer,
            None if delta is None else self._delta_of(delta, number_of, hashed),
        )

    def _delta_of(
        self, delta: tuple[Any, ...], number_of: Callable[[str], int], hashed: Callable[[str], str]
    ) -> LedgerDelta:
        free, freeable, entries, _, notices = delta
        moved: Queue | None = None
        if (move := self._moves.popleft()) is not None:
            left, joined = move
            moved = list(map(hashed, left)), [(hashed(name), size) for name, size in joined]
        return (
            free,
            freeable,
            {
                hashed(name): None if entry is None else (list(map(number_of, entry[0])), entry[1])
                for name, entry in entries.items()
            },
            moved,
            None if notices is None else list(map(hashed, notices)),
        )

    def _sizes(self) -> tuple[int, ...]:
        manager = self.manager
        if self._reads_all:
            return (
                manager.num_free_slots,
                getattr(manager, "num_freeable_slots", 0),
                len(getattr(manager, "cached", ())),
                len(getattr(manager, "freeable", ())),
                len(getattr(manager, "freed", ())),
            )
        return (
            manager.num_free_slots,
            manager.num_freeable_slots,
            len(manager.cached),
            len(manager.freeable),
            len(manager.freed),
        )


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def change_of(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> tuple[list[str], list[tuple[str, int]]]:
    """Which names leave a queue, and what then comes after those that stay. Where these do not
    stand as they stood, all leave and all come."""
    kept = set(after)
    stay = [one for one in before if one in kept]
    if after[: len(stay)] == stay:
        staying = set(stay)
        return [name for name, size in before if (name, size) not in staying], after[len(stay) :]
    return [name for name, _ in before], after


def changed(
    before: Mapping[str, int], gone: Iterable[str], added: Iterable[tuple[str, int]]
) -> dict[str, int]:
    """The queue after a change, as `change_of` tells it."""
    queue = dict(before)
    for name in gone:
        queue.pop(name, None)
    for name, size in added:
        queue.pop(name, None)
        queue[name] = size
    return queue
