"""The page of guided search says what is on file, and no more than that bears."""

import importlib

import msgspec
import pytest


@pytest.fixture
def runs(script):
    """What is on file."""
    return importlib.import_module("guided_ratios").outcomes()


def faster(outcomes, way: str):
    """The runs of today, and the same with half the events for a way."""
    today = [one for one in outcomes if one.way == "today"]
    halved = [
        msgspec.structs.replace(one, way=way, events=one.events // (2 + one.base % 2))
        for one in today
    ]
    return [*today, *halved]


def test_the_tables_of_the_page_are_of_what_is_on_file(script, runs) -> None:
    page = script.PAGE.read_text()
    assert "\n".join(script.by_fault(runs, "held out")) in page
    assert "\n".join(script.means(runs)) in page
    assert "\n".join(script.of_lanes(script.lane_outcomes())) in page
    assert "[[" not in page


def test_every_held_out_fault_was_looked_for_today_and_by_feedback_on_ten_bases(
    script, runs
) -> None:
    for way in ("today", "feedback"):
        for fault in script.of_half("held out"):
            found = script.runs_of(runs, way, [fault])
            assert sorted(one.base for one in found) == list(range(10))


def test_no_way_pays_as_the_page_says(script, runs) -> None:
    assert script.paying(runs) == []
    assert "**None of them was seen to find such faults sooner" in script.TEXT


def test_a_page_that_says_so_is_not_written_where_a_way_pays(
    script, runs, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(script, "PAGE", tmp_path / "page.md")
    halved = faster(runs, "feedback")
    assert script.paying(halved) == ["feedback"]
    with pytest.raises(SystemExit, match="feedback does"):
        script.write(halved)
    assert not script.PAGE.exists()


def test_a_way_as_good_as_today_is_of_ratio_one(script, runs) -> None:
    today = [one for one in runs if one.way == "today"]
    same = [*today, *(msgspec.structs.replace(one, way="swarm") for one in today)]
    assert set(script.ratios_of(same, "swarm", script.of_half("held out"))) == {1.0}
    assert script.paying(same) == []


def test_a_fault_that_was_found_in_no_run_has_no_median(script, runs) -> None:
    missed = msgspec.structs.replace(runs[0], first=None)
    assert script.cell([missed] * 4) == "not within 250 traces (0/4)"
    assert script.cell([msgspec.structs.replace(missed, first=3, events=1234)] * 3) == "1,234 (3/3)"
