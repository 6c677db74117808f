"""The page in a real browser: it draws, is moved by keys, asks for nothing, and runs no name."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser

from cacheproof.differential.findings.timeline import page as pages
from cacheproof.differential.findings.timeline.model import Timeline
from cacheproof.differential.findings.timeline.page import page
from cacheproof.differential.generators.kv_cache import kv_cache_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Finish
from cacheproof.differential.traces.trace import AnyEvent
from tests.differential.findings.timeline import browser as browsers
from tests.differential.findings.timeline.browser import Opened
from tests.differential.findings.timeline.runs import (
    FAULTY,
    MENDED,
    STEP,
    drawn,
    needed_entry,
)

pytestmark = pytest.mark.skipif(not browsers.is_there(), reason=browsers.REASON)

BROKEN = "#b91c2b"
"""The light page's colour of what is broken."""
GUTTER, RULER_MARK = 168, 27

Show = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.started() as one:
        yield one


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Opens a timeline in a window of its own."""
    with browsers.windows(browser, tmp_path) as opened:
        yield lambda shown, **settings: opened(page(shown), **settings)


def hostile(name: str) -> Timeline:
    """A finding whose request and item have such names."""
    before = Add(name, prompt=2, items=(Item(name, offset=0, length=2),))
    return drawn(needed_entry(before, item=name), FAULTY)


def broken_columns(opened: Opened, count: int) -> list[int]:
    """Events under whose place in the ruler there is the mark of what is broken."""
    width = int(opened.page.evaluate("document.getElementById('canvas').clientWidth")) - GUTTER
    scale = min(width / count, 200)
    return [
        event
        for event in range(1, count + 1)
        if opened.color(GUTTER + (event - 0.5) * scale, RULER_MARK) == BROKEN
    ]


@pytest.mark.full
def test_a_page_draws_and_asks_for_nothing(show: Show) -> None:
    opened = show(drawn(needed_entry(), FAULTY))
    assert opened.said == []
    assert [one for one in opened.asked if not one.endswith("timeline.html")] == []
    assert opened.page.title() == opened.text("#title")
    assert opened.text("#title").startswith("reference@0.28.0: EC-6a at event 5")
    assert "No entry that a request still needs is evicted" in opened.text("#broken")
    drawn_colors = {opened.color(x, y) for x in range(170, 1100, 40) for y in range(40, 300, 7)}
    assert len(drawn_colors) > 5


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "shown", [drawn(scheduler_trace(3)), drawn(kv_cache_trace(3))], ids=["scheduler", "kv_cache"]
)
def test_other_depths_are_drawn(show: Show, shown: Timeline) -> None:
    opened = show(shown)
    assert opened.said == []
    assert opened.text("#title") == "reference: nothing is broken"
    assert opened.page.is_disabled("#to-broken")
    assert "KV blocks" in opened.text("#legend")


@pytest.mark.full
def test_keys_step_through_the_events(show: Show) -> None:
    opened = show(drawn(needed_entry(), FAULTY))
    assert opened.event == 5  # the subject
    opened.press("ArrowRight")
    assert opened.event == 6
    assert "EC-6 at event 6" in opened.text("#event-broken")
    assert "x evicted" in opened.text("#calls")
    assert "holders of y" in opened.text("#changes")
    opened.press("ArrowRight")
    assert opened.event == 6  # the last
    opened.press("Home", "ArrowRight")
    assert opened.event == 2
    assert opened.text("#event-words") == "b arrives with x [0, 8), x [8, 16)"
    assert opened.text("#list tr[aria-current]").split()[0] == "2"
    opened.press("End")
    assert opened.event == 6
    opened.press("b")
    assert opened.event == 5  # the first that is broken comes after the last
    opened.press("b")
    assert opened.event == 6


def test_a_reader_of_the_screen_is_told_the_event(show: Show) -> None:
    opened = show(drawn(needed_entry(), FAULTY))
    chart = opened.page.get_by_role("slider", name="Event")
    assert chart.get_attribute("aria-valuemin") == "1"
    assert chart.get_attribute("aria-valuemax") == "6"
    told = chart.get_attribute("aria-valuetext") or ""
    assert told.startswith("Event 5 of 6: the step's output arrives; broken: EC-6a at event 5")
    assert opened.page.get_by_role("group", name="Move and zoom").is_visible()
    assert opened.page.get_by_role("region", name="Event 5 of 6").is_visible()


def test_the_tab_key_goes_from_the_buttons_to_the_lanes(show: Show) -> None:
    opened = show(drawn(needed_entry(), FAULTY))
    seen = []
    for _ in range(8):
        opened.page.keyboard.press("Tab")
        seen.append(opened.page.evaluate("document.activeElement.id"))
    buttons = ["previous", "next", "to-broken", "zoom-in", "zoom-out", "fit"]
    assert seen == ["about-title", *buttons, "chart"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("before", [(), (*STEP, *STEP)], ids=["early", "later"])
def test_the_broken_step_is_marked_where_it_broke(show: Show, before: tuple[AnyEvent, ...]) -> None:
    shown = drawn(needed_entry(*before), FAULTY)
    opened = show(shown)
    first = 5 + len(before)
    assert broken_columns(opened, len(shown.events)) == [first, first + 1]


@pytest.mark.full
def test_where_nothing_is_broken_nothing_is_marked(show: Show) -> None:
    shown = drawn(needed_entry(), MENDED)
    assert broken_columns(show(shown), len(shown.events)) == []


def test_a_window_counts_its_events_from_its_first(show: Show) -> None:
    whole = drawn(needed_entry(), FAULTY)
    numbered = tuple(replace(one, number=one.number + 1000) for one in whole.events)
    window = replace(whole, first=1000, events=numbered, broken=())
    opened = show(window)
    opened.press("End")
    assert opened.event == 1006
    assert opened.text("#event-title") == "Event 1,006 of 1,006"


@pytest.mark.full
def test_buttons_wheel_and_drag_zoom_and_pan(show: Show) -> None:
    opened = show(drawn(scheduler_trace(3)))
    before = opened.page.evaluate("document.getElementById('canvas').toDataURL()")
    opened.page.click("#zoom-in")
    opened.page.click("#zoom-in")
    opened.page.evaluate("new Promise(requestAnimationFrame)")
    zoomed = opened.page.evaluate("document.getElementById('canvas').toDataURL()")
    assert zoomed != before
    box = opened.page.locator("#chart").bounding_box()
    assert box is not None
    x, y = box["x"] + 700, box["y"] + 60
    opened.page.mouse.move(x, y)
    opened.page.mouse.down()
    opened.page.mouse.move(x - 300, y, steps=3)
    opened.page.mouse.up()
    opened.page.evaluate("new Promise(requestAnimationFrame)")
    panned = opened.page.evaluate("document.getElementById('canvas').toDataURL()")
    assert panned not in (before, zoomed)


def test_the_pointer_is_told_what_is_under_it(show: Show) -> None:
    opened = show(drawn(needed_entry(), FAULTY))
    box = opened.page.locator("#chart").bounding_box()
    assert box is not None
    width = (box["width"] - GUTTER) / 6
    opened.page.mouse.move(box["x"] + GUTTER + 2.5 * width, box["y"] + 65)
    assert "event 3: 9 tokens of b are scheduled" in opened.text("#tip")
    assert "b: running; scheduled: 9 tokens" in opened.text("#tip")
    opened.page.mouse.click(box["x"] + GUTTER + 2.5 * width, box["y"] + 65)
    assert opened.event == 3


def test_the_pointer_may_move_before_the_page_is_drawn_again(show: Show) -> None:
    opened = show(drawn(needed_entry(), FAULTY))
    told = opened.page.evaluate(
        """() => {
          const at = { bubbles: true, clientX: 300, clientY: chart.getBoundingClientRect().y + 90 };
          chart.dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
          chart.dispatchEvent(new PointerEvent("pointermove", at));
          return tip.hidden ? "" : tip.textContent;
        }"""
    )
    assert "event 1: " in told


def test_many_requests_that_follow_each_other_share_a_lane(show: Show) -> None:
    lives = [(Add(f"r{one}", prompt=4), Finish(f"r{one}")) for one in range(30)]
    trace = needed_entry().with_events(event for life in lives for event in life)
    opened = show(drawn(trace))
    assert opened.said == []
    opened.press("0")  # the whole run: sixty events
    box = opened.page.locator("#chart").bounding_box()
    assert box is not None
    scale = (box["width"] - GUTTER) / 60
    for number in (0, 29):
        x = box["x"] + GUTTER + (2 * number + 0.5) * scale
        opened.page.mouse.move(x, box["y"] + 65)
        assert f"r{number}: waiting; arrives" in opened.text("#tip")


@pytest.mark.full
def test_it_is_dark_where_the_user_wants_it(show: Show) -> None:
    light = show(drawn(needed_entry(), FAULTY), color_scheme="light")
    dark = show(drawn(needed_entry(), FAULTY), color_scheme="dark")
    assert light.color(5, 5) == "#ffffff"
    assert dark.color(5, 5) == "#0d1117"


@pytest.mark.full
def test_paper_is_light_and_has_all_lanes(show: Show) -> None:
    opened = show(drawn(scheduler_trace(3)), color_scheme="dark")
    on_screen = opened.page.evaluate("document.getElementById('canvas').height")
    opened.page.emulate_media(media="print")
    opened.page.wait_for_selector("html.printed")
    assert opened.color(5, 5) == "#ffffff"
    assert opened.page.evaluate("document.getElementById('canvas').height") > on_screen
    opened.page.emulate_media(media="screen")
    opened.page.wait_for_selector("html:not(.printed)")
    assert opened.color(5, 5) == "#0d1117"


@pytest.mark.sample(2)
@pytest.mark.parametrize("width", [1200, 360])
def test_a_long_name_makes_no_page_wider_than_its_window(show: Show, width: int) -> None:
    opened = show(hostile("x" * 256))
    opened.page.set_viewport_size({"width": width, "height": 700})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", browsers.HOSTILE)
def test_a_hostile_name_does_not_run(show: Show, name: str) -> None:
    opened = show(hostile(name))
    assert opened.said == []
    assert opened.page.title() == opened.text("#title") != "ran"
    assert opened.page.locator("img, svg").count() == 0
    opened.press("Home")
    assert "arrives with" in opened.text("#event-words")


def test_without_escapes_the_policy_still_keeps_it_from_running(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "escaped", lambda json: json)
    opened = show(hostile(browsers.HOSTILE[0]))
    assert opened.page.title() != "ran"
    assert any("Content Security Policy" in one for one in opened.said)


def test_without_escapes_and_policy_it_would_run(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "escaped", lambda json: json)
    monkeypatch.setattr(pages, "_policy", lambda style, script: "")
    assert show(hostile(browsers.HOSTILE[0])).page.title() == "ran"


def test_a_long_run_opens_on_what_led_to_the_break(show: Show) -> None:
    first, second, *rest = needed_entry().events
    shown = drawn(needed_entry().with_events((first, second, *STEP * 40, *rest)), FAULTY)
    assert len(shown.opening.story) > 2
    opened = show(shown)
    broken = shown.broken[0].event + 1
    assert opened.event == broken
    assert opened.page.locator("#list tbody tr").count() == len(shown.opening.story)
    opened.page.click("#story")
    assert opened.event == broken
    opened.press("Home")
    assert opened.event == 1
    opened.page.click("#story")
    assert opened.event == shown.opening.story[0] + 1
    assert opened.said == []


def test_a_run_that_fits_is_shown_whole(show: Show) -> None:
    opened = show(drawn(needed_entry(), FAULTY))
    assert opened.page.is_hidden("#story")
    assert opened.page.locator("#list tbody tr").count() == 6


def test_letters_are_explained_and_hashes_are_short(show: Show) -> None:
    name = "73a53baff2e5a7fe"
    opened = show(drawn(needed_entry(item=name), FAULTY))
    assert "h: an identifier" in opened.text("#broken")
    assert "73a53b…" in opened.text("#broken")
    opened.page.click("#about-title")
    assert name in opened.text("#about")


def test_rows_to_which_nothing_happens_share_a_lane(show: Show) -> None:
    waiting = tuple(Add(f"r{one}", prompt=4) for one in range(20))
    one_row = 22
    few, many = (
        show(drawn(needed_entry(*some, *STEP * 20), FAULTY)).page.evaluate(
            "document.getElementById('canvas').clientHeight"
        )
        for some in ((), waiting)
    )
    assert many - few == one_row
