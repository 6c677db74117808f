"""What it costs to make the traces of each way.

.venv/bin/python benchmarks/guided_costs.py
"""

import time
from collections.abc import Iterator
from itertools import islice

from guided_choices import WAYS
from guided_faults import IDEAL

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability

COSTED = 60
LANES_COSTED = ("scheduler", "KV cache")


def costs(lane: str) -> dict[str, float]:
    """Microseconds of this process for each event: to make the traces of each way, and to run and
    judge those of today's on the reference."""
    found: dict[str, float] = {}
    for way, make in WAYS.items():
        started = time.process_time()
        traces = [*islice(make(lane, 0), COSTED)]
        spent = time.process_time() - started
        found[way] = 1e6 * spent / sum(len(trace.events) for trace in traces)
        if way == "today":
            started = time.process_time()
            for trace in traces:
                examine(trace, IDEAL.run([trace])[0], IDEAL, None, Reachability())
            spent = time.process_time() - started
            found["run and judged"] = 1e6 * spent / sum(len(trace.events) for trace in traces)
    return found


def table() -> Iterator[str]:
    """The costs of some lanes, in microseconds of this process for an event."""
    rows = {lane: costs(lane) for lane in LANES_COSTED}
    names = ["run and judged", *WAYS]
    yield f"| lane | {' | '.join(names)} |"
    yield f"|---|{'--:|' * len(names)}"
    for lane, spent in rows.items():
        yield f"| {lane} | {' | '.join(f'{spent[name]:.0f}' for name in names)} |"


if __name__ == "__main__":
    print("\n".join(table()))
