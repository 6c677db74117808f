"""A real engine's worker says itself what it has."""

from collections.abc import Callable

import pytest

from cacheproof.differential.findings.timeline.model import broken_by, timeline
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.retrace import Retrace
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.traces.trace import Trace
from tests.differential.findings.timeline.runs import group, kinds_at, value_at

pytestmark = pytest.mark.full


def test_the_store_of_an_engine_is_its_workers_own(
    engine: HostTarget, finding: Callable[[str], Trace]
) -> None:
    trace = finding("another-sound")
    (result,) = engine.run([trace])
    broken = broken_by(examine(trace, result, engine).violations.values(), subject="EQ-1")
    retrace = Retrace(
        trace, result.records, engine.release, engine.protocol, result.capacity
    ).moments()
    shown = timeline(trace.header, retrace, broken, target=engine.name)
    assert shown.title.startswith("engine@0.32.0: EQ-1 at event 9")
    store, blocks = group(shown, "Worker's store"), group(shown, "KV blocks")
    assert store.note == "as the worker says"
    held: dict[str, int] = {}
    for at, record in enumerate(result.records):
        held = record.outcome.get("store", held)
        assert kinds_at(store, at) == dict.fromkeys(held, "stored")
        if "free_blocks" in record.outcome:
            assert value_at(blocks.charts[0], at) == record.outcome["free_blocks"]
    assert held
