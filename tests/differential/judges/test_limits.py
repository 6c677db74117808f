"""A refusal is the release's fault where it has no documented reason, and else no finding."""

import msgspec

from cacheproof.differential.judges.examination import Examination, examine
from cacheproof.differential.judges.limits import way_of
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.protocol import REFUSED, RefusedByRelease
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult, records_of
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics

REASON = "max_num_batched_tokens (16) is too small"
TRACE = LANES["scheduler"].trace(0, "0.33.0")


def with_config(**fields: object) -> Trace:
    config = TRACE.header.config
    assert isinstance(config, SchedulerConfig)
    changed = msgspec.structs.replace(config, **fields)
    return Trace(msgspec.structs.replace(TRACE.header, config=changed), TRACE.events)


def refused(trace: Trace, release: str | None = "0.33.0") -> Examination:
    refusal = RefusedByRelease(ValueError(), REASON)
    result = TraceResult(records_of(refusal.records), illegal=REASON)
    semantics = Semantics.of_vllm(release or "0.33.0")
    target = ReferenceTarget(semantics, release=release)
    return examine(trace, result, target, target)


def test_a_refusal_within_all_limits_breaks_a_contract_and_parts_from_the_reference() -> None:
    seen = refused(TRACE)
    assert seen.illegal is None
    assert seen.by_kind.keys() == {("SC-18", "max_num_batched_tokens (N) is too small")}
    assert seen.violations["SC-18"].event == 0
    assert seen.difference is not None


def test_a_refusal_of_what_is_beyond_a_limit_is_no_finding() -> None:
    seen = refused(with_config(max_num_seqs=1_000))
    assert seen.illegal == REASON
    assert not seen.violations
    assert seen.difference is None


def test_a_release_before_the_limits_are_known_is_not_accused() -> None:
    assert refused(TRACE, "0.12.0").illegal == REASON


def test_what_a_release_lacks_is_no_finding() -> None:
    target = ReferenceTarget(Semantics.of_vllm("0.33.0"), release="0.33.0")
    seen = examine(TRACE, TraceResult([], illegal="the release has no such thing"), target)
    assert seen.illegal == "the release has no such thing"


def test_a_refused_request_is_judged_where_it_arrives() -> None:
    target = ReferenceTarget()
    result = target.run([TRACE], "refuses_requests")[0]
    assert result.illegal is not None
    seen = examine(TRACE, result, target)
    assert seen.violations["SC-18"].event == len(result.records) - 1
    raised = result.records[-1].raised
    assert raised is not None
    assert raised.type == f"{REFUSED}ValueError"


def test_refusals_that_differ_in_numbers_alone_are_of_one_kind() -> None:
    assert way_of("(12) is larger than 8") == way_of("(16) is larger than 16")
