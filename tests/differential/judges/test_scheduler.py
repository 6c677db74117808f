"""What schedulers of releases break, and the ideal one does not: beside `stories/`, what changes a
judge, or takes long."""

import pytest

from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.scheduler_position import SchedulerPosition
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.reference.semantics import Semantics
from tests.differential.scheduler_traces import trace


@pytest.mark.full
def test_the_ideal_scheduler_breaks_nothing() -> None:
    ideal = ReferenceTarget()
    for seed in range(300):
        trace = scheduler_trace(seed)
        assert examine(trace, ideal.run([trace])[0], ideal).broken == set(), seed


def test_what_a_rejected_draft_computed_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter has not read past the item of a prompt's last token while its draft is rejected."""
    padded = trace(
        Add("b", 1, max_tokens=2),
        Schedule(),
        Add("a", 1, (Item("x", 0, 1),), max_tokens=2),
        Add("c", 1, (Item("y", 0, 1),)),
        Update(),
        Schedule(),
        Update(),
        num_speculative_tokens=1,
        drafter=True,
    )
    target = ReferenceTarget(Semantics.of_vllm("0.31.0"), release="0.31.0")
    result = target.run([padded])[0]
    assert result.records[5][0]["drafts"]["a"] == 1
    assert "CP-5" not in examine(padded, result, target).violations
    monkeypatch.setattr(SchedulerPosition, "follow_rejected", lambda *_: None)
    assert "CP-5" in examine(padded, result, target).violations
