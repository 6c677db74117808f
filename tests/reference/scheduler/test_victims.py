"""What becomes of what a step had decided for a request that the same step preempts: of no release
anything good. Each of these flags takes a fault away, and changes nothing before the preemption. To
spare who is scheduled has a less urgent request go on (SC-13): it is a cause, and no mend."""

import pytest

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace_file import parse
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.semantics import Semantics

NEWEST = Semantics.of_vllm("0.33.0")
TAKES_AWAY = [
    ("phantom-entry", "scheduler.hands_on_encodes", {"WM-1", "WM-2"}),
    ("orphan-load", "scheduler.keeps_loads", {"EC-9", "WM-1", "WM-3", "WM-4"}),
    ("uncomputed-hit", "scheduler.forgets_uncomputed", {"SC-15"}),
    ("lost-budget", "scheduler.keeps_returned_budget", {"SC-12", "WM-1"}),
    ("lost-budget", "scheduler.hands_on_encodes", {"WM-1"}),
    ("orphan-load", "scheduler.spares_scheduled", {"CP-4", "EC-9", "WM-1", "WM-3", "WM-4"}),
]


def ran(finding: str, semantics: Semantics) -> tuple[TraceResult, set[str]]:
    """What a scheduler makes of a kept trace, and what it breaks."""
    path = kept_traces()[finding]
    with path.open("rb") as lines:
        trace = parse(lines, path.name)
    target = ReferenceTarget(semantics, release="0.33.0")
    (result,) = target.run([trace])
    assert result.illegal is None
    return result, set(examine(trace, result, target).violations)


@pytest.mark.parametrize(("finding", "flag", "contracts"), TAKES_AWAY)
def test_a_flag_takes_away_what_its_fault_breaks_from_the_faulty_decision_on(
    finding: str, flag: str, contracts: set[str]
) -> None:
    as_released, broken = ran(finding, NEWEST)
    mended, still_broken = ran(finding, NEWEST.changed({flag: True}))
    assert broken - still_broken == contracts
    assert still_broken - broken == ({"SC-13"} if flag == "scheduler.spares_scheduled" else set())
    difference = compare(as_released, mended)
    assert difference is not None
    preempting = next(
        number
        for number, record in enumerate(as_released.records)
        if isinstance(record.outcome, dict) and record.outcome.get("preempted")
    )
    assert difference.event >= preempting


def test_where_running_requests_are_visited_by_urgency_no_victim_is_in_the_step() -> None:
    ideal = Semantics.ideal()
    flags = {flag: False for _, flag, _ in TAKES_AWAY}
    for finding in dict.fromkeys(finding for finding, _, _ in TAKES_AWAY):
        with_all, without = ran(finding, ideal), ran(finding, ideal.changed(flags))
        assert with_all == without
        assert with_all[1] == set()
