"""The benchmark that disturbs a campaign says what is lost, and in what two reports differ."""

from typing import Any

import pytest

from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.store import CampaignStore, MadeBy

DONE = {"search reference lane 0:5": "a1", "search reference lane 5:10": "b2"}


def report(**of_target: Any) -> dict[str, Any]:
    target = {"lanes": [{"traces": 5}], "canaries": {"one": True}, "findings": []}
    return {"digest": "d1", "targets": [target | of_target]}


def test_jobs_that_stay_done_are_not_lost(script) -> None:
    assert script.lost(DONE, DONE | {"search reference lane 10:15": "c3"}) == 0


@pytest.mark.parametrize(
    "after", [{"search reference lane 0:5": "a1"}, DONE | {"search reference lane 0:5": "other"}]
)
def test_a_job_that_is_gone_or_came_to_something_else_is_lost(script, after) -> None:
    assert script.lost(DONE, after) == 1


def test_equal_reports_differ_in_nothing(script) -> None:
    assert script.differences(report(), report()) == []


def test_reports_differ_in_what_is_named(script) -> None:
    other = report(canaries={"one": False}, lanes=[]) | {"digest": "d2"}
    assert script.differences(report(), other) == ["digest", "lanes", "canaries"]


def test_memory_is_told_at_the_beginning_at_the_end_and_at_most(script) -> None:
    assert script.told([0, 50, *[100] * 20, 300, *[110] * 20]) == "100 / 110 / 300 MiB"


def test_a_place_without_a_store_has_nothing_done(script, tmp_path) -> None:
    assert script.done_in(str(tmp_path / "nothing")) == {}
    plan = CampaignPlan(targets=("reference",), seeds="0:5")
    CampaignStore.create(str(tmp_path), plan, "", MadeBy("1", "code"), [], 1.0).close()
    assert script.done_in(str(tmp_path)) == {}
