"""The reference's decisions, executed by an engine's runner, at engine depth."""

from typing import TYPE_CHECKING

from cacheproof.differential.targets import reference_scheduler
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

if TYPE_CHECKING:
    from cacheproof.differential.targets.reference import ReferenceTarget


def is_there(target: "ReferenceTarget") -> bool:
    """Whether that reference has a runner."""
    return target.runner is not None


def runs(target: "ReferenceTarget", trace: Trace) -> bool:
    """Whether that reference can run the trace."""
    return is_there(target) and reference_scheduler.runs(target, trace)


def run(target: "ReferenceTarget", trace: Trace, fault: str | None) -> TraceResult:
    """The records of what it decides, and of what the runner makes of it."""
    assert target.runner is not None
    return target.runner.run([trace], fault, target.turned)[0]
