"""A simulation as a page: one file of HTML that needs nothing else, drawn as a campaign's board."""

from importlib import resources

import msgspec

from cacheproof.differential.findings.timeline.page import self_contained
from cacheproof.simulation.axis import LEFT, NARROW, RIGHT, WIDE, axis
from cacheproof.simulation.result import Simulation

_FILES = resources.files("cacheproof.simulation")
_BOARD = resources.files("cacheproof.board")


def page(found: Simulation, answer: str, *, is_whole: bool = True) -> bytes:
    """The HTML file, which begins with the `answer`: a sentence that says which size is enough, or
    that not all of it was run."""
    sizes = [one.encoder_cache for one in found.points]
    axes = {
        "left": LEFT,
        "right": RIGHT,
        "widths": [{"width": width, "ticks": axis(sizes, width)} for width in (WIDE, NARROW)],
    }
    shown = {
        **msgspec.to_builtins(found),
        "answer": answer,
        "tone": "good" if is_whole else "warn",
        "axes": msgspec.to_builtins(axes),
    }
    return self_contained(
        _FILES / "page.html.jinja",
        _BOARD / "page.css",
        [_BOARD / "dom.js", _BOARD / "charts.js", _FILES / "page.js"],
        msgspec.json.encode(shown).decode(),
    )
