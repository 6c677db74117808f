"""A simulation as a page: one file of HTML that needs nothing else, drawn as a campaign's board."""

from importlib import resources

import msgspec

from cacheproof.differential.findings.timeline.page import self_contained
from cacheproof.simulation.result import Simulation

_FILES = resources.files("cacheproof.simulation")
_BOARD = resources.files("cacheproof.board")


def page(found: Simulation) -> bytes:
    """The HTML file."""
    return self_contained(
        _FILES / "page.html.jinja",
        _BOARD / "page.css",
        [_BOARD / "dom.js", _BOARD / "charts.js", _FILES / "page.js"],
        msgspec.json.encode(found).decode(),
    )
