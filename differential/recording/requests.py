"""The requests of one scheduler, as a recorder knows them."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from cacheproof.differential.recording.messages import Arrived
from cacheproof.differential.targets.host.scheduler.session import WAITING_QUEUES
from cacheproof.differential.targets.host.vllm_objects.scheduler import ConfiguredScheduler

RETIRED_MAX = 4096


class Known:
    """A request as it arrived, and its number."""

    __slots__ = ("arrived", "number")

    def __init__(self, number: int, arrived: Arrived) -> None:
        self.number = number
        self.arrived = arrived


class Numbers:
    """Requests by name, numbered in order of arrival."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.next = 0
        self._retired: dict[str, int] = {}

    def of(self, name: str) -> int:
        """The number of a request; -1 for one that is long gone."""
        known = self.known.get(name)
        return self._retired.get(name, -1) if known is None else known.number

    def add(self, name: str, arrived: Arrived) -> None:
        """A request arrives, and has the next number."""
        self.known[name] = Known(self.next, arrived)
        self.next += 1

    def retire(self, name: str) -> None:
        """Note that a request is gone. Its number is kept for a while: a ledger may still name
        it."""
        known = self.known.pop(name, None)
        if known is not None:
            self._retired[name] = known.number
            if len(self._retired) > RETIRED_MAX:
                del self._retired[next(iter(self._retired))]


class RecordedStep:
    """Requests of a step, in order: how far each is after it, and a token for each of them."""

    __slots__ = ("ends", "names", "ones")

    def __init__(self, ends: Mapping[str, int | None]) -> None:
        self.names = list(ends)
        self.ones = dict.fromkeys(ends, 1)
        self.ends = list(ends.values())

    def ends_by_name(self) -> dict[str, int | None]:
        return dict(zip(self.names, self.ends, strict=True))


def order_of(
    before: Mapping[str, object],
    now: Mapping[str, object],
    tokens: Sequence[tuple[int, int, int | None]],
    number: Callable[[str], int],
) -> list[int] | None:
    """The order of a step's requests, where it does not follow from the step before."""
    if not tokens and list(before) == list(now):
        return None
    told = {one for one, _, _ in tokens}
    known = [name for name in before if name in now and number(name) not in told]
    likely = [*map(number, known), *(one for one, _, _ in tokens)]
    actual = list(map(number, now))
    return None if likely == actual else actual


class Queues:
    """Who runs and who waits, in order, as of the last `read`."""

    def __init__(self, scheduler: ConfiguredScheduler) -> None:
        self.running: list[str] = []
        self.waiting: list[str] = []
        self._scheduler = scheduler
        self._waiting = [attrgetter(name) for name in WAITING_QUEUES if hasattr(scheduler, name)]
        self._lengths: tuple[int, ...] = ()

    @property
    def may_have_moved(self) -> bool:
        """Whether a queue has another length than at the last `read`."""
        return self._lengths_now() != self._lengths

    def read(self) -> None:
        """Note who runs and waits; the lists stay the same objects where nothing changed."""
        scheduler = self._scheduler
        self._lengths = self._lengths_now()
        running = [request.request_id for request in scheduler.running]
        waiting = [request.request_id for queue in self._waiting for request in queue(scheduler)]
        if running != self.running:
            self.running = running
        if waiting != self.waiting:
            self.waiting = waiting

    def _lengths_now(self) -> tuple[int, ...]:
        scheduler = self._scheduler
        return (len(scheduler.running), *[len(queue(scheduler)) for queue in self._waiting])
