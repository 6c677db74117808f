"""A campaign comes to the same however it is run: stopped, shared, by however many workers."""

import gc
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.lanes.all_lanes import lane_called
from cacheproof.differential.search import verdict
from cacheproof.differential.search.campaigns import outcomes, reporting
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.runners import DEAD_SECONDS, Who
from cacheproof.differential.search.campaigns.running import RunningTarget
from cacheproof.differential.search.campaigns.schema import JOBS
from cacheproof.differential.search.campaigns.store import (
    SEARCH,
    Away,
    CampaignStore,
    CampaignTarget,
    MadeBy,
)
from cacheproof.differential.search.work import Job, SearchTask, SearchWorker
from cacheproof.differential.targets.reference import ReferenceTarget
from tests.differential.search.campaigns.conftest import ELSEWHERE, InlineCrew, Rig

LANES = ("encoder-decoder", "encoder-decoder of several items")
PLAN = CampaignPlan(targets=("reference",), seeds="0:20", shard_seeds=4)
SHARDS = 10


@pytest.mark.full
def test_a_campaign_searches_every_shard_plants_faults_and_makes_small_what_it_finds(rig) -> None:
    store = rig.store(PLAN)
    crew = rig.run(store)
    assert len(crew.searched) == SHARDS
    (reported,) = reporting.reported(store, [])
    assert reported.seeds == {lane: ["0:20"] for lane in LANES}
    assert reported.verdict.unfinished == ""
    assert {one.contract for one in reported.verdict.findings} >= {"ED-5"}
    assert all(isinstance(one, Finding) for one in reported.verdict.findings)
    assert len(reported.verdict.canaries) >= 8
    assert all(reported.verdict.canaries.values())
    assert rig.document(store)["exit_code"] == verdict.UNLISTED


def test_what_holds_ends_with_0(rig) -> None:
    rig.target = ReferenceTarget()
    store = rig.store(PLAN)
    rig.run(store)
    assert rig.document(store)["exit_code"] == verdict.HOLDS


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_a_campaign_that_is_killed_often_comes_to_the_same(rig, seed: int) -> None:
    undisturbed = rig.store(PLAN)
    rig.run(undisturbed)
    store, chance = rig.store(PLAN), random.Random(seed)
    done: Counter[tuple[str, int]] = Counter()
    kills = 0
    while rig.document(store)["targets"][0]["void_because"]:
        killed_at = chance.randrange(6)
        crew = rig.run(store, workers=chance.choice([1, 3]), killed_at=killed_at)
        kills += len(crew.done) == killed_at
        done.update((lane, seeds.start) for lane, seeds in crew.searched)
    assert kills > 3
    assert sum(done.values()) > SHARDS  # a shard that was under way was run again
    assert rig.document(store) == rig.document(undisturbed)


@pytest.mark.full
def test_a_shard_that_has_ended_is_not_run_again(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=9)
    before = {one.job.key for one in store.ended(0, SEARCH)}
    assert before
    again = rig.run(store).searched
    assert len(again) == SHARDS - len(before)


@pytest.mark.full
def test_an_outcome_that_is_changed_changes_the_digest(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store)
    before = rig.document(store)["digest"]
    _spoil(store, f"{SEARCH} reference encoder-decoder 4:8")
    assert rig.document(store)["digest"] != before


def _spoil(store: CampaignStore, key: str) -> None:
    """Write one call more into what a shard came to."""
    (ended,) = (one for one in store.ended(0, SEARCH) if one.job.key == key)
    outcome: outcomes.SearchedShard = outcomes.read(outcomes.SearchedShard, ended.outcome)
    outcome = outcome.__class__(
        **{
            name: getattr(outcome, name)
            for name in outcome.__struct_fields__
            if name not in ("work",)
        },
        work=replace(outcome.work, calls=outcome.work.calls + 1),
    )
    values = {"outcome": outcomes.written(outcome), "digest": outcomes.digest_of(outcome)}
    with store.writing() as connection:
        connection.execute(JOBS.update().where(JOBS.c.key == key), values)


@pytest.mark.full
def test_two_processes_at_one_store_share_its_shards(rig, monkeypatch) -> None:
    # Nobody is taken for dead while the other has nothing to do, however slow this machine is.
    monkeypatch.setattr(rig.clock, "wait", os.sched_yield)
    undisturbed = rig.store(PLAN)
    rig.run(undisturbed)
    place = rig.place()
    rig.place = lambda: place
    store = rig.store(PLAN)
    url = str(place)
    crews = []

    def join() -> None:
        own = CampaignStore(url)
        crews.append(rig.run(own))
        own.close()

    threads = [threading.Thread(target=join) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    searched = [one for crew in crews for one in crew.searched]
    assert len(searched) == len({(lane, seeds.start) for lane, seeds in searched}) == SHARDS
    assert rig.document(store) == rig.document(undisturbed)


def test_a_job_of_a_process_that_lives_is_left_to_it(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=0)
    now = rig.clock.now()
    other = store.enlist(Who.here(), 1, now)
    first = {job.key for job in store.claim(other, 0, None, 100, now)}
    third = store.enlist(Who("another", "host", 2, "2"), 1, now)
    assert not {job.key for job in store.claim(third, 0, None, 100, now)} & first


def test_jobs_of_a_process_that_is_not_heard_of_are_taken_over(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=0)
    now = rig.clock.now()
    some = store.enlist(Who("another", "host", 2, "2"), 1, now)
    taken = {job.key for job in store.claim(some, 0, None, 100, now)}
    other = store.enlist(Who("third", "host", 3, "3"), 1, now)
    store.beat(some, 1, now + DEAD_SECONDS)
    soon = now + DEAD_SECONDS + 1
    assert not {job.key for job in store.claim(other, 0, None, 100, soon)} & taken
    late = now + 2 * DEAD_SECONDS + 1
    assert {job.key for job in store.claim(other, 0, None, 100, late)} >= taken


def test_a_process_that_beats_late_keeps_what_nobody_has_taken_over(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=0)
    now = rig.clock.now()
    late = store.enlist(ELSEWHERE, 1, now)
    first = store.claim(late, 0, None, 1, now)
    later = now + 2 * DEAD_SECONDS
    assert not set(store.claim(late, 0, None, 100, later)) & set(first)
    other = store.enlist(Who("third", "host", 3, "3"), 1, later)  # takes it for dead
    assert [one.who.host for one in store.beating()] == ["third"]
    store.beat(late, 1, later)
    assert {one.who.host for one in store.beating()} == {"third", ELSEWHERE.host}
    assert set(store.claim(other, 0, None, 100, later)) >= set(first)


@dataclass
class Failing:
    """A store whose server goes away now and then, before or after it has done what was asked."""

    store: CampaignStore
    chance: random.Random
    times: int = 0

    def __getattr__(self, name: str) -> Any:
        what = getattr(self.store, name)
        return self._asking(what) if callable(what) else what

    def _asking(self, what: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            first, second = self.chance.random() < 0.1, self.chance.random() < 0.1
            if not first:
                came = what(*arguments)
            if first or second:
                self.times += 1
                raise Away("it is away")
            return came

        return ask


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(4))
def test_a_server_that_goes_away_at_any_moment_costs_nothing(rig, seed: int) -> None:
    undisturbed = rig.store(PLAN)
    rig.run(undisturbed)
    store, said = rig.store(PLAN), []
    failing = Failing(store, random.Random(seed))
    rig.run(store, workers=3, through=failing, say=said.append)
    assert failing.times > 10
    assert said[0] == "it is away; waiting for it"
    assert said[-1].endswith("it is back")
    assert rig.document(store) == rig.document(undisturbed)


def test_what_was_taken_without_its_taker_hearing_of_it_is_open_again(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=0)
    now = rig.clock.now()
    taker, other = (store.enlist(ELSEWHERE, 1, now) for _ in range(2))
    known, unheard = store.claim(taker, 0, None, 2, now)
    assert unheard not in store.claim(other, 0, None, 100, now)
    store.let_go(taker, {known.key})
    assert store.claim(other, 0, None, 100, now) == [unheard]


def test_a_database_whose_server_ends_is_said_to_be_away(postgresql) -> None:
    store = Rig(postgresql).store(PLAN)
    with psycopg.connect(store.where, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(Away, match="expected a database that works"):
        store.counts(0)
    assert store.counts(0) == {}


def test_jobs_of_a_process_of_this_host_that_has_ended_are_taken_over_at_once(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=0)
    now = rig.clock.now()
    gone = store.enlist(replace(Who.here(), started="0"), 1, now)
    taken = {job.key for job in store.claim(gone, 0, None, 100, now)}
    assert taken
    other = store.enlist(Who.here(), 1, now)
    assert {job.key for job in store.claim(other, 0, None, 100, now)} >= taken


def test_what_a_process_ends_after_another_took_it_over_does_not_count(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=9)
    now = rig.clock.now()
    (ended, *_) = store.ended(0, SEARCH)
    late = store.enlist(Who.here(), 1, now)
    store.finish(late, [replace(ended, digest="another")], now)
    assert "another" not in {one.digest for one in store.ended(0, SEARCH)}


@pytest.mark.full
@pytest.mark.parametrize(
    "plan",
    [
        CampaignPlan(targets=("reference",), events=1500, shard_seeds=2),
        CampaignPlan(targets=("reference",), until="first-unlisted", shard_seeds=2),
    ],
    ids=["events", "first-unlisted"],
)
def test_a_search_without_seeds_ends_with_the_same_shard_for_any_number_of_workers(
    rig, plan: CampaignPlan
) -> None:
    documents = []
    for workers in (1, 4):
        store = rig.store(plan)
        rig.run(store, workers=workers)
        documents.append(rig.document(store))
    assert documents[0] == documents[1]
    lanes = documents[0]["targets"][0]["lanes"]
    assert 0 < sum(lane["traces"] for lane in lanes) < 100
    if plan.events is not None:
        assert sum(lane["events"] for lane in lanes) >= plan.events


def test_seconds_of_search_end_a_search(rig) -> None:
    rig.target = ReferenceTarget()  # whose own fault no search so short meets, nor tells from it
    plan = CampaignPlan(targets=("reference",), until=0.000001, shard_seeds=2)
    store = rig.store(plan)
    crew = rig.run(store)
    assert 1 <= len(crew.searched) <= 4
    assert rig.document(store)["targets"][0]["void_because"] == []


def test_a_campaign_that_is_not_finished_is_void_or_says_what_it_found(rig) -> None:
    rig.target = ReferenceTarget()
    store = rig.store(PLAN)
    rig.run(store, killed_at=3)
    document = rig.document(store)
    assert document["exit_code"] == verdict.VOID
    assert "shards are done" in document["targets"][0]["void_because"][0]


class Deaf(ReferenceTarget):
    """A target in which no planted fault takes."""

    def run(self, traces, fault=None):
        return super().run(traces)


def test_a_campaign_that_misses_a_planted_fault_is_void(rig) -> None:
    rig.target = Deaf()
    store = rig.store(PLAN)
    rig.run(store)
    document = rig.document(store)
    assert document["exit_code"] == verdict.VOID
    assert any("planted against ED-5" in one for one in document["targets"][0]["void_because"])


class Constant(InlineCrew):
    """Comes to the same for each shard; keeps each where shards are to be `kept`."""

    def __init__(self, target: ReferenceTarget, *, kept: bool) -> None:
        super().__init__(target, number=25)
        self._kept: list[Job] | None = [] if kept else None
        self._comes_to = SearchTask(lane_called(LANES[0]), range(2), 3).run(
            SearchWorker.of(target, target.another(), [])
        )

    def submit(self, run: Callable[[Any], Any], task: Job) -> "Future[Any]":
        if self._kept is not None:
            self._kept.append(task)
        future: Future[Any] = Future()
        future.set_result((self._comes_to, 0.0))
        return future


def objects_kept_per_shard(rig: Rig, crew: Constant) -> float:
    """How many objects there are more for each shard that ends."""
    counts: list[tuple[int, int]] = []

    def count(_words: str, _share: float | None) -> None:
        if 100 <= running.totals.next <= 300:  # there are as many under way
            gc.collect()
            counts.append((running.totals.next, len(gc.get_objects())))

    about = CampaignTarget("reference", None, "", False, False, LANES[:1])
    plan = CampaignPlan(targets=("reference",), seeds="0:800", shard_seeds=2)
    store = CampaignStore.create(rig.place(), plan, "", MadeBy("1", "code"), [about], 1.0)
    runner = store.enlist(ELSEWHERE, crew.number, rig.clock.now())
    running = RunningTarget(store, 0, rig.target, [], runner, crew, list, rig.clock, count)
    running.run()
    (before, had), (after, has) = counts[0], counts[-1]
    return (has - had) / (after - before)


@pytest.mark.full
def test_a_head_keeps_nothing_of_a_shard(rig) -> None:
    rig.target = ReferenceTarget()
    assert objects_kept_per_shard(rig, Constant(rig.target, kept=False)) < 0.5


@pytest.mark.full
def test_what_is_kept_of_a_shard_is_seen(rig) -> None:
    rig.target = ReferenceTarget()
    assert objects_kept_per_shard(rig, Constant(rig.target, kept=True)) > 0.75
