"""What is kept in memory of a search is the same whichever worker was the faster."""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console

from cacheproof.differential.search.job_runner import LOST
from cacheproof.output.progress import Live
from cacheproof.search import memory_store
from cacheproof.search.memory_store import DueJob, MemoryStore


@dataclass
class Inline:
    """Does each job at once; a job that is an exception is raised."""

    number: int = 3

    def submit(self, run: Callable[[Any], Any], task: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(run(task))
        except BrokenProcessPool as error:
            future.set_exception(error)
        return future


def work(job: Any) -> Any:
    if isinstance(job, BaseException):
        raise job
    return job


def last_first(under_way: Collection["Future[Any]"]) -> Collection["Future[Any]"]:
    return list(under_way)[-1:]


@pytest.fixture(autouse=True)
def _last_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun last ends first."""
    monkeypatch.setattr(memory_store, "done_among", last_first)


@pytest.fixture
def live() -> Iterator[Live]:
    shown = Live(Console(quiet=True))
    with shown.phase("a search"):
        yield shown


def done(live: Live, jobs: list[Any], *, in_order: bool = True) -> tuple[MemoryStore, list[Any]]:
    """The store in which the jobs were done, and their outcomes as they were taken in."""
    taken: list[Any] = []
    store = MemoryStore([], {})
    take = store.unless_error(taken.append)
    dues = (DueJob(one, take, "job", in_order=in_order) for one in jobs)
    store.do(Inline(), work, live, dues, lambda: "")
    return store, taken


def test_outcomes_are_taken_in_the_order_of_their_jobs(live: Live) -> None:
    store, taken = done(live, list(range(20)))
    assert taken == list(range(20))
    assert store.errors == []


def test_what_needs_no_order_is_taken_as_it_comes(live: Live) -> None:
    _, taken = done(live, list(range(20)), in_order=False)
    assert sorted(taken) == list(range(20)) != taken


def test_an_outcome_that_is_a_text_is_an_error(live: Live) -> None:
    store, taken = done(live, [1, "it broke", 2])
    assert (taken, store.errors) == ([1, 2], ["it broke"])


def test_a_worker_that_ends_is_an_error_and_the_rest_is_kept(live: Live) -> None:
    store, taken = done(live, [BrokenProcessPool(), *range(8)])
    assert (taken, store.errors) == ([], [LOST])
    _, taken = done(live, [BrokenProcessPool(), *range(8)], in_order=False)
    assert taken == list(range(7, -1, -1))


def test_an_interruption_ends_the_work_with_what_there_is(live: Live) -> None:
    store, taken = done(live, [*range(8), KeyboardInterrupt()], in_order=False)
    assert store.interrupted
    assert taken == []


def test_no_search_is_begun_after_its_seconds(live: Live) -> None:
    store = MemoryStore([], {}, seconds=0.0)
    assert list(store.in_time([1, 2])) == [1, 2]  # no host is ready: its seconds have not begun
    assert not store.stopped
    store.ready = store.began - 1.0
    assert list(store.in_time([1, 2])) == []
    assert store.stopped
