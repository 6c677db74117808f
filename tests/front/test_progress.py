"""A long command says how far it is, and about how long the rest takes where it can know."""

import io
from collections.abc import Iterator, Sequence

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.output import progress
from cacheproof.output.console import CommandOutput, VisibleConsole
from cacheproof.output.progress import (
    DATA_SECONDS,
    LINE_SECONDS,
    SOON_SECONDS,
    Live,
    Reckoning,
    duration,
    expected_of,
    rest,
)
from cacheproof.work.workplace import Workplace


class Clock:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Piped:
    """What is said where there is no terminal, while a clock is set."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._file = io.StringIO()
        self.live = Live(VisibleConsole(file=self._file, width=20), self.clock)

    def after(self, seconds: float) -> list[str]:
        """The lines that come in this time, of which one looks at every tenth of a second."""
        self._file.truncate(0)
        self._file.seek(0)
        for _ in range(round(seconds * 10)):
            self.clock.now += 0.1
            self.live.look()
        return self._file.getvalue().splitlines()


@pytest.fixture
def piped() -> Piped:
    return Piped()


def test_who_tells_nothing_is_told_of_soon_and_then_every_ten_seconds(piped: Piped) -> None:
    with piped.live.phase("starting a host"):
        assert piped.after(SOON_SECONDS - 0.2) == []
        assert piped.after(0.4) == ["starting a host: 2 s so far"]
        assert piped.after(LINE_SECONDS) == ["starting a host: 12 s so far"]
        assert len(piped.after(6 * LINE_SECONDS + 1)) == 6


def test_what_ends_at_once_is_worth_no_line(piped: Piped) -> None:
    for _ in range(20):
        with piped.live.phase("starting a host"):
            assert piped.after(1) == []


def test_no_line_is_said_twice(piped: Piped) -> None:
    with piped.live.phase("searching"):
        lines = piped.after(20 * LINE_SECONDS)
    assert len(lines) == len(set(lines)) == 20


def test_a_line_says_what_is_done_and_about_how_long_the_rest_takes(piped: Piped) -> None:
    with piped.live.phase("proving"):
        piped.after(LINE_SECONDS)
        piped.live.show("3 of 4 jobs have ended", 0.75, 4.0)
        (line,) = piped.after(LINE_SECONDS)
    assert line == "proving: 75% done, about 4 s left, 12 s so far; 3 of 4 jobs have ended"


def test_what_is_not_known_is_not_said(piped: Piped) -> None:
    with piped.live.phase("proving"):
        piped.live.show("processes start")
        (line,) = piped.after(3)
    assert "done" not in line
    assert "left" not in line


def test_nothing_is_all_done_before_it_ends(piped: Piped) -> None:
    with piped.live.phase("searching"):
        piped.live.show("", 1.0, 0.0)
        (line,) = piped.after(3)
    assert line == "searching: 99% done, about 1 s left, 2 s so far"


def test_little_is_not_said_to_be_nothing(piped: Piped) -> None:
    with piped.live.phase("serving"):
        piped.live.show("58 of 300,000", 58 / 300_000)
        (line,) = piped.after(3)
    assert line == "serving: less than 1% done, 2 s so far; 58 of 300,000"


def test_a_phase_takes_the_place_of_the_one_that_it_is_in(piped: Piped) -> None:
    with piped.live.phase("reviewing"):
        piped.live.show("12 traces", 0.5)
        with piped.live.phase("proving"):
            (inner,) = piped.after(3)
        piped.clock.now += LINE_SECONDS
        (outer,) = piped.after(0.2)
    assert inner.startswith("proving: 2 s")
    assert outer == "reviewing: 50% done, 13 s so far; 12 traces"
    assert piped.after(60) == []


def test_a_line_of_progress_is_one_line_however_narrow_the_place(piped: Piped) -> None:
    with piped.live.phase("searching path:/a/long/way/to/a/checkout"):
        assert len(piped.after(3)) == 1


def test_a_command_has_one_line_of_progress_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    output = CommandOutput(None)
    with output.live("reviewing") as outer, output.live("proving") as inner:
        assert inner is outer
    with output.live("another") as later:
        assert later is not outer
    assert capsys.readouterr().err == ""


def test_what_was_done_before_says_nothing_of_how_long_the_rest_takes(piped: Piped) -> None:
    with piped.live.phase("searching"):
        piped.live.count(50, 100)
        piped.clock.now += 10
        piped.live.count(60, 100)
        (line,) = piped.after(0.1)
    assert line == "searching: 60% done, about 40 s left, 10 s so far"


def test_the_rest_takes_as_long_as_what_was_done_took() -> None:
    assert rest(25, 100, 10.0) == 30.0
    assert rest(0, 100, 10.0) is None
    assert rest(1, 100, DATA_SECONDS / 2) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(4.4, "4 s"), (89, "89 s"), (90, "2 min"), (5_000, "83 min"), (9_000, "2.5 h")],
)  # fmt: skip
def test_a_duration_is_said_as_exactly_as_one_can_guess_it(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# jobs that say nothing before they end


def reckoning() -> Reckoning:
    """Half of a search, and a third of its planted faults, in ten seconds."""
    found = Reckoning(began=0.0)
    found.planned.update(Search=100, Plant=30)
    found.took("Search", 50, 10.0)
    found.took("Plant", 10, 10.0)
    return found


def test_kinds_of_jobs_are_reckoned_by_what_each_took() -> None:
    assert reckoning().told(now=10.0, workers=2) == (0.4, 15.0)  # 10 s of search and 20 s of plants


def test_more_work_makes_the_rest_longer() -> None:
    more = reckoning()
    more.planned["Search"] += 100
    assert more.told(now=10.0, workers=2)[1] == 25.0


def test_a_kind_of_which_nothing_is_known_leaves_the_rest_unknown() -> None:
    unknown = reckoning()
    unknown.planned["WriteDown"] += 1
    assert unknown.told(now=10.0, workers=2) == (None, None)


def test_a_kind_of_which_none_has_ended_is_reckoned_by_its_weight() -> None:
    found = Reckoning(began=0.0, weights={"Search": 1.0, "WriteDown": 30.0})
    found.planned.update(Search=100, WriteDown=1)
    assert found.told(now=10.0, workers=1) == (None, None)
    found.took("Search", 50, 10.0)
    assert found.told(now=10.0, workers=1)[1] == 16.0  # 10 s of search, and 30 seeds' time
    found.took("WriteDown", 1, 2.0)
    assert found.told(now=12.0, workers=1)[1] == 10.0


def test_a_search_that_ends_by_the_clock_takes_at_least_so_long() -> None:
    assert reckoning().told(now=10.0, workers=2, at_least=40.0) == (0.2, 40.0)


def test_tasks_are_reckoned_by_their_processor_time_while_they_run() -> None:
    share, left = expected_of([30, 30, 10], [15.0, 5.0, 0.0], ended=[], seconds=10.0)
    assert share == pytest.approx(20 / 70)
    assert left == 25.0  # 50 s of work at 2 s a second


def test_one_long_task_is_waited_for_however_many_workers_there_are() -> None:
    _, left = expected_of([100, 1], [10.0, 1.0], ended=[1], seconds=10.0)
    assert left == pytest.approx(90 / 1.1)


def test_what_has_ended_says_how_far_the_reckoning_was_off() -> None:
    _, left = expected_of([10, 10], [40.0, 0.0], ended=[0], seconds=40.0)
    assert left == 40.0


def test_a_task_that_takes_longer_than_was_reckoned_is_never_as_good_as_done() -> None:
    share, left = expected_of([10], [50.0], ended=[], seconds=50.0)
    assert share is not None
    assert share < 0.95
    assert left is not None
    assert left >= 5.0


def test_nothing_is_reckoned_before_there_is_data() -> None:
    assert expected_of([30], [DATA_SECONDS / 2], ended=[], seconds=1.0) == (None, None)


class Place(Workplace):
    """Does tasks one after the other, and says what each has spent before it ends."""

    def results(self, run, tasks, look=lambda spent: None) -> Iterator[tuple[int, object]]:  # type: ignore
        for number, task in enumerate(tasks):
            look([50.0 if one <= number else 0.0 for one in range(len(tasks))])
            yield number, run(task)


class MutePlace(Workplace):
    """Says nothing of what its tasks have spent."""

    def results(self, run, tasks, look) -> Iterator[tuple[int, object]]:  # type: ignore
        yield from enumerate(map(run, tasks))


def told_while(place: Workplace, piped: Piped) -> list[str]:
    """The lines of a work of three tasks, ten seconds each."""
    tasks, lines = [-1, -2, -3], []
    with piped.live.phase("counting"):
        expected = [100.0] * len(tasks)
        for _ in progress.telling(piped.live, place, abs, tasks, [*map(str, tasks)], expected):
            lines += piped.after(LINE_SECONDS)
    return lines


def is_told(lines: Sequence[str]) -> bool:
    """Whether they say which tasks run, and which share is done."""
    return "0 of 3 jobs have ended; now: -1" in lines[0] and "16% done" in lines[0]


def test_tasks_that_run_are_named_with_the_share_that_is_done(piped: Piped) -> None:
    assert is_told(told_while(Place(), piped))


def test_one_that_watches_ends_all_tasks(piped: Piped) -> None:
    asked = iter((None, InputError("another text runs")))

    def watch() -> None:
        if (failure := next(asked)) is not None:
            raise failure

    tasks = [-1, -2, -3]
    with piped.live.phase("counting"):
        told = progress.telling(
            piped.live, Place(), abs, tasks, [*map(str, tasks)], [100.0] * 3, watch
        )
        assert next(told) == (0, 1)
        with pytest.raises(InputError, match="another text runs"):
            next(told)


def test_a_place_that_never_says_what_is_spent_is_seen(piped: Piped) -> None:
    """The red twin of the test before."""
    assert not is_told(told_while(MutePlace(), piped))
