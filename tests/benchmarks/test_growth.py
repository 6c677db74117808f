from types import ModuleType

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.releases import NEWEST


def test_in_each_step_of_a_trace_all_requests_decode(script: ModuleType) -> None:
    target = ReferenceTarget()
    trace = script.trace_of(3, 100, 2 * script.ANSWER_TOKENS)
    (result,) = target.run([trace])
    assert not examine(trace, result, target).broken
    running = [
        len(record.outcome["scheduled"])
        for event, record in zip(trace.events, result.records, strict=True)
        if type(event).__name__ == "Schedule"
    ]
    assert running == [3] * (2 * script.ANSWER_TOKENS)


def test_a_row_is_compared_step_by_step_and_measured(script: ModuleType) -> None:
    host, judge, most = script.measured(NEWEST, 2, 100, 20)
    assert host >= 0
    assert judge > 0
    assert most > 0
