"""What an encoder cache manager was asked and answered, as a record has it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cacheproof.differential.recording.messages import (
    OPERATIONS,
    LedgerDelta,
    ManagerCall,
    Queue,
)
from cacheproof.differential.targets.host.scheduler.recorder import OPERATIONS as NAMES
from cacheproof.differential.targets.host.scheduler.recorder import LoggedCall, Recorder

_NUMBER_OF = {operation: number for number, operation in enumerate(OPERATIONS)}
_DREW_NOTHING: LoggedCall = ("notices", None, None, None, None, [], None)
_NOTHING_DRAWN: ManagerCall = (_NUMBER_OF["notices"], None, None, None, None, [], None)
_READS = tuple(name for name, kind in NAMES.items() if kind in ("inputs", "embeds"))


class ManagerRecorder(Recorder):
    """Logs the calls of one manager, but for those that only read, of which there is one for every
    request of every step. Should one of them change how much there is, that is logged in its place
    before the next call. At a draw of no notices, of which there is one a step, the entries are
    compared only where there are more or fewer; what else it changed shows in the next call. What
    goes wrong here is raised by `written`, never to who called the manager."""

    def __init__(self, manager: Any) -> None:
        self._has_ended = False
        self._failure: Exception | None = None
        reads = {name: getattr(manager, name) for name in _READS if hasattr(manager, name)}
        super().__init__(manager)
        for name, method in reads.items():
            setattr(manager, name, method)
        self._queue = list(self.full_state()["queue"])

    def end(self) -> None:
        """Log no more."""
        self._has_ended = True
        self.calls.clear()

    def begin(self) -> None:
        super().begin()
        self._sizes_then = self._sizes()

    def _log(self, operation: str, args: tuple[Any, ...], answer: Any) -> None:
        if self._has_ended:
            return
        try:
            if operation == "notices" and not answer:
                sizes = self._sizes()
                if sizes != self._sizes_then:
                    super()._log("inputs", (), None)
                    self._sizes_then = sizes
                self.calls.append(_DREW_NOTHING)
                return
            super()._log(operation, args, answer)
            self._sizes_then = self._sizes()
        except Exception as error:
            self._failure = error
            self.end()

    def written(
        self, number_of: Callable[[str], int], hashed: Callable[[str], str]
    ) -> list[ManagerCall]:
        """The calls since the last time: requests by number, identifiers hashed."""
        if self._failure is not None:
            raise self._failure
        calls, self.calls = self.calls, []
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
        free, freeable, entries, queue, notices = delta
        moved: Queue | None = None
        if queue is not None:
            gone, added = change_of(self._queue, queue)
            moved = list(map(hashed, gone)), [(hashed(name), size) for name, size in added]
            self._queue = queue
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
        return (
            manager.num_free_slots,
            getattr(manager, "num_freeable_slots", 0),
            len(getattr(manager, "cached", ())),
            len(getattr(manager, "freeable", ())),
            len(getattr(manager, "freed", ())),
        )


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
