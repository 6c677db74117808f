"""The requests of one scheduler, as a recorder knows them."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from cacheproof.differential.recording.messages import Arrived
from cacheproof.differential.targets.host.scheduler.session import WAITING_QUEUES
from cacheproof.differential.targets.host.vllm_objects.scheduler import ConfiguredScheduler

RETIRED_MAX = 4096
_name_of = attrgetter("request_id")


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
        self._present = _Present(self._retired)
        self.of: Callable[[str], int] = self._present.__getitem__
        """The number of a request; -1 for one that is long gone."""

    def add(self, name: str, arrived: Arrived) -> None:
        """A request arrives, and has the next number."""
        self.known[name] = Known(self.next, arrived)
        self._present[name] = self.next
        self.next += 1

    def retire(self, name: str) -> None:
        """Note that a request is gone. Its number is kept for a while: a ledger may still name
        it."""
        known = self.known.pop(name, None)
        if known is not None:
            del self._present[name]
            self._retired[name] = known.number
            if len(self._retired) > RETIRED_MAX:
                del self._retired[next(iter(self._retired))]


class _Present(dict[str, int]):
    """Numbers of requests that are known; any other is asked of those that are gone."""

    def __init__(self, gone: Mapping[str, int]) -> None:
        self._gone = gone

    def __missing__(self, name: str) -> int:
        return self._gone.get(name, -1)


class RecordedStep:
    """Requests of a step, in order: how far each is after it, and a token for each of them."""

    __slots__ = ("ends", "names", "ones")

    def __init__(self, ends: Mapping[str, int | None]) -> None:
        self.names = list(ends)
        self.ones = [1] * len(ends)
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
        waiting = [name for name in WAITING_QUEUES if hasattr(scheduler, name)]
        self._read_queues = attrgetter("running", *waiting)
        self._lengths: tuple[int, ...] = ()

    @property
    def may_have_moved(self) -> bool:
        """Whether a queue has another length than at the last `read`."""
        return tuple(map(len, self._read_queues(self._scheduler))) != self._lengths

    def read(self) -> None:
        """Note who runs and waits; the lists stay the same objects where nothing changed."""
        queues = self._read_queues(self._scheduler)
        self._lengths = tuple(map(len, queues))
        running, *waiting = (list(map(_name_of, queue)) for queue in queues)
        waits = [name for queue in waiting for name in queue]
        if running != self.running:
            self.running = running
        if waits != self.waiting:
            self.waiting = waits
