"""Lines of the reference that a trace runs are seen, and seen anew once."""

import sys
from pathlib import Path

from cacheproof.differential.lanes.all_lanes import LANES


def test_a_trace_runs_lines_of_the_reference_and_of_nothing_else(script) -> None:
    found = script.lines_of(LANES["encoder cache"].trace(0, None))
    folder = Path(script.reference.__path__[0])
    assert {Path(code.co_filename) for code, _ in found} >= {folder / "encoder_cache.py"}
    assert all(Path(code.co_filename).is_relative_to(folder) for code, _ in found)
    assert sys.gettrace() is None


def test_the_same_trace_again_runs_no_new_line(script) -> None:
    trace = LANES["encoder cache"].trace(0, None)
    first, again = script.news_of([trace, trace])
    assert first > 50
    assert again == 0
