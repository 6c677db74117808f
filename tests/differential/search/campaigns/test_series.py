"""A store says when and by whom shards were searched, what they met together, what was lost."""

import pytest

from cacheproof.differential.errors import SetupError
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.runners import Who
from cacheproof.differential.search.campaigns.series import CampaignReader
from cacheproof.differential.search.campaigns.store import (
    DIED,
    FAILED,
    LEFT,
    SEARCH,
    CampaignStore,
    EndedJob,
)

PLAN = CampaignPlan(targets=("reference",), seeds="0:12", shard_seeds=4)
SHARDS = 6
GONE = Who.here()
HERE_AND_GONE = Who(GONE.host, GONE.place, GONE.pid, "another start")


@pytest.mark.full
def test_shards_have_their_work_and_who_did_it(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store)
    seen = CampaignReader().read(store)
    (runner,) = seen.runners
    assert len(seen.shards) == runner.jobs[SEARCH] == SHARDS
    assert {one.runner for one in seen.shards} == {runner.id}
    assert sum(one.traces for one in seen.shards) == 2 * 12
    assert sum(one.events for one in seen.shards) == store.spent(0)[0]
    assert seen.losses == []
    assert not seen.is_merged


@pytest.mark.full
def test_states_are_counted_by_the_traces_that_met_them(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store)
    for one in CampaignReader().read(store).shards:
        assert one.together is not None
        alone = {pair[0]: traces for pair, traces in one.together.items() if pair[0] == pair[1]}
        assert alone.keys() == set(one.met)
        assert all(1 <= traces <= one.traces for traces in alone.values())
        pairs = {pair: traces for pair, traces in one.together.items() if pair[0] != pair[1]}
        assert pairs
        assert all(traces <= min(alone[a], alone[b]) for (a, b), traces in pairs.items())


@pytest.mark.full
def test_a_process_that_was_killed_and_its_jobs_are_kept_as_lost(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, who=HERE_AND_GONE, killed_at=4)
    rig.run(store)
    seen = CampaignReader().read(store)
    died, second = seen.runners
    assert seen.losses is not None
    assert {(one.runner, one.why) for one in seen.losses} == {(died.id, DIED)}
    without_job, *lost = seen.losses
    assert without_job.job is None
    assert lost
    assert len(seen.shards) == SHARDS
    assert {one.runner for one in seen.shards} == {died.id, second.id}


def test_jobs_of_a_process_that_leaves_are_lost_too(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=0)
    (runner,) = CampaignReader().read(store).runners
    taken = runner.under_way
    assert taken > 0
    store.leave(runner.id, rig.clock.now())
    losses = CampaignReader().read(store).losses
    assert losses is not None
    assert [(one.runner, one.why) for one in losses] == [(runner.id, LEFT)] * taken


def test_a_job_that_failed_is_lost_when_it_is_done_again(rig) -> None:
    store = rig.store(PLAN)
    rig.run(store, killed_at=0)
    (runner,) = CampaignReader().read(store).runners
    (job,) = store.claim(runner.id, 0, None, 1, rig.clock.now())
    store.finish(runner.id, [EndedJob(job, FAILED, 0, 0, 0.0, "", "{}")], rig.clock.now())
    assert CampaignReader().read(store).losses == []
    store.try_again(rig.clock.now())
    (loss,) = CampaignReader().read(store).losses or ()
    assert (loss.job, loss.runner, loss.why) == (job.key, runner.id, FAILED)


def test_a_store_that_is_read_alone_refuses_changes(rig, place, monkeypatch) -> None:
    where = place()
    monkeypatch.setattr(rig, "place", lambda: where)
    with_all = rig.store(PLAN)
    reading = CampaignStore(where, reads_only=True)
    assert CampaignReader().read(reading).shards == []
    with pytest.raises(SetupError, match=r"read-?only"):
        reading.enlist(GONE, 1, 1.0)
    assert CampaignReader().read(with_all).runners == []
    with_all.enlist(GONE, 1, 1.0)  # so it is not for another reason
    for store in (reading, with_all):
        store.close()
