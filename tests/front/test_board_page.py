"""The page of a campaign in a real browser: it draws, asks for nothing, and runs no name."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from cacheproof.board.clock import BINS_MAX
from cacheproof.board.model import Board
from cacheproof.board.page import page
from tests.differential.findings.timeline import browser as browsers
from tests.differential.findings.timeline.browser import Opened
from tests.front import board_stores
from tests.front.board_stores import LANES, board, enlist, made, search

pytestmark = pytest.mark.skipif(not browsers.is_there(), reason=browsers.REASON)

WIDE, NARROW = 1300, 390
NEXT_FRAME = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
SECTIONS = ("pace", "findings", "coverage", "unseen", "contracts", "runners", "notes")
Show = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.started() as one:
        yield one


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Opens a board in a window of its own."""
    with browsers.windows(browser, tmp_path) as opened:
        yield lambda shown, width=WIDE, **settings: opened(page(shown), width, **settings)


@pytest.fixture
def small(tmp_path: Path) -> Board:
    with closing(board_stores.small(tmp_path / "store")) as store:
        return board(store)


@pytest.fixture
def empty(tmp_path: Path) -> Board:
    with closing(made(tmp_path / "store")) as store:
        return board(store)


@pytest.fixture
def many(tmp_path: Path) -> Board:
    """Eleven targets, of which each has a few shards, and a long name."""
    names = [f"path:a/rather/long/name/of/a/checkout/{number}" for number in range(11)]
    with closing(made(tmp_path / "store", names)) as store:
        runner = enlist(store, 0.0, host="h" * 60)
        for target in range(len(names)):
            for number in range(3):
                at = 10.0 + 30 * target + 5 * number
                search(store, runner, number, at, target=target, kinds=[("EC-6", "", 1)])
        return board(store)


def has_drawn(opened: Opened) -> bool:
    """Whether every section has its heading, and no text is of something that is not there."""
    text = opened.text("body")
    headings = [opened.page.locator(f"#{one} h2").count() for one in SECTIONS]
    return headings == [1] * len(SECTIONS) and not {"undefined", "NaN", "Infinity"} & {
        word.strip(".,:;()") for word in text.split()
    }


@pytest.mark.sample(12)
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["empty", "small", "many"])
def test_a_page_draws_and_asks_for_nothing(
    show: Show, request: pytest.FixtureRequest, which: str, scheme: str, width: int
) -> None:
    opened = show(request.getfixturevalue(which), width, color_scheme=scheme)
    assert opened.said == []
    assert [one for one in opened.asked if not one.endswith("timeline.html")] == []
    assert has_drawn(opened)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width


def test_a_page_that_lacks_a_number_is_seen_not_to_have_drawn(show: Show, small: Board) -> None:
    opened = show(small)
    assert has_drawn(opened)
    opened.page.evaluate("document.querySelector('#pace h2').append(' ', String(0 / 0))")
    assert not has_drawn(opened)


def test_the_head_says_what_it_came_to(show: Show, small: Board) -> None:
    opened = show(small)
    head = opened.text("#head")
    for words in ("vllm@0.33.0", "Void", "Exit code 3", "nobody runs it", "9 / 20\nshards"):
        assert words in head
    assert "fault planted against EC-2 (encoder cache) was not found" in head
    assert opened.page.title().startswith("vllm@0.33.0: Void")


def test_findings_have_their_page_their_times_and_marks_where_they_showed(
    show: Show, small: Board
) -> None:
    opened = show(small)
    first, second = (one.inner_text() for one in opened.page.locator(".fault").all())
    assert first.startswith("EC-7, order")
    assert "not listed" in first
    for words in ("early-release", "faults/early-release/page.md", "first after 15 s"):
        assert words in second
    assert opened.page.locator(".fault").nth(1).locator("svg .mark").count() == 3


def test_what_was_never_met_and_what_stopped_growing_is_said(show: Show, small: Board) -> None:
    opened = show(small)
    card = opened.text(".card")
    assert "never met" in card
    assert "refused by budget" in card
    assert "stopped growing" in opened.text("#coverage")
    assert "2 of 2 lanes" not in opened.text("#coverage")


@pytest.mark.full
def test_each_chart_has_words_and_a_table(show: Show, small: Board) -> None:
    opened = show(small)
    charts = opened.page.locator("svg[role=img]")
    assert charts.count() > 10
    for chart in charts.all():
        assert chart.locator("> title").text_content()
    for section in ("pace", "findings", "coverage", "unseen", "contracts", "runners"):
        assert opened.page.locator(f"#{section} table").count() > 0


@pytest.mark.full
def test_arrow_keys_read_a_chart_out(show: Show, small: Board) -> None:
    opened = show(small)
    chart = opened.page.locator(".chart").first
    readout = opened.page.locator(".readout").first
    chart.focus()
    chart.press("ArrowRight")
    first = readout.inner_text()
    chart.press("ArrowRight")
    assert first != readout.inner_text()
    assert "vllm@0.33.0" in first
    assert "events/s" in first
    chart.press("ArrowLeft")
    assert readout.inner_text() == first


def test_what_is_unfolded_stays_so_when_the_window_changes(show: Show, small: Board) -> None:
    opened = show(small)
    summary = opened.page.locator("#coverage summary").first
    summary.focus()
    summary.press("Enter")
    titles = opened.page.locator("#coverage details[open] span[title]")
    assert "an admission evicts" in [one.get_attribute("title") for one in titles.all()]
    opened.page.set_viewport_size({"width": 700, "height": 900})
    opened.page.evaluate(NEXT_FRAME)
    assert opened.page.evaluate("document.querySelector('.chart svg').clientWidth") < 700
    assert opened.page.locator("#coverage details").first.get_attribute("open") is not None
    focused = opened.page.evaluate("document.activeElement.dataset.key")
    assert focused == f"lane 0 {LANES[0]} summary"


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", browsers.HOSTILE)
def test_names_are_text_and_nothing_else(show: Show, tmp_path: Path, name: str) -> None:
    with closing(made(tmp_path / "store", [name], known="")) as store:
        runner = enlist(store, 0.0, host=name)
        search(store, runner, 0, 10.0, kinds=[("EC-6", name, 1)])
        opened = show(board(store))
    assert opened.said == []
    assert opened.page.title() != "ran"
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script").count() == 2
    assert opened.text("h1") == name.replace("\u202e", "\\u202e").replace("\u2028", "\\u2028")


def test_a_script_that_came_in_as_text_would_be_seen(show: Show, small: Board) -> None:
    opened = show(small)
    with opened.page.expect_console_message():
        opened.page.evaluate(
            f"document.body.insertAdjacentHTML('beforeend', {browsers.HOSTILE[1]!r})"
        )
    assert opened.page.locator("img").count() == 1
    assert any("Content Security Policy" in one for one in opened.said)


def test_a_big_campaign_is_drawn_at_once(show: Show, tmp_path: Path) -> None:
    with closing(made(tmp_path / "store", seeds="0:400")) as store:
        runner = enlist(store, 0.0)
        for number in range(200):
            search(store, runner, number, 10.0 + number, seconds=1.0, kinds=[("EC-6", "", 1)])
        shown = board(store)
    assert len(page(shown)) < 500_000
    opened = show(shown)
    assert 10 < opened.page.locator(".mark").count() <= BINS_MAX
    assert has_drawn(opened)
