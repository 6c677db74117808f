"""A watch around schedulers tells a fault from what its caller did."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cacheproof.differential.audit.scheduler_watch import REFUSABLE, SCHEDULERS, SchedulerWatch
from cacheproof.differential.judges.kv_cache_watch import KVCacheWatch
from cacheproof.differential.judges.live_contracts import SCHEDULER, live_contracts
from cacheproof.differential.judges.watch import ManagerWatch
from cacheproof.differential.judges.watching import (
    BESIDE,
    CONNECTED,
    RAISED,
    REPLACED,
    UNFOLLOWED,
    WRITTEN,
)
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.recording.settings import Facts
from cacheproof.differential.targets import reference_scheduler
from cacheproof.differential.targets.attached import (
    BLOCK_POOLS,
    ENCODER_MANAGERS,
    KV_CACHE_MANAGERS,
    Attachment,
)
from cacheproof.differential.targets.host.scheduler.session import SchedulerKit, SchedulerSession
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.targets.reference import ReferenceTarget, protocol_of
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.block_pool import BlockPool
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.scheduled_request import RequestStatus
from cacheproof.reference.scheduler.output import KVConnectorOutput
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.semantics import Semantics
from tests.differential.scheduler_traces import trace

SEMANTICS = Semantics.of_vllm(NEWEST)


class Answers(list[Any]):
    """What an update answers, as an engine's scheduler gives it to its clients."""

    def values(self) -> list[Any]:
        """For each client what is for it."""
        return [SimpleNamespace(outputs=self)]


class Served(Scheduler):
    """The reference's scheduler, asked as a release's is; calls what was planted in the place of
    its methods."""

    planted: Mapping[str, Callable[..., Any]] = {}
    inside: str = ""

    @property
    def waiting(self) -> list[Any]:
        return list(super().waiting)

    def update_from_output(self, *args: Any) -> Any:
        return Answers(self._make("update_from_output", super().update_from_output, args))

    def schedule(self, *args: Any) -> Any:
        return self._make("schedule", super().schedule, args)

    def _make(self, name: str, method: Callable[..., Any], args: Any) -> Any:
        if self.inside == name:
            return method(*args)
        self.inside = name
        try:
            return self.planted.get(name, method)(*args)
        finally:
            self.inside = ""


class NoRecorder:
    """In the place of a recorder that puts itself into the place of a manager's methods."""

    def __init__(self, manager: Any, **_: Any) -> None:
        self.manager = manager

    def take(self) -> list[Any]:
        return []

    def full_state(self) -> None:
        return None


class Driver:
    """Drives schedulers that a watch follows."""

    def __init__(self, watch: SchedulerWatch) -> None:
        self.watch = watch
        self.config: dict[str, Any] = {}

    def facts(self) -> Facts:
        """How a scheduler of the reference is asked."""
        return Facts(
            NEWEST,
            RequestStatus.PREEMPTED,
            lambda scheduler: protocol_of(SEMANTICS),
            self._settings,
            lambda scheduler: [],
        )

    def _settings(self, scheduler: Any) -> dict[str, Any]:
        return self.config | {
            "capacity": scheduler.encoder_cache_manager.cache_size,
            "compute_budget": scheduler.state.config.encoder_compute_budget,
        }

    def kit(self, trace: Trace, fault: str | None = None) -> SchedulerKit:
        """The scheduler of a trace; a fault that is planted in it is one of its class."""
        self.config = msgspec.to_builtins(trace.header.config)
        kit = reference_scheduler.build(ReferenceTarget().lines(trace), SEMANTICS, fault)
        scheduler = kit.scheduler
        names = OPERATIONS & vars(scheduler).keys()
        scheduler.planted = {name: vars(scheduler).pop(name) for name in names}
        return kit

    def run(self, trace: Trace, fault: str | None = None) -> None:
        """Drive it as an engine does."""
        lines = ReferenceTarget().lines(trace)
        list(run_events(SchedulerSession(self.kit(trace, fault), self.config), lines["events"]))


OPERATIONS = SCHEDULERS.operations.keys()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """A driver of the reference's schedulers."""
    monkeypatch.setattr(reference_scheduler, "Scheduler", Served)
    monkeypatch.setattr(reference_scheduler, "Recorder", NoRecorder)
    managers, caches = ManagerWatch(None), KVCacheWatch(None)
    watch = SchedulerWatch(None, managers, caches, lambda: driver.facts())
    driver = Driver(watch)
    attachments = [
        Attachment(managers, ENCODER_MANAGERS),
        Attachment(caches, KV_CACHE_MANAGERS),
        Attachment(caches, BLOCK_POOLS),
        Attachment(watch, SCHEDULERS),
    ]
    owners = (EncoderCacheManager, KVCacheManager, BlockPool, Scheduler)
    for attachment, owner in zip(attachments, owners, strict=True):
        attachment.wrap(owner)
    yield driver
    for attachment in attachments:
        attachment.detach()


def traces(count: int) -> list[Trace]:
    """Traces without sessions, which no audit follows."""
    made = (LANES["scheduler"].trace(seed, None) for seed in range(1000))
    without = (one for one in made if not any(map(is_of_a_session, one.events)))
    return [*islice(without, count)]


def is_of_a_session(event: Any) -> bool:
    return getattr(event, "resumable", False)


def test_a_correct_scheduler_under_a_correct_engine_gives_no_word(driver: Driver) -> None:
    for each in traces(15):
        driver.run(each)
    assert driver.watch.take() == ([], [])
    assert driver.watch.managers == {SCHEDULER: 15}
    assert driver.watch.calls > 300
    assert set(live_contracts(SCHEDULER, None)) == driver.watch.spoke[SCHEDULER].keys()


@pytest.mark.parametrize(
    ("fault", "contract"),
    [
        ("schedules_beyond_the_budget", "SC-1a"),
        ("splits_items", "SC-4"),
        ("stops", "LV-1"),
        ("preempts_the_most_urgent", "SC-13"),
        ("drops_what_is_encoded", "SC-9"),
    ],
)
def test_a_faulty_scheduler_is_caught_by_its_calls_alone(
    driver: Driver, fault: str, contract: str
) -> None:
    broken: set[str] = set()
    for each in traces(60):
        driver.run(each, fault)
        breaks, _ = driver.watch.take()
        broken.update(*(one.contracts for one in breaks))
        if contract in broken:
            return
    pytest.fail(f"only {broken}")


def added(driver: Driver) -> Any:
    """A scheduler with a request."""
    kit = driver.kit(trace())
    kit.scheduler.add_request(request_of(kit))
    return kit.scheduler


def request_of(kit: SchedulerKit, name: str = "a") -> Any:
    event = msgspec.to_builtins(Add(name, prompt=20))
    return kit.make_request(event, 0.0)


def written(driver: Driver) -> None:
    scheduler = added(driver)
    scheduler.requests["a"].num_computed_tokens = 3
    scheduler.schedule()


def moved(driver: Driver) -> None:
    scheduler = added(driver)
    scheduler.state.running.append(scheduler.state.waiting.pop_request())
    scheduler.schedule()


def other_settings(driver: Driver) -> None:
    scheduler = added(driver)
    driver.config["max_num_seqs"] += 1
    scheduler.schedule()


def replaced(driver: Driver) -> None:
    scheduler = added(driver)
    scheduler.kv_cache_manager.allocate_slots = lambda *_, **__: None
    scheduler.schedule()


def beside(driver: Driver) -> None:
    scheduler = added(driver)
    scheduler.encoder_cache_manager.num_free_slots = 1
    scheduler.encoder_cache_manager.get_freed_mm_hashes()
    scheduler.schedule()


def connected(driver: Driver) -> None:
    kit = driver.kit(trace(ec_connector=True))
    kit.scheduler.add_request(request_of(kit))


def another_step(driver: Driver) -> None:
    scheduler = added(driver)
    output = scheduler.schedule()
    for _ in range(2):
        scheduler.update_from_output(output, {"a": [7]}, KVConnectorOutput())


def refused(driver: Driver) -> None:
    scheduler = added(driver)
    scheduler.schedule()
    with pytest.raises(AttributeError):
        scheduler.update_from_output(None, {}, KVConnectorOutput())


def too_long(driver: Driver) -> None:
    kit = driver.kit(trace())
    event = msgspec.to_builtins(Add("a", prompt=200))
    kit.scheduler.add_request(kit.make_request(event, 0.0))


@pytest.mark.parametrize(
    ("misuse", "why"),
    [
        (written, WRITTEN),
        (moved, WRITTEN),
        (other_settings, WRITTEN),
        (replaced, REPLACED),
        (beside, BESIDE),
        (connected, CONNECTED),
        (another_step, UNFOLLOWED),
        (refused, RAISED),
        (too_long, REFUSABLE),
    ],
)
def test_what_no_engine_does_is_noted_and_no_fault(
    driver: Driver, misuse: Callable[[Driver], None], why: str
) -> None:
    with suppress(Exception):
        misuse(driver)
    breaks, notes = driver.watch.take()
    assert breaks == []
    assert [note.why for note in notes] == [why]


@pytest.mark.full
def test_a_scheduler_that_is_gone_is_forgotten(driver: Driver) -> None:
    for _ in range(5):
        added(driver).schedule()
        gc.collect()
    assert driver.watch.managers == {SCHEDULER: 5}
    assert len(driver.watch._followed) <= 1
