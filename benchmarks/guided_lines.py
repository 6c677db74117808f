"""How long what a trace meets says anything, and what it costs to watch lines.

    .venv/bin/python benchmarks/guided_lines.py

Of the first traces of a lane: in how many of each row a line of reference/ is run that no earlier
trace ran, how many times as long a trace takes that is watched with sys.settrace, and how many
rare states and pairs of them are met, by powers of two of how often. A host of a release runs in
that release's interpreter, which has no sys.monitoring before Python 3.12.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from types import CodeType, FrameType
from typing import Any

from guided_choices import as_today, pairs_met
from guided_faults import IDEAL

from cacheproof import reference
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.traces.trace import Trace

WATCHED = ("scheduler", "scheduler with KV loads", "KV cache")
ROWS = (0, 10, 25, 50, 100, 200)
Line = tuple[CodeType, int]


def lines_of(trace: Trace) -> set[Line]:
    """The lines of the reference that a trace runs."""
    found: set[Line] = set()
    folder = f"{reference.__path__[0]}/"

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(folder):
            return None
        if event == "line":
            found.add((frame.f_code, frame.f_lineno))
        return watch

    sys.settrace(watch)
    try:
        IDEAL.run([trace])
    finally:
        sys.settrace(None)
    return found


def news_of(traces: list[Trace]) -> list[int]:
    """How many lines each trace runs that none before it did."""
    known: set[Line] = set()
    news = []
    for trace in traces:
        here = lines_of(trace)
        news.append(len(here - known))
        known |= here
    return news


def pairs_of(traces: list[Trace]) -> Counter[str]:
    """In how many traces each rare state and pair of them is met."""
    counted: Counter[str] = Counter()
    for trace in traces:
        reach = Reachability()
        examine(trace, IDEAL.run([trace])[0], IDEAL, None, reach)
        counted.update(pairs_met(reach))
    return counted


def table() -> Iterator[str]:
    """Of each lane: traces with a new line, times as long, pairs, and how many of them are met by
    one trace in fifty or more."""
    heads = [f"{first + 1} to {last}" for first, last in pairwise(ROWS)]
    heads += ["times as long", "pairs", "in one trace in fifty"]
    yield f"| traces with a new line among | {' | '.join(heads)} |"
    yield f"|---|{'--:|' * len(heads)}"
    for lane in WATCHED:
        traces = list(islice(as_today(lane, 0), ROWS[-1]))
        started = time.process_time()
        IDEAL.run(traces)
        bare = time.process_time() - started
        started = time.process_time()
        news = news_of(traces)
        watched = time.process_time() - started
        rows = [sum(one > 0 for one in news[first:last]) for first, last in pairwise(ROWS)]
        pairs = pairs_of(traces)
        often = sum(50 * met >= len(traces) for met in pairs.values())
        cells = [*map(str, rows), f"{watched / bare:.1f}", str(len(pairs)), str(often)]
        yield f"| {lane} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table()))
