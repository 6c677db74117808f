"""Whether a search that learns finds faults sooner: events until the first trace that breaks a
contract, for each fault of guided.json and each way to make traces.

    .venv/bin/python benchmarks/guided.py --half "held out" --ways today feedback --bases 0:10
    .venv/bin/python benchmarks/guided.py --page

What is run is appended to guided.jsonl; the page is docs/guided-search.md.
"""

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from guided_choices import WAYS
from guided_faults import Listed, fault_of, listed, unmodified
from guided_page import write
from guided_ratios import OUTCOMES, Outcome, outcomes, span

from cacheproof.differential.targets.host.session import calm_collector

TRACES = 250


def measure(
    way: str, faults: Sequence[Listed], bases: Iterable[int], traces: int
) -> Iterator[Outcome]:
    """Every fault on the traces of each base, until one breaks a contract; faults of a lane are run
    over the same traces. Ways learn from the unmodified reference, so they make the same traces
    whatever the fault."""
    runs = {one: fault_of(one) for one in faults}
    for lane, base in itertools.product(sorted({one.lane for one in faults}), bases):
        pending = [one for one in faults if one.lane == lane]
        events = 0
        for number, trace in enumerate(itertools.islice(WAYS[way](lane, base), traces), 1):
            events += len(trace.events)
            expected = unmodified(trace)
            for one in list(pending):
                if runs[one].breaks(trace, expected):
                    pending.remove(one)
                    yield Outcome(way, lane, one.words, base, traces, number, events)
            if not pending:
                break
        for one in pending:
            yield Outcome(way, lane, one.words, base, traces, None, events)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--half", choices=("tuning", "held out"), help="of the faults; else all")
    parser.add_argument("--ways", nargs="+", choices=[*WAYS], default=[*WAYS])
    parser.add_argument("--bases", type=span, default="0:10", help="A:B; default: %(default)s")
    parser.add_argument("--traces", type=int, default=TRACES, help="at most; default: %(default)s")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    calm_collector()
    if not given.page:
        faults = [one for one in listed() if given.half in (None, one.half)]
        for way in given.ways:
            for outcome in measure(way, faults, given.bases, given.traces):
                with OUTCOMES.open("ab") as file:
                    file.write(msgspec.json.encode(outcome) + b"\n")
    write(outcomes())


if __name__ == "__main__":
    main()
