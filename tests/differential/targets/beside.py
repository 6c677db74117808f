"""An engine beside the torch runner, on traces of engines."""

from typing import Any

import msgspec

from cacheproof.differential.judges.examination import Examination, examine
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

LISTED = {"EC-8b", "LV-1", "SC-4", "WM-3a"}
"""What the release breaks of itself: see faults/; EC-8b costs efficiency alone, LV-1 is broken
with a drafter alone, and SC-4 where items must be whole."""
LISTED_OF_DECODERS = {"ED-1", "ED-2", "ED-5", "EQ-1", "WM-3", "WM-3a"}


def replace_config(trace: Trace, **values: Any) -> Trace:
    """The trace under another configuration."""
    config = msgspec.structs.replace(trace.header.config, **values)
    return Trace(msgspec.structs.replace(trace.header, config=config), trace.events)


def beside_runner(
    trace: Trace, engine: HostTarget, runner: ReferenceTarget
) -> tuple[TraceResult, Examination]:
    """What an engine answers, and what is said of it beside the runner."""
    (result,) = engine.run([trace])
    return result, examine(trace, result, engine, runner)


def answered_alike(
    trace: Trace, engine: HostTarget, runner: ReferenceTarget, *, but: str | None = None
) -> TraceResult:
    """What an engine answers; as the runner does, and nothing is broken that is not listed: of
    every release, or as kinds of the fault that is called `but`."""
    result, examination = beside_runner(trace, engine, runner)
    assert examination.illegal is None
    assert examination.difference is None
    is_decoder = trace.header.manager == "encoder_decoder"
    listed = LISTED_OF_DECODERS if is_decoder else LISTED
    others = [one for one in examination.by_kind if one[0] not in listed]
    assert all(
        but in [fault.name for fault in may_be(load(), *one, engine.release)] for one in others
    )
    return result


def refusal_of(target: HostTarget | ReferenceTarget, trace: Trace) -> str:
    """Why a target does not run a trace."""
    (result,) = target.run([trace])
    assert result.illegal is not None
    return result.illegal
