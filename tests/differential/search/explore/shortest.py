"""The shortest trace by which an exploration says that a contract is broken."""

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.search.explore.scope import Scope
from cacheproof.differential.search.explore.search import explore
from cacheproof.differential.search.gallery.kill_matrix import Variant, target_of
from cacheproof.differential.traces.trace_file import dump, parse


def judge_shortest(
    variant: Variant, scope: Scope, contract: str, events: int
) -> tuple[Violation, Violation]:
    """Of a faulty variant: the trace has so many events, is the same from a file, and breaks the
    contract with the last of them. Returns what was found, and what the trace shows by itself."""
    target, fault = target_of(variant), variant.fault
    found = explore(target, scope, fault=fault, until={contract}.issubset)
    violation, trace = found.broken[contract]
    assert len(trace.events) == events
    assert parse(dump(trace).encode().splitlines(), "the trace") == trace
    again = examine(trace, target.run([trace], fault)[0], target).violations[contract]
    assert again.event == events - 1
    assert again.contract is violation.contract
    shorter = trace.with_events(trace.events[:-1])
    assert contract not in examine(shorter, target.run([shorter], fault)[0], target).violations
    return violation, again
