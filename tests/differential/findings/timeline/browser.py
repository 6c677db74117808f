"""A real browser, without a window."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

PROGRAM = "chromium"
REASON = f"no {PROGRAM} on PATH; install Debian's package of that name"
RUNS = "document.title='ran'"
HOSTILE = (
    f"</script><script>{RUNS}</script>",
    f"<img src=x onerror={RUNS}>",
    f"<svg onload={RUNS}>",
    f"<!--<script>{RUNS}//",
    f"';{RUNS};'",
    "\u202e\u2028</title>",
)
"""Names that run a script where a page takes them for markup; `RUNS` shows in the title."""


def is_there() -> bool:
    """Whether there is a browser on this machine."""
    return shutil.which(PROGRAM) is not None


@contextmanager
def started() -> Iterator[Browser]:
    """The browser of this machine."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which(PROGRAM))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    """A page that a browser shows, with what it said and what it asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def show(self, html: bytes, folder: Path) -> None:
        """Open it from a file, as a user does."""
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        file = folder / "timeline.html"
        file.write_bytes(html)
        self.page.goto(file.as_uri())

    def press(self, *keys: str) -> None:
        """Keys, while the lanes have the focus."""
        for key in keys:
            self.page.press("#chart", key)

    @property
    def event(self) -> int:
        """Which event a reader of the screen is told, counted from 1."""
        return int(self.page.get_attribute("#chart", "aria-valuenow") or 0)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def color(self, x: float, y: float) -> str:
        """The colour of a point of the lanes, in pixels of the page from their corner."""
        found: str = self.page.evaluate(
            """([x, y]) => {
              const canvas = document.getElementById("canvas");
              const dots = canvas.width / canvas.clientWidth;
              const [r, g, b] = canvas.getContext("2d").getImageData(x * dots, y * dots, 1, 1).data;
              return "#" + [r, g, b].map((one) => one.toString(16).padStart(2, "0")).join("");
            }""",
            [x, y],
        )
        return found


@contextmanager
def windows(browser: Browser, folder: Path) -> Iterator[Callable[..., Opened]]:
    """Opens pages, each in a window of its own, which are closed in the end."""
    with ExitStack() as stack:

        def opened(html: bytes, width: int = 1200, **settings: object) -> Opened:
            size = {"width": width, "height": 900}
            context = browser.new_context(viewport=size, **settings)  # type: ignore[arg-type]
            stack.enter_context(closing(context))
            one = Opened(context.new_page())
            one.show(html, folder)
            return one

        yield opened
