"""A board as a page: one file that needs nothing else, or what a server shows and keeps up to date.

What a store says reaches the page as JSON and is put in as text alone.
"""

from importlib import resources

import msgspec

from cacheproof.board.model import Board
from cacheproof.differential.findings.timeline.page import self_contained

_FILES = resources.files("cacheproof.board")
_PARTS = (
    _FILES / "page.html.jinja",
    _FILES / "page.css",
    [_FILES / name for name in ("dom.js", "charts.js", "coverage.js", "page.js")],
)
_ASKS_ITS_SERVER = "; connect-src 'self'"


def as_json(board: Board) -> bytes:
    """What the page shows."""
    return msgspec.json.encode(board)


def page(board: Board) -> bytes:
    """The HTML file."""
    return self_contained(*_PARTS, as_json(board).decode(), asks="")


def live_page(url: str) -> bytes:
    """The page that asks its server for the board, at that URL, again and again."""
    return self_contained(*_PARTS, "null", policy=_ASKS_ITS_SERVER, asks=url)
