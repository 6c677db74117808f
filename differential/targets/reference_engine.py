"""The reference's decisions, executed by an engine's runner, at engine depth."""

from typing import Any

from cacheproof.differential.targets import reference_scheduler
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace


def is_there(target: Any) -> bool:
    """Whether that reference has a runner."""
    return target.runner is not None


def runs(target: Any, trace: Trace) -> bool:
    """Whether that reference can run the trace."""
    return is_there(target) and reference_scheduler.runs(target, trace)


def run(target: Any, trace: Trace, fault: str | None) -> TraceResult:
    """The records of what it decides, and of what the runner makes of it."""
    results: list[TraceResult] = target.runner.run([trace], fault, target.turned)
    return results[0]
