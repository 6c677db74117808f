"""What a board says of a store, and that it says what the store does not know."""

from collections.abc import Callable
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from cacheproof.board.clock import BINS_MAX, CampaignClock
from cacheproof.board.model import Board, BoardReader
from cacheproof.board.page import live_page, page
from cacheproof.differential.errors import SetupError
from cacheproof.differential.search.campaigns.merging import merge_stores
from cacheproof.differential.search.campaigns.series import CampaignReader
from cacheproof.differential.search.campaigns.store import CampaignStore
from cacheproof.differential.search.verdict import UNLISTED
from tests.differential.findings.timeline.pages import (
    LEAST_CONTRAST,
    MARKUP,
    Parsed,
    contrast,
    names_outside,
    palettes,
)
from tests.front import board_stores
from tests.front.board_stores import (
    BEGUN,
    SHARD_TRACES,
    as_older,
    board,
    early_release,
    enlist,
    made,
    search,
)

LEAST_OF_LINES = 3.0
"""Of what is drawn, by WCAG 2 at level AA."""


@pytest.fixture
def seen(tmp_path: Path) -> Board:
    with closing(board_stores.small(tmp_path / "store")) as store:
        return board(store)


def test_pauses_are_left_out_of_its_clock() -> None:
    clock = CampaignClock(((100.0, 140.0), (1000.0, 1060.0)))
    assert clock.length == 100.0
    assert [clock.at(one) for one in (90.0, 100.0, 120.0, 500.0, 1000.0, 1030.0, 2000.0)] == [
        0.0,
        0.0,
        20.0,
        40.0,
        40.0,
        70.0,
        100.0,
    ]
    assert clock.pauses == [(40.0, 860.0)]


def test_a_campaign_that_was_stopped_has_a_pause(seen: Board) -> None:
    assert seen.begun == BEGUN
    ((at, seconds),) = seen.pauses
    assert (at, seconds) == (40.0, 960.0)
    assert seen.length == 60.0


@pytest.mark.parametrize("length", [0.5, 60.0, 7000.0, 1e6, 1e9])
def test_bins_are_not_too_many(length: float) -> None:
    width = CampaignClock(((0.0, length),)).bin_seconds
    assert 0 < length / width <= BINS_MAX


def test_all_events_and_traces_are_in_the_bins(seen: Board) -> None:
    (target,) = seen.targets
    last = target.bins[-1]
    assert (target.events, target.traces) == (900, 9 * SHARD_TRACES)
    assert last.events == pytest.approx(900)
    assert last.traces == pytest.approx(9 * SHARD_TRACES)
    ends = [0.0, *(one.until for one in target.bins)]
    assert ends == sorted(set(ends))
    assert max(one.rate for one in target.bins) == pytest.approx(25.0)  # a shard in four seconds


def test_a_state_is_dated_by_the_shard_that_met_it_first(seen: Board) -> None:
    lane = next(one for one in seen.targets[0].lanes if one.name == "encoder cache")
    first = {one.state: one for one in lane.firsts}
    assert (first["eviction"].at, first["eviction"].moment) == (30.0, BEGUN + 30.0)
    assert first["eviction"].traces == 3 * SHARD_TRACES
    assert first["eviction"].met_in == 2
    assert lane.states[-1] == (30.0, 3)
    assert lane.pairs is not None
    assert lane.pairs[-1] == (30.0, 2)  # eviction and shared never met in one trace
    assert "refused by budget" in {one.state for one in lane.never}
    assert not {one.state for one in lane.never} & first.keys()
    assert lane.last_new == 30.0


def test_estimates_count_the_traces_that_met_a_state(seen: Board) -> None:
    lane = next(one for one in seen.targets[0].lanes if one.name == "encoder cache")
    assert lane.of_states is not None
    assert (lane.unit, lane.of_states.units) == ("trace", lane.traces)
    assert (lane.of_states.seen, lane.of_states.once, lane.of_states.twice) == (3, 0, 1)


def test_faults_have_their_times_and_what_is_not_listed_comes_first(seen: Board) -> None:
    alarm, listed = seen.faults
    assert (alarm.name, alarm.is_alarm, alarm.traces) == ("EC-7, order", True, 2)
    assert (listed.name, listed.is_alarm) == ("early-release", False)
    assert (listed.first, listed.last, listed.traces) == (15.0, 35.0, 2 + 4 + 6)
    assert [traces for *_, traces in listed.times] == [2, 4, 6]
    assert listed.page == "faults/early-release/page.md"


def test_only_the_traces_that_are_a_listed_fault_count_as_it(tmp_path: Path) -> None:
    with closing(made(tmp_path / "store")) as store:
        runner = enlist(store, 0.0)
        kinds, listed = early_release(3)
        search(store, runner, 0, 10.0, kinds=[("EC-6", "", 4)], listed=listed)
        search(store, runner, 1, 20.0, kinds=kinds, listed=[])
        seen = board(store)
    traces = {one.name: (one.is_listed, one.is_alarm, one.traces) for one in seen.faults}
    assert traces == {"EC-6": (False, True, 1 + 3), "early-release": (True, False, 3)}
    broken = {one.id: one.is_alarm for one in seen.targets[0].contracts if one.is_alarm}
    assert broken == {"EC-6": True}


def test_a_planted_fault_that_was_missed_is_named(seen: Board) -> None:
    (target,) = seen.targets
    assert target.missed == ("EC-2 (encoder cache)",)
    planted = {one.id: (one.found, one.planted) for one in target.contracts if one.planted}
    assert planted == {"EC-1": (1, 1), "EC-2": (0, 1)}
    assert any("EC-2" in why for why in target.void_because)


def test_a_contract_is_an_alarm_where_something_unlisted_breaks_it(seen: Board) -> None:
    (target,) = seen.targets
    broken = {one.id: one.is_alarm for one in target.contracts if one.verdict == "refuted"}
    assert broken == {"EC-6": False, "EC-7": True}


def test_who_ran_it_died_and_lost_a_job_is_said(seen: Board) -> None:
    first, second = seen.runners
    assert (first.state, first.searches, first.plantings, first.lost) == (
        "ended without a word",
        6,
        1,
        1,
    )
    assert first.heard == BEGUN + 40.0  # not when it was found dead
    assert (second.state, second.searches, second.lost) == ("ended", 3, 0)
    assert seen.losses is not None
    (loss,) = seen.losses
    assert (loss.job, loss.why, loss.who) == ("search of nobody", "died", "host-1 process 11")


def test_an_empty_campaign_has_a_board(tmp_path: Path) -> None:
    with closing(made(tmp_path / "store")) as store:
        seen = board(store)
    assert (seen.begun, seen.length, seen.faults, seen.runners) == (None, 0.0, (), ())
    assert all(not lane.never and lane.of_states is None for lane in seen.targets[0].lanes)


def test_a_store_of_an_earlier_cacheproof_says_what_it_lacks(tmp_path: Path) -> None:
    with closing(board_stores.small(tmp_path / "store")) as store:
        as_older(store)
        seen = board(store)
    assert seen.losses is None
    assert any("which jobs were done again" in one for one in seen.notes)
    assert any("estimates count shards" in one for one in seen.notes)
    assert any("told by what they break alone" in one for one in seen.notes)
    assert [one.name for one in seen.faults] == ["EC-7, order", "early-release"]
    lane = next(one for one in seen.targets[0].lanes if one.name == "encoder cache")
    assert (lane.unit, lane.pairs, lane.of_pairs) == ("shard", None, None)
    assert lane.of_states is not None
    assert lane.of_states.units == lane.traces / SHARD_TRACES
    assert lane.of_states.once == 1  # eviction, in one shard


def test_what_a_merged_store_does_not_know_is_said(tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in ("one", "other")]
    for place, seeds, number in zip(places, ("0:8", "8:16"), (0, 2), strict=True):
        with closing(made(place, seeds=seeds)) as store:
            runner = enlist(store, 0.0)
            search(store, runner, number % 2, 10.0 + number)
            store.leave(runner, BEGUN + 20.0)
    merge_stores(*places, None, BEGUN + 100.0)
    with closing(CampaignStore(places[0])) as store:
        seen = board(store)
    assert sum(one.searches for one in seen.runners) == 1
    assert seen.targets[0].traces == 2 * SHARD_TRACES
    (note,) = [one for one in seen.notes if "merged" in one]
    assert note.startswith("1 shards come from a store")


def test_a_reader_sees_what_has_come_and_another_campaign_at_the_place(tmp_path: Path) -> None:
    reader = CampaignReader()
    with closing(made(tmp_path / "one")) as store:
        runner = enlist(store, 0.0)
        search(store, runner, 0, 10.0)
        assert len(reader.read(store).shards) == 1
        search(store, runner, 1, 20.0)
        assert len(reader.read(store).shards) == 2
        store.begun += 1  # as another that was begun later has it
        with store.writing() as connection:
            connection.exec_driver_sql("DELETE FROM jobs")
        assert reader.read(store).shards == []


@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0)])
def test_a_board_that_is_kept_up_is_that_of_one_that_is_read_anew(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    kept = BoardReader(tmp_path, lambda: BEGUN + 100.0)
    with closing(made(tmp_path / "store")) as store:
        runner = enlist(store, 0.0)
        for which, number in enumerate(numbers):
            search(store, runner, number, 10.0 + 5 * which, kinds=[("EC-6", "", 1)])
            seen = kept.read(store)
            assert seen == BoardReader(tmp_path, lambda: BEGUN + 100.0).read(store)
    assert seen.targets[0].shards == len(numbers)


def test_a_board_forgets_what_failed_and_was_done_again(tmp_path: Path) -> None:
    kept = BoardReader(tmp_path, lambda: BEGUN + 100.0)
    with closing(made(tmp_path / "store")) as store:
        runner = enlist(store, 0.0)
        search(store, runner, 0, 10.0, errors=["the host died"])
        assert any("the host died" in why for why in kept.read(store).targets[0].void_because)
        store.try_again(BEGUN + 20.0)
        search(store, runner, 0, 30.0)
        (target,) = kept.read(store).targets
    assert not any("the host died" in why for why in target.void_because)
    assert (target.shards, target.traces) == (1, SHARD_TRACES)


def test_marks_and_searches_that_are_close_are_drawn_as_one(tmp_path: Path) -> None:
    with closing(made(tmp_path / "store", seeds="0:4000")) as store:
        runner = enlist(store, 0.0)
        for number in range(40):
            at = 1000.0 + number if number < 39 else 40_000.0
            search(store, runner, number, at, seconds=1.0, kinds=[("EC-6", "", 1)])
        store.beat(runner, 1, BEGUN + 40_000.0)
        store.leave(runner, BEGUN + 40_000.0)
        seen = board(store)
    (fault,) = seen.faults
    assert [traces for *_, traces in fault.times] == [39, 1]
    assert fault.times[0][0] == 1038.0
    assert len(seen.runners[0].spans) == 2


def test_a_store_that_is_read_alone_cannot_be_changed(tmp_path: Path) -> None:
    made(tmp_path / "store").close()
    with closing(CampaignStore(str(tmp_path / "store"), reads_only=True)) as store:
        assert board(store).targets
        with pytest.raises(SetupError, match="readonly"):
            enlist(store, 1.0)


def test_a_report_is_written_as_a_page(run: Callable, tmp_path: Path) -> None:
    board_stores.small(tmp_path / "store").close()
    file = tmp_path / "page.html"
    ran = run("campaign", "report", "--store", tmp_path / "store", "--html", file)
    plain = run("campaign", "report", "--store", tmp_path / "store")
    assert (ran.code, ran.out) == (plain.code, plain.out)
    assert ran.code != UNLISTED  # nothing was written down of it
    text = file.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "early-release" in text


def test_a_board_has_the_digest_of_the_report(run: Callable, tmp_path: Path) -> None:
    with closing(board_stores.small(tmp_path / "store")) as store:
        facts = dict(board(store).facts)
    ran = run("campaign", "report", "--store", tmp_path / "store")
    assert f"digest {facts['digest']}" in ran.out.splitlines()


def test_a_page_that_cannot_be_written_is_refused(run: Callable, tmp_path: Path) -> None:
    board_stores.small(tmp_path / "store").close()
    place = tmp_path / "nowhere" / "page.html"
    ran = run("campaign", "report", "--store", tmp_path / "store", "--html", place)
    assert ran.refusal == (
        f"--html {place}: cannot be written: no such folder; expected a file in a folder that "
        "exists"
    )


def test_a_page_names_nothing_outside_itself(seen: Board) -> None:
    assert names_outside(page(seen).decode()) == []
    assert names_outside('<a href="#x">x</a><img src="x.png">') == ["x.png"]


def test_the_policy_admits_the_pages_own_script_and_style_alone(seen: Board) -> None:
    kept, live = Parsed(page(seen).decode()), Parsed(live_page("board.json").decode())
    for one in (kept, live):
        assert one.admits_its_own()
        assert one.admitted["default-src"] == "'none'"
    assert "connect-src" not in kept.admitted
    assert live.admitted["connect-src"] == "'self'"


def test_scripts_put_text_in_as_text(seen: Board) -> None:
    _, script = Parsed(page(seen).decode()).contents["script"]
    assert not MARKUP.search(script)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_what_it_stands_on(scheme: str) -> None:
    style = (resources.files("cacheproof.board") / "page.css").read_text()
    colours = palettes(style)[scheme]
    tones = [(one, f"{one}-paper") for one in ("good", "bad", "warn")]
    pairs = [*tones, *((text, on) for text in ("ink", "quiet") for on in ("paper", "stripe"))]
    assert [p for p in pairs if contrast(*map(colours.__getitem__, p)) < LEAST_CONTRAST] == []
    lines = [(f"t{number}", "paper") for number in range(8)]
    assert [p for p in lines if contrast(*map(colours.__getitem__, p)) < LEAST_OF_LINES] == []
