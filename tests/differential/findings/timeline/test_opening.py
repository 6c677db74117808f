"""A timeline opens on the broken step, with what leads to it in view."""

from itertools import pairwise
from typing import Any

import pytest

from cacheproof.differential.findings.timeline.opening import COLUMNS_MAX, Opening, opening
from cacheproof.differential.traces.manager import Add, Walk
from cacheproof.differential.traces.records import StepRecord
from tests.differential.findings.timeline.runs import FAULTY, MENDED, STEP, drawn, needed_entry

NOTHING = StepRecord([1, []], [], None, None)


def events(count: int, **about: int) -> list[tuple[Any, StepRecord]]:
    """So many, in which some requests arrive at some events and nothing else is named."""
    names = {at: name for name, at in about.items()}
    return [
        (Add(names[at], prompt=3) if at in names else Walk("other", tokens=1), NOTHING)
        for at in range(count)
    ]


def in_view(one: Opening) -> list[int]:
    """The events that are seen at first."""
    return list(one.story or range(one.first, one.last + 1))


@pytest.mark.parametrize("count", [1, 5, COLUMNS_MAX, 90, 1000])
def test_the_broken_step_is_in_view_with_what_led_to_it(count: int) -> None:
    for broken in {0, count // 2, count - 1}:
        about = max(0, broken - 70)
        seen = in_view(opening(events(count, a=about), broken, {"a"}))
        assert {about, broken} <= set(seen)
        assert len(seen) <= COLUMNS_MAX
        assert all(one < other for one, other in pairwise(seen))


def test_what_fits_is_shown_whole_and_what_does_not_is_told_as_a_story() -> None:
    near, far = (opening(events(90, a=at), 80, {"a"}) for at in (70, 3))
    assert (near.first, near.last, near.story) == (80 - COLUMNS_MAX + 1, 80, ())
    assert far.story == (3, 80)


def test_of_events_that_are_alike_the_first_and_the_last_are_shown() -> None:
    walks = [(Walk("a", tokens=1), NOTHING)] * 200
    assert opening(walks, 199, {"a"}).story == (0, 199)


def test_of_a_long_story_the_end_is_shown() -> None:
    arrivals = {f"r{at}": at for at in range(0, 300, 5)}
    story = opening(events(300, **arrivals), 299, set(arrivals)).story
    assert len(story) == COLUMNS_MAX
    assert story[-2:] == (295, 299)


def test_without_a_break_it_opens_on_the_beginning() -> None:
    assert opening(events(90), None, ()) == Opening(0, COLUMNS_MAX - 1, (), ())


def test_a_drawn_run_opens_on_its_break_and_on_what_led_to_it() -> None:
    first, second, *rest = needed_entry().events
    far = needed_entry().with_events((first, second, *STEP * 40, *rest))
    shown, mended = drawn(far, FAULTY), drawn(far, MENDED)
    assert {1, shown.broken[0].event} <= set(
        in_view(shown.opening)
    )  # b arrives, and its entry goes
    assert {"b", "x"} <= set(shown.opening.subject)
    assert mended.opening.story == ()
