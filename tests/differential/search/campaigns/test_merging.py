"""Merged stores are one campaign, and what does not fit is refused by name."""

from dataclasses import replace

import msgspec
import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.search.campaigns.merging import merge_stores
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.runners import Who
from cacheproof.differential.search.campaigns.schema import JOBS
from cacheproof.differential.search.campaigns.store import DONE, SEARCH, CampaignStore

PLAN = CampaignPlan(targets=("reference",), seeds="0:8", shard_seeds=4)
LATER = msgspec.structs.replace(PLAN, seeds="8:15")
BOTH = msgspec.structs.replace(PLAN, seeds=("0:8", "8:15"))
FOR_EVER = 1e12
"""By then nobody who ran a store is alive."""


def begun(rig, plan: CampaignPlan, **settings) -> tuple[str, CampaignStore]:
    """A store of a plan, and its place."""
    place = rig.place()
    return place, replace(rig, place=lambda: place).store(plan, **settings)


def ran(rig, plan: CampaignPlan, killed_at: int | None = None) -> tuple[str, CampaignStore]:
    place, store = begun(rig, plan)
    rig.run(store, killed_at=killed_at)
    return place, store


@pytest.mark.full
@pytest.mark.parametrize("is_third", [False, True])
def test_stores_of_two_ranges_of_seeds_become_the_campaign_of_both(rig, is_third: bool) -> None:
    (first, _), (second, _) = ran(rig, LATER), ran(rig, PLAN)
    into = rig.place() if is_third else None
    merged = merge_stores(first, second, into, FOR_EVER)
    assert (merged.shards, merged.both) == (8, 0)
    store = CampaignStore(into or first)
    rig.run(store)  # what the whole campaign keeps and neither did is written down
    _, whole = ran(rig, BOTH)
    assert rig.document(store) == rig.document(whole)


def test_a_shard_in_both_counts_once(rig) -> None:
    (first, store), (second, _) = ran(rig, PLAN), ran(rig, PLAN)
    before = rig.document(store)
    merged = merge_stores(first, second, None, FOR_EVER)
    assert (merged.shards, merged.both) == (4, 4)
    assert rig.document(store) == before


@pytest.mark.full
def test_what_one_has_and_the_other_lacks_is_taken(rig) -> None:
    (first, _), (second, whole) = ran(rig, PLAN, killed_at=4), ran(rig, PLAN)
    merge_stores(first, second, None, FOR_EVER)
    assert rig.document(CampaignStore(first)) == rig.document(whole)


@pytest.mark.full
def test_a_shard_that_came_to_different_things_is_refused_by_name(rig) -> None:
    (first, store), (second, other) = ran(rig, PLAN), ran(rig, PLAN)
    key = f"{SEARCH} reference encoder-decoder 4:8"
    with other.writing() as connection:
        connection.execute(JOBS.update().where(JOBS.c.key == key), {"digest": "another"})
    before = rig.document(store)
    with pytest.raises(InputError, match=f"{key} came to .* and to another"):
        merge_stores(first, second, None, FOR_EVER)
    assert rig.document(store) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": "4:12"}, "seeds 0:8 and 4:12 overlap"),
        ({"shard_seeds": 5}, "key shard_seeds of the plan is 4 and 5"),
        ({"reference": False}, "key reference of the plan"),
    ],
)
def test_plans_that_do_not_fit_are_refused(rig, change: dict[str, object], words: str) -> None:
    first, _ = begun(rig, PLAN)
    second, _ = begun(rig, msgspec.structs.replace(PLAN, **change))
    with pytest.raises(InputError, match=words):
        merge_stores(first, second, None, FOR_EVER)


def test_stores_of_another_cacheproof_are_refused(rig) -> None:
    (first, _), (second, _) = begun(rig, PLAN), begun(rig, PLAN, code="other")
    with pytest.raises(InputError, match="the digest of cacheproof's text is code and other"):
        merge_stores(first, second, None, FOR_EVER)


def test_a_store_that_somebody_runs_is_refused(rig) -> None:
    (first, store), (second, _) = begun(rig, PLAN), begun(rig, PLAN)
    store.enlist(Who.here(), 1, rig.clock.now())
    with pytest.raises(InputError, match="runs it; expected a store that nobody runs"):
        merge_stores(first, second, None, rig.clock.now())


def test_a_store_is_not_merged_with_itself(rig) -> None:
    first, _ = begun(rig, PLAN)
    with pytest.raises(InputError, match="one store; expected two"):
        merge_stores(first, first, None, FOR_EVER)


@pytest.mark.full
def test_a_merged_store_goes_on_with_what_neither_had(rig) -> None:
    (first, _), (second, _) = ran(rig, PLAN, killed_at=4), ran(rig, LATER, killed_at=4)
    merge_stores(first, second, None, FOR_EVER)
    store = CampaignStore(first)
    done = {one.job.key for one in store.ended(0, SEARCH) if one.state == DONE}
    again = rig.run(store).searched
    assert done
    assert len(again) == 8 - len(done)
    _, whole = ran(rig, BOTH)
    assert rig.document(store) == rig.document(whole)
